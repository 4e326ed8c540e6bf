"""Each cpu check finds its fault: images with one fault each, which only running them shows.

The static tier passes every one of them: digests, records and headers fit.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from builder.model.check import Check
from builder.smoke.check import CheckNotRun
from builder.smoke.cpu.run import run_cpu
from builder.smoke.cpu.runc import RuncRunner
from builder.smoke.cpu.runner import native, registered
from builder.smoke.cpu.sandbox import FIRST_ID
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.unpack import unpacked_root
from builder.smoke.report import Report
from builder.smoke.static.run import check_image
from tests.integration.running_project import Running, running
from tests.integration.sabotage import Broken, Case, Cases, Tree, Whole
from tests.integration.sabotage_project import SITE, build
from tests.support.arm64 import arm64_nccl
from tests.support.images import SM_121, Member, fatbin
from tests.support.nightly import NIGHTLY, nightly_but

pytestmark = pytest.mark.qemu

NCCL = "opt/nccl/lib/libnccl.so.2.29.7"
PTXAS = "usr/local/cuda/bin/ptxas"
SCRIPT = "usr/local/bin/vllm"
VLLM = f"{SITE}/vllm/__init__.py"
TOGETHER = (
    {"serve-help", "starts-without-gpu"},
    {"non-root"},
    {"torch-import", "vllm-import", "cffi-computes", "nccl-mapped", "log"},
)
"""Groups of checks: a case of one check runs its whole group, which is quick or shares an interpreter."""

USUAL = {
    "ptxas_that_cannot_assemble_it",
    "library_that_crashes",
    "nccl_of_another_version",
    "module_of_another_version",
    "warning_that_nobody_declared",
    "files_that_only_root_reads",
    "script_whose_interpreter_is_gone",
    "entrypoint_that_crashes",
}
"""A case for each check, which every run judges; the others are in the nightly job."""

case = CASES = Cases()


def swap(tree: Tree, path: str, old: str | bytes, new: str | bytes) -> None:
    """Replace the only occurrence of `old` in a file, without changing its size."""
    old, new = (text.encode() if isinstance(text, str) else text for text in (old, new))
    data = tree[path].data
    assert data.count(old) == 1 and len(new) <= len(old)
    tree[path] = Member(data.replace(old, new.ljust(len(old))), tree[path].mode)


# --- libraries and programs


@case("ptxas-assembles", "Value 'sm_121a' is not defined for option 'gpu-name'")
def ptxas_that_cannot_assemble_it(b: Broken) -> None:
    """It starts, and contains the architecture's name, but not among its targets."""
    tree = b.edit("cuda")
    swap(tree, PTXAS, b"sm_121a\0", b"sm_12xa\0")
    swap(tree, PTXAS, b"Suppress the warning that otherwise is printed", b"sm_121a")


@case("cffi-computes", "undefined symbol: PyLong_FromLone")
def library_with_a_symbol_that_nothing_has(b: Broken) -> None:
    tree = b.edit("wheels-libraries")
    path = _cffi(tree)
    data = tree[path].data
    # The first occurrence is in the loaded string table, another in debug information.
    assert b"\0PyLong_FromLong\0" in data
    tree[path] = Member(data.replace(b"\0PyLong_FromLong\0", b"\0PyLong_FromLone\0", 1), tree[path].mode)


@case("cffi-computes", "the interpreter ended by itself")
def library_that_crashes(b: Broken) -> None:
    """Its first function is made of zeros, which are no instruction. The checks after it are run all the same."""
    from elftools.elf.elffile import ELFFile

    tree = b.edit("wheels-libraries")
    path = _cffi(tree)
    data = bytearray(tree[path].data)
    file = ELFFile(io.BytesIO(data))
    [symbol] = file.get_section_by_name(".dynsym").get_symbol_by_name("PyInit__cffi_backend")
    [place] = file.address_offsets(symbol["st_value"])
    data[place : place + 16] = bytes(16)
    tree[path] = Member(bytes(data), tree[path].mode)


def _cffi(tree: Tree) -> str:
    return next(path for path in tree if "_cffi_backend" in path)


@case("nccl-mapped", "/opt/nccl/lib/libnccl.so.2.29.7 (2.28.9); expected version 2.29.7")
def nccl_of_another_version(b: Broken) -> None:
    b.edit("nccl")[NCCL] = Member(arm64_nccl(22809, gpu=fatbin(SM_121)), 0o755)


@case("torch-import nccl-mapped", "libgone.so.3: cannot open shared object file")
def nccl_that_needs_what_is_not_there(b: Broken) -> None:
    b.edit("nccl")[NCCL] = Member(arm64_nccl(22907, gpu=fatbin(SM_121), needed="libgone.so.3"), 0o755)


@case("nccl-mapped", "/opt/other/libnccl.so.2 (2.29.7); expected one below /opt/nccl/")
def second_nccl_in_memory(b: Broken) -> None:
    """Loaded when Python starts, which no ELF header shows."""
    start = b"import ctypes; ctypes.CDLL('/opt/other/libnccl.so.2')\n"
    b.add({"opt/other/libnccl.so.2": arm64_nccl(22907, gpu=fatbin(SM_121)), f"{SITE}/other.pth": start})


# --- Python


@case("vllm-import", "the result is 0.21.0, expected 0.20.0")
def module_of_another_version(b: Broken) -> None:
    """Its metadata says 0.20.0."""
    swap(b.edit("wheels-torch"), VLLM, '"0.20.0"', '"0.21.0"')


@case("log", "UserWarning: stale")
def warning_that_nobody_declared(b: Broken) -> None:
    tree = b.edit("wheels-torch")
    swap(tree, VLLM, "  # room for what a module has to say at once", "; __import__('warnings').warn('stale')")


@case("non-root", "Permission denied")
def files_that_only_root_reads(b: Broken) -> None:
    tree = b.edit("wheels-torch")
    path = f"{SITE}/torch/__init__.py"
    tree[path] = Member(tree[path].data, 0o600)


# --- what a container starts


@case("serve-help starts-without-gpu", "python9: not found")
def script_whose_interpreter_is_gone(b: Broken) -> None:
    """The shell in its first line exists; the program that the script starts does not."""
    swap(b.edit("wheels-torch"), SCRIPT, 'if [ "$3" = --help ] || [ "$2" = --help ];', "exec python9 -m vllm; if true;")


@case("starts-without-gpu", "no end within")
def entrypoint_that_hangs(b: Broken) -> None:
    swap(b.edit("wheels-torch"), SCRIPT, "|| exit 2  # and nothing else", "&& kill -STOP $$")


@case("starts-without-gpu", "does not report that there is no GPU (exit status 2)")
def entrypoint_that_dies_of_something_else(b: Broken) -> None:
    swap(b.edit("wheels-torch"), SCRIPT, '[ "$1" = serve ] || exit 2', "exit 2")


@case("starts-without-gpu", "it exits with 0 without a GPU")
def entrypoint_that_does_nothing(b: Broken) -> None:
    swap(b.edit("wheels-torch"), SCRIPT, '[ "$1" = serve ] || exit 2', "exit 0")


@case("starts-without-gpu", "a signal ended it (exit status 139)")
def entrypoint_that_crashes(b: Broken) -> None:
    swap(b.edit("wheels-torch"), SCRIPT, "|| exit 2  # and nothing else", "&& kill -SEGV $$")


@dataclass(frozen=True)
class Ground:
    """The healthy image, unpacked. folder: for new files."""

    whole: Whole
    folder: Path

    def run(self, image: OpenedImage, layout: Path, checks: Sequence[Check]) -> dict[str, str]:
        """The messages of checks that did not pass, by id."""
        runner = RuncRunner(image, self.folder / "work")
        return problems(run_cpu(layout, image.digest, checks, folder=self.folder, runner=runner))

    def judge(self, case: Case) -> tuple[dict[str, str], dict[str, str]]:
        """The messages of failed checks of the case's image: of the static tier, and of the cpu tier."""
        where = self.folder / case.name
        where.mkdir()
        broken = Broken.of(self.whole, where)
        case.change(broken)
        layout, image = broken.layout()
        read = problems(check_image(image, self.whole.checks))
        self.place(broken, image)
        names = case.fails.union(*(each for each in TOGETHER if each & case.fails))
        checks = [_impatient(check) for check in self.whole.checks if check.id in names]
        return read, self.run(image, layout, checks)

    def place(self, broken: Broken, image: OpenedImage) -> None:
        """Unpack an image quickly: hard links to the healthy image's files, and the files that differ.

        Bytecode of the healthy image is valid for unchanged files.
        """
        healthy, root = (unpacked_root(each, self.folder / "work") for each in (self.whole.image, image))
        shutil.copytree(healthy, root, symlinks=True, copy_function=_link)
        bytecode = Path(f"{healthy}-bytecode")
        if bytecode.exists():
            shutil.copytree(bytecode, f"{root}-bytecode", copy_function=_link)
        for path, member in broken.changed().items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).unlink(missing_ok=True)
            (root / path).write_bytes(member.data)
            (root / path).chmod(member.mode)
        if os.geteuid() == 0:
            # Hard links have their owner already.
            for path in (root, *root.rglob("*")):
                if path.lstat().st_uid < FIRST_ID:
                    os.chown(path, FIRST_ID, FIRST_ID, follow_symlinks=False)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def _impatient(check: Check) -> Check:
    more: dict[str, Any] = {"timeout": 5.0} if check.kind == "fails-without-gpu" else {}
    return check.model_copy(update={"args": {**check.args, **more}})


def problems(report: Report) -> dict[str, str]:
    return {result.id: result.message for result in report.results if result.status != "pass"}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    if not native() and not registered():
        pytest.skip("qemu-user-static is not installed")
    folder = tmp_path_factory.mktemp("running")
    whole = Whole.of(*build(folder, running, Running))
    try:
        RuncRunner(whole.image, folder / "work")
    except CheckNotRun as reason:
        pytest.skip(str(reason))
    # The image has no vLLM parser.
    yield Ground(replace(whole, checks=[check for check in whole.checks if check.kind != "serve-command"]), folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def healthy(ground: Ground) -> dict[str, str]:
    """Messages of failed checks of the healthy image. It is run first: the other images use its bytecode."""
    image = ground.whole.image
    return ground.run(image, image.layers[0].path.parents[2], ground.whole.checks)


@pytest.fixture(scope="module")
def judged(ground: Ground, healthy: dict[str, str]) -> Iterator[dict[str, Future[Any]]]:
    """The result of `Ground.judge` for each case; several run at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        yield {case.name: workers.submit(ground.judge, case) for case in CASES if NIGHTLY or case.name in USUAL}


def test_the_healthy_image_passes_everything(ground: Ground, healthy: dict[str, str]) -> None:
    assert problems(check_image(ground.whole.image, ground.whole.checks)) == {}
    assert healthy == {}
    kinds = {check.kind for check in ground.whole.checks}
    assert kinds >= {"import", "python", "command", "fails-without-gpu", "non-root", "nccl-mapped", "ptxas-assembles"}


@pytest.mark.parametrize(
    "case", nightly_but(CASES, *(case for case in CASES if case.name in USUAL)), ids=lambda case: case.name
)
def test_sabotage(judged: dict[str, Future[Any]], case: Case) -> None:
    read, failed = judged[case.name].result()
    assert "image-planned" in read
    assert set(failed) == case.fails, failed
    assert any(case.message in text for text in failed.values()), failed
