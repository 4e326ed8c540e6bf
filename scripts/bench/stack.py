"""The hermetic stack: cold, again, verified and tested; against uv, tar and zstd, and against docker buildx."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial

from measure import Command, Row, in_turns
from place import Place, needed, remove

PLATFORM = "--python-platform aarch64-manylinux_2_39 --python-version 3.13 --only-binary :all:"


def stack(place: Place) -> Iterator[Row]:
    """Build the stack from downloaded inputs, in an empty store."""
    store, target, wheels = place.folder / "store", place.folder / "target", place.folder / "wheels"
    place.fresh("store")
    wheels.mkdir()
    kept = store / "blobs/sha256"
    for item in {
        item.digest: item for layer in place.plan.layers if layer.layer in ("wheels", "audio") for item in layer.inputs
    }.values():
        (wheels / item.file).hardlink_to(kept / item.digest.hex)
    uv = shutil.which("uv") or "uv"
    install = f"{uv} pip install -q --no-deps --offline --no-index {PLATFORM} --target {target} {wheels}/*.whl"
    pack = f"tar --sort=name -C {target} -cf - . | zstd -q -3 -T0 -o {place.folder}/reference.tar.zst"

    def clean() -> None:
        for name in ("target", "uv", "reference.tar.zst"):
            remove(place.folder / name)

    build = place.builder("build", "stack", "--offline", store=store)
    peer = Command(f"{install} && {pack}", {"UV_CACHE_DIR": str(place.folder / "uv")})
    ours, theirs = in_turns(place.runs, build, peer, before=(partial(place.fresh, "store"), clean))
    clean()
    yield Row("stack", "cold hermetic stack", ours, "uv install, tar, zstd", theirs, 1.15, f"{place.base}, no engine")

    [again] = in_turns(max(place.runs, 5), build)
    if missing := needed("docker"):
        yield Row("stack", "nothing changed", again, note=f"no buildx: {missing}")
    else:
        context = place.folder / "context"
        # Its stages need a toolchain, which is downloaded here when it is not there.
        place.builder("render", "stack", "--context", str(context), store=store).run()
        buildx = Command(["docker", "buildx", "build", "--network=none", "--platform=linux/arm64", str(context)])
        prune = Command(["docker", "buildx", "prune", "--all", "--force"])
        [cold] = in_turns(1, buildx, before=(prune.run,))
        yield Row("stack", "cold hermetic stack", ours, "docker buildx build", cold, 0.4, "of what `render` writes")
        [warm] = in_turns(max(place.runs, 5), buildx)
        yield Row("stack", "nothing changed", again, "docker buildx build", warm, 0.5)
        prune.run()
        remove(context)

    verify = place.builder("verify", "--recipe", "stack", "--offline", store=store)
    [verified] = in_turns(place.runs, verify)
    yield Row("stack", "builder verify", verified, "builder build", ours, 1.2)
    [tested] = in_turns(place.runs, place.builder("test", "stack", "--tier", "static", store=store))
    yield Row("stack", "static tier", tested, target=15)
