"""Writing one layer: normalised, hashed and compressed in one pass, by the number of files; against tar and zstd."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from measure import Command, Row, in_turns
from place import MODULES, Place, remove

COUNTS = (1, 100, 10_000, 200_000)
BYTES = 2_000_000_000
DIGEST = "tee >(openssl dgst -sha256 >/dev/null)"
WRITE = """\
import os, sys
from pathlib import Path
from builder.oci.layerblob import write_layer
from builder.store.store import Store
from builder.unpack.entry import Entry

def entries(root):
    found = []
    for folder, folders, files in os.walk(root):
        found += [(os.path.join(folder, name), "dir") for name in folders]
        found += [(os.path.join(folder, name), "file") for name in files]
    for path, kind in sorted(found):
        name = path[len(root) + 1 :]
        if kind == "dir":
            yield Entry(name, "dir", 0o755)
        else:
            size = os.stat(path).st_size
            yield Entry(name, "file", 0o644, size, read=lambda path=path, size=size: chunks(path, size))

def chunks(path, left):
    with open(path, "rb", buffering=0) as file:
        while left and (chunk := file.read(min(left, 1 << 20))):
            left -= len(chunk)
            yield chunk

write_layer(Store(Path(sys.argv[2])), entries(sys.argv[1]), threads=os.cpu_count())
"""


def layers(place: Place) -> Iterator[Row]:
    """2 GB in 1 to 200,000 files, half of it random bytes."""
    tree, store, packed = place.folder / "tree", place.folder / "packed", place.folder / "packed.tar.zst"
    for count in COUNTS:
        remove(tree)
        _write_tree(tree, count)
        ours = Command([sys.executable, "-c", WRITE, str(tree), str(store)], {"PYTHONPATH": MODULES})
        theirs = Command(f"tar --sort=name -C {tree} -cf - . | zstd -q -3 -T0 -o {packed}")
        # A layer has the digests of its tar and of its blob. These commands compute both.
        both = Command(f"tar --sort=name -C {tree} -cf - . | {DIGEST} | zstd -q -3 -T0 | {DIGEST} >{packed}")
        before = (partial(remove, store), partial(remove, packed), partial(remove, packed))
        found = in_turns(place.runs, ours, theirs, both, before=before)
        work = f"2 GB in {count:,} file{'s' * (count > 1)}"
        yield Row("layers", work, found[0], "tar, zstd", found[1], 1.05, size=count)
        yield Row("layers", work, found[0], "tar, zstd and both digests", found[2])
    for path in (tree, store, packed):
        remove(path)


def _write_tree(tree: Path, count: int) -> None:
    source, each = random.Random(count), BYTES // count
    for number in range(count):
        path = tree / str(number // 1000) / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            left = each
            while left > 0:
                piece = min(left, 1 << 20)
                file.write(source.randbytes(piece // 2) + bytes(piece - piece // 2))
                left -= piece
