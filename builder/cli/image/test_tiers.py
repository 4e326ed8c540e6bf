"""The tiers of `builder test`: which checks run, and one function for each of static, cpu and gpu."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from builder.cli.image.test_subject import Subject
from builder.cli.output import counted, say, size
from builder.cli.request import PlanRequest, open_store
from builder.errors import UsageError
from builder.model.check import Check
from builder.project import Project
from builder.smoke.cpu.run import run_cpu
from builder.smoke.gpu.machine import Options as GpuOptions
from builder.smoke.gpu.run import always_there, run_gpu
from builder.smoke.image.opened import LayerBlob
from builder.smoke.report import Report, Result
from builder.smoke.static.run import ALWAYS, check_image
from builder.store.removal import remove

TIERS = ("static", "cpu", "gpu")


@dataclass(frozen=True)
class TestRequest:
    """Which checks to run. only: ids of checks; all when empty. recipe: how the gpu tier serves the image."""

    tiers: tuple[str, ...]
    only: tuple[str, ...]
    recipe: PlanRequest | None
    gpu: GpuOptions

    def picks(self, check: Check) -> bool:
        """Whether --only lets this check run."""
        return not self.only or check.id in self.only


def check_only(subject: Subject, request: TestRequest) -> None:
    """Raises UsageError when --only names no check, or a check of a tier that does not run."""
    for name in request.only:
        tiers = {check.tier for check in (*subject.checks, *ALWAYS) if check.id == name}
        tiers |= {"gpu"} if name in always_there() else set()
        if not tiers:
            raise UsageError(
                f"there is no check {name!r}",
                id="check-unknown",
                where=subject.name,
                next="leave out --only: all are listed",
            )
        if not tiers & set(request.tiers):
            raise UsageError(
                f"{name} is a check of the {min(tiers)} tier",
                id="check-of-other-tier",
                next=f"add --tier {min(tiers)}",
            )


def run_tiers(subject: Subject, request: TestRequest) -> Report:
    """Run the checks of every requested tier. Raises BuilderError when a tier cannot start."""
    checks = [check for check in subject.checks if request.picks(check)]
    report = Report(subject.image.digest)
    total = sum(layer.size for layer in subject.image.layers)
    say(f"{subject.name}: reading {counted(len(subject.image.layers), 'layer')}, {size(total)}", hang=2)
    if "static" in request.tiers:
        report.add(run_static_tier(subject, checks, [check for check in ALWAYS if request.picks(check)]))
    if "cpu" in request.tiers:
        report.add(run_cpu_tier(subject, checks))
    if "gpu" in request.tiers:
        report.add(run_gpu_tier(subject, checks, request))
    return report


def run_static_tier(subject: Subject, checks: Sequence[Check], always: Sequence[Check]) -> Report:
    """Read the image without running it. always: checks that run on every image."""
    folder = open_store().scratch()  # The next builder removes it when this one is killed.
    try:
        listener, below = _print_layers(subject), subject.base_layers
        settings = (subject.base.config.get("config") or {}) if subject.base is not None else None
        return check_image(
            subject.image, checks, base=below, always=always, folder=folder, settings=settings, listener=listener
        )
    finally:
        remove(folder)


def _print_layers(subject: Subject) -> Callable[[int, LayerBlob], None]:
    """Prints each layer when it was read: its name, or `base`, and how many there are."""
    done: list[int] = []

    def listener(number: int, blob: LayerBlob) -> None:
        done.append(number)
        place = f"[{len(done)}/{len(subject.image.layers)}]"
        name = "base" if number < subject.base_layers else subject.image.names[number] or "?"
        say(f"  {place:>7} {name:24} read {size(blob.size):>10}  {blob.digest[:19]}", row=True)

    return listener


def run_cpu_tier(subject: Subject, checks: Sequence[Check]) -> Report:
    """Run commands of the image without a GPU, in a folder of the store that the image is unpacked to."""
    store = open_store()
    store.claim("run")
    return run_cpu(subject.layout, subject.image.digest, checks, folder=store.unpacked, progress=say)


def run_gpu_tier(subject: Subject, checks: Sequence[Check], request: TestRequest) -> Report:
    """Run the image on this Spark. Raises UsageError without a recipe, and for an image in a folder."""
    if request.recipe is None:
        raise UsageError(
            "the gpu tier needs the recipe of the image", id="gpu-recipe-not-given", next="add --recipe NAME"
        )
    if subject.gpu is None:
        raise UsageError(
            "docker does not run an image from a folder",
            id="gpu-image-in-folder",
            next="push the image, and name its reference instead of the folder",
        )
    recipe, base = request.recipe.recipe_and_base(Project())
    return run_gpu(subject.image.digest, checks, recipe, base, subject.gpu, options=request.gpu, progress=say)


def not_requested(subject: Subject, request: TestRequest) -> list[Result]:
    """Results for the tests of structure files that need a tier which was not requested."""
    return [
        Result(check.id, check.kind, check.tier, "not-run", f"it runs a command of the image: --tier {check.tier}")
        for check in subject.checks
        if check.kind == "structure-command" and check.tier not in request.tiers and request.picks(check)
    ]
