"""The layers of the stack on more processors. No download is needed: the wheels have the sizes of the real ones, and
contents from the files of this machine."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

from measure import Command, Row, Sample, in_turns, median
from place import MODULES, Place, remove

from builder.model.inputs import Input
from builder.model.plan import Plan, PlannedLayer
from builder.store.store import Store
from builder.unpack.wheels import record_hash

COUNTS = (1, 2, 4, 8, 16, 32)
POOL = 64 << 20
"""Bytes that files are made of; more than compressors look back."""
EQUAL = 16
"""Layers of one size, which divide among the counts of processors up to this one."""
SMALL, SHARE = 20_000, 10
"""A tenth of each wheel is in files of 20 kB, about as in the stack; the rest is one file."""


def cores(place: Place) -> Iterator[Row]:
    """Build the layers on 1, 2, 4 … processors, as many as there are.

    The peer is what the machine can do: as many bytes in equal layers, by a process for each processor.
    """
    wheels, store, alone = (place.folder / name for name in ("wheels", "store", "alone"))
    wheels.mkdir()
    inputs = _inputs(place.plan)
    sizes = [item.size for item in inputs]
    sizes += [sum(sizes) // EQUAL] * EQUAL
    with ProcessPoolExecutor() as pool:
        wheel = list(pool.map(_wheel, [(wheels, number, size) for number, size in enumerate(sizes)], chunksize=1))
    made = dict(zip(inputs, wheel, strict=False))
    layers = [layer for layer in place.plan.layers if any(item in made for item in layer.inputs)]
    planned = tuple(_planned(layer, [made[item] for item in layer.inputs]) for layer in layers)
    plan = replace(place.plan, layers=planned, toolchains=())
    apart = [_planned(layers[0], [item]) for item in wheel[-EQUAL:]]
    available = sorted(os.sched_getaffinity(0))

    def fresh(folder: Path, plan: Plan) -> None:
        remove(folder)
        for item in {item for layer in plan.layers for item in layer.inputs}:
            Store(folder).blob(item.digest).hardlink_to(wheels / item.file)
        (folder / "plan").write_bytes(pickle.dumps(plan))

    def fresh_apart(count: int) -> None:
        remove(alone)
        for number in range(count):
            fresh(alone / str(number), replace(plan, layers=tuple(apart[number::count])))

    two: list[list[Sample]] = []
    for count in (count for count in COUNTS if count <= len(available)):
        chosen = ",".join(map(str, available[:count]))
        words = f"taskset -c {chosen} {sys.executable} {Path(__file__).with_name('layersof.py')}"
        ours = Command(f"{words} {store} {count}", {"PYTHONPATH": MODULES})
        theirs = Command(f"ls -d {alone}/* | xargs -P {count} -I% {words} % 1", {"PYTHONPATH": MODULES})
        before = (partial(fresh, store, plan), partial(fresh_apart, count))
        found = in_turns(place.runs, *((ours, theirs) if 1 < count <= EQUAL else (ours,)), before=before)
        two = found if count == 2 else two
        work = f"layers of the stack on {count} processor{'s' * (count > 1)}"
        peer: dict[str, Any] = {"peer": "equal layers, nothing shared", "theirs": found[1]} if found[1:] else {}
        yield Row("cores", work, found[0], size=count, **peer)
        if count == 16:
            note = f"what shares nothing takes {median(found[1]) / median(two[1]):.3f} of its time on two"
            yield Row("cores", work, found[0], "2 processors", two[0], 1 / 6, note)


def _inputs(plan: Plan) -> list[Input]:
    """The largest first."""
    found = {item.digest: item for layer in plan.layers for item in layer.inputs}
    return sorted(found.values(), key=lambda item: -item.size)


@cache
def _pool() -> bytes:
    """Half libraries, a quarter each of Python modules and of random bytes: compresses about as the wheels do."""
    random_part, quarter = random.Random(0).randbytes(POOL // 4), POOL // 4
    found = bytearray()
    for folder, names, share in ((Path("/usr/lib"), "*.so*", 2), (Path(sysconfig.get_path("stdlib")), "*.py", 1)):
        end = len(found) + share * quarter
        for path in sorted(folder.rglob(names)):
            if len(found) < end and path.is_file() and not path.is_symlink():
                found += path.read_bytes()[: end - len(found)]
    block = 1 << 16
    pieces = (found[3 * at : 3 * (at + block)] + random_part[at : at + block] for at in range(0, quarter, block))
    return b"".join(map(bytes, pieces))


def _wheel(asked: tuple[Path, int, int]) -> Input:
    folder, number, size = asked
    source = random.Random(number)
    pool = _pool()
    path = folder / f"made_{number}-1-py3-none-any.whl"
    info = f"made_{number}-1.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: made-{number}\nVersion: 1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        # A file that RECORD does not list is inflated twice: once more for its digest.
        rows, file = [f"{info}/{name},," for name in ("METADATA", "WHEEL", "RECORD")], archive.fp
        assert file is not None
        while file.tell() < size // SHARE:
            start = source.randrange(len(pool) - SMALL)
            data, name = pool[start : start + SMALL], f"made_{number}/{len(rows) // 500}/{len(rows)}.py"
            archive.writestr(name, data)
            rows.append(f"{name},{record_hash((data,))},{SMALL}")
        with archive.open(f"made_{number}/large.so", "w", force_zip64=True) as member:
            digest = record_hash(_written(member, lambda: file.tell() < size, source.randrange(len(pool))))
        rows.append(f"made_{number}/large.so,{digest},{archive.getinfo(f'made_{number}/large.so').file_size}")
        archive.writestr(f"{info}/RECORD", "".join(f"{row}\n" for row in rows))
    with path.open("rb") as whole:
        sha256 = hashlib.file_digest(whole, "sha256").hexdigest()
    return Input("wheel", path.name, path.name, sha256, path.stat().st_size, ())


def _written(member: IO[bytes], more: Callable[[], bool], place: int) -> Iterator[bytes]:
    """Write the pool from a place on, as long as there is to be more."""
    pool = _pool()
    while more():
        data = pool[place : place + (1 << 20)]
        member.write(data)
        yield data
        place = (place + (1 << 20)) % len(pool)


def _planned(layer: PlannedLayer, inputs: Sequence[Input]) -> PlannedLayer:
    """The layer with made wheels for its inputs."""
    wheels = [{"file": item.file, "sha256": item.sha256} for item in inputs]
    spec = {**(layer.spec or {}), "root": False, "debs": [], "wheels": wheels, "files": [], "shared": []}
    key = hashlib.sha256("".join(item.sha256 for item in inputs).encode()).hexdigest()
    return replace(layer, key=key, root=False, inputs=tuple(inputs), spec=spec)
