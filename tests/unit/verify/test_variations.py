"""The table of variations, which layers each reaches, and the Dockerfile of steps with another clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.errors import UsageError
from builder.model.plan import PlannedLayer
from builder.plan.stages import check_stages
from builder.verify.vary.clock import with_clock
from builder.verify.vary.kinds import AGAIN, ALL, GROUPS, chosen, reached
from tests.support.errors import fails

LAYERS = [("root", "files"), ("nccl", "dockerfile")]


def test_groups() -> None:
    assert len({item.name for item in ALL}) == len(ALL) >= 22
    assert chosen("all") == list(ALL)
    assert [item.group for item in chosen("umask, engine")] == ["again", "umask", "umask", "umask", "engine"]
    for text in ("", "all,tide", "TIME"):
        with fails(UsageError, "variation-unknown"):
            chosen(text)
    assert GROUPS[0] == AGAIN.group


@pytest.mark.parametrize("engine", ["buildah", "docker"])
def test_what_a_variation_reaches(engine: str) -> None:
    found = {item.name: reached(item, LAYERS, engine) for item in ALL}
    assert found["again"] == found["time 2001-02-03 04:05:06"] == found["cpus 1 job"] == ["root", "nccl"]
    assert found["engine"] == ["nccl"]
    assert found["user 12345"] == ["root"]
    # A daemon does not run in the process that is varied.
    assert found["umask 077"] == (["root", "nccl"] if engine == "buildah" else ["root"])
    assert [reached(item, [], engine) for item in ALL] == [[]] * len(ALL)


def test_steps_with_another_clock() -> None:
    text = (
        "FROM --platform=$BUILDPLATFORM scratch AS toolchain\nADD toolchain-amd64.tar /\n"
        "FROM toolchain AS a-build\nARG JOBS\nRUN make \\\n  FROM=x\n\nFROM scratch AS a\nCOPY --from=a-build /out /\n"
    )
    layer = PlannedLayer("a", "compiled", "", "dockerfile", False, "", {}, dockerfile=text, context={"layers/x": b""})
    found = with_clock(layer, "2001-02-03 04:05:06", b"code")
    assert found.context == {"layers/x": b"", "layers/compiled/.builder-clock.so": b"code"}
    stages = (found.dockerfile or "").split("\nFROM ")
    assert ["builder-clock" in stage for stage in stages] == [False, True, False]
    assert "\n".join(line for line in stages[1].splitlines() if "clock" not in line) == (
        "toolchain AS a-build\nARG JOBS\nRUN make \\\n  FROM=x"
    )
    check_stages(found.dockerfile or "", base=None, where="here")
    plain = replace(layer, dockerfile="FROM scratch AS a\nCOPY layers/compiled/x /x\n")
    assert with_clock(plain, "2001-02-03 04:05:06", b"").dockerfile == plain.dockerfile
