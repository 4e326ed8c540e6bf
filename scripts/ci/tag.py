"""Tags pushed images as the last step of publishing: first with the tag of the plan, then with `latest`.

The records come from the output of `compare` and not from artifacts, because any job of the run can write artifacts,
even after the comparison. No tag is written until the registry has returned every manifest.
"""

from __future__ import annotations

import argparse
import json
import sys

from common import Record

from builder.errors import BuilderError
from builder.model.reference import Reference
from builder.registry.client import Registry


def main() -> int:
    parser = argparse.ArgumentParser(prog="tag", description=__doc__)
    parser.add_argument("images", metavar="JSON", help="the output `images` of compare")
    arguments = parser.parse_args()
    try:
        return run([Record(**item) for item in json.loads(arguments.images)])
    except BuilderError as error:
        print(f"tag: {error}", file=sys.stderr)
        return int(error.code)


def run(found: list[Record]) -> int:
    registry = Registry()
    pushed = [(record, Reference.parse(record.reference)) for record in found if record.reference]
    if not pushed:
        print("tag: no image is pushed", file=sys.stderr)
        return 2
    manifests = [registry.manifest(reference) for _, reference in pushed]
    for name in ("plan", "latest"):
        for (record, reference), manifest in zip(pushed, manifests, strict=True):
            tag = plan_tag(record.plan) if name == "plan" else name
            named = Reference(reference.registry, reference.repository, tag)
            registry.put_manifest(named, manifest.data, manifest.media_type)
            print(f"{named}@{manifest.digest}")
    return 0


def plan_tag(plan: str) -> str:
    """The tag that identifies the image of a plan."""
    return f"plan-{plan[:16]}"


def target(repository: str, recipe: str, tag: str) -> Reference:
    """The reference of a recipe's image below a repository."""
    return Reference.parse(f"{repository.lower()}/{recipe}:{tag}")


if __name__ == "__main__":
    sys.exit(main())
