"""The catalogue of a store: what its pages say, and that no text of an image becomes markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from builder.cli.output import size
from builder.digest import Digest
from builder.site.facts import Layer, Package, Page, Proof, package_of
from builder.site.pages import file_names, render
from builder.site.stored import layers_of
from builder.smoke.image.opened import LayerBlob, OpenedImage
from builder.smoke.report import Report, Result
from builder.store.store import Store
from tests.support.cli import Cli

DIGEST = Digest("sha256:" + "d" * 64)
EVIL = "</style></script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m\" '"


class Links(HTMLParser):
    """The targets of links, and all elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.targets += [value or "" for name, value in attrs if name in ("href", "src")]


@pytest.fixture
def built(online: Cli) -> Cli:
    """The small image, built, tested, changed and built again."""
    assert online("build", "--recipe", "tiny").code == 0
    online.small.files["recipes/tiny.yaml"]["env"] = {"LAST": "another word"}
    assert online("build", "--recipe", "tiny").code == 0
    online("test", "--recipe", "tiny")
    return online


def page_of(cli: Cli) -> str:
    (path,) = (cli.folder / "site/images").iterdir()
    return path.read_text()


def test_a_site_of_the_store(built: Cli) -> None:
    done = built("site", "site")
    assert (done.code, done.out) == (0, "site/index.html\n"), done.err
    text = page_of(built)
    digest = built("build", "--recipe", "tiny").out.strip()
    assert f"<code>{digest}</code>" in text
    assert "builder load --recipe tiny" in text
    assert re.search(r"\d+ (passed|of \d+ failed)", text)
    assert '<td>env <span class="id">LAST</span></td>' in text
    assert "another word" in text
    assert "<td>alpha</td><td>1.0</td><td>python</td>" in text
    assert "1 earlier image" in text
    index = (built.folder / "site/index.html").read_text()
    assert digest[:19] in index
    for path in (built.folder / "site").rglob("*.html"):
        assert path.stat().st_size < 300_000
        for target in Links(path.read_text()).targets:
            assert (path.parent / unquote(target)).resolve().is_file(), target


def test_equal_stores_have_equal_sites_and_old_pages_go(built: Cli) -> None:
    built("site", "site")
    before = {path.name: path.read_bytes() for path in (built.folder / "site").rglob("*.html")}
    old = built.folder / "site/images/gone.html"
    old.write_bytes((built.folder / "site/index.html").read_bytes())
    assert built("site", "site").code == 0
    assert {path.name: path.read_bytes() for path in (built.folder / "site").rglob("*.html")} == before


@pytest.mark.parametrize("name", ["index.html", "images/mine.html", "notes.txt"])
def test_a_folder_of_something_else_is_left_alone(cli: Cli, name: str) -> None:
    path = cli.folder / "site" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    cli("site", "site").failed(2, "site-folder-foreign")
    assert path.read_text() == "mine"
    assert len([item for item in (cli.folder / "site").rglob("*") if item.is_file()]) == 1


def test_no_page_is_written_or_removed_through_a_link(built: Cli, tmp_path: Path) -> None:
    built("site", "site")
    images = built.folder / "site/images"
    other = tmp_path / "other"
    images.rename(other)
    before = {path.name: path.read_bytes() for path in other.iterdir()}
    (other / "mine.html").write_bytes((built.folder / "site/index.html").read_bytes())
    images.symlink_to(other)
    built("site", "site").failed(2, "site-folder-foreign")
    assert (other / "mine.html").exists()
    assert before == {path.name: path.read_bytes() for path in other.iterdir() if path.name != "mine.html"}


def test_an_empty_store(cli: Cli) -> None:
    assert cli("site", "site").code == 0
    assert "There is no image yet" in (cli.folder / "site/index.html").read_text()


def test_keys_say_nothing_about_a_store(cli: Cli, tmp_path: Path) -> None:
    from tests.support.statements import new_key

    _, public = new_key(tmp_path, "own")
    cli("site", "site", "--signed-by", str(public)).failed(2, "site-keys-without-images")


def test_damaged_records_are_left_out(built: Cli) -> None:
    store = Store(built.folder / "store")
    for path in (store.root / "images").glob("*.json"):
        data = json.loads(path.read_text())
        store.blob(Digest(data["digest"])).unlink()
    assert built("site", "site").code == 0
    assert not list((built.folder / "site/images").iterdir())


def hostile() -> Page:
    """A page all of whose texts are hostile."""
    layer = Layer(EVIL, EVIL, DIGEST, 5)
    labels = {"org.opencontainers.image.description": EVIL, "org.builder.vllm.version": EVIL, EVIL: EVIL}
    return Page(
        recipe=EVIL,
        base="../../" + EVIL,
        digest=DIGEST,
        place=EVIL,
        commands={EVIL: EVIL},
        config={"created": EVIL, "config": {"Labels": labels, "Cmd": [EVIL, {}], "Entrypoint": 3, "Env": [EVIL]}},
        layers=[layer, replace(layer, size=0)],
        packages=[Package("python", EVIL, EVIL)],
        note=EVIL,
        proofs=[Proof(EVIL, "no", EVIL)],
        report=Report(DIGEST, [Result(EVIL, EVIL, "static", "fail", EVIL), Result("a", "b", EVIL, "pass")]),
        earlier=[(DIGEST, EVIL)],
    )


def test_no_text_becomes_markup() -> None:
    harmless = render([replace(hostile(), recipe="a", base="b")] * 2, size)
    for name, text in render([hostile()] * 2, size).items():
        tags = Links(text).tags
        assert tags.count("script") == 1, name
        assert "img" not in tags
        assert "\u202e" not in text
        assert "\x1b" not in text
        assert re.fullmatch(r"index\.html|images/[a-z0-9.-]+\.html", name)
        assert ".." not in name
    assert len(harmless) == 3


def test_names_of_pages_differ() -> None:
    page = hostile()
    names = file_names([page, page, replace(page, recipe="other", base="b")])
    assert len(set(names)) == 3
    assert names[2] == "images/other-b.html"


def test_a_history_may_be_null() -> None:
    blob = LayerBlob(DIGEST, 1, Path("nowhere"))
    (layer,) = layers_of(OpenedImage(DIGEST, {}, {"history": None}, (blob,)))
    assert (layer.id, layer.title) == ("layer 1", "")


def test_a_large_image_has_a_small_page() -> None:
    """The largest image of this project has 330 packages."""
    many = [Package("debian", f"a-package-of-debian-{number}", "1:2.3-4+deb13u5") for number in range(1500)]
    results = [Result(f"check-{number}", "a", "static", "pass", "found" * 100) for number in range(150)]
    page = replace(hostile(), packages=many, report=Report(DIGEST, results))
    assert all(len(text.encode()) < 300_000 for text in render([page], size).values())


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("adduser_3.152_all.deb", Package("debian", "adduser", "3.152")),
        ("libc6_1%3a2.41-12_arm64.deb", Package("debian", "libc6", "1:2.41-12")),
        ("vllm-0.23.0-2-cp38-abi3-manylinux_2_28_aarch64.whl", Package("python", "vllm", "0.23.0")),
        ("nccl-2.29.7-1.tar.gz", Package("source", "nccl", "2.29.7-1")),
        ("not a file", None),
        ("a.whl", None),
    ],
)
def test_packages_of_files(file: str, expected: Package | None) -> None:
    assert package_of(file) == expected
