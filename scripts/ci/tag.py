"""Tags pushed images as the last step of publishing: with the tag of the plan, then with a name that moves.

The records come from the output of `compare` and not from artifacts, because any job of the run can write artifacts,
even after the comparison. No tag is written until the registry has returned every manifest, and none when the plan of
an image has another digest there already (exit code 8): equal plans are equal images. The moving name is written only
when COMMIT is the last commit of its branch: a run of an older commit, or one that is run again, never moves it back.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from common import Record, parsed

from builder.errors import BuilderError, DiffersError, InvalidError, PinError
from builder.model.reference import Reference
from builder.registry.client import Registry


def main() -> int:
    parser = argparse.ArgumentParser(prog="tag", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", metavar="JSON", help="the output `images` of compare")
    parser.add_argument("--name", default="latest", help="the name that moves; default: latest")
    parser.add_argument("--commit", default="", help="the commit of the images")
    parser.add_argument("--tip", default="", metavar="COMMIT", help="the last commit of the branch")
    arguments = parser.parse_args()
    try:
        return run(
            listed(arguments.images), arguments.name, newest=bool(arguments.tip) and arguments.commit == arguments.tip
        )
    except BuilderError as error:
        print(f"tag: {error}", file=sys.stderr)
        return int(error.code)


def listed(text: str) -> list[Record]:
    """The records of an output. Raises InvalidError."""
    try:
        items: Any = json.loads(text)
    except ValueError:
        items = None
    if not isinstance(items, list):
        raise InvalidError("is no list of records", id="records-invalid", where="the output of compare")
    return [parsed(json.dumps(item), f"image {number}") for number, item in enumerate(items, 1)]


def run(found: list[Record], name: str, *, newest: bool) -> int:
    """Write the tags. newest: whether the images are of the last commit."""
    registry = Registry()
    pushed = [(record, Reference.parse(record.reference)) for record in found if record.reference]
    if not pushed:
        print("tag: no image is pushed", file=sys.stderr)
        return 2
    manifests = [registry.manifest(reference) for _, reference in pushed]
    for record, reference in pushed:
        refuse_another(registry, Reference(reference.registry, reference.repository, plan_tag(record.plan)), record)
    if not newest:
        print(f"tag: these images are not of the last commit, so {name} stays where it is", file=sys.stderr)
    for kind in ("plan", name) if newest else ("plan",):
        for (record, reference), manifest in zip(pushed, manifests, strict=True):
            tag = plan_tag(record.plan) if kind == "plan" else kind
            named = Reference(reference.registry, reference.repository, tag)
            registry.put_manifest(named, manifest.data, manifest.media_type)
            print(f"{named}@{manifest.digest}")
    return 0


def refuse_another(registry: Registry, tagged: Reference, record: Record) -> None:
    """Raises DiffersError when the tag of a plan is that of another image."""
    if (there := published(registry, tagged)) not in (None, record.digest):
        raise DiffersError(
            f"is {there} already, and this build is {record.digest}",
            id="publish-differs",
            where=str(tagged),
            cause="one plan has two images: a build is not reproducible, or somebody moved the tag",
            next=f"builder diff {tagged} {record.reference}",
        )


def published(registry: Registry, tagged: Reference) -> str | None:
    """The digest of a tag, or None. Raises NetworkError when the registry does not answer."""
    try:
        return registry.manifest(tagged).digest
    except PinError:
        return None


def plan_tag(plan: str) -> str:
    """The tag that identifies the image of a plan."""
    return f"plan-{plan[:16]}"


def target(repository: str, recipe: str, tag: str) -> Reference:
    """The reference of a recipe's image below a repository."""
    return Reference.parse(f"{repository.lower()}/{recipe}:{tag}")


if __name__ == "__main__":
    sys.exit(main())
