"""A change of one pin of the shipped lock changes the keys of the layers that contain it, and of no other."""

from __future__ import annotations

from functools import cached_property

import pytest

from builder.errors import BuilderError
from builder.model.base import Base
from builder.model.lock import LockSection, Source, SourceLock
from builder.model.plan import PlannedLayer
from builder.model.recipe import Recipe
from builder.plan.bases import bases_of
from builder.plan.resolve import resolve
from builder.project import LayerSource, Project
from tests.support.nightly import nightly

NEW = "0" * 64
Layers = dict[tuple[str, str, str], PlannedLayer]


class Changed(Project):
    """The shipped project, read once, with one section or base replaced."""

    def __init__(self, shipped: Project, changed: LockSection | Base) -> None:
        super().__init__(shipped.roots)
        self._shipped = shipped
        self._changed = changed

    def recipe(self, name: str) -> Recipe:
        return self._shipped.recipe(name)

    def layer(self, name: str) -> LayerSource:
        return self._shipped.layer(name)

    def base(self, name: str) -> Base:
        is_changed = isinstance(self._changed, Base) and self._changed.name == name
        return self._changed if is_changed else self._shipped.base(name)

    def section(self, name: str) -> LockSection:
        is_changed = not isinstance(self._changed, Base) and self._changed.name == name
        return self._changed if is_changed else self._shipped.section(name)

    @cached_property
    def sources(self) -> dict[tuple[str, str], tuple[Source, str]]:
        section = self.section("sources")
        assert isinstance(section, SourceLock)
        return {(source.name, source.version): (source, section.locked) for source in section.sources}


def planned(project: Project, pairs: list[tuple[str, str]]) -> Layers:
    """All layers of all plans, with the toolchains."""
    made = {}
    for name, base in pairs:
        plan = resolve(project, project.recipe(name), base=base)
        made |= {(name, base, layer.id): layer for layer in (*plan.layers, *plan.toolchains)}
    return made


@pytest.fixture(scope="module")
def shipped() -> Project:
    return Project()


@pytest.fixture(scope="module")
def pairs(shipped: Project) -> list[tuple[str, str]]:
    """A recipe and a base of every plan that has a layer or a toolchain which no earlier one has."""
    found, seen = [], set()
    for name in shipped.recipe_names():
        for base in bases_of(shipped, shipped.recipe(name)):
            try:
                plan = resolve(shipped, shipped.recipe(name), base=base.name)
            except BuilderError:
                continue
            if new := {layer.key for layer in (*plan.layers, *plan.toolchains)} - seen:
                seen |= new
                found.append((name, base.name))
    assert len(seen) > 50
    return found


@pytest.fixture(scope="module")
def before(shipped: Project, pairs: list[tuple[str, str]]) -> Layers:
    """The layers without a change."""
    return planned(shipped, pairs)


def differing(before: Layers, after: Layers) -> set[tuple[str, str, str]]:
    assert before.keys() == after.keys()
    return {key for key in before if before[key].key != after[key].key}


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        ("toolchain-amd64", "make"),
        pytest.param("trixie-root-arm64", "ninja-build", marks=nightly),
        pytest.param("cuda-13.0-amd64", "nvidia-nvvm", marks=nightly),
        ("vllm-0.20.0-cp313", "triton"),
        pytest.param("vllm-0.23.0-cp313", "aiohttp", marks=nightly),
        pytest.param("audio-0.20.0-cp313", "av", marks=nightly),
        ("sources", "2.29.7-1"),
        pytest.param("sources", "2.30.3-1", marks=nightly),
    ],
)
def test_one_entry_of_the_lock(
    shipped: Project, pairs: list[tuple[str, str]], before: Layers, section: str, wanted: str
) -> None:
    old = shipped.section(section)
    field = {"debs": "packages", "wheels": "wheels", "sources": "sources"}[old.kind]
    entries = [
        entry.model_copy(update={"sha256": NEW}) if wanted in entry.model_dump().values() else entry
        for entry in getattr(old, field)
    ]
    assert [entry.sha256 for entry in entries].count(NEW) == 1
    new = old.model_copy(update={field: tuple(entries)})
    after = planned(Changed(shipped, new), pairs)
    holding = {key for key, layer in after.items() if any(item.sha256 == NEW for item in layer.inputs)}
    if any(key[2].startswith("toolchain-") for key in holding):
        holding |= {key for key, layer in after.items() if layer.toolchain}
    assert holding or wanted == "2.30.3-1"
    assert differing(before, after) == holding


def test_the_digest_of_a_base(shipped: Project, pairs: list[tuple[str, str]], before: Layers) -> None:
    name = "vllm-openai-0.20"
    old = shipped.base(name)
    assert old.pin is not None
    new = old.model_copy(update={"pin": old.pin.model_copy(update={"manifest": f"sha256:{NEW}"})})
    changed = Changed(shipped, new)
    after = planned(changed, pairs)
    assert differing(before, after) == {key for key, layer in before.items() if key[1] == name and layer.reads_base}
