"""Running commands of an unpacked image in a chroot, in private mount, network, process and host name namespaces."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from builder.errors import EngineError
from builder.smoke.check import CheckNotRun
from builder.smoke.cpu.namespaces import ENTER, NamespacedProcess, tool_path
from builder.smoke.cpu.runner import QEMU_NAMES, Command, native, registered
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.unpack import remove_tree, unpack

_MAGIC = r"\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REGISTERED = "under qemu (now registered with this machine's binfmt_misc)"


class ChrootRunner:
    """Runs commands of an image unpacked below `folder`. Each command gets fresh files."""

    name = "chroot"

    def __init__(self, image: OpenedImage, folder: Path, *, keep: bool = True) -> None:
        """Unpack the image, unless it is unpacked already. keep: leave it for the next run of the same digest.

        Raises CheckNotRun when this machine cannot run the image in a chroot.
        """
        self.image = image
        self._keep = keep
        self._folder = folder
        self._register = ""
        self._qemu = ""
        self._bytecode: Path | None = None
        self._user_namespace = True
        for tool in ("unshare", "mount", "chroot", "env", "sh"):
            if tool_path(tool) is None:
                raise CheckNotRun(f"{tool} is not installed")
        if not native() and not registered():
            self._qemu = _static_qemu()
            self._register = f":builder-aarch64:M::{_MAGIC}:{_MASK}:{self._qemu}:F"
        self._choose_namespaces()
        try:
            self._root = unpack(image, folder)
        except EngineError as error:
            raise CheckNotRun(f"{error.where}: {error.what}" if error.where else error.what) from error
        if not native():
            # Compiling Python takes most of an import under qemu (sympy: 95 s of 105), and images hold no bytecode.
            self._bytecode = Path(f"{self._root}-bytecode")
            self._bytecode.mkdir(exist_ok=True)
            self._bytecode.chmod(0o1777)

    def start(self, command: Command) -> subprocess.Popen[bytes]:
        """Start a command in fresh namespaces. Raises CheckNotRun for a user other than root when not run by root."""
        spec, home = _user(self._root, command.user or str(self.image.settings.get("User") or ""))
        if spec and os.geteuid() != 0:
            raise CheckNotRun(f"only root can run a command as {spec}")
        env = {"PATH": _PATH, "HOME": home, **self.image.env, **command.env}
        if self._bytecode is not None:
            env.setdefault("PYTHONPYCACHEPREFIX", "/dev/bytecode")
        argv = list(command.argv)
        directory = self.image.settings.get("WorkingDir") or "/"
        if directory != "/":
            argv = ["/bin/sh", "-c", f'cd {shlex.quote(directory)} && exec "$@"', "sh", *argv]
        # `env -i` passes no variable of this machine; chroot looks up the command in the image's PATH.
        inside = [
            str(tool_path("env")),
            "-i",
            *(f"{name}={value}" for name, value in env.items()),
            str(tool_path("chroot")),
        ]
        before = [*inside, *([f"--userspec={spec}", "--groups="] if spec else [])]
        return self._enter(before, argv, self._root, command.errors)

    def note(self) -> str:
        """How commands run, for the report."""
        how = "natively" if native() else "under qemu" if self._user_namespace or not self._register else _REGISTERED
        return f"run {how} in a chroot without network"

    def close(self) -> None:
        """Remove the unpacked image, unless `keep` is set."""
        if not self._keep:
            remove_tree(self._root)
            if self._bytecode is not None:
                remove_tree(self._bytecode)

    def _enter(
        self, before: list[str], argv: list[str], root: Path, errors: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        scratch = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        for name in ("upper", "work", "run"):
            (scratch / name).mkdir(mode=0o755)
        # The upper folder's mode and owner become those of the image's root.
        (scratch / "upper").chmod(0o755)
        spaces = [str(tool_path("unshare")), "-m", "-n", "-p", "-u", "-i", "-f", "--kill-child"]
        script = ["sh", "-c", ENTER, "sh", str(root), str(scratch), self._register, str(self._bytecode or "")]
        place = [str(scratch / "run" / "root")] if before else []
        return NamespacedProcess([*spaces, *script, *before, *place, *argv], scratch, self._user_namespace, errors)

    def _choose_namespaces(self) -> None:
        """Try namespaces with an empty root: with a user namespace, else, as root, without one."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            probe = Path(tempfile.mkdtemp(prefix="probe-", dir=self._folder))
        except OSError as error:
            raise CheckNotRun(f"{self._folder}: {error.strerror}") from error
        reason = ""
        try:
            # Without a user namespace, registering qemu changes the host; only root can do that.
            for inside in (True, False) if os.geteuid() == 0 else (True,):
                self._user_namespace = inside
                try:
                    process = self._enter([], ["true"], probe)
                    output, _ = process.communicate(timeout=30)
                except (OSError, subprocess.TimeoutExpired) as error:
                    reason = str(error)
                    continue
                if process.returncode == 0:
                    return
                reason = output.decode(errors="replace").strip().rpartition("\n")[2]
        finally:
            remove_tree(probe)
        raise CheckNotRun(f"private namespaces do not work on this machine: {reason}")


def _user(root: Path, user: str) -> tuple[str, str]:
    """A user in the form of chroot ("UID:GID", "" for root) and its home, from the image's passwd as docker does."""
    name, _, group = user.partition(":")
    if name in ("", "root", "0"):
        return "", "/root"
    passwd = root / "etc" / "passwd"
    # The file is opened outside the chroot: a link could lead to the host's.
    safe = passwd.is_file() and not passwd.is_symlink() and not passwd.parent.is_symlink()
    for line in passwd.read_text(errors="replace").splitlines() if safe else ():
        row = line.split(":")
        if len(row) >= 6 and name in (row[0], row[2]):
            return f"{row[2]}:{group or row[3]}", row[5]
    return f"{name}:{group or 0}", "/"


def _static_qemu() -> str:
    for name in QEMU_NAMES:
        path = shutil.which(name)
        # A dynamically linked qemu would not find its libraries inside the chroot.
        if path and b"ld-linux" not in Path(path).read_bytes()[:4096]:
            return path
    raise CheckNotRun("this machine does not run arm64 code: install qemu-user-static")
