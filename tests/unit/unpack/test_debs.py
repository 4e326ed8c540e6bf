"""Debian packages become the tree that dpkg makes of them, without running anything."""

from __future__ import annotations

import gzip
import lzma
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.unpack.bounds import Budget
from builder.unpack.control import parse
from builder.unpack.debs import Package, unpack
from builder.unpack.entry import Entry, UnpackError, content
from builder.unpack.spool import Spool
from builder.unpack.tree import normalise
from tests.support.debs import ar, deb
from tests.support.errors import fails
from tests.support.tars import File, Folder, Hard, Link, Node, tar

Unpack = Callable[..., tuple[dict[str, Entry], list[Package]]]


@pytest.fixture
def unpacked(tmp_path: Path) -> Iterator[Unpack]:
    """Unpacks packages given as bytes; they lie under names that say nothing, as in the store."""
    with Spool(str(tmp_path)) as spool:

        def made(*packages: bytes) -> tuple[dict[str, Entry], list[Package]]:
            files = []
            for number, data in enumerate(packages):
                path = tmp_path / f"blob-{number}"
                path.write_bytes(data)
                files.append((path, f"package-{number}.deb"))
            entries, found = unpack(files, spool, Budget(0))
            return {entry.path: entry for entry in entries}, found

        yield made


@pytest.mark.parametrize("compression", [".xz", ".gz", ".bz2", ""])
def test_every_compression_that_dpkg_writes_for_trixie_and_bookworm(unpacked: Unpack, compression: str) -> None:
    files = {"usr/bin/tool": File(b"#!/bin/sh\n", 0o755), "usr/share/doc/tool/copyright": "free\n"}
    tree, (package,) = unpacked(deb("tool", files, compression=compression))
    assert content(tree["usr/bin/tool"]) == b"#!/bin/sh\n"
    assert tree["usr/bin/tool"].mode == 0o755
    assert tree["usr/share/doc"].kind == "dir"
    assert package.control.package == "tool"
    assert package.control.text.startswith("Package: tool\nVersion: 1\n")


def test_contents_can_be_read_twice_and_in_any_order(unpacked: Unpack) -> None:
    files = {f"usr/share/{n}": bytes([n]) * (n * 1000) for n in range(20)}
    tree, _ = unpacked(deb("tool", files))
    for n in (7, 0, 19, 7):
        assert content(tree[f"usr/share/{n}"]) == bytes([n]) * (n * 1000)


def test_zstd_is_refused_clearly(unpacked: Unpack) -> None:
    with fails(UnpackError, "deb-compression-unknown"):
        unpacked(deb("tool", {}, compression=".zst"))


def test_what_lies_through_the_merged_folders_moves_below_usr(unpacked: Unpack) -> None:
    files = {
        "bin/tool": "a",
        "sbin/admin": "b",
        "lib/aarch64-linux-gnu/libx.so.1": "c",
        "lib64/ld.so": "d",
        "usr/lib/same": "e",
        "usr/bin/other": Hard("bin/tool"),
        "library/x": "f",
        "etc/lib/x": "g",
    }
    tree, (package,) = unpacked(deb("tool", files))
    assert {path for path, entry in tree.items() if entry.kind != "dir"} == {
        *("usr/bin/tool", "usr/sbin/admin", "usr/lib/aarch64-linux-gnu/libx.so.1", "usr/lib64/ld.so", "usr/lib/same"),
        *("usr/bin/other", "library/x", "etc/lib/x"),
    }
    assert tree["usr/bin/other"].link == "usr/bin/tool"
    assert not {"bin", "sbin", "lib", "lib64"} & tree.keys()
    assert set(package.paths) == tree.keys()


def test_a_package_may_bring_the_links_themselves(unpacked: Unpack) -> None:
    files = {name: Link(f"usr/{name}") for name in ("bin", "lib")} | {"usr/bin/x": "x"}
    tree, _ = unpacked(deb("base-files", files))
    assert (tree["bin"].kind, tree["bin"].link) == ("symlink", "usr/bin")


def test_links_modes_and_folders_come_as_they_are(unpacked: Unpack) -> None:
    files = {
        "usr/bin/su": File(b"x", 0o4755),
        "usr/bin/link": Link("/etc/alternatives/x"),
        "var/tmp": Folder(0o1777),
        "usr/bin/hard": Hard("usr/bin/su"),
    }
    tree, _ = unpacked(deb("tool", files))
    assert tree["usr/bin/su"].mode == 0o4755
    assert tree["usr/bin/link"].link == "/etc/alternatives/x"
    assert tree["var/tmp"].mode == 0o1777
    root = {entry.path: entry for entry in normalise(tree.values(), is_root=True)}
    assert (root["usr/bin/hard"].kind, root["usr/bin/su"].link) == ("file", "usr/bin/hard")


def test_packages_come_in_order_and_may_share_folders_but_no_file(unpacked: Unpack, tmp_path: Path) -> None:
    _, packages = unpacked(deb("bb", {"usr/share/b": "b"}), deb("aa", {"usr/share/a": "a"}))
    assert [package.control.package for package in packages] == ["bb", "aa"]
    with Spool(str(tmp_path)) as spool:
        paths = []
        for name in ("one", "two"):
            (tmp_path / name).write_bytes(deb(name, {"usr/share/x": name}))
            paths.append((tmp_path / name, f"{name}.deb"))
        entries, _ = unpack(paths, spool, Budget(0))
        with fails(UnpackError, "layer-path-twice"):
            normalise(entries, is_root=True)


def test_configuration_files(unpacked: Unpack) -> None:
    lines = ["/etc/tool.conf", "remove-on-upgrade /etc/gone.conf"]
    _, (package,) = unpacked(deb("tool", {"etc/tool.conf": "a"}, conffiles=lines))
    assert package.conffiles == ("/etc/tool.conf",)


def test_names_that_are_not_utf8_keep_their_bytes(unpacked: Unpack) -> None:
    name = b"usr/share/caf\xe9".decode("utf-8", "surrogateescape")
    tree, _ = unpacked(deb("tool", {name: "x", "usr/share/käse": "y", "usr/share/" + "n" * 300: "z"}))
    assert name in tree
    assert "usr/share/käse" in tree
    assert "usr/share/" + "n" * 300 in tree


WHOLE = deb("tool", {"usr/bin/tool": bytes(range(256)) * 40}, compression=".xz")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"!<arch>\n",
        b"not an archive at all",
        WHOLE[:40],
        WHOLE[:100],
        WHOLE[:250],
        WHOLE[:-10],
        WHOLE[:-100],
        WHOLE.replace(b"`\n", b"xx", 1),
        WHOLE.replace(b"\xfd7zXZ", b"\xfd7zXY"),
        ar({"control.tar": tar({"control": "Package: a\n"}), "data.tar.xz": lzma.compress(tar({})) + b"more"}),
        WHOLE[:-200] + bytes(100) + WHOLE[-100:],
        ar({"debian-binary": b"2.0\n", "data.tar": tar({})}),
        ar({"debian-binary": b"2.0\n", "control.tar": tar({"control": "Package: a\n"})}),
        ar({"control.tar": tar({"md5sums": ""}), "data.tar": tar({})}),
        ar({"control.tar": tar({"control": "Version: 1\n"}), "data.tar": tar({})}),
        ar({"control.tar": tar({"control": b"Package: \xff\n"}), "data.tar": tar({})}),
        ar({"control.tar.gz": b"\x1f\x8b rubbish", "data.tar": tar({})}),
        ar({"control.tar.bz2": b"rubbish", "data.tar": tar({})}),
        ar({"control.tar": tar({"control": "Package: a\n"}), "data.tar": tar({"usr/x": "x"})[:700]}),
        b"!<arch>\n" + f"{'data.tar':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{-60:<10}`\n".encode() + bytes(100),
    ],
)
def test_a_damaged_package_is_named(unpacked: Unpack, data: bytes) -> None:
    with pytest.raises(UnpackError) as caught:
        unpacked(data)
    assert str(caught.value).startswith("package-0.deb")


def test_xz_with_a_dictionary_of_many_gigabytes_is_refused(unpacked: Unpack) -> None:
    stream = bytearray(lzma.compress(tar({"usr/x": "x"})))
    header = stream[12 : 12 + (stream[12] + 1) * 4]
    header[header.index(b"\x21\x01") + 2] = 37  # LZMA2 with a dictionary of 1.5 GiB
    header[-4:] = zlib.crc32(header[:-4]).to_bytes(4, "little")
    stream[12 : 12 + len(header)] = header
    control = tar({"control": "Package: tool\nVersion: 1\nArchitecture: all\n"})
    with fails(UnpackError, "archive-damaged") as caught:
        unpacked(ar({"control.tar": control, "data.tar.xz": bytes(stream)}))
    assert "limit" in str(caught.value)


@pytest.mark.parametrize(
    "member", [{"../x": "x"}, {"dev/null": Node(tarfile.CHRTYPE)}, {"usr/pipe": Node(tarfile.FIFOTYPE)}]
)
def test_what_no_layer_can_hold_is_refused(unpacked: Unpack, member: dict[str, Any]) -> None:
    data = ar({"control.tar": tar({"control": "Package: a\n"}), "data.tar": tar(member)})
    with pytest.raises(UnpackError) as caught:
        unpacked(data)
    assert str(caught.value).startswith("package-0.deb")


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_dpkg_reads_the_packages_of_these_tests_and_makes_packages_that_are_read(
    unpacked: Unpack, tmp_path: Path
) -> None:
    (tmp_path / "ours.deb").write_bytes(deb("tool", {"usr/bin/tool": "x"}))
    said = subprocess.run(["dpkg-deb", "--contents", tmp_path / "ours.deb"], capture_output=True, text=True, check=True)
    assert "./usr/bin/tool" in said.stdout
    (tmp_path / "pkg/DEBIAN").mkdir(parents=True)
    (tmp_path / "pkg/DEBIAN/control").write_text(
        "Package: real\nVersion: 1\nArchitecture: all\nMaintainer: n <n@example.org>\nDescription: d\n"
    )
    (tmp_path / "pkg/opt").mkdir()
    (tmp_path / "pkg/opt/file").write_text("real")
    (tmp_path / "pkg/opt/hard").hardlink_to(tmp_path / "pkg/opt/file")
    command = ["dpkg-deb", "-Zxz", "-z0", "--build", "--root-owner-group", tmp_path / "pkg", tmp_path / "real.deb"]
    subprocess.run(command, check=True, capture_output=True)
    tree, (package,) = unpacked((tmp_path / "real.deb").read_bytes())
    assert package.control.package == "real"
    assert {entry.kind for path, entry in tree.items() if path.startswith("opt/")} == {"file", "hardlink"}


CONTROL = "Package: tool\nVersion: 1\nArchitecture: all\nDescription: a tool\n of two lines\n .\n\tand more\n"
FORGED = {
    "a path for a name": CONTROL.replace("tool\n", "../../../usr/bin/x\n", 1),
    "a name with a slash": CONTROL.replace("tool\n", "to/ol\n", 1),
    "a name of one letter": CONTROL.replace("tool\n", "t\n", 1),
    "a name in capitals": CONTROL.replace("tool\n", "Tool\n", 1),
    "a name that goes on": CONTROL.replace("tool\n", "tool\n extra\n", 1),
    "no name": CONTROL.partition("\n")[2],
    "a version with a slash": CONTROL.replace("Version: 1", "Version: 1/../x"),
    "a version with a space": CONTROL.replace("Version: 1", "Version: 1 2"),
    "a version of letters": CONTROL.replace("Version: 1", "Version: x"),
    "no version": CONTROL.replace("Version: 1\n", ""),
    "a path for an architecture": CONTROL.replace("Architecture: all", "Architecture: ../all") + "Multi-Arch: same\n",
    "no architecture": CONTROL.replace("Architecture: all\n", ""),
    "a value that nobody knows": CONTROL + "Multi-Arch: ../x\n",
    "a second package": CONTROL + "\nPackage: forged\nVersion: 1\nArchitecture: all\n",
    "a second package behind spaces": CONTROL + " \nPackage: forged\n",
    "a field twice": CONTROL + "package: other\n",
    "a line break of another kind": CONTROL.replace("two lines", "two\x0bStatus: x"),
    "a carriage return": CONTROL.replace("two lines", "two\rlines"),
    "a NUL": CONTROL.replace("two lines", "two\0lines"),
    "its own status": CONTROL + "Status: deinstall ok config-files\n",
    "its own conffiles": CONTROL + "Conffiles:\n /etc/passwd 0\n",
    "a comment": "# x\n" + CONTROL,
    "a continuation without a field": " x\n" + CONTROL,
    "no field": CONTROL + "text\n",
}


@pytest.mark.parametrize("control", FORGED.values(), ids=FORGED)
def test_control_fields_that_dpkg_refuses_are_refused(unpacked: Unpack, control: str) -> None:
    with fails(UnpackError, "deb-control-invalid"):
        unpacked(ar({"debian-binary": b"2.0\n", "control.tar": tar({"control": control}), "data.tar": tar({})}))


def test_control_fields_stay_as_they_are() -> None:
    control = parse(CONTROL + "X-Text: \u2028 \x85 ä\n\n", "x")
    assert control.text == CONTROL + "X-Text: \u2028 \x85 ä"
    assert control.installed() == control.text.replace("tool\n", "tool\nStatus: install ok installed\n", 1) + "\n"
    assert parse("Version: 1\n" + CONTROL.replace("Version: 1\n", ""), "x").installed().count("tool\nStatus: ") == 1


def test_a_package_has_one_reading(unpacked: Unpack) -> None:
    meta, data = tar({"control": CONTROL}), tar({"usr/a": "a"})
    for members in (
        {"control.tar": meta, "control.tar.gz": gzip.compress(meta), "data.tar": data},
        {"control.tar": meta, "data.tar": data, "data.tar.gz": gzip.compress(tar({"usr/b": "b"}))},
    ):
        with fails(UnpackError, "deb-invalid"):
            unpacked(ar({"debian-binary": b"2.0\n", **members}))
    twice = tar([("./control", CONTROL), ("control", CONTROL)])
    with fails(UnpackError, "deb-control-invalid"):
        unpacked(ar({"control.tar": twice, "data.tar": data}))


def test_names_of_files_forge_no_line_of_dpkgs_database(unpacked: Unpack) -> None:
    with fails(UnpackError, "deb-path-invalid"):
        unpacked(deb("tool", {"usr/a\n/etc/passwd": "x"}))
    with fails(UnpackError, "deb-control-invalid"):
        unpacked(deb("tool", {}, conffiles=["/etc/../../x"]))
