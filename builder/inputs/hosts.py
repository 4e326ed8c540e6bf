"""The package indexes and Debian archives of this machine: reads the pip, uv and apt configuration files."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from builder.engine.process import output
from builder.inputs import mirrors

GITHUB = "https://github.com"
_TEMPLATE = Path("/usr/share/python-apt/templates/Debian.info")


def wheel_indexes(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Addresses of the package indexes, the default one first, by the pip and uv configuration of this machine."""
    config = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    uv_files = [environ.get("UV_CONFIG_FILE"), config / "uv/uv.toml", "/etc/xdg/uv/uv.toml", "/etc/uv/uv.toml"]
    pip_files = [
        environ.get("PIP_CONFIG_FILE"),
        Path(sys.prefix) / "pip.conf",
        config / "pip/pip.conf",
        Path.home() / ".pip/pip.conf",
        "/etc/xdg/pip/pip.conf",
        "/etc/pip.conf",
    ]
    found = mirrors.wheel_indexes(environ, _texts(uv_files), _texts(pip_files))
    if found and found[0]:
        return found
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    return (PYPI_SIMPLE_ENDPOINT, *found[1:])


def deb_roots(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Addresses of roots of the Debian archive, best first; empty when this machine knows none.

    `BUILDER_DEB_MIRROR` alone when it is set; else the host's apt, where that is Debian's; else python3-apt's template.
    """
    if configured := environ.get("BUILDER_DEB_MIRROR", "").split():
        return tuple(root.rstrip("/") for root in configured)
    return _host_deb_roots()


def deb_snapshots(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Snapshot archives (`BUILDER_DEB_SNAPSHOT`): the address to which `/YYYYMMDDTHHMMSSZ/pool/…` is appended."""
    return tuple(prefix.rstrip("/") for prefix in environ.get("BUILDER_DEB_SNAPSHOT", "").split())


def github_root(environ: Mapping[str, str] = os.environ) -> str:
    """GitHub's address, or that of a server that has its repositories and archives under the same paths."""
    return environ.get("BUILDER_GITHUB", "").rstrip("/") or GITHUB


@functools.cache
def _host_deb_roots() -> tuple[str, ...]:
    roots = mirrors.roots_of_targets(_indextargets())
    if not roots:
        folder = Path("/etc/apt/sources.list.d")
        files = [Path("/etc/apt/sources.list"), *sorted(folder.glob("*.sources")), *sorted(folder.glob("*.list"))]
        roots = tuple(dict.fromkeys(root for text in _texts(files) for root in mirrors.roots_of_sources(text)))
    if not roots:
        roots = tuple(root for text in _texts([_TEMPLATE]) for root in mirrors.roots_of_template(text))
    return roots


def _indextargets() -> str:
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"]
    try:
        return output(command, timeout=20).text
    except (OSError, subprocess.SubprocessError):
        return ""


def _texts(paths: list[str | Path | None] | list[Path]) -> Iterator[str]:
    for path in paths:
        try:
            if path:
                yield Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
