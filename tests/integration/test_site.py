"""The catalogue of images in a real registry, and its pages in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.smoke.results import MEDIA_TYPE
from tests.support.cli import Cli
from tests.support.signed import Signed

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (360, 800, 1280)


@pytest.fixture
def signed(online: Cli, host: str, request: pytest.FixtureRequest) -> Signed:
    made = Signed(online, host, "".join(letter for letter in request.node.name.lower() if letter.isalnum()))
    made.cli("test", "--recipe", "tiny")
    made.push("--key", str(made.private), "--with-results")
    return made


def written(signed: Signed, *words: str) -> str:
    done = signed.cli("site", "site", signed.target, *words)
    assert done.code == 0, done.err
    (path,) = (signed.cli.folder / "site/images").iterdir()
    return path.read_text()


def test_what_is_attached_to_an_image(signed: Signed) -> None:
    text = written(signed)
    assert f"docker pull {signed.pinned}" in text
    assert f"builder verify {signed.pinned}" in text
    assert "✓ attached: anybody can rebuild it" in text
    assert "✓ CycloneDX and SPDX" in text
    assert "? 5 statements are attached, and none was checked" in text
    assert re.search(r"\d+ (passed|of \d+ failed)", text)
    assert "<td>alpha</td><td>1.0</td><td>python</td>" in text


def test_only_the_keys_of_the_reader_count(signed: Signed) -> None:
    assert f"✓ by {signed.public}" in written(signed, "--signed-by", str(signed.public))
    text = written(signed, "--signed-by", str(signed.other_public))
    assert "✗ by none of the keys; 5 other statements do not count" in text


def test_results_of_anybody_are_no_results(signed: Signed) -> None:
    """Whoever may push can attach results; those that a key of the reader signed come first."""
    own = written(signed, "--signed-by", str(signed.public))
    assert "as anybody may say" not in own and re.search(r'class="(yes|no)">[^<]*(passed|failed)', own)
    row = {"id": "a", "kind": "b", "tier": "gpu", "status": "pass", "message": "fine", "seconds": 1.0}
    forged = {"digest": signed.digest, "results": [row], "notes": []}
    signed.attach(json.dumps(forged).encode(), MEDIA_TYPE)
    assert written(signed, "--signed-by", str(signed.public)) == own
    for words in ((), ("--signed-by", str(signed.other_public))):
        text = written(signed, *words)
        assert "as anybody may say" in text and "Nobody whose signature counts" in text
        assert not re.search(r'class="(yes|no)">[^<]*(passed|failed)', text)


def test_an_image_that_is_not_there(signed: Signed) -> None:
    done = signed.cli("site", "other", signed.target.replace(":1", ":2"))
    assert done.code == 4
    assert not (signed.cli.folder / "other").exists()


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium of this machine. As root it runs without its sandbox; the pages are ours."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium; scripts/test installs it")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is in scripts/dev-requirements.txt")
    with sync_api.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, chromium_sandbox=False)
        yield running
        running.close()


def test_the_pages_in_a_browser(signed: Signed, browser: Any, tmp_path: Path) -> None:
    """Three widths, light and dark: no error, no fault of accessibility, nothing beside the page, links resolve."""
    axe = pytest.importorskip("axe_core_python.sync_playwright").Axe()
    written(signed)
    site = signed.cli.folder / "site"
    pages = sorted(site.rglob("*.html"))
    for number, width in enumerate(WIDTHS):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if number % 2 else "light", offline=True
        )
        page = context.new_page()
        problems: list[str] = []
        page.on("console", lambda message, problems=problems: problems.append(message.text))
        page.on("pageerror", lambda error, problems=problems: problems.append(str(error)))
        page.on(
            "request",
            lambda asked, problems=problems: None if asked.url.startswith("file:") else problems.append(asked.url),
        )
        for path in pages:
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert [found["id"] for found in axe.run(page)["violations"]] == []
            for link in page.locator("a").all():
                assert Path((path.parent / link.get_attribute("href")).resolve()).is_file()
            assert len(page.screenshot(path=str(tmp_path / f"{path.stem}-{width}.png"))) > 5000
        assert problems == []
        context.close()


def test_packages_are_found_and_pages_work_without_scripts(signed: Signed, browser: Any) -> None:
    written(signed)
    (path,) = (signed.cli.folder / "site/images").iterdir()
    page = browser.new_page()
    page.goto(path.as_uri())
    rows = page.locator("#packages tbody tr")
    before = rows.count()
    page.get_by_label("Find a package").fill("ALPHA py")
    assert [row.is_visible() for row in rows.all()].count(True) == 1
    assert page.get_by_role("status").inner_text() == f"1 of {before}"
    page.get_by_label("Find a package").fill("")
    assert all(row.is_visible() for row in rows.all())
    plain = browser.new_context(java_script_enabled=False).new_page()
    plain.goto(path.as_uri())
    assert plain.locator("input").count() == 1
    assert not plain.locator("input").is_visible()
    assert plain.locator("#packages tbody tr").count() == before
    plain.emulate_media(media="print")
    assert plain.locator("h1").is_visible()
