"""The store and several processes: concurrent writes, and the removal of files of dead processes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from builder.digest import Digest
from builder.store import claims
from builder.store.claims import try_lock
from builder.store.store import Store
from tests.support.project import ROOT
from tests.support.storefiles import blobs, temporary

WRITER = """
import sys
from pathlib import Path
from builder.store.store import Store
store = Store(Path(sys.argv[1]))
for n in range(30):
    with store.writer() as writer:
        for _ in range(50):
            writer.write(bytes([n]) * 1000)
        writer.commit()
print("done")
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)


def test_several_processes_may_write_at_once(tmp_path: Path) -> None:
    running = [start(WRITER, tmp_path) for _ in range(3)]
    assert [process.communicate(timeout=30)[0] for process in running] == ["done\n"] * 3
    store = Store(tmp_path)
    assert len(blobs(store)) == 30
    for name in blobs(store):
        store.verify(Digest.from_hex(name))


HALF = """
import sys, time
from pathlib import Path
from builder.store.store import Store
store = Store(Path(sys.argv[1]))
writer = store.writer()
writer.write(b"x" * 5_000_000)
(store.scratch() / "folder").mkdir()
print("half way", flush=True)
time.sleep(60)
"""


def test_files_of_a_killed_process_are_removed_and_files_of_a_living_one_kept(tmp_path: Path) -> None:
    dying, living = start(HALF, tmp_path), start(HALF, tmp_path)
    try:
        for process in (dying, living):
            assert process.stdout is not None
            assert process.stdout.readline() == "half way\n"
        assert len(temporary(Store(tmp_path))) == 4
        dying.send_signal(signal.SIGKILL)
        dying.wait()
        assert {name.partition(".")[0] for name in temporary(Store(tmp_path))} == {str(living.pid)}
    finally:
        for process in (dying, living):
            process.kill()
            process.communicate()
    assert temporary(Store(tmp_path)) == []
    assert len([path for path in (tmp_path / "locks").iterdir() if path.name != "gc"]) == 1


def test_a_lock_that_another_process_removed_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three processes start at once: one sees the file of the first before it is locked, and a third removes it."""
    Store(tmp_path)
    lock = tmp_path / "locks" / "7.0123abcd"
    lock.touch()
    held: list[IO[str]] = []

    def late(file: IO[str]) -> bool:
        if not held and os.fstat(file.fileno()).st_ino == lock.stat().st_ino:
            lock.unlink()
            held.append(lock.open("a+"))
            fcntl.flock(held[0], fcntl.LOCK_EX)
        return try_lock(file)

    monkeypatch.setattr(claims, "try_lock", late)
    Store(tmp_path)
    assert held and lock.exists()
    folder = tmp_path / "tmp" / "7.0123abcd-x"
    folder.mkdir()
    Store(tmp_path)
    assert folder.exists()
    held[0].close()
    Store(tmp_path)
    assert not folder.exists()


def test_a_process_in_another_pid_namespace_counts_as_living(tmp_path: Path) -> None:
    process = start(HALF, tmp_path)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "half way\n"
        elsewhere = (
            "from pathlib import Path; import sys; from builder.store.store import Store; Store(Path(sys.argv[1]))"
        )
        command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", elsewhere, str(tmp_path)]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False, capture_output=True)
        if done.returncode:
            pytest.skip("no process namespace may be made here")
        assert len([name for name in temporary(Store(tmp_path)) if name.startswith(f"{process.pid}.")]) == 2
    finally:
        process.kill()
        process.communicate()
