"""What a push says about an image."""

from __future__ import annotations

from typing import Any

import pytest

from builder.attest.statement import TESTED
from builder.cli.image import push
from builder.cli.image.push import _tested
from builder.digest import Digest
from tests.support.cli import Cli

IMAGE = Digest.of(b"")


def test_results_without_a_check_that_was_run_are_no_statement() -> None:
    """PASSED would be signed, and a policy that demands checks be met, although nothing was tested."""
    assert _tested(IMAGE, []) == {}
    assert _tested(IMAGE, [("gpu", "device", "not-run"), ("gpu", "driver", "not-run")]) == {}
    assert _tested(IMAGE, [("static", "a", "pass"), ("gpu", "b", "not-run")])[TESTED]["result"] == "PASSED"


class Registry:
    """In place of a registry: what a push gives it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.results: list[str] = []
        self.said: list[dict[str, Any]] = []
        monkeypatch.setattr(push, "push_image", self.image)
        monkeypatch.setattr(push, "attach_bundle", lambda *_: "sha256:bundle")
        monkeypatch.setattr(push, "_attach", lambda target, *_: self.results.append(str(target)) or "sha256:results")
        monkeypatch.setattr(push, "attach_statements", lambda *given: self.said.append(given[4]))

    def image(self, image: Any, store: object, target: object, listener: Any, *_: object) -> Digest:
        for layer in image.layers:
            listener(layer.digest, "uploaded", layer.size)
        return image.digest  # type: ignore[no-any-return]


def test_results_are_attached_once_and_stated_only_where_a_check_was_run(
    online: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(monkeypatch)
    assert online("build", "tiny").code == 0
    monkeypatch.setattr(push, "_results", lambda *_: b"{}")
    for outcomes in ([("gpu", "device", "not-run")], [("static", "files", "pass")]):
        monkeypatch.setattr(push, "_outcomes", lambda *_, found=outcomes: found)
        done = online("push", "tiny", "127.0.0.1:1/x/tiny:1", "--with-results")
        assert done.code == 0, done.err
    assert len(registry.results) == 2, "one for each push"
    assert [TESTED in said for said in registry.said] == [False, True]


def test_layers_are_named_once_and_further_tags_are_named(online: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(monkeypatch)
    assert online("build", "tiny").code == 0
    place = "127.0.0.1:1/x/tiny"
    done = online("push", "tiny", place, f"{place}:2", "127.0.0.1:1/y/tiny:1")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == done.out.splitlines()[1]
    assert done.err.count("wheels-alpha") == 2, "once for each repository"
    assert done.err.count("[1/4]") == len(registry.said) == 2
    assert f"\n{place}:2 is the same image\n" in done.err
