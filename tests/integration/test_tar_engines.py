"""What is checked is what runs: layers that are not refused have the files that a container engine unpacks."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from builder.errors import InvalidError
from builder.smoke.image.opened import open_image
from builder.smoke.image.tree import ImageTree
from builder.smoke.static.run import run_static
from tests.support.fuzz import times
from tests.support.images import layout
from tests.support.oddtars import END, FILE, READ, file, header, renamed

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="buildah mounts a root for root only"),
    pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed"),
]
SKOPEO = pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
Files = dict[str, tuple[object, ...]]
KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo"}


@contextmanager
def unpacked(image: Path) -> Iterator[Path | None]:
    """The root of an image, unpacked by buildah; None when buildah refuses it."""
    with tempfile.TemporaryDirectory() as storage:
        program = ["buildah", "--root", f"{storage}/root", "--runroot", f"{storage}/run", "--storage-driver", "vfs"]
        # buildah stops when the folder of docker's configuration has no file of logins.
        env = {name: value for name, value in os.environ.items() if name != "DOCKER_CONFIG"}
        made = subprocess.run([*program, "from", f"oci:{image}"], env=env, capture_output=True, text=True, check=False)
        if made.returncode:
            yield None
            return
        name = made.stdout.strip()
        mounted = subprocess.run([*program, "mount", name], capture_output=True, text=True, check=True)
        try:
            yield Path(mounted.stdout.strip())
        finally:
            subprocess.run([*program, "umount", name], capture_output=True, check=True)


def files_of_engine(root: Path) -> Files:
    """Every path of a root: kind, and unless it is a folder, mode, owner, group, link and content."""
    found: Files = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            seen = path.lstat()
            kind = KINDS[stat.S_IFMT(seen.st_mode)]
            link = os.readlink(path) if kind == "symlink" else ""  # noqa: PTH115
            data = path.read_bytes() if kind == "file" else b""
            found[str(path.relative_to(root))] = _row(kind, stat.S_IMODE(seen.st_mode), seen.st_uid, link, data)
    return found


def files_of_builder(image: Path, kept: Path) -> Files:
    """The same of what the checks see."""
    tree = ImageTree.of_image(open_image(image), kept, ["*"])
    return {
        path: _row(
            entry.kind,
            entry.mode,
            entry.uid,
            entry.link,
            tree.layers[entry.layer].kept[entry.source].read_bytes() if entry.kind == "file" else b"",
        )
        for path, entry in tree.entries.items()
    }


def _row(kind: str, mode: int, owner: int, link: str, data: bytes) -> tuple[object, ...]:
    # Folders that are no members have the mode that the engine likes.
    return (kind,) if kind == "dir" else (kind, 0o777 if kind == "symlink" else mode, owner, link, data)


def accepted(layers: Sequence[bytes], where: Path) -> bool:
    """Whether an image of these layers is read, alone."""
    try:
        files_of_builder(layout(where, layers, how="plain"), where)
    except InvalidError:
        return False
    return True


def compare(layers: Sequence[bytes], where: Path, *, may_refuse: bool) -> int:
    """Assert that buildah sees the files that the checks see; returns the number of layers that were compared.

    may_refuse: buildah may refuse some of the layers, which are then left out.
    """
    # buildah makes a name of the path, which it refuses for most temporary folders.
    image = layout(where / f"image{sum(1 for _ in where.iterdir())}", layers, how="gzip")
    with unpacked(image) as root:
        if root is not None:
            kept = Path(tempfile.mkdtemp(dir=where))
            there, here = files_of_engine(root), files_of_builder(image, kept)
            # buildah makes the folder of a whiteout that removes nothing.
            assert {path: what for path, what in there.items() if what != ("dir",) or path in here} == here
            return len(layers)
    assert may_refuse, "buildah refuses a layer that is read"
    if len(layers) == 1:
        return 0
    half = len(layers) // 2
    return compare(layers[:half], where, may_refuse=True) + compare(layers[half:], where, may_refuse=True)


def test_unusual_archives(tmp_path: Path) -> None:
    layers = [renamed(data, b"%03x" % number) for number, (data, _) in enumerate(READ.values())]
    assert compare(layers, tmp_path, may_refuse=False) == len(READ)


def test_changed_archives(tmp_path: Path) -> None:
    """Archives with a few changed bytes in their headers are refused, or buildah reads the same."""
    chance = random.Random(5)
    layers: list[bytes] = []
    for number in range(times(300)):
        data = bytearray(chance.choice([data for data, _ in READ.values()]))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(min(len(data), 2048))] = chance.choice([0, 32, 48, 49, 55, 128, 255, *b"xgLKS15/."])
        layer = renamed(bytes(data), b"%03x" % number)
        if accepted([layer], tmp_path / str(number)):
            layers.append(layer)
        shutil.rmtree(tmp_path / str(number))
    assert len(layers) > times(300) / 8
    compared = sum(
        compare(layers[start : start + 60], tmp_path, may_refuse=True) for start in range(0, len(layers), 60)
    )
    assert compared > len(layers) * 0.8


def _member(chance: random.Random, top: bytes) -> bytes:
    def path() -> bytes:
        return b"/".join([top, *chance.choices([b"a", b"b", b"c"], k=chance.choice([1, 1, 2, 2, 3]))])

    match chance.randrange(9):
        case 0 | 1 | 2:
            return file(path(), FILE + bytes([chance.randrange(256)]), mode=chance.choice([b"0000644\0", b"0004755\0"]))
        case 3 | 4:
            return header(path() + b"/", kind=b"5", mode=chance.choice([b"0000755\0", b"0000700\0"]))
        case 5:
            return header(path(), kind=b"2", link=chance.choice([b"a", b"../b", b"/" + path(), b"none"]))
        case 6:
            return header(path(), kind=b"1", link=path())
        case 7:
            parent, _, name = path().rpartition(b"/")
            return file(parent + b"/.wh." + name, b"")
        case _:
            return file(path().rpartition(b"/")[0] + b"/.wh..wh..opq", b"")


def test_members_in_any_order(tmp_path: Path) -> None:
    """Three layers of files, folders, links and whiteouts are refused, or buildah makes the same of them."""
    chance = random.Random(3)
    layers = [b"", b"", b""]
    taken = 0
    for number in range(times(600)):
        top = b"%04x" % number
        one = [b"".join(_member(chance, top) for _ in range(chance.randrange(1, 5))) for _ in layers]
        if accepted([data + END for data in one], tmp_path / str(number)):
            taken += 1
            layers = [whole + data for whole, data in zip(layers, one, strict=True)]
        shutil.rmtree(tmp_path / str(number))
    assert taken > times(600) / 15
    compare([data + END for data in layers], tmp_path, may_refuse=False)


@SKOPEO
def test_an_image_of_zstd_chunked_fails(tmp_path: Path) -> None:
    """podman unpacks it by the table at the end of a layer, which the other engines skip."""
    before, after = layout(tmp_path / "before", [{"opt/a": b"1"}]), tmp_path / "after"
    command = ["skopeo", "copy", "--dest-compress-format", "zstd:chunked", f"oci:{before}", f"oci:{after}"]
    subprocess.run(command, capture_output=True, check=True)
    for image, status in ((before, "pass"), (after, "fail")):
        (result,) = [each for each in run_static(image, None, []).results if each.id == "image-blobs"]
        assert result.status == status
    assert "zstd-chunked" in result.message and "ends with the place of a table" in result.message
