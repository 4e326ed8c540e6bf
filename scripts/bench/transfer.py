"""Push and load of the stack (3.7 GB) through docker's own registry on loopback, against skopeo and docker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from measure import Command, Row, Sample
from place import Place, needed, remove

from tests.support.registry import running

UPLOAD = """\
export name=$1
one() {
    location=$(curl -sS -o /dev/null -D - -X POST "http://${name%%/*}/v2/${name#*/}/blobs/uploads/" |
        tr -d "\\r" | sed -n "s/^[Ll]ocation: //p")
    curl -sS -f -o /dev/null -T "$1" -H "Content-Type: application/octet-stream" "$location&digest=sha256:${1##*/}"
}
export -f one
ls "$2"/blobs/sha256/* | xargs -P 4 -I{} bash -c "one {}"
"""
"""Uploads the blobs of a layout and does nothing else: no hash is checked. What is left is the registry's own time."""


def transfer(place: Place) -> Iterator[Row]:
    """Each run has an empty registry, so that nothing is there or can be mounted."""
    if missing := needed("docker-registry", "skopeo"):
        raise OSError(missing)
    store, layout = place.fresh("store"), place.folder / "layout"
    place.builder("build", "stack", "--offline", "--output", f"oci:{layout}", store=store).run()
    numbers = count()

    def sent(command: Callable[[str], Command], runs: int = place.runs) -> list[Sample]:
        found = []
        for _ in range(runs):
            folder = place.folder / f"registry-{next(numbers)}"
            folder.mkdir()
            with running(folder) as host:
                found.append(command(f"{host}/team/stack:1").run())
            remove(folder)
        return found

    def push(name: str) -> Command:
        return place.builder("push", name, "--recipe", "stack", store=store)

    def copy(name: str) -> Command:
        return Command(["skopeo", "copy", "--quiet", "--dest-tls-verify=false", f"oci:{layout}", f"docker://{name}"])

    ours, theirs = [], []
    for _ in range(place.runs):
        ours += sent(push, 1)
        theirs += sent(copy, 1)
    yield Row("transfer", "builder push", ours, "skopeo copy", theirs, 0.4)
    if not needed("curl"):
        floor = sent(lambda name: Command(["bash", "-c", UPLOAD, "upload", name.rpartition(":")[0], str(layout)]))
        yield Row("transfer", "builder push", ours, "curl of the same blobs", floor)
    if needed("docker"):
        return
    (place.folder / "registry").mkdir()
    with running(place.folder / "registry") as host:
        name = f"{host}/team/stack:1"
        push(name).run()
        loaded, pulled = [], []
        # Of an image that was pulled by its digest, only the name would go with the name.
        remove_image = "docker images --quiet --no-trunc | sort -u | xargs -r docker rmi --force >/dev/null"
        for _ in range(place.runs):
            load = place.builder("load", "--recipe", "stack", "--tag", name, store=store)
            loaded.append(load.run())
            Command(remove_image).run()
            pulled.append(Command(["docker", "pull", "--quiet", "--platform=linux/arm64", name]).run())
            if len(pulled) < place.runs:
                Command(remove_image).run()
        yield Row("transfer", "builder load", loaded, "docker pull", pulled, 0.9)

        def docker_push(other: str) -> Command:
            Command(["docker", "tag", name, other]).run()
            return Command(["docker", "push", "--quiet", other])

        yield Row("transfer", "builder push", ours, "docker push", sent(docker_push), 0.5)
        Command("docker system prune --all --force >/dev/null").run()
