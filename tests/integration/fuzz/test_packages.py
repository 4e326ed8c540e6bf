"""Debian packages, wheels and pages of package indexes with damaged parts inside a right envelope.

Bytes that are changed anywhere in a package mostly break its compression. Here fields, names, types and texts are
changed, and the package is made again around them, so that the code behind the first checks runs too.
"""

from __future__ import annotations

import json
import random
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from builder.errors import BuilderError
from builder.inputs.index import project_files
from builder.inputs.transfer import TransferError
from builder.lock.debs import debs_of
from builder.oci.layerblob import write_layer
from builder.store.store import Store
from builder.unpack.__main__ import write
from builder.unpack.bounds import Budget
from builder.unpack.entry import Entry, UnpackError
from builder.unpack.spool import Spool
from builder.unpack.tree import entries, normalise
from builder.unpack.wheels import Scheme, extract, install
from tests.support.debs import PASSWD, deb
from tests.support.fuzz import SEED, times
from tests.support.hostile import limit
from tests.support.mutate import Mutator
from tests.support.tars import Content, File, Folder, Hard, Link, Node
from tests.support.wheels import wheel

NAMES = (
    *("usr/bin/tool", "usr/bin", "usr", "etc", "bin/tool", "lib64", "lib/x", "etc/passwd", "usr/bin/sh", "usr/ü"),
    *("usr/share/base-passwd/passwd.master", "usr/share/base-passwd/group.master", "usr/share/base-passwd"),
    *("usr/share/ca-certificates/a.crt", "usr/share/base-files/profile", "var/lib/dpkg/status", "usr/.wh.tool"),
    *("../x", "a/../b", ".", "./.", "usr//x", "usr/a\nb", "usr/\udcff", f"usr/{'x' * 200}", "/etc/x", "usr/x/"),
)
FIELDS = ("Package", "Version", "Architecture", "Multi-Arch", "Status", "package", "X-y", "-x", "#x", "a b", "Ü")
TEXTS = (
    *("", " ", "x1", "../x", "a/b", "1:2-3~a", "arm64", "same", "x" * 300, "a\n b\n .\n c", "a\nStatus: x", "a\nb"),
    *("a\r", "a\0", "\x1b[0m", "ü", "\u2028", "a\n\n", "0" * 300, "=", "[", "]", "[console_scripts]\n", "%(x)s"),
    *("= b:c\n", ".", "..", "a:b.c", "a;b", '"', ",", "\n", ",,\n", "sha256=", "\ufeff", "1" * 5000, "-1", "http://["),
)


def changed(pick: random.Random, text: str) -> str:
    """The text with one to three pieces put in, left out or replaced."""
    for _ in range(pick.choice((1, 1, 2, 3))):
        at = pick.randrange(len(text) + 1)
        text = text[:at] + pick.choice(("", *TEXTS)) + text[at + pick.choice((0, 0, 1, 9)) :]
    return text


def member(pick: random.Random) -> Content:
    mode = pick.choice((0o644, 0o4755, 0, 0o7777))
    links = (Link(pick.choice((*NAMES, ""))), Hard(pick.choice(NAMES)))
    return pick.choice((File(b"x", mode), Folder(mode), *links, *links, Node(tarfile.CHRTYPE), b"\xff:x\n", ":\n"))


def package(pick: random.Random) -> bytes:
    files: dict[str, Content] = {**PASSWD, "usr/bin/tool": "tool", "etc/tool.conf": "x"}
    for _ in range(pick.choice((0, 1, 1, 3))):
        files[pick.choice(NAMES)] = member(pick)
    fields = {pick.choice(FIELDS): pick.choice(TEXTS) for _ in range(pick.choice((0, 0, 1, 2)))}
    conffiles = [changed(pick, "/etc/tool.conf")] if pick.random() < 0.3 else []
    return deb("tool", files, fields=fields, conffiles=conffiles, compression=pick.choice(("", ".gz", ".xz")))


def distribution(pick: random.Random) -> bytes:
    points, record = "[console_scripts]\nrun = tool.cli:main\n[x]\ny = z\n", "tool/__init__.py,sha256=x,1\n"
    names = (*NAMES, *("{data}/scripts/x", "{data}/scripts/.", "{data}/data/../x", "{data}/y/z", "{data}/headers/x"))
    return wheel(
        "tool",
        {"tool/__init__.py": "x", pick.choice(names).encode("utf-8", "replace").decode(): "#!python\n"},
        entry_points=changed(pick, points) if pick.random() < 0.6 else points,
        record=changed(pick, record).encode() if pick.random() < 0.5 else None,
    )


def root_of(path: Path, spool: Spool) -> list[Entry]:
    debs = {"debs": [{"file": "tool.deb"}], "wheels": [], "scheme": None}
    return entries({"root": True, **debs, "files": [], "shared": []}, lambda item: path, spool)


def installed(path: Path, spool: Spool) -> list[Entry]:
    found = install(path, "tool.whl", Scheme("usr/lib/site"), Budget(0))
    found += extract(path, "tool.whl", "tool", "opt/tool", Budget(0))
    return normalise(found, is_root=False)


@pytest.mark.parametrize(("make", "read"), [(package, root_of), (distribution, installed)], ids=["deb", "wheel"])
def test_a_package_is_unpacked_below_its_folder_or_refused(
    make: Callable[[random.Random], bytes], read: Callable[[Path, Spool], list[Entry]], tmp_path: Path
) -> None:
    pick, store = random.Random(SEED), Store(tmp_path / "store")
    path, outside = tmp_path / "package", set(tmp_path.iterdir())
    ends: Counter[str] = Counter()
    for number in range(times(250)):
        path.write_bytes(make(pick))
        try:
            with limit(), Spool(str(tmp_path)) as spool:
                tree = read(path, spool)
                assert all(not {"", ".", ".."} & set(entry.path.split("/")) for entry in tree)
                write_layer(store, tree, compression="none")
                if number % 4 == 0:
                    write(tree, tmp_path / f"out-{number}")
        except (UnpackError, BuilderError) as error:
            ends[error.id] += 1
            continue
        ends["accepted"] += 1
    assert {path.name for path in set(tmp_path.iterdir()) - outside if not path.name.startswith("out-")} == {"package"}
    assert ends["accepted"] > times(250) / 12
    assert len(ends) > 4


PAGE = json.dumps(
    {
        "meta": {"api-version": "1.1"},
        "name": "tool",
        "files": [
            {"filename": "tool-1-py3-none-any.whl", "url": "a", "hashes": {"sha256": "a" * 64}, "yanked": False},
            {"filename": "tool-1.tar.gz", "url": "../b", "hashes": {}, "requires-python": ">=3", "size": 10},
        ],
    }
)
HTML = (
    '<html><meta name="pypi:repository-version" content="1.0"><base href="https://a.test/"><a href="b#sha256=0">b</a>'
)


class Answers(requests.Session):
    """Answers every request with these bytes."""

    kind, data = "", b""

    def get(self, url: str | bytes, **_: Any) -> requests.Response:
        answer = requests.Response()
        answer.status_code, answer.url, answer._content = 200, str(url), self.data
        answer.headers["Content-Type"] = self.kind
        return answer


def test_the_page_of_an_index_is_read_or_refused() -> None:
    pick, mutator, session = random.Random(SEED), Mutator(PAGE, "json", SEED), Answers()
    ends: Counter[bool] = Counter()
    for number in range(times(300)):
        session.kind = ("application/vnd.pypi.simple.v1+json", "text/html")[number % 2]
        session.data = changed(pick, HTML).encode() if number % 2 else next(mutator.some(1))
        with limit():
            try:
                assert project_files(session, "https://index.test/simple", "tool") is not None
                ends[True] += 1
            except TransferError:
                ends[False] += 1
    assert min(ends.values()) > times(300) / 20


def test_what_apt_says_of_a_package_is_locked_or_refused() -> None:
    pick = random.Random(SEED)
    fields = {"Architecture": "arm64", "Filename": "pool/a.deb", "SHA256": "a" * 64, "Size": "10"}
    text = "Package: aa\nVersion: 1:2\n" + "".join(f"{name}: {value}\n" for name, value in fields.items())
    for _ in range(times(500)):
        try:
            debs_of(changed(pick, text), [("aa", "1:2")])
        except BuilderError as error:
            assert error.id in ("deb-undescribed", "deb-entry-malformed")
