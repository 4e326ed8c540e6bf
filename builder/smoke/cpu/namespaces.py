"""Processes in private namespaces: the script that sets up a chroot's mounts, and mapping of user ids."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import IO

from builder.smoke.image.unpack import remove_tree

ENTER = r"""
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
"""Shell script. Arguments: root, a scratch folder, the line to register with binfmt_misc (or ""), a folder for Python
bytecode (or ""), then the command. A user namespace has its own binfmt_misc (Linux 6.7): the host's does not change."""


class NamespacedProcess(subprocess.Popen[bytes]):
    """A process in a user namespace. Run by root, every user id is mapped to itself; else only the user, to root."""

    def __init__(self, argv: list[str], scratch: Path, user_namespace: bool, errors: IO[bytes] | None) -> None:
        self._scratch = scratch
        if user_namespace:
            # Ids can be mapped only after the namespace exists; the exec after that gets the privileges in it.
            argv = [str(tool_path("unshare")), "-U", "sh", "-c", 'read _ && exec "$@" </dev/null', "sh", *argv]
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
            raise OSError(f"user namespaces are not allowed on this machine: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                self.stdin.close()
            self.stdin = None

    def wait(self, timeout: float | None = None) -> int:
        """Popen.wait, then remove the files that the command wrote."""
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
                # Every id of this namespace, as itself.
                rows = [line.split() for line in mine.read_text().splitlines()]
                (here / name).write_text("".join(f"{row[0]} {row[0]} {row[2]}\n" for row in rows))
        else:
            (here / "setgroups").write_text("deny")
            (here / "uid_map").write_text(f"0 {os.geteuid()} 1")
            (here / "gid_map").write_text(f"0 {os.getegid()} 1")


def tool_path(name: str) -> str | None:
    """The path of a program, also where PATH lacks the system's folders; None when it is not installed."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
