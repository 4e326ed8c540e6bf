"""Running commands of an unpacked image in a sandbox, by an OCI runtime (runc or crun)."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from builder.errors import EngineError
from builder.regular import read_regular
from builder.smoke.check import CheckNotRun
from builder.smoke.cpu.bytecode import BytecodeFolder
from builder.smoke.cpu.runner import Command, native, registered
from builder.smoke.cpu.sandbox import ENTER, FIRST_ID, IDS, MEMORY_FILES, PREPARED, container, process
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.unpack import remove_tree, unpack

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RUNTIMES = ("runc", "crun")
_PASSWD = 1 << 20
"""Bytes of a passwd file that are read."""


class RuncRunner:
    """Runs commands of an image unpacked below `folder`. Each command gets fresh files.

    mapped: root started it, so that ids of the sandbox are ids of the host that nobody has.
    """

    name = "runc"

    def __init__(self, image: OpenedImage, folder: Path, *, keep: bool = True) -> None:
        """Unpack the image, unless it is unpacked already. keep: leave it for the next run of the same digest.

        Raises CheckNotRun when this machine cannot run the image.
        """
        self.image = image
        self._keep = keep
        self.mapped = os.geteuid() == 0
        self._bytecode: BytecodeFolder | None = None
        self._sysfs = True
        self._runtime = next((path for name in _RUNTIMES if (path := tool_path(name))), "")
        if not self._runtime:
            raise CheckNotRun(f"neither {' nor '.join(_RUNTIMES)} is installed")
        for tool in ("setpriv", "unshare", "mount", "sh"):
            if tool_path(tool) is None:
                raise CheckNotRun(f"{tool} is not installed")
        if not native() and not registered():
            raise CheckNotRun("this machine does not run arm64 code: install qemu-user-static")
        with tempfile.TemporaryDirectory() as empty:
            # Before gigabytes are unpacked for a machine that cannot run them.
            self._try_sandbox(Path(empty))
        try:
            self._root = unpack(image, folder, first_id=FIRST_ID if self.mapped else None, ids=IDS)
        except EngineError as error:
            raise CheckNotRun(f"{error.where}: {error.what}" if error.where else error.what) from error
        for name in PREPARED:
            place = self._root / name
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                # A runtime makes links in /dev before the image becomes its root: a link would lead to the host.
                raise CheckNotRun(f"/{name} of the image is not a folder")
        if not native():
            # Compiling Python takes most of an import under qemu (sympy: 95 s of 105), and images hold no bytecode.
            self._bytecode = BytecodeFolder(Path(f"{self._root}-bytecode"))
        self._try_sandbox(self._root)

    def start(self, command: Command) -> subprocess.Popen[bytes]:
        """Start a command. Raises CheckNotRun for a user other than root when not run by root."""
        user, group, home = _user(self._root, command.user or str(self.image.settings.get("User") or ""))
        if not self.mapped and (user, group) != (0, 0):
            raise CheckNotRun(f"only root can run a command as user {user}:{group}")
        env = {"PATH": _PATH, "HOME": home, **self.image.env, **command.env}
        if self._bytecode is not None:
            env.setdefault("PYTHONPYCACHEPREFIX", "/dev/bytecode")
        directory = str(self.image.settings.get("WorkingDir") or "/")
        inside = posixpath.normpath("/" + directory.lstrip("/"))
        there = os.path.realpath(self._root) + inside.rstrip("/")
        if inside.startswith("/proc") or os.path.realpath(there) != there:
            # Runtimes before CVE-2024-21626 was mended enter a folder of the host that they hold open, also by a link.
            raise CheckNotRun(f"the working directory of the image is {directory[:200]}")
        what = process(command.argv, env, user=user, group=group, directory=directory)
        return self._enter(self._root, what, apart=command.apart)

    def note(self) -> str:
        """How commands run, for the report."""
        how = "natively" if native() else "under qemu"
        return f"run {how} by {Path(self._runtime).name} in a sandbox without network"

    def close(self) -> None:
        """Remove the unpacked image, unless `keep` is set."""
        if not self._keep:
            remove_tree(self._root)
        if self._bytecode is not None:
            self._bytecode.close(keep=self._keep)

    def _enter(self, root: Path, command: dict[str, Any], *, apart: bool = False) -> subprocess.Popen[bytes]:
        # Without root, a user namespace comes first: only in one a user may mount. There the user is root.
        user = [] if self.mapped else ["--user", "--map-root-user"]
        # The kernel kills the sandbox when this process ends, however it ends.
        bound = [str(tool_path("setpriv")), "--pdeathsig", "KILL"]
        spaces = [str(tool_path("unshare")), *user, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if self._bytecode is not None:
            self._bytecode.prepare()
        owner = str(FIRST_ID) if self.mapped else ""
        arguments = [
            self._runtime,
            owner,
            str(MEMORY_FILES),
            str(root),
            str(self._bytecode.path if self._bytecode else ""),
        ]
        made = subprocess.Popen(
            [*bound, *spaces, "sh", "-c", ENTER, "sh", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if apart else subprocess.STDOUT,
        )
        config = container(mapped=self.mapped, bytecode=self._bytecode is not None, sysfs=self._sysfs)
        assert made.stdin is not None
        with contextlib.suppress(BrokenPipeError), made.stdin:
            made.stdin.write(b"".join(json.dumps(each).encode() + b"\n" for each in (config, command)))
        made.stdin = None
        if self._bytecode is not None:
            self._bytecode.guard(made)
        return made

    def _try_sandbox(self, root: Path) -> None:
        """Run a program that no image has, with the files of `root`: the runtime does not find it in a working sandbox.

        Without /sys when the kernel does not allow it, as in some containers, and under qemu: the /sys of this machine
        describes another processor, and torch's oneDNN crashes when it looks for an arm64 one there.
        """
        reason = ""
        for self._sysfs in (True, False) if native() else (False,):
            try:
                done = self._enter(root, process(["/dev/no-such-program"], {}))
                output, _ = done.communicate(timeout=30)
            except (OSError, subprocess.TimeoutExpired) as error:
                reason = str(error)
                continue
            if done.returncode == 127:
                return
            reason = output.decode(errors="replace").strip().rpartition("\n")[2][-300:]
        raise CheckNotRun(f"a sandbox does not work on this machine: {reason}")


def tool_path(name: str) -> str | None:
    """The path of a program, also where PATH lacks the system's folders; None when it is not installed."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")


def _user(root: Path, user: str) -> tuple[int, int, str]:
    """User id, group id and home of a user, from the image's passwd as docker reads it. Raises CheckNotRun."""
    name, _, group = user.partition(":")
    if name in ("", "root", "0"):
        return 0, 0, "/root"
    rows = (line.split(":") for line in _passwd(root).splitlines())
    row = next((row for row in rows if len(row) >= 6 and name in (row[0], row[2])), None)
    number, number_group, home = (row[2], group or row[3], row[5]) if row else (name, group or "0", "/")
    if not all(
        text.isascii() and text.isdigit() and len(text) < 20 and int(text) < IDS for text in (number, number_group)
    ):
        raise CheckNotRun(f"the image has no user {user!r} with ids below {IDS}")
    return int(number), int(number_group), home


def _passwd(root: Path) -> str:
    """The text of etc/passwd of the image; empty when the file is a link. `etc` is none: see PREPARED."""
    with contextlib.suppress(OSError):
        return read_regular(root / "etc" / "passwd", _PASSWD).decode(errors="replace")
    return ""
