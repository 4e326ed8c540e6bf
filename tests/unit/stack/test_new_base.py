"""`builder new base` with a real uv and an index of our own: the result plans; a failure leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.cli.recipe.new import new
from builder.errors import PinError, UsageError
from builder.lock.selection import LockContext
from builder.lock.verify import verify
from builder.model.lock import WheelLock
from builder.model.lockfile import load_requests
from builder.plan.resolve import resolve
from builder.project import Project
from tests.support.errors import fails
from tests.support.http_server import serving
from tests.support.pyindex import Index

AFTER = "2026-02-01T00:00:00Z"
"""Later than the window of a release of 2 January."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.delenv("BUILDER_PROJECT", raising=False)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("BUILDER_STORE", str(tmp_path / "cache" / "store"))
    with serving() as server:
        made = Index(server)
        monkeypatch.setenv("UV_DEFAULT_INDEX", made.address)
        yield made


def publish(index: Index, *more: str) -> None:
    """vLLM 0.29.0 with CUDA, a kernel library that takes any nvcc, an audio extra; `more`: further requirements."""
    index.add("vllm", "0.27.0")
    extra = 'av; extra == "audio"\nProvides-Extra: audio'
    index.add("vllm", "0.29.0", "torch==2.13.0", "kernels", "lib", extra, *more)
    index.add("torch", "2.13.0", "cuda-toolkit==13.0.3.0", "nvidia-nccl-cu13", "triton==3.7.1")
    index.add("cuda-toolkit", "13.0.3.0", "nvidia-cuda-runtime==13.0.96")
    index.add("nvidia-cuda-runtime", "13.0.96")
    index.add("nvidia-nccl-cu13", "2.29.7", files={"nvidia/nccl/lib/libnccl.so.2": b"nccl"})
    index.add("triton", "3.7.1")
    index.add("kernels", "1", "nvidia-cuda-nvcc", files={"build_backend.py": "a"})
    index.add("nvidia-cuda-nvcc", "13.0.88")
    index.add("nvidia-cuda-nvcc", "13.4.92")
    index.add("lib", "1", files={"build_backend.py": "b"})
    index.add("lib", "2", uploaded=AFTER)
    index.add("av", "1")


def new_base(name: str = "mine", version: str | None = "0.29.0") -> None:
    new("base", name, vllm=version)


def locked(name: str = "vllm-0.29.0-cp313") -> dict[str, str]:
    section = Project().section(name)
    assert isinstance(section, WheelLock)
    return {wheel.name: wheel.version for wheel in section.wheels}


def test_a_base_is_whole_in_one_command(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    publish(index)
    new_base()
    project = Project()
    base = project.base("mine")
    facts = (base.vllm, base.torch, base.triton, base.cuda, base.python, base.glibc, base.nccl)
    assert facts == ("0.29.0", "2.13.0", "3.7.1", "13.0.3", "3.13", "2.41", "wheel")
    assert base.title.startswith("vLLM 0.29.0 from locked")
    assert base.env.keys() & {"VLLM_USE_DEEP_GEMM"} == set()
    # One CUDA, and nothing from after the window.
    assert (locked()["nvidia-cuda-nvcc"], locked()["lib"]) == ("13.0.88", "1")
    assert locked("audio-0.29.0-cp313") == {"av": "1"}
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "recipes/bases/mine.yaml",
        "recipes/locks/requests.yaml",
        "recipes/locks/vllm-0.29.0-cp313.json",
        "recipes/locks/audio-0.29.0-cp313.json",
    ]
    assert "not known: whether its kernels run on sm_121" in printed.err
    new("recipe", "served", model="a/b", base="mine", extends=None)
    plan = resolve(Project(), Project().recipe("served"))
    (other,) = [layer for layer in plan.layers if layer.id == "wheels-other"]
    assert other.params["shared"] == ["build_backend.py"]
    assert [check.args["version"] for check in plan.checks if check.id == "vllm-version"] == ["0.29.0"]
    assert verify(LockContext(Project())) == []
    with fails(UsageError, "new-file-exists"):
        new_base()


def test_a_second_base_keeps_the_requests_that_are_there(index: Index) -> None:
    publish(index)
    index.add("vllm", "0.26.0", "torch==2.13.0", "kernels")
    new_base()
    path = Path("recipes/locks/requests.yaml")
    before = path.read_text().replace("wheels:\n", "# mine\nwheels:\n") + "\nsources: {}\n"
    path.write_text(before)
    new_base("other", "0.26.0")
    lines = iter(path.read_text().splitlines())
    assert all(line in lines for line in before.splitlines())
    assert sorted(load_requests(path).wheels) == sorted(
        f"{kind}-{version}-cp313" for kind in ("vllm", "audio") for version in ("0.29.0", "0.26.0")
    )


def test_a_locked_version_is_used_as_it_is(index: Index) -> None:
    new_base("mine", "0.23.0")
    assert not Path("recipes/locks").exists()
    assert Project().base("mine").torch == Project().base("hermetic-0.23").torch
    # None of its files is in this index.
    assert any("the index sends no parts of files" in note for note in Project().base("mine").notes)


def test_what_the_index_does_not_have_yet_is_overridden_with_its_reason(index: Index) -> None:
    publish(index, "certifi>=2026.10.19")
    index.add("certifi", "2026.10.18")
    index.add("certifi", "2026.10.19", uploaded=AFTER)
    new_base()
    overrides = load_requests(Path("recipes/locks/requests.yaml")).wheels["vllm-0.29.0-cp313"].overrides
    assert overrides is not None
    assert [(item.requirement, "the newest that the package index has is 2026.10.18" in item.why) for item in overrides]
    assert locked()["certifi"] == "2026.10.18"


def test_a_compiled_package_is_never_overridden(index: Index) -> None:
    publish(index, "numbers>=3")
    index.add("numbers", "2", tag="cp313-cp313-manylinux_2_28_aarch64")
    with fails(PinError, "lock-wheels-unresolvable") as caught:
        new_base()
    assert "numbers>=3" in caught.value.cause
    assert not Path("recipes").exists()


def test_a_wheel_that_came_late_widens_the_window(index: Index) -> None:
    publish(index, "numbers>=3")
    index.add("numbers", "2")
    index.add("numbers", "3", tag="cp313-cp313-manylinux_2_28_aarch64", uploaded=AFTER)
    index.files["numbers"][0]["filename"] = "numbers-2-cp313-cp313-manylinux_2_28_aarch64.whl"
    index.add("numbers", "4", tag="cp313-cp313-manylinux_2_28_aarch64", uploaded="2026-09-01T00:00:00Z")
    new_base()
    assert locked()["numbers"] == "3"
    (note,) = Project().base("mine").notes
    assert "whether it was tested with files up to 2026-03-03" in note


def test_a_stack_without_cuda_is_refused(index: Index) -> None:
    index.add("vllm", "0.29.0", "torch==2.10.0")
    index.add("torch", "2.10.0")
    with fails(PinError, "stack-without-cuda"):
        new_base()
    assert not Path("recipes").exists()


def test_a_version_that_the_index_does_not_have_names_those_that_it_has(index: Index) -> None:
    publish(index)
    index.add("vllm", "0.31.0", tag="cp38-abi3-manylinux_2_28_x86_64")
    for version in ("0.31.0", "0.34.0"):
        with fails(PinError, "vllm-wheel-missing") as caught:
            new_base("mine", version)
        assert caught.value.cause == "the newest that it has: 0.27.0, 0.29.0"


def test_a_failure_leaves_the_requests_as_they_were(index: Index) -> None:
    publish(index, 'gone>1; extra == "audio"')
    Path("recipes/locks").mkdir(parents=True)
    path = Path("recipes/locks/requests.yaml")
    path.write_text("# mine\nwheels:\n  tools: {requirements: [a], python: '3.13', platform: any}\n")
    with pytest.raises(PinError):
        new_base()
    assert path.read_text() == "# mine\nwheels:\n  tools: {requirements: [a], python: '3.13', platform: any}\n"
    assert list(path.parent.iterdir()) == [path]


def test_compilers_of_another_cuda_are_said(index: Index) -> None:
    publish(index, "kernels>=1.1")
    index.add("kernels", "1.1", "nvidia-cuda-nvcc>=13.4")
    new_base()
    (note,) = Project().base("mine").notes
    assert "a driver of CUDA 13.0 loads what nvidia-cuda-nvcc 13.4.92 make" in note


def test_an_index_without_dates_and_without_parts_of_files_is_said(index: Index) -> None:
    index.ranges = False
    index.add("vllm", "0.29.0", "torch==2.13.0", uploaded=None)
    index.add("torch", "2.13.0", "nvidia-cuda-runtime==13.0.96", uploaded=None)
    index.add("nvidia-cuda-runtime", "13.0.96", uploaded=None)
    new_base()
    assert load_requests(Path("recipes/locks/requests.yaml")).wheels["vllm-0.29.0-cp313"].exclude_newer is None
    dates, parts = Project().base("mine").notes
    assert "the package index has no dates" in dates
    assert "the index sends no parts of files" in parts


def test_options_that_cannot_be_read_do_not_stop_a_base(index: Index) -> None:
    publish(index)
    index.add("vllm", "0.99.0", "torch==2.13.0")
    index.add_sdist("vllm", "0.99.0", b"no archive")
    new_base("mine", "0.99.0")
    (note,) = Project().base("mine").notes
    assert note.startswith("Not known: the options of vLLM 0.99.0, and whether it has an audio extra")
    assert not Project().has_section("audio-0.99.0-cp313")


def test_names_and_versions_are_checked_before_the_network(index: Index) -> None:
    for name, version, id in (
        ("mine", None, "new-base-version"),
        ("mine", "latest", "new-base-version"),
        ("hermetic-0.20", "0.20.0", "new-base-bundled"),
        ("hermetic", "0.20.0", "new-base-bundled"),
        ("../x", "0.20.0", "name-invalid"),
    ):
        with fails(UsageError, id):
            new_base(name, version)
    assert index.server.asked == []
