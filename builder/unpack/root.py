"""Completes a root of unpacked Debian packages with the files that maintainer scripts would make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .debs import MERGED, Package
from .entry import Entry, UnpackError, content, directory, from_bytes, raw, symlink

ALTERNATIVES = {
    # link: target. update-alternatives makes these links when the packages are configured.
    "usr/bin/awk": "/usr/bin/mawk",
    "usr/bin/which": "/usr/bin/which.debianutils",
    "usr/bin/cc": "/usr/bin/gcc",
    "usr/bin/c++": "/usr/bin/g++",
    "usr/bin/c89": "/usr/bin/c89-gcc",
    "usr/bin/c99": "/usr/bin/c99-gcc",
}

COPIES = {
    # Templates that maintainer scripts copy into place.
    "etc/nsswitch.conf": "usr/share/libc-bin/nsswitch.conf",
    "etc/profile": "usr/share/base-files/profile",
    "root/.profile": "usr/share/base-files/dot.profile",
    "root/.bashrc": "usr/share/base-files/dot.bashrc",
}

STATUS_D = "var/lib/dpkg/status.d"

_BUNDLE = 16 << 20

SHADOW_DAY = 18262
"""2020-01-01 in days since the epoch: the constant time of all files in layers."""


def complete(tree: Mapping[str, Entry], packages: list[Package], today: int = SHADOW_DAY) -> list[Entry]:
    """Files to add to the unpacked packages in `tree` (path → entry) so that the root works."""
    made: list[Entry] = []

    def offer(entry: Entry) -> None:
        if entry.path not in tree:
            made.append(entry)

    for folder in MERGED:
        if folder not in tree and any(path.startswith(f"usr/{folder}/") for path in tree):
            made.append(symlink(folder, f"usr/{folder}"))
    for link in _alternatives(tree):
        offer(link)
    for path, source in COPIES.items():
        if source in tree:
            offer(from_bytes(path, content(tree[source])))
    offer(symlink("usr/bin/sh", "dash"))
    offer(from_bytes("etc/ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n"))
    offer(
        from_bytes("etc/shells", b"# /etc/shells: valid login shells\n/bin/sh\n/usr/bin/sh\n/bin/bash\n/usr/bin/bash\n")
    )
    if "usr/share/zoneinfo/Etc/UTC" in tree:
        offer(symlink("etc/localtime", "/usr/share/zoneinfo/Etc/UTC"))
        offer(from_bytes("etc/timezone", b"Etc/UTC\n"))
    made += _accounts(tree, today)
    made += _certificates(tree)
    made += _dpkg(packages)
    return made


def extend(tree: Mapping[str, Entry], packages: list[Package]) -> list[Entry]:
    """Files to add to packages that are laid over a root.

    A layer cannot add to dpkg's status file without replacing it. status.d, a file for each package, is what images
    without dpkg have: inventories and scanners read both. dpkg itself lists the root's packages only.
    """
    status = {f"{STATUS_D}/{package.control.package}": package.control.installed() for package in packages}
    return [
        *(from_bytes(path, text.encode()) for path, text in status.items()),
        *(link for link in _alternatives(tree) if link.path not in tree),
    ]


def _alternatives(tree: Mapping[str, Entry]) -> Iterator[Entry]:
    for link, target in ALTERNATIVES.items():
        if target[1:] in tree:
            name = link.rpartition("/")[2]
            yield symlink(link, f"/etc/alternatives/{name}")
            yield symlink(f"etc/alternatives/{name}", target)


def _accounts(tree: Mapping[str, Entry], today: int) -> list[Entry]:
    try:
        users = content(tree["usr/share/base-passwd/passwd.master"]).decode("utf-8", "surrogateescape")
        groups = content(tree["usr/share/base-passwd/group.master"]).decode("utf-8", "surrogateescape")
    except KeyError:
        raise UnpackError("a root needs the package base-passwd", id="root-base-passwd-missing") from None
    passwd = [line.split(":") for line in users.splitlines() if line]
    group = [line.split(":") for line in groups.splitlines() if line]
    return [
        from_bytes("etc/passwd", _lines(":".join([row[0], "x", *row[2:]]) for row in passwd)),
        from_bytes("etc/group", _lines(":".join([row[0], "x", *row[2:]]) for row in group)),
        # Shadow files are readable by root alone: nothing here runs as the group `shadow`.
        from_bytes("etc/shadow", _lines(f"{row[0]}:*:{today}:0:99999:7:::" for row in passwd), 0o600),
        from_bytes("etc/gshadow", _lines(f"{row[0]}:*::" for row in group), 0o600),
    ]


def _certificates(tree: Mapping[str, Entry]) -> list[Entry]:
    paths = sorted(path for path in tree if path.startswith("usr/share/ca-certificates/") and path.endswith(".crt"))
    if not paths:
        return []
    if sum(tree[path].size for path in paths) > _BUNDLE:
        raise UnpackError(f"the certificates have more than {_BUNDLE} bytes", id="root-certificates-too-large")
    bundle = b"".join(content(tree[path]).rstrip(b"\n") + b"\n" for path in paths)
    listing = _lines(path.removeprefix("usr/share/ca-certificates/") for path in paths)
    made = [
        from_bytes("etc/ssl/certs/ca-certificates.crt", bundle),
        from_bytes("etc/ca-certificates.conf", listing),
    ]
    if "usr/lib/ssl/cert.pem" not in tree:
        # OpenSSL's default CAfile. Without it OpenSSL searches only a hashed directory, which c_rehash would make.
        made.append(symlink("usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt"))
    return made


def _dpkg(packages: list[Package]) -> list[Entry]:
    """dpkg's database, so that `dpkg-query` and scanners see exactly what was unpacked."""
    stanzas = []
    made = [
        from_bytes("var/lib/dpkg/available", b""),
        directory("var/lib/dpkg/updates"),
        directory("var/lib/dpkg/triggers"),
        from_bytes("var/lib/dpkg/info/format", b"1\n"),
    ]
    for package in sorted(packages, key=lambda package: package.control.package):
        name = package.control.name
        stanzas.append(package.control.installed())
        listing = ["/.", *(f"/{path}" for path in dict.fromkeys(package.paths))]
        made.append(from_bytes(f"var/lib/dpkg/info/{name}.list", _lines(listing)))
        if package.conffiles:
            made.append(from_bytes(f"var/lib/dpkg/info/{name}.conffiles", _lines(package.conffiles)))
    made.append(from_bytes("var/lib/dpkg/status", "\n".join(stanzas).encode()))
    return made


def _lines(lines: Iterable[str]) -> bytes:
    return raw("".join(f"{line}\n" for line in lines))
