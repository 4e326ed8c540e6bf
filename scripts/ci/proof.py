"""Rebuilds every distinct layer of the hermetic recipes on this machine, or makes a page of such rebuilds.

`proof run` builds each recipe, rebuilds the layers that no earlier recipe has with `builder verify`, and writes
FOLDER/ARCHITECTURE-ENGINE-BASE.json. `proof write` reads the records of several machines below a folder and prints
the page. The exit code is 8 when a rebuild, a variation or another machine made another digest.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from common import CommandFailed, builder
from matrix import targets

DIFFERS = 8


@dataclass
class Layer:
    """A layer that was built and rebuilt. same: both made this digest. varied, changed: names of variations."""

    name: str
    key: str
    digest: str
    same: bool
    varied: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


@dataclass
class Run:
    """What one machine built. options: of every command. images, bases: by recipe. layers: by key."""

    architecture: str
    engine: str
    builder: str
    day: str
    options: str
    bases: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.architecture}, {self.engine}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="proof", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--recipe", action="append", metavar="NAME", help="default: all that have a hermetic base")
    run.add_argument("--base", default="hermetic")
    run.add_argument("--engine", required=True, choices=("docker", "buildah"))
    run.add_argument("--vary", default="", metavar="GROUPS", help="also rebuild unpacked layers under these variations")
    run.add_argument("--vary-compiled", default="", metavar="GROUPS", help="the same for compiled layers")
    run.add_argument("--set", action="append", default=[], metavar="LAYER.PARAMETER=VALUE")
    run.add_argument("--results", type=Path, required=True, metavar="FOLDER")
    write = commands.add_parser("write")
    write.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "write":
        runs = read(arguments.folder)
        if not runs:
            print(f"proof: no records below {arguments.folder}", file=sys.stderr)
            return 2
        print(page(runs), end="")
        return 0 if all(agreed(runs)) else DIFFERS
    try:
        return prove(arguments)
    except CommandFailed as error:
        return error.code


def prove(arguments: argparse.Namespace) -> int:
    """Build and rebuild on this machine. Returns the exit code. Raises CommandFailed when a build fails."""
    common = [word for value in arguments.set for word in ("--set", value)]
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    made = Run(
        architecture,
        arguments.engine,
        builder("--version").split()[-1],
        datetime.now(UTC).strftime("%Y-%m-%d"),
        " ".join([f"--base {arguments.base}", *(f"--set {value!r}" for value in arguments.set)]),
    )
    names = arguments.recipe or [name for name, base in targets(None).items() if base == "hermetic"]
    good = True
    engine = ("--engine", arguments.engine)
    for name in names:
        recipe = ("--recipe", name, "--base", arguments.base, *common)
        try:
            plan = json.loads(builder("plan", *recipe, "--json", quiet=not arguments.recipe))
        except CommandFailed:
            if arguments.recipe:
                raise
            print(f"proof: {name} does not fit the base {arguments.base}", file=sys.stderr)
            continue
        image = (*recipe, *engine)
        built = json.loads(builder("build", *image, "--json"))
        made.images[name], made.bases[name] = built["digest"], built["base"]
        compiled = {layer["id"] for layer in plan["layers"] if layer["producer"] == "dockerfile"}
        new = {item["id"]: item for item in built["layers"] if item["digest"] and item["key"] not in made.layers}
        for groups, layers in (
            (arguments.vary, {id: item for id, item in new.items() if id not in compiled}),
            (arguments.vary_compiled, {id: item for id, item in new.items() if id in compiled}),
        ):
            if layers:
                good &= rebuild(made, layers, [*image, *(("--vary", groups) if groups else ())])
        arguments.results.mkdir(parents=True, exist_ok=True)
        file = arguments.results / f"{made.architecture}-{made.engine}-{arguments.base}.json"
        file.write_text(json.dumps(asdict(made), indent=1) + "\n", "utf-8")
    return 0 if good else DIFFERS


def rebuild(made: Run, new: dict[str, dict[str, str]], words: Iterable[str]) -> bool:
    """Verify some layers of an image and add them to the record; whether all stayed the same."""
    only = [word for name in new for word in ("--layer", name)]
    try:
        text = builder("verify", *words, *only, "--json")
    except CommandFailed as error:
        if error.code != DIFFERS or not error.output.startswith("{"):
            raise
        text = error.output
    said = json.loads(text)
    for part in said["parts"]:
        if part["part"] in new:
            item = new[part["part"]]
            made.layers[item["key"]] = Layer(
                part["part"], item["key"], part["got"], part["outcome"] == "identical" and part["got"] == item["digest"]
            )
    layers = {layer.name: layer for layer in made.layers.values() if layer.name in new}
    for row in said.get("variations", ()):
        changed = {item["layer"] for item in row["changed"]} or (
            {*row["layers"]} if row["outcome"] == "differs" else set()
        )
        for name in row["layers"] if row["outcome"] != "not varied" else ():
            (layers[name].changed if name in changed else layers[name].varied).append(row["variation"])
    return all(layer.same and not layer.changed for layer in layers.values())


def read(folder: Path) -> list[Run]:
    """The records below a folder, by architecture and engine."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        data = json.loads(path.read_text("utf-8"))
        data["layers"] = {key: Layer(**layer) for key, layer in data["layers"].items()}
        found.append(Run(**data))
    return found


def agreed(runs: list[Run]) -> Iterable[bool]:
    """Whether each layer and image is the same in all records."""
    for key in {key: None for run in runs for key in run.layers}:
        layers = [run.layers[key] for run in runs if key in run.layers]
        yield len({layer.digest for layer in layers}) == 1 and all(item.same and not item.changed for item in layers)
    for name in {name: None for run in runs for name in run.images}:
        yield len({run.images[name] for run in runs if name in run.images}) == 1


def page(runs: list[Run]) -> str:
    """The page, as Markdown."""
    lines = [
        "# Proof",
        "",
        "Every layer of these images was built, and built again in an empty store. `scripts/ci/run proof` makes this",
        "page.",
        "",
        "| machine | engine | builder | date | options | images | layers |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {run.architecture} | {run.engine} | {run.builder} | {run.day} | `{run.options}` | {len(run.images)} | "
            f"{len(run.layers)} |"
            for run in runs
        ),
        "",
        "Repeat it:",
        "",
        *(f"    scripts/ci/run proof run --engine {run.engine} {run.options} --results proof" for run in runs[:1]),
        "    scripts/ci/run proof write proof",
        "",
        "## Images",
        "",
        "| recipe | base | digest | made by |",
        "|---|---|---|---|",
    ]
    for name in {name: None for run in runs for name in run.images}:
        digests: dict[str, list[str]] = {}
        for run in runs:
            if name in run.images:
                digests.setdefault(run.images[name], []).append(run.name)
        base = next(run.bases[name] for run in runs if name in run.bases)
        lines += [f"| {name} | {base} | `{digest}` | {'; '.join(by)} |" for digest, by in digests.items()]
    lines += [
        "",
        "## Layers",
        "",
        "*rebuilt by*: a build and a rebuild there made this digest. *variations*: it also stayed the same under so",
        "many [variations of the machine](verify.md#variations-of-the-machine).",
        "",
        "| layer | key | digest | rebuilt by | variations | not the same |",
        "|---|---|---|---|---|---|",
    ]
    for key in {key: None for run in runs for key in run.layers}:
        lines += _rows(key, runs)
    return "\n".join(lines) + "\n"


def _rows(key: str, runs: list[Run]) -> Iterable[str]:
    layers = [(run, run.layers[key]) for run in runs if key in run.layers]
    for digest in {layer.digest: None for _, layer in layers}:
        these = [(run, layer) for run, layer in layers if layer.digest == digest]
        same = "; ".join(run.name for run, layer in these if layer.same)
        varied = {name for _, layer in these for name in layer.varied}
        wrong = [f"{run.name}: {', '.join(layer.changed) or 'rebuild'}" for run, layer in these if _wrong(layer)]
        short = digest.removeprefix("sha256:")[:12]
        yield f"| {these[0][1].name} | {key[:12]} | {short} | {same} | {len(varied)} | {'; '.join(wrong)} |"


def _wrong(layer: Layer) -> bool:
    return not layer.same or bool(layer.changed)


if __name__ == "__main__":
    sys.exit(main())
