"""`builder fsck` finds every kind of damage in a real store, and the next build is as the first."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from builder.store.fsck import check
from builder.store.removal import remove
from builder.store.store import Store
from tests.support.cli import Cli


def layer(root: Path) -> tuple[Path, dict[str, str]]:
    """The record of the layer `placed`, the smallest."""
    found = [(path, json.loads(path.read_text())) for path in (root / "layers").iterdir()]
    return min(found, key=lambda item: item[1]["tar_size"])


def blob(root: Path, member: str = "digest") -> Path:
    return root / "blobs" / "sha256" / layer(root)[1][member].removeprefix("sha256:")


def write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def replaced(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def image(root: Path) -> Path:
    return next((root / "images").iterdir())


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped byte": (lambda root: write(blob(root), b"x" + blob(root).read_bytes()[1:]), "its bytes hash to"),
    "a cut blob": (lambda root: write(blob(root), blob(root).read_bytes()[:-1]), "its bytes hash to"),
    "an empty blob": (lambda root: write(blob(root), b""), "its bytes hash to"),
    "a link": (lambda root: replaced(blob(root)), "a link, a pipe or a folder"),
    "a folder": (lambda root: (root / "blobs/sha256" / ("0" * 64)).mkdir(), "a link, a pipe or a folder"),
    "a stranger": (lambda root: write(root / "blobs/sha256/notes.txt", b"x"), "not the name of a blob"),
    "a lost blob": (lambda root: blob(root).unlink(), "is missing"),
    "a lost listing": (lambda root: blob(root, "listing").unlink(), "is missing"),
    "a receipt that is too large": (
        lambda root: os.truncate(blob(root, "receipt"), (64 << 20) + 1),
        "its receipt cannot be read: larger than",
    ),
    "a receipt that is a pipe": (
        lambda root: (blob(root, "receipt").unlink(), os.mkfifo(blob(root, "receipt"))),
        "is missing",
    ),
    "a lost receipt": (lambda root: blob(root, "receipt").unlink(), "is missing"),
    "half a record": (lambda root: write(layer(root)[0], layer(root)[0].read_bytes()[:50]), "damaged or incomplete"),
    "a changed record": (
        lambda root: write(layer(root)[0], layer(root)[0].read_bytes().replace(b'"entries": ', b'"entries": 1')),
        "damaged or incomplete",
    ),
    "a record of another key": (lambda root: layer(root)[0].rename(root / "layers" / f"{'a' * 64}.json"), "damaged or"),
    "a record of no key": (lambda root: write(root / "layers" / "x.y.json", b"{}"), "damaged or incomplete"),
    "half an image": (lambda root: write(image(root), b"{"), "damaged"),
    "an image without manifest": (
        lambda root: (root / "blobs/sha256" / json.loads(image(root).read_text())["digest"][7:]).unlink(),
        "its manifest is missing",
    ),
}


def test_damage_is_found_and_repaired(online: Cli) -> None:
    root, damaged = online.folder / "store", online.folder / "damaged"
    digest = online("build", "--recipe", "tiny").out
    clean = online("fsck")
    assert clean.code == 0 and clean.out.endswith(f"at {root}: clean\n"), clean.err
    for fault, (plant, problem) in FAULTS.items():
        shutil.copytree(root, damaged)
        plant(damaged)
        store = Store(damaged)
        assert any(problem in item.problem for item in check(store, repair=False).faults), fault
        check(store, repair=True)
        assert check(store, repair=False).faults == [], fault
        if fault in ("a flipped byte", "a changed record"):
            assert online("build", "--recipe", "tiny", BUILDER_STORE=str(damaged)).out == digest
        remove(damaged)


def test_the_command(online: Cli) -> None:
    root = online.folder / "store"
    assert online("build", "--recipe", "tiny").code == 0
    write(blob(root), b"")
    found = online("fsck")
    found.failed(4, "store-damaged")
    assert "damaged: blobs/sha256/" in found.err and "its bytes hash to" in found.err
    done = json.loads(online("fsck", "--repair", "--json").out)
    assert done["repaired"] and [item["problem"] for item in done["faults"]][1].endswith("is missing")
    assert online("fsck").code == 0


def test_a_record_of_an_image_with_other_types_counts_as_absent(cli: Cli) -> None:
    folder = cli.folder / "store" / "images"
    folder.mkdir(parents=True)
    layers = [{"id": "a", "key": "b", "params": "not a mapping"}]
    record = {"recipe": "x", "base": "y", "digest": f"sha256:{'0' * 64}", "layers": layers}
    (folder / "x.json").write_text(json.dumps(record))
    assert cli("images").code == 0
