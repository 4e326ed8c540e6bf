"""One variable of a recipe changes, on a base of 10 GB that is in a registry and not on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measure import Command, Row, Sample
from place import Place, needed, remove

from builder.model.reference import Reference
from builder.registry.client import Registry
from builder.registry.push import push_image
from builder.store.store import Store
from tests.support.big_image import big_image
from tests.support.registry import running

LAYERS, MEGABYTES = 10, 1000
WORK = "one variable changed, on a base of 10 GB"
BASE = """\
name: vendor
family: vllm-openai
title: A base of 10 GB
entrypoint: vllm-serve
pin: {image: IMAGE, manifest: DIGEST}
"""
RECIPE = """\
name: variable
title: A recipe with one variable
model: {id: none/none}
base: vendor
layers: [entrypoint]
env: {VARIABLE: "VALUE"}
serve: {model: none/none}
"""


def variable(place: Place) -> Iterator[Row]:
    """Build and push after the change; then the image is in the registry. docker has to pull the base."""
    if missing := needed("docker-registry"):
        raise OSError(missing)
    folder, made, project = place.folder / "registry", place.folder / "made", place.folder / "changed"
    folder.mkdir()
    with running(folder) as host:
        base = Reference.parse(f"{host}/base/large:1")
        image = big_image(Store(made), LAYERS, MEGABYTES)
        push_image(image, Store(made), base, lambda *blob: None, Registry())
        remove(made)
        (project / "recipes/bases").mkdir(parents=True)
        pinned = BASE.replace("IMAGE", str(base)).replace("DIGEST", image.digest)
        (project / "recipes/bases/vendor.yaml").write_text(pinned, "utf-8")
        store = place.folder / "store"
        build = place.builder("build", "variable", store=store, project=project)
        push = place.builder("push", f"{host}/team/variable:1", "--recipe", "variable", store=store, project=project)

        def changed(value: int, *commands: Command) -> tuple[Sample, int]:
            """The commands after a change, as one; and the bytes that this machine has sent to itself meanwhile."""
            (project / "recipes/variable.yaml").write_text(RECIPE.replace("VALUE", str(value)), "utf-8")
            before, samples = _sent(), [command.run() for command in commands]
            parts = zip(*((sample.seconds, sample.cpu, sample.peak) for sample in samples), strict=True)
            seconds, cpu, peaks = (list(part) for part in parts)
            return Sample(sum(seconds), sum(cpu), max(peaks)), _sent() - before

        changed(0, build, push)
        runs = [changed(1 + number, build, push) for number in range(place.runs)]
        moved = f"{max(sent for _, sent in runs) / 1e3:.0f} kB moved"
        yield Row("variable", WORK, [sample for sample, _ in runs], target=2, note=moved)
        if needed("docker"):
            return
        context = place.folder / "context"
        context.mkdir()
        (context / "Dockerfile").write_text(f"FROM {base.at(image.digest)}\nENV VARIABLE=1\n", "utf-8")
        name = f"{host}/team/other:1"
        peer = changed(0, Command(["docker", "buildx", "build", "--push", "--tag", name, str(context)]))
        Command("docker system prune --all --force >/dev/null").run()
        note = f"{moved}, by docker {peer[1] / 1e9:.1f} GB"
        yield Row("variable", WORK, [sample for sample, _ in runs], "docker buildx build", [peer[0]], note=note)


def _sent() -> int:
    return int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())
