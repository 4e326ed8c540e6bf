"""Each static check finds its fault: images with one fault each, made of a healthy image of real files.

The image is built once, by the product. Each case changes one thing and recomputes the digests; it names every check
that fails.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.smoke.elf.dynamic import read_dynamic
from builder.smoke.elf.object import AARCH64, machine_of, reader
from builder.smoke.image import index
from builder.smoke.image.index import LayerIndex
from builder.smoke.image.opened import LayerBlob
from builder.smoke.image.scan import ScanOptions
from builder.smoke.static.run import check_image
from tests.integration.sabotage import Broken, Case, Whole
from tests.integration.sabotage_cases import CASES, WHEELS
from tests.integration.sabotage_engines import ENGINES
from tests.integration.sabotage_hidden import HIDDEN
from tests.integration.sabotage_project import build
from tests.integration.sabotage_secrets import SECRETS
from tests.integration.sabotage_stack import STACK
from tests.integration.sabotage_unplanned import UNPLANNED


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole.of(*build(tmp_path_factory.mktemp("sabotage")))


@pytest.fixture(scope="module", autouse=True)
def _layers_are_read_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A layer that a case does not change is read by the product once, and its index is used again."""
    folder = tmp_path_factory.mktemp("kept")
    real = index._index
    known: dict[tuple[object, ...], LayerIndex] = {}

    def read(blob: LayerBlob, number: int, wanted: str, _: Path, options: ScanOptions) -> LayerIndex:
        key = (blob, number, wanted, options)
        if key not in known:
            known[key] = real(blob, number, wanted, folder, options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_index", read)
        yield


def test_the_healthy_image_passes_everything(whole: Whole) -> None:
    report = check_image(whole.image, whole.checks)
    assert [(result.id, result.message) for result in report.results if result.status != "pass"] == []
    assert report.count("pass") > 40
    code = next(result for result in report.results if result.kind == "gpu-code").details
    real = next(item for item in code if "torchaudio" in item["path"])
    assert real["code"].get("sm_120") or real["code"].get("sm_120f")


@pytest.mark.parametrize("case", [*CASES, *SECRETS, *HIDDEN, *STACK, *UNPLANNED, *ENGINES], ids=lambda case: case.name)
def test_sabotage(whole: Whole, tmp_path: Path, case: Case) -> None:
    broken = Broken.of(whole, tmp_path)
    case.change(broken)
    report = check_image(broken.finish(), whole.checks)
    failed = {result.id: result.message for result in report.results if result.status == "fail"}
    if broken.config != whole.image.config:
        # Whatever is changed, the image is not the planned one. The other checks say so without a plan.
        assert failed.pop("image-planned") or case.fails == {"image-planned"}, failed
    assert set(failed) == case.fails - {"image-planned"}, failed
    assert any(case.message in result.message for result in report.results if result.id in case.fails), failed


def test_libraries_are_read_as_pyelftools_reads_them(whole: Whole) -> None:
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection

    seen = 0
    for name in ("root", WHEELS, "audio"):
        for path, member in whole.members(name).items():
            if machine_of(member.data[:20]) != AARCH64:
                continue
            found = read_dynamic(reader(io.BytesIO(member.data)))
            needed, needs, provides = [], {}, set()
            for section in ELFFile(io.BytesIO(member.data)).iter_sections():
                if isinstance(section, DynamicSection):
                    needed += [tag.needed for tag in section.iter_tags("DT_NEEDED")]
                elif isinstance(section, GNUVerNeedSection):
                    needs |= {file.name: {one.name for one in names} for file, names in section.iter_versions()}
                elif isinstance(section, GNUVerDefSection):
                    provides |= {next(names).name for _, names in section.iter_versions()}
            assert (list(found.needed), found.versions, found.provides) == (needed, needs, provides), path
            seen += 1
    assert seen > 100


def test_there_are_enough() -> None:
    assert len([*CASES, *SECRETS, *HIDDEN, *STACK, *UNPLANNED, *ENGINES]) >= 95
