"""Layers of a hermetic base from its lock sections, which a stranger may have written."""

from __future__ import annotations

from builder.derive import groups
from builder.model.base import Stack
from builder.model.lock import Wheel
from tests.support.limits import ends


def test_wheels_that_say_they_are_huge_make_no_more_layers_than_there_are_wheels() -> None:
    """Each 700 MB was a layer: the list of layers had gigabytes."""
    wheels = [
        Wheel(name=f"w{number}", version="1", file=f"w{number}.whl", sha256="0" * 64, size=2**53 - 1)
        for number in range(50)
    ]
    stack = Stack(root="root", wheels="wheels", shared={f"{wheel.name}.py": (wheel.name,) for wheel in wheels})

    def work() -> None:
        assert sorted(name for _, only in groups(stack, wheels) for name in only) == sorted(w.name for w in wheels)

    ends(work, memory=200 << 20)
