"""Running an image from a folder: a chroot in private mount, network, process and host name namespaces."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

from builder.errors import EngineError
from builder.smoke.check import CheckNotRun
from builder.smoke.cpu.runner import QEMU_NAMES, Command, native, registered
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.unpack import remove_tree, unpack

_MAGIC = r"\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REGISTERED = "under qemu (now registered with this machine's binfmt_misc)"

# Arguments: root, a scratch folder, what to register with binfmt_misc (or nothing), a folder for bytecode (or
# nothing), then the command.
# A user namespace of its own has its own binfmt_misc (Linux 6.7): the host's is not touched.
_ENTER = r"""
set -e
ulimit -c 0
root=$1 scratch=$2 register=$3 bytecode=$4
shift 4
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$scratch/run"
here=$scratch/run/root
mkdir "$here"
mount -t overlay -o "lowerdir=$root,upperdir=$scratch/upper,workdir=$scratch/work" overlay "$here"
mkdir -p "$here/proc" "$here/dev" "$here/sys" "$here/tmp"
mount -t proc proc "$here/proc"
if [ -n "$register" ]; then
    formats=$here/proc/sys/fs/binfmt_misc
    mount -t binfmt_misc binfmt_misc "$formats"
    [ -e "$formats/builder-aarch64" ] || printf '%s' "$register" > "$formats/register"
fi
mount -t sysfs -o ro sysfs "$here/sys" 2>/dev/null || true
mount -t tmpfs -o mode=755 tmpfs "$here/dev"
for device in null zero full random urandom tty; do
    : > "$here/dev/$device"
    mount --bind "/dev/$device" "$here/dev/$device"
done
mkdir "$here/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$here/dev/shm"
if [ -n "$bytecode" ]; then
    mkdir "$here/dev/bytecode"
    mount --bind "$bytecode" "$here/dev/bytecode"
fi
ln -s /proc/self/fd "$here/dev/fd"
ln -s /proc/self/fd/0 "$here/dev/stdin"
ln -s /proc/self/fd/1 "$here/dev/stdout"
ln -s /proc/self/fd/2 "$here/dev/stderr"
if [ -d "$here/etc" ]; then
    printf '127.0.0.1 localhost\n::1 localhost\n' > "$here/etc/hosts"
fi
hostname smoke 2>/dev/null || true
if [ -x /sbin/ip ] || [ -x /usr/sbin/ip ]; then
    PATH=$PATH:/sbin:/usr/sbin ip link set lo up 2>/dev/null || true
fi
# Not exec: the first process of a namespace ignores signals, even its own SIGABRT; this shell is that process.
"$@" &
wait $!
exit $?
"""


class ChrootRunner:
    """Runs commands of an image unpacked below `folder`. Each sees fresh files: what it writes is thrown away."""

    name = "chroot"

    def __init__(self, image: OpenedImage, folder: Path, *, keep: bool = True) -> None:
        """Unpack the image, unless that was done before. keep: leave it there for the next run of the same digest.

        Raises CheckNotRun when this machine cannot run it like this.
        """
        self.image = image
        self._keep = keep
        self._folder = folder
        self._register = ""
        self._qemu = ""
        self._bytecode: Path | None = None
        self._user_namespace = True
        for tool in ("unshare", "mount", "chroot", "env", "sh"):
            if _tool(tool) is None:
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
        # The environment is the image's alone; chroot looks the command up in its PATH, inside.
        inside = [str(_tool("env")), "-i", *(f"{name}={value}" for name, value in env.items()), str(_tool("chroot"))]
        before = [*inside, *([f"--userspec={spec}", "--groups="] if spec else [])]
        return self._enter(before, argv, self._root, command.errors)

    def note(self) -> str:
        """How commands are run."""
        how = "natively" if native() else "under qemu" if self._user_namespace or not self._register else _REGISTERED
        return f"run {how} in a chroot without network"

    def close(self) -> None:
        """Remove the unpacked image, unless it is to be kept."""
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
        spaces = [str(_tool("unshare")), "-m", "-n", "-p", "-u", "-i", "-f", "--kill-child"]
        script = ["sh", "-c", _ENTER, "sh", str(root), str(scratch), self._register, str(self._bytecode or "")]
        place = [str(scratch / "run" / "root")] if before else []
        return _Process([*spaces, *script, *before, *place, *argv], scratch, self._user_namespace, errors)

    def _choose_namespaces(self) -> None:
        """Find out, with an empty root, whether namespaces work here: with a user namespace, else as root without."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            probe = Path(tempfile.mkdtemp(prefix="probe-", dir=self._folder))
        except OSError as error:
            raise CheckNotRun(f"{self._folder}: {error.strerror}") from error
        said = ""
        try:
            # Without a user namespace, registering qemu changes the host: the last resort, and only root can.
            for inside in (True, False) if os.geteuid() == 0 else (True,):
                self._user_namespace = inside
                try:
                    process = self._enter([], ["true"], probe)
                    output, _ = process.communicate(timeout=30)
                except (OSError, subprocess.TimeoutExpired) as error:
                    said = str(error)
                    continue
                if process.returncode == 0:
                    return
                said = output.decode(errors="replace").strip().rpartition("\n")[2]
        finally:
            remove_tree(probe)
        raise CheckNotRun(f"private namespaces do not work here: {said}")


class _Process(subprocess.Popen[bytes]):
    """A process in a user namespace whose user ids this process maps: all of them for root, else only its own."""

    def __init__(self, argv: list[str], scratch: Path, user_namespace: bool, errors: IO[bytes] | None) -> None:
        self._scratch = scratch
        if user_namespace:
            # The ids can be mapped only once the namespace is there, and privileges in it come with the exec after.
            argv = [str(_tool("unshare")), "-U", "sh", "-c", 'read _ && exec "$@" </dev/null', "sh", *argv]
        pipe = subprocess.PIPE
        super().__init__(argv, stdin=pipe, stdout=pipe, stderr=errors or subprocess.STDOUT, bufsize=0)
        assert self.stdin is not None
        try:
            if user_namespace:
                self._map_ids()
                self.stdin.write(b"\n")
        except OSError as error:
            self.kill()
            self.wait()
            raise OSError(f"user namespaces are not allowed here: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                self.stdin.close()
            self.stdin = None

    def wait(self, timeout: float | None = None) -> int:
        """As of Popen; then removes what the command wrote."""
        code = super().wait(timeout)
        remove_tree(self._scratch)
        return code

    def _map_ids(self) -> None:
        here = Path("/proc") / str(self.pid)
        own = Path("/proc/self/ns/user").readlink()
        end = time.monotonic() + 10
        while (here / "ns" / "user").readlink() == own:
            if self.poll() is not None or time.monotonic() > end:
                raise OSError(0, "unshare -U failed")
            time.sleep(0.002)
        if os.geteuid() == 0:
            maps = [("uid_map", Path("/proc/self/uid_map")), ("gid_map", Path("/proc/self/gid_map"))]
            for name, mine in maps:
                # Every id that exists here, as itself.
                rows = [line.split() for line in mine.read_text().splitlines()]
                (here / name).write_text("".join(f"{row[0]} {row[0]} {row[2]}\n" for row in rows))
        else:
            (here / "setgroups").write_text("deny")
            (here / "uid_map").write_text(f"0 {os.geteuid()} 1")
            (here / "gid_map").write_text(f"0 {os.getegid()} 1")


def _user(root: Path, user: str) -> tuple[str, str]:
    """A user as chroot takes it ("UID:GID", "" for root), and its home, by the image's passwd as docker does."""
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
        # Inside the chroot it would find no shared library of this machine.
        if path and b"ld-linux" not in Path(path).read_bytes()[:4096]:
            return path
    raise CheckNotRun("this machine does not run arm64 code: install qemu-user-static")


def _tool(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
