"""A root works without maintainer scripts: what they would have made is written."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from builder.unpack.__main__ import write
from builder.unpack.entry import Entry, UnpackError, content
from builder.unpack.spool import Spool
from builder.unpack.tree import entries
from tests.support.debs import PASSWD, deb
from tests.support.errors import fails
from tests.support.tars import Content, File, Link

Root = Callable[..., dict[str, Entry]]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    """The tree of a root layer with base-passwd and these packages."""
    with Spool(str(tmp_path)) as spool:

        def made(*packages: bytes, base: bool = True) -> dict[str, Entry]:
            all_of_them = [*([deb("base-passwd", PASSWD)] if base else []), *packages]
            for number, data in enumerate(all_of_them):
                (tmp_path / f"{number}.deb").write_bytes(data)
            spec = {
                "root": True,
                "debs": [{"file": f"{number}.deb"} for number in range(len(all_of_them))],
                "wheels": [],
                "scheme": None,
                "files": [],
                "shared": [],
            }
            return {entry.path: entry for entry in entries(spec, lambda item: tmp_path / item["file"], spool)}

        yield made


def text(tree: Mapping[str, Entry], path: str) -> str:
    return content(tree[path]).decode()


def test_accounts_come_from_base_passwd_without_passwords(root: Root) -> None:
    tree = root()
    assert text(tree, "etc/passwd") == ("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n")
    assert text(tree, "etc/group") == "root:x:0:\nnogroup:x:65534:\n"
    assert text(tree, "etc/shadow") == "root:*:18262:0:99999:7:::\nnobody:*:18262:0:99999:7:::\n"
    assert text(tree, "etc/gshadow") == "root:*::\nnogroup:*::\n"
    assert [tree[f"etc/{name}"].mode for name in ("passwd", "group", "shadow", "gshadow")] == [
        0o644,
        0o644,
        0o600,
        0o600,
    ]


def test_accounts_keep_bytes_that_are_not_utf8(root: Root) -> None:
    users = {**PASSWD, "usr/share/base-passwd/passwd.master": b"root:\xff:0:0:r\xe9:/root:/bin/sh\n"}
    tree = root(deb("base-passwd", users), base=False)
    assert content(tree["etc/passwd"]) == b"root:x:0:0:r\xe9:/root:/bin/sh\n"


@pytest.mark.parametrize("path", ["usr/share/base-files/profile", "usr/share/ca-certificates/a.crt"])
def test_a_file_that_grows_in_memory_is_refused(root: Root, path: str) -> None:
    with fails(UnpackError, "entry-too-large"):
        root(deb("tool", {path: bytes(2 << 20)}))


def test_without_base_passwd_there_is_no_root(root: Root) -> None:
    with fails(UnpackError, "root-base-passwd-missing"):
        root(deb("tool", {"usr/bin/tool": "x"}), base=False)


def test_merged_folders_become_links_where_something_lies_behind_them(root: Root) -> None:
    tree = root(deb("tool", {"bin/tool": "x", "lib/x.so": "y"}))
    assert {path: tree[path].link for path in ("bin", "lib")} == {"bin": "usr/bin", "lib": "usr/lib"}
    assert "lib64" not in tree
    assert "sbin" not in tree


def test_a_package_with_the_links_decides(root: Root) -> None:
    tree = root(deb("base-files", {"bin": Link("usr/bin"), "usr/bin/x": "x"}))
    assert tree["bin"].link == "usr/bin"


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("usr/bin/awk", "usr/bin/mawk"),
        ("usr/bin/which", "usr/bin/which.debianutils"),
        ("usr/bin/cc", "usr/bin/gcc"),
        ("usr/bin/c++", "usr/bin/g++"),
    ],
)
def test_alternatives_are_there_with_what_they_choose(root: Root, link: str, target: str) -> None:
    assert link not in root()
    tree = root(deb("tool", {target: "x"}))
    name = Path(link).name
    assert tree[link].link == f"/etc/alternatives/{name}"
    assert tree[f"etc/alternatives/{name}"].link == f"/{target}"


def test_templates_are_copied_unless_a_package_brings_the_file(root: Root) -> None:
    template: dict[str, Content] = {"usr/share/libc-bin/nsswitch.conf": "passwd: files\n"}
    assert text(root(deb("libc-bin", template)), "etc/nsswitch.conf") == "passwd: files\n"
    tree = root(deb("libc-bin", {**template, "etc/nsswitch.conf": "own\n"}))
    assert text(tree, "etc/nsswitch.conf") == "own\n"


def test_small_files_that_everything_expects(root: Root) -> None:
    tree = root(deb("tzdata", {"usr/share/zoneinfo/Etc/UTC": "TZif"}))
    assert tree["usr/bin/sh"].link == "dash"
    assert text(tree, "etc/ld.so.conf") == "include /etc/ld.so.conf.d/*.conf\n"
    assert tree["etc/localtime"].link == "/usr/share/zoneinfo/Etc/UTC"
    assert "/bin/bash" in text(tree, "etc/shells")


@pytest.mark.parametrize(
    "path", ["etc/resolv.conf", "etc/hostname", "etc/hosts", "etc/apt/sources.list", "etc/machine-id"]
)
def test_nothing_of_a_machine_is_in_it(root: Root, path: str) -> None:
    assert path not in root(deb("tool", {"usr/bin/tool": "x"}))


def test_the_bundle_of_authorities_is_sealed_and_openssl_finds_it(root: Root, tmp_path: Path) -> None:
    found = ssl.get_default_verify_paths().cafile
    if found is None or not Path(found).exists():
        pytest.skip("this machine has no bundle of its own to take certificates from")
    blocks = Path(found).read_text().split("-----END CERTIFICATE-----\n")[:3]
    files: dict[str, Content] = {
        f"usr/share/ca-certificates/mozilla/{n}.crt": block + "-----END CERTIFICATE-----" + "\n" * (n % 2)
        for n, block in enumerate(blocks)
    }
    tree = root(deb("ca-certificates", files))
    (tmp_path / "bundle").write_bytes(content(tree["etc/ssl/certs/ca-certificates.crt"]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tmp_path / "bundle")
    assert len(context.get_ca_certs()) == 3
    assert text(tree, "etc/ca-certificates.conf") == "mozilla/0.crt\nmozilla/1.crt\nmozilla/2.crt\n"
    assert tree["usr/lib/ssl/cert.pem"].link == "/etc/ssl/certs/ca-certificates.crt"


PACKAGES = [
    deb("zeta", {"usr/bin/zeta": "z"}, version="1:2.0-1", architecture="arm64", fields={"Multi-Arch": "same"}),
    deb("alpha", {"etc/alpha.conf": "a"}, conffiles=["/etc/alpha.conf"], fields={"Description": "a\n more\n ."}),
]


def test_dpkgs_database_names_exactly_the_packages(root: Root) -> None:
    tree = root(*PACKAGES)
    stanzas = [
        dict(line.split(": ", 1) for line in stanza.splitlines() if not line.startswith(" "))
        for stanza in text(tree, "var/lib/dpkg/status").strip().split("\n\n")
    ]
    assert [(stanza["Package"], stanza["Version"]) for stanza in stanzas] == [
        ("alpha", "1"),
        ("base-passwd", "1"),
        ("zeta", "1:2.0-1"),
    ]
    assert {stanza["Status"] for stanza in stanzas} == {"install ok installed"}
    assert text(tree, "var/lib/dpkg/info/zeta:arm64.list") == "/.\n/usr\n/usr/bin\n/usr/bin/zeta\n"
    assert text(tree, "var/lib/dpkg/info/alpha.conffiles") == "/etc/alpha.conf\n"
    assert "var/lib/dpkg/info/zeta:arm64.conffiles" not in tree


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="dpkg-query is not installed")
def test_dpkg_query_reads_it(root: Root, tmp_path: Path) -> None:
    write(list(root(*PACKAGES).values()), tmp_path / "root")
    admin = f"--admindir={tmp_path / 'root/var/lib/dpkg'}"

    def query(*words: str) -> list[str]:
        return subprocess.run(
            ["dpkg-query", admin, *words], capture_output=True, text=True, check=True
        ).stdout.splitlines()

    shown = query("--show", "--showformat", "${binary:Package} ${Version} ${db:Status-Status}\\n")
    assert shown == ["alpha 1 installed", "base-passwd 1 installed", "zeta:arm64 1:2.0-1 installed"]
    assert query("--listfiles", "zeta:arm64")[-1] == "/usr/bin/zeta"
    assert query("--search", "/etc/alpha.conf") == ["alpha: /etc/alpha.conf"]


def test_set_id_files_of_packages_stay(root: Root) -> None:
    assert root(deb("passwd", {"usr/bin/su": File(b"x", 0o4755)}))["usr/bin/su"].mode == 0o4755
