"""Commands of this machine and of the peer: whatever they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.doctor.host import Outcome, ThisHost
from builder.doctor.machine import disk
from builder.doctor.question import Question
from builder.smoke.gpu.peer import Peer
from tests.support.recorded_spark import PROJECT


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ssh that runs its last word in a shell."""
    path = tmp_path / "ssh"
    path.write_text('#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\nexec /bin/sh -c "$1"\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return path


@pytest.mark.parametrize("host", [ThisHost(), Peer("-oProxyCommand=touch evil")], ids=["here", "peer"])
def test_output_without_end_or_of_another_encoding(host: ThisHost | Peer, ssh: Path) -> None:
    assert host.run("sh", "-c", "yes") is None
    assert host.run("sh", "-c", "yes >&2") is None
    assert host.run("printf", r"a\377") == Outcome(0, "a\ufffd")
    assert host.run("sh", "-c", "echo out; echo err >&2; exit 3") == Outcome(3, "out\nerr\n")


def test_a_recipes_folder_is_no_pattern(tmp_path: Path) -> None:
    """`/**/**` was a search of the whole disk, and `/a/**b` a bug."""
    home = tmp_path / "[a]" / "**"
    recipe = PROJECT.recipe("gemma4-12b-coder")
    mounts = [item.model_copy(update={"host": str(home)}) for item in recipe.run.volumes]
    recipe = recipe.model_copy(update={"run": recipe.run.model_copy(update={"volumes": tuple(mounts)})})

    def said() -> str:
        answer = disk(Question(ThisHost(), recipe))
        return answer.message

    (tmp_path / "a" / "x").mkdir(parents=True)
    (tmp_path / "a" / "x" / "model.safetensors").touch()
    assert "and weights" in said()
    home.mkdir(parents=True)
    (home / "model.safetensors").touch()
    assert "the weights are on the disk" in said()
