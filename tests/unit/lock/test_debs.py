from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import ValidationError

from builder.errors import NetworkError, PinError, UsageError
from builder.inputs import hosts
from builder.lock.debs import debs_of, parse_uris, resolve_debs
from builder.model.lock import Deb, DebRequest
from tests.support.errors import fails
from tests.support.http_server import body, serving

STANZAS = """\
Package: base
Essential: yes
Version: 1:2-3
Architecture: arm64
Maintainer: T <t@example.test>
Filename: pool/main/b/base/base_2-3_arm64.deb
Size: 100
SHA256: {a}
Description: x

Package: tool
Version: 1+b1
Architecture: arm64
Maintainer: T <t@example.test>
Depends: lib
Recommends: unwanted
Filename: pool/main/t/tool/tool_1+b1_arm64.deb
Size: 200
SHA256: {b}
Description: x

Package: lib
Version: 0.1~rc1
Architecture: all
Maintainer: T <t@example.test>
Filename: pool/main/l/lib/lib_0.1~rc1_all.deb
Size: 300
SHA256: {c}
Description: x

Package: strict
Version: 1
Architecture: all
Maintainer: T <t@example.test>
Depends: lib (>= 0.1~rc1)
Filename: pool/main/s/strict/strict_1_all.deb
Size: 300
SHA256: {c}
Description: x

Package: unwanted
Version: 1
Architecture: all
Maintainer: T <t@example.test>
Filename: pool/main/u/unwanted/unwanted_1_all.deb
Size: 300
SHA256: {c}
Description: x
""".format(a="a" * 64, b="b" * 64, c="c" * 64)


def test_uris_are_read_with_epochs_and_binary_rebuilds() -> None:
    text = (
        "NOTE: something\n"
        "'http://h.test/pool/m/mawk_1.3-3_arm64.deb' mawk_1.3-3_arm64.deb 10 SHA256:ab\n"
        "'http://h.test/pool/l/libcap2_2.66+b1_arm64.deb' libcap2_1%3a2.66+b1_arm64.deb 10 \n"
    )
    assert parse_uris(text) == [("mawk", "1.3-3"), ("libcap2", "1:2.66+b1")]


def test_entries_are_sorted_and_complete() -> None:
    debs = debs_of(STANZAS, [("tool", "1+b1"), ("base", "1:2-3")])
    assert [deb.package for deb in debs] == ["base", "tool"]
    assert (debs[0].path, debs[0].size, debs[0].sha256) == ("pool/main/b/base/base_2-3_arm64.deb", 100, "a" * 64)
    with fails(PinError, "deb-undescribed"):
        debs_of(STANZAS, [("other", "1")])


def request(*packages: str) -> DebRequest:
    return DebRequest(suite="trixie", architecture="arm64", packages=packages)


def test_a_missing_mirror_or_keyring_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    with fails(PinError, "deb-mirror-unknown"):
        resolve_debs(request("tool"), ())
    with fails(UsageError, "deb-keyring-missing"):
        resolve_debs(request("tool"), ("http://127.0.0.1:1/debian",), keyring=tmp_path / "none.gpg")


# --- apt against a signed archive of our own ---


@dataclass(frozen=True)
class Archive:
    root: str
    keyring: Path


needs_apt = pytest.mark.skipif(not (shutil.which("gpg") and shutil.which("apt-get")), reason="needs apt and gpg")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    home = tmp_path_factory.mktemp("g")
    home.chmod(0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
    subprocess.run([*gpg, "--quick-generate-key", "t@example.test", "ed25519", "sign", "never"], check=True)
    keyring = home / "keyring.gpg"
    keyring.write_bytes(subprocess.run([*gpg, "--export"], check=True, capture_output=True).stdout)
    packages = gzip.compress(STANZAS.encode())
    plain = STANZAS.encode()
    rows = [
        f" {hashlib.sha256(data).hexdigest()} {len(data)} main/binary-arm64/Packages{suffix}"
        for data, suffix in ((packages, ".gz"), (plain, ""))
    ]
    head = "Origin: T\nSuite: stable\nCodename: trixie\nDate: Sat, 21 Nov 2020 00:00:00 UTC\n"
    release = head + "Architectures: arm64 all\nComponents: main\nSHA256:\n" + "\n".join(rows) + "\n"
    signed = subprocess.run([*gpg, "--clearsign"], input=release.encode(), check=True, capture_output=True).stdout
    with serving() as server:
        server.on("/debian/dists/trixie/InRelease", body(signed, ranges=False))
        server.on("/debian/dists/trixie/main/binary-arm64/Packages.gz", body(packages, ranges=False))
        yield Archive(f"{server.address}/debian", keyring)
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)


@needs_apt
def test_apt_resolves_on_an_empty_system_without_recommends(archive: Archive) -> None:
    debs = resolve_debs(request("?essential", "tool"), (archive.root,), keyring=archive.keyring)
    assert [(deb.package, deb.version, deb.architecture) for deb in debs] == [
        ("base", "1:2-3", "arm64"),
        ("lib", "0.1~rc1", "all"),
        ("tool", "1+b1", "arm64"),
    ]


def present(package: str, version: str) -> Deb:
    return Deb(package=package, version=version, architecture="arm64", path="x.deb", sha256="a" * 64, size=1)


@needs_apt
def test_what_the_target_has_is_left_out(archive: Archive) -> None:
    base = present("base", "1:1")
    debs = resolve_debs(request("tool>=1", "base"), (archive.root,), (base,), keyring=archive.keyring)
    assert [deb.package for deb in debs] == ["lib", "tool"], "base stays, though the archive has a newer one"
    held = present("lib", "0.1~rc1")
    debs = resolve_debs(request("tool"), (archive.root,), (base, held), keyring=archive.keyring)
    assert [deb.package for deb in debs] == ["tool"]


@needs_apt
def test_a_package_that_needs_another_version_is_refused(archive: Archive) -> None:
    with fails(PinError, "deb-version-held") as caught:
        resolve_debs(request("strict"), (archive.root,), (present("lib", "0.1~beta"),), keyring=archive.keyring)
    assert "lib 0.1~rc1" in caught.value.what
    assert "lib 0.1~beta" in caught.value.cause
    with fails(PinError, "deb-version-too-old"):
        resolve_debs(request("tool>=1:0"), (archive.root,), keyring=archive.keyring)


@needs_apt
def test_a_mirror_that_does_not_answer_is_skipped(archive: Archive) -> None:
    roots = ("http://me:secret@127.0.0.1:1/debian", archive.root)
    assert len(resolve_debs(request("lib"), roots, keyring=archive.keyring)) == 1
    with fails(NetworkError, "deb-lists-unreadable") as caught:
        resolve_debs(request("lib"), roots[:1], keyring=archive.keyring)
    assert "127.0.0.1:1" in caught.value.cause
    assert "secret" not in str(caught.value)


@needs_apt
def test_a_package_that_apt_cannot_find_is_named(archive: Archive) -> None:
    with fails(PinError, "deb-request-unsatisfiable") as caught:
        resolve_debs(request("no-such-package"), (archive.root,), keyring=archive.keyring)
    assert "no-such-package" in caught.value.cause


@needs_apt
def test_an_archive_signed_by_someone_else_is_refused(archive: Archive, tmp_path: Path) -> None:
    empty = tmp_path / "empty.gpg"
    empty.write_bytes(b"")
    with fails(NetworkError, "deb-lists-unreadable") as caught:
        resolve_debs(request("lib"), (archive.root,), keyring=empty)
    assert any(word in caught.value.cause for word in ("not signed", "NO_PUBKEY", "InRelease"))


@pytest.mark.network
def test_the_real_archive_resolves() -> None:
    if not hosts.deb_roots():
        pytest.skip("this machine knows no mirror")
    debs = resolve_debs(request("libc-bin"), hosts.deb_roots())
    assert {"libc6", "libc-bin"} <= {deb.package for deb in debs}


@pytest.mark.parametrize("package", ['?name("(((a{1,200}){1,200}){1,200})")', '?name("(a*)\\\\1")', "-o", "a\nb"])
def test_a_pattern_that_takes_gigabytes_is_no_request(package: str) -> None:
    with pytest.raises(ValidationError):
        request("?essential", package)
