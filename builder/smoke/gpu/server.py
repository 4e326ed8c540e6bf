"""A server started from the image: its container, waiting until it is healthy, the processes on the GPU."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from builder.doctor.host import Host
from builder.model.recipe import Recipe
from builder.serve.spec import Container, container
from builder.smoke.check import CheckFailed, CheckNotRun
from builder.smoke.gpu import peer as gpu_peer
from builder.smoke.gpu.client import Client
from builder.smoke.gpu.docker import Running
from builder.smoke.gpu.machine import Machine
from builder.smoke.logscan import describe, scan_server_log


@dataclass
class Serving:
    """A server that was started. recipe: what it serves. before: processes on the GPU before it was started."""

    running: Running
    client: Client
    recipe: Recipe
    host: Host
    before: frozenset[str] = frozenset()
    interval: float = 2.0
    seconds: dict[str, float] = field(default_factory=dict)


@contextlib.contextmanager
def started(machine: Machine) -> Iterator[Serving]:
    """Start the container of `builder run` on a free port of the loopback interface; stopped and removed at the end."""
    served, options = machine.served, machine.options
    with contextlib.ExitStack() as stack:
        if served.nodes == 2:
            there, (head, worker) = machine.peer(), gpu_peer.nodes(machine.link())
            made, beside = (
                container(served, machine.base, machine.image.name, offline=options.offline, node=node)
                for node in (head, worker)
            )
        else:
            made = _single_node(machine)
        before = gpu_processes(machine.host)
        running = stack.enter_context(machine.docker.started(made))
        if served.nodes == 2:
            stack.enter_context(gpu_peer.worker_beside(there, beside, options.pause))
        key = os.environ.get("VLLM_API_KEY") if "VLLM_API_KEY" in made.secrets else None
        url = f"http://127.0.0.1:{made.ports[0] if made.ports else made.port}"
        name = str(served.serve.flags.get("served-model-name") or served.serve.model or served.model.id)
        client = Client(url, name, key=key, patience=options.patience)
        yield Serving(running, client, served, machine.host, before, options.interval)


def _single_node(machine: Machine) -> Container:
    served = machine.served
    port = None if served.run.network == "host" else _free_port()
    made = container(served, machine.base, machine.image.name, port=port, offline=machine.options.offline)
    if machine.options.serve == "small" and machine.base.entrypoint == "environment":
        # An entrypoint that builds its command from variables cannot serve another model.
        alike = machine.base.model_copy(update={"entrypoint": "pass-through"})
        words = container(served, alike, machine.image.name, port=port).command
        made = replace(made, entrypoint=words[0], command=words[1:])
    return replace(made, listen="127.0.0.1" if made.ports else None)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait(serving: Serving, timeout: float) -> str:
    """Wait until the server is healthy, `timeout` seconds at most. Raises CheckFailed."""
    begin = time.monotonic()
    while True:
        state = serving.running.state()
        if not state.running:
            why = "ran out of memory" if state.out_of_memory else f"ended with {state.code}"
            raise CheckFailed(
                f"the server {why} after {time.monotonic() - begin:.0f} s: {_reason(serving.running.log())}"
            )
        try:
            serving.client.get("/health", timeout=10)
        except CheckFailed as error:
            if time.monotonic() - begin > timeout:
                log = _reason(serving.running.log())
                raise CheckFailed(f"not healthy within {timeout:g} s ({error}); its log ends: {log}") from error
            time.sleep(serving.interval)
            continue
        return f"healthy after {time.monotonic() - begin:.0f} s"


def gpu_processes(host: Host) -> frozenset[str]:
    """The ids of the processes on the GPU. Raises CheckNotRun when nvidia-smi fails."""
    got = host.run("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader")
    if got is None or got.code:
        raise CheckNotRun("nvidia-smi does not list the processes on the GPU")
    return frozenset(line.strip() for line in got.text.splitlines() if line.strip().isdigit())


def _reason(text: str) -> str:
    """The most useful lines of a log: known bad ones, else the last errors, else its end."""
    if known := [item for item in scan_server_log(text) if item.means]:
        return describe(known)
    written = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in written if re.search(r"\b\w*(Error|Exception)\b", line)]
    return " | ".join((errors or written)[-2:])[-600:] or "the log is empty"
