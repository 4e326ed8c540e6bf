"""`builder lock` on the command line: names, access to the network, and the lock of this repository."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.lock.seal import sealed_pin
from builder.model.base import Pin
from tests.support.cli import Cli, run_here
from tests.support.mirror import Mirror
from tests.support.project import LOCKED, ROOT, ask_locks, vendor_base

DIGEST = Digest("sha256:" + "a" * 64)
SEALED = """
import sys
from builder.__main__ import run_and_report
import builder.cli.app
builder.cli.app.load_command("lock")
def watch(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.exec", "os.posix_spawn", "os.fork")):
        print("USED", event, file=sys.stderr, flush=True)
        raise SystemExit(99)
sys.addaudithook(watch)
for words in sys.argv[1:]:
    print(words, run_and_report(["lock", "--check", *words.split()]), flush=True)
"""
"""Runs checks of the lock in a process that ends with 99 when it uses a socket or starts another process."""


@pytest.fixture
def asked(cli: Cli) -> Cli:
    """The small project with requests for all of its sections, and bases of every kind."""
    ask_locks(cli.small.files)
    cli.small.files["recipes/bases/vendor.yaml"] = vendor_base("127.0.0.1:1/team/app:1", DIGEST)
    loose = vendor_base("127.0.0.1:1/team/loose:1", DIGEST, name="loose", pin={"image": "127.0.0.1:1/team/loose:1"})
    cli.small.files["recipes/bases/loose.yaml"] = loose
    return cli


def sealed(cli: Cli, *checks: str) -> tuple[list[str], str]:
    """Runs checks in a sealed process; the words and the exit code of each, and standard error."""
    cli.write()
    command = [sys.executable, "-c", SEALED, *checks]
    done = subprocess.run(command, env=cli.environment({}), cwd=cli.folder, capture_output=True, text=True, check=False)
    return done.stdout.splitlines(), done.stderr


def test_a_check_without_remote_uses_no_network(asked: Cli) -> None:
    checks = ["", "vendor", "tiny-root hermetic", "bases", "sections sources", "vllm==0.33.0"]
    lines, err = sealed(asked, *checks)
    assert "USED" not in err
    assert lines == [f"{words} {4 if words == 'bases' else 0}" for words in checks], err


def test_the_number_of_entries_in_an_error_is_singular_or_plural(asked: Cli) -> None:
    assert "1 locked entry does not match its request [" in asked("lock", "--check", "loose").err
    assert "could not resolve 1 entry;" in asked("lock", "loose", "--keep-going").err
    pin = {"image": "127.0.0.1:1/team/other:1"}
    other = vendor_base("127.0.0.1:1/team/other:1", DIGEST, name="other", pin=pin)
    asked.small.files["recipes/bases/other.yaml"] = other
    assert "2 locked entries do not match their requests [" in asked("lock", "--check", "loose", "other").err
    assert "could not resolve 2 entries;" in asked("lock", "loose", "other", "--keep-going").err


def test_the_sealed_process_detects_a_connection(asked: Cli) -> None:
    _lines, err = sealed(asked, "--remote vendor")
    assert "USED socket." in err


def test_the_lock_of_this_repository_is_up_to_date(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "BUILDER_PROJECT": str(ROOT), "BUILDER_STORE": str(tmp_path / "store")}
    done = run_here(("lock", "--check"), environ=environ, folder=ROOT)
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("words", "id", "suggestion"),
    [
        (("--update", "vendr"), "lock-name-unknown", "vendor"),
        (("--update", "tiny-whels"), "lock-name-unknown", "tiny-wheels"),
        (("--check", "widgt"), "lock-name-unknown", "widget"),
        (("vendor", "nowhere"), "lock-name-unknown", ""),
        (("--update", "widget"), "lock-source-unrequested", ""),
        (("--update", "vllm==nonsense"), "vllm-version-unreleased", ""),
        (("--remote",), "lock-remote-without-check", ""),
        (("--check", "--update"), "lock-options-conflict", ""),
        (("--check", "--keep-going"), "lock-options-conflict", ""),
        (("--update", "../../etc/passwd"), "lock-name-unknown", ""),
    ],
)
def test_wrong_names_are_usage_errors_without_requests_or_changes(
    asked: Cli, mirror: Mirror, words: tuple[str, ...], id: str, suggestion: str
) -> None:
    asked.environ |= mirror.environment
    asked.write()
    before = tree(asked.folder / "project")
    said = asked("lock", *words)
    said.failed(2, id)
    assert suggestion in said.err
    assert mirror.asked == []
    assert tree(asked.folder / "project") == before


def test_a_recipe_in_place_of_a_base_is_recognised(asked: Cli) -> None:
    asked.small.files["recipes/other.yaml"] = {**asked.small.files["recipes/tiny.yaml"], "name": "other"}
    said = asked("lock", "--update", "other")
    said.failed(2, "lock-name-unknown")
    assert "its base is tiny" in said.err


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_an_unpinned_base_is_a_problem_when_it_is_named(asked: Cli) -> None:
    assert "1 base is not pinned" in asked("lock", "--check").err
    said = asked("lock", "--check", "loose", "vendor", "--json")
    assert said.code == 4
    (row,) = json.loads(said.out)
    assert (row["kind"], row["name"], row["what"]) == ("base", "loose", "is not pinned")
    assert row["next"] == "builder lock --update loose"


def test_check_reports_a_section_without_a_request_and_an_edited_section(asked: Cli) -> None:
    """The requests are in the project, in another one, or missing."""
    requests = asked.small.files.pop("recipes/locks/requests.yaml")
    said = asked("lock", "--check")
    assert said.code == 4
    assert "tiny-root, tiny-wheels: no requests.yaml requests it" in said.err
    asked.small.files["recipes/locks/requests.yaml"] = requests
    asked.small.files["recipes/locks/tiny-root.json"]["packages"].reverse()
    said = asked("lock", "--check")
    assert (said.code, "tiny-root.json was changed since it was resolved" in said.err) == (4, True)
    shutil.rmtree(asked.folder / "project")
    shipped = json.loads((ROOT / "recipes/locks/cuda-13.0-arm64.json").read_text())
    asked.small.files = {"recipes/locks/cuda-13.0-arm64.json": {**shipped, "locked": LOCKED}}
    said = asked("lock", "--check")
    assert (said.code, "cuda-13.0-arm64.json was changed since" in said.err) == (4, True)


def test_check_reports_an_edited_pin(asked: Cli) -> None:
    pin = Pin(image="127.0.0.1:1/team/app:1", manifest=DIGEST)
    files = asked.small.files
    for image, code in ((pin.image, 0), ("127.0.0.1:1/team/app:2", 4)):
        files["recipes/bases/vendor.yaml"]["pin"] = {**sealed_pin(pin).model_dump(mode="json"), "image": image}
        said = asked("lock", "--check")
        assert said.code == code, said.err
    assert "vendor: its image or digests were changed since it was pinned" in said.err
    assert "builder lock --update vendor" in said.err


def test_check_reports_entries_that_recipes_need_and_the_lock_lacks(asked: Cli) -> None:
    locks = "recipes/locks"
    del asked.small.files[f"{locks}/sources.json"]
    said = asked("lock", "--check")
    assert said.code == 4
    assert "tiny on tiny: the lock has no source widget 1.0" in said.err
    wheels = asked.small.files[f"{locks}/tiny-wheels.json"]
    wheels["wheels"] = [wheel for wheel in wheels["wheels"] if wheel["name"] != "alpha"]
    assert "alpha is not in the lock section tiny-wheels" in asked("lock", "--check").err
    asked.small.files["recipes/tiny.yaml"]["base"] = "nothing"
    said = asked("lock", "--check")
    assert said.code == 4
    assert "tiny: there is no base 'nothing'" in said.err


@pytest.mark.parametrize(
    ("image", "what"),
    [
        ("vllm/vllm-openai:v1", "must be the complete reference: docker.io/vllm/vllm-openai:v1"),
        ("index.docker.io/vllm/x:1", "must be the complete reference: docker.io/vllm/x:1"),
        ("nvcr.io/a//b:1", "not an image reference"),
        ("nvcr.io:99999/a:1", "not an image reference"),
    ],
)
def test_the_image_of_a_pin_is_a_complete_reference(asked: Cli, image: str, what: str) -> None:
    asked.small.files["recipes/bases/vendor.yaml"]["pin"]["image"] = image
    said = asked("lock", "--update", "vendor")
    said.failed(3, "value-invalid")
    assert what in said.err


def test_a_registry_may_have_an_address_of_ipv6(asked: Cli) -> None:
    asked.small.files["recipes/bases/vendor.yaml"]["pin"]["image"] = "[::1]:1/team/app:1"
    said = asked("lock", "--update", "vendor")
    said.failed(6, "connection-failed")
    assert "http://[::1]:1: " in said.err


def test_names_of_several_kinds_in_one_command(asked: Cli, mirror: Mirror) -> None:
    """Bases are asked for first: when one fails, nothing of the others is resolved."""
    asked.environ |= mirror.environment
    said = asked("lock", "--update", "tiny-wheels", "vendor")
    said.failed(6, "connection-failed")
    assert mirror.asked == []


def test_an_installed_package_is_not_written_to(asked: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a project of the user there is nothing to write to: the data of the installed package stays unchanged."""
    root = asked.folder / "project"
    monkeypatch.setattr("builder.folders._BUNDLED", root)
    monkeypatch.setattr("builder.folders.search_path", lambda: (root,))
    asked.write()
    before = tree(root)
    asked("lock", "--update", "vendor").failed(2, "lock-project-installed")
    assert tree(root) == before
