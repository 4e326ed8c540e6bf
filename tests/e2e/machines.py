"""Simulated machines: commands run in namespaces with a host name, resolver, clock and user of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

BINFMT = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")


@dataclass(frozen=True)
class Machine:
    """The properties of a machine that a build must not depend on. Commands run without a network."""

    name: str
    nameserver: str
    folder: Path
    umask: int = 0o022
    env: Mapping[str, str] = field(default_factory=dict)
    date: str | None = None
    user: int = 0

    def run(
        self, argv: Sequence[str], store: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there, with more variables in its environment; output is text."""
        self.folder.mkdir(parents=True, exist_ok=True)
        resolver = self.folder / "resolv.conf"
        resolver.write_text(f"nameserver {self.nameserver}\nsearch {self.name}.example\n")
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        if self.user:
            for path in (self.folder, work, store):
                os.chown(path, self.user, self.user)
        setup = (
            f"hostname {self.name} && mount --bind {resolver} /etc/resolv.conf && umask {self.umask:03o} && cd {work}"
        )
        inner = ["datefudge", self.date, *argv] if self.date else list(argv)
        if self.user:
            # Another user that can still read this checkout and its Python.
            reach = "+dac_override,+dac_read_search"
            who = [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
            inner = ["setpriv", *who, f"--inh-caps={reach}", f"--ambient-caps={reach}", *inner]
        command = ["unshare", "--uts", "--net", "--mount", "sh", "-ec", f'{setup} && exec "$@"', "sh", *inner]
        variables = {**os.environ, "BUILDER_STORE": str(store), **self.env, **(env or {})}
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=3000)


@contextmanager
def without_emulation() -> Iterator[None]:
    """Disable emulation: meanwhile no arm64 program runs on a machine of another architecture."""
    there = BINFMT.exists()
    if there:
        BINFMT.write_text("0")
    try:
        yield
    finally:
        if there:
            BINFMT.write_text("1")
