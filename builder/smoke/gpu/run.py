"""The gpu tier: checks that need a GB10, run in containers of the exact image."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pydantic import JsonValue

from builder.doctor.host import Host, ThisHost
from builder.errors import BuilderError
from builder.model.base import Base
from builder.model.check import Check
from builder.model.recipe import Recipe
from builder.serve.spec import Container, container
from builder.smoke.cpu.runner import Unable
from builder.smoke.gpu import kinds as kinds_gpu
from builder.smoke.gpu import peer as gpu_peer
from builder.smoke.gpu import server as gpu_serve
from builder.smoke.gpu.client import Client
from builder.smoke.gpu.docker import Docker
from builder.smoke.gpu.machine import Image, Options, Site, require_spark
from builder.smoke.gpu.server import Serving
from builder.smoke.gpu.small import small
from builder.smoke.report import Report, Result, Status
from builder.smoke.static.run import Failed

Tell = Callable[[str], object]
Job = tuple[Check, kinds_gpu.Run]


def run_gpu(
    digest: str,
    checks: Sequence[Check],
    recipe: Recipe,
    base: Base,
    image: Image,
    *,
    options: Options | None = None,
    host: Host | None = None,
    tell: Tell = lambda text: None,
) -> Report:
    """Run the gpu checks among `checks`, and those that every image is asked, on this machine.

    On a machine that is no GB10, or has no docker, every check is `not-run`, with the reason. Containers get names of
    their own and are removed, whatever happens. tell: told what is being run.
    Raises InvalidError for a check that does not exist or has wrong arguments.
    """
    options, host = options or Options(), host or ThisHost()
    served = small(recipe) if options.serve == "small" else recipe
    report = Report(digest)
    jobs = [(check, kinds_gpu.make(check)) for check in _asked(checks, options)]
    for check, _ in list(jobs):
        flag = kinds_gpu.KINDS[check.kind].flag
        if flag and not served.serve.flags.get(flag):
            jobs = [job for job in jobs if job[0] is not check]
            report.notes.append(f"{check.id} does not apply: {served.model.id} is served without --{flag}")
    site = Site(host, Docker(), image, recipe, served, base, options)
    try:
        spark = require_spark(host)
        version = site.docker.ready()
        _have(image, site.docker, tell)
    except Unable as reason:
        report.results = [_result(check, "not-run", str(reason), 0.0) for check, _ in jobs]
        return report
    found = {id(check): _run(check, run, site, tell) for check, run in jobs if _needs(check) != "server"}
    found |= _serve(site, [job for job in jobs if _needs(job[0]) == "server"], tell)
    report.results = [found[id(check)] for check, _ in jobs]
    report.notes.append(f"run on {spark}, docker {version}, as {image.name}; served: {served.model.id}")
    return report


def _asked(checks: Sequence[Check], options: Options) -> list[Check]:
    asked = {check.id: check for check in checks if check.tier == "gpu"}
    for check in kinds_gpu.defaults():
        asked.setdefault(check.id, check)
    library = next((check.args for check in asked.values() if check.kind == "nccl-all-reduce"), {})
    same = {name: value for name, value in library.items() if name in ("under", "version")}
    for check in list(asked.values()):
        if check.kind == "nccl-two-nodes":
            asked[check.id] = check.model_copy(update={"args": {**same, **check.args}})
    if options.peer and not any(check.kind == "nccl-two-nodes" for check in asked.values()):
        asked["nccl-two-nodes"] = Check(id="nccl-two-nodes", tier="gpu", kind="nccl-two-nodes", args=same)
    if options.nccl_tests:
        args: dict[str, JsonValue] = {"program": str(options.nccl_tests.resolve())}
        asked["nccl-tests"] = Check(id="nccl-tests", tier="gpu", kind="nccl-tests", args=args)
    return [check for check in asked.values() if not options.only or check.id in options.only]


def _have(image: Image, docker: Docker, tell: Tell) -> None:
    """Docker has this very image. Raises Unable."""
    if docker.identity(image.name) not in image.ids:
        tell(f"loading {image.name} into docker")
        try:
            image.load()
        except BuilderError as error:
            raise Unable(f"docker does not get the image: {error.what}; builder build --load says why") from error
        found = docker.identity(image.name)
        if found not in image.ids:
            raise Unable(f"docker has {found or 'nothing'} under the name {image.name}, not this image")


def _serve(site: Site, jobs: Sequence[Job], tell: Tell) -> dict[int, Result]:
    """Start the server once, and run its checks in the order of their kinds."""
    found: dict[int, Result] = {}
    if not jobs:
        return found
    order = list(kinds_gpu.KINDS)
    jobs = sorted(jobs, key=lambda job: order.index(job[0].kind))
    begin = time.monotonic()
    try:
        tell(f"starting a server of {site.served.model.id}")
        with _started(site) as serving:
            gpu_serve.wait(serving, site.options.start)
            serving.seconds["start"] = time.monotonic() - begin
            for check, run in jobs:
                found[id(check)] = _run(check, run, serving, tell)
    except (Failed, Unable) as reason:
        seconds = time.monotonic() - begin
        why = "the server did not come up" if isinstance(reason, Failed) else str(reason)
        for number, (check, _) in enumerate(jobs):
            # One says why: that of health, which comes first, or whatever was asked for instead.
            if number == 0 and isinstance(reason, Failed):
                found[id(check)] = _result(check, "fail", str(reason), seconds)
            else:
                found.setdefault(id(check), _result(check, "not-run", why, 0.0))
    return found


@contextlib.contextmanager
def _started(site: Site) -> Iterator[Serving]:
    """The container of `builder run`, on a port of this machine's loopback that is free."""
    served, options = site.served, site.options
    with contextlib.ExitStack() as stack:
        if served.nodes == 2:
            there, (head, worker) = site.peer(), gpu_peer.nodes(site.link())
            made, beside = (
                container(served, site.base, site.image.name, offline=options.offline, node=node)
                for node in (head, worker)
            )
        else:
            made = _one(site)
        before = gpu_serve.gpu_processes(site.host)
        running = stack.enter_context(site.docker.started(made))
        if served.nodes == 2:
            stack.enter_context(gpu_peer.worker_beside(there, beside, options.pause))
        key = os.environ.get("VLLM_API_KEY") if "VLLM_API_KEY" in made.secrets else None
        url = f"http://127.0.0.1:{made.ports[0] if made.ports else made.port}"
        name = str(served.serve.flags.get("served-model-name") or served.serve.model or served.model.id)
        client = Client(url, name, key=key, patience=options.patience)
        yield Serving(running, client, served, site.host, before, options.interval)


def _one(site: Site) -> Container:
    served = site.served
    port = None if served.run.network == "host" else _free_port()
    made = container(served, site.base, site.image.name, port=port, offline=site.options.offline)
    if site.options.serve == "small" and site.base.entrypoint == "environment":
        # An entrypoint that builds its command from variables cannot be told another model.
        alike = site.base.model_copy(update={"entrypoint": "pass-through"})
        words = container(served, alike, site.image.name, port=port).command
        made = replace(made, entrypoint=words[0], command=words[1:])
    return replace(made, listen="127.0.0.1" if made.ports else None)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _run(check: Check, run: kinds_gpu.Run, on: Site | Serving, tell: Tell) -> Result:
    tell(check.id)
    begin = time.monotonic()
    status: Status = "pass"
    try:
        message = run(on)
    except Failed as reason:
        status, message = "fail", str(reason)
    except Unable as reason:
        status, message = "not-run", str(reason)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        # What came back has not the form that it should have: that is no pass.
        status, message = "fail", f"what came back cannot be read: {type(error).__name__}: {error}"
    return _result(check, status, message, time.monotonic() - begin)


def _needs(check: Check) -> str:
    return kinds_gpu.KINDS[check.kind].needs


def _result(check: Check, status: Status, message: str, seconds: float) -> Result:
    return Result(check.id, check.kind, "gpu", status, message, round(seconds, 3))
