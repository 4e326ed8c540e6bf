"""The kinds of checks of the gpu tier, and those that every image is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from builder.errors import InvalidError
from builder.model.check import Check
from builder.smoke.gpu import judge
from builder.smoke.gpu import server as serve
from builder.smoke.gpu.machine import Site
from builder.smoke.static.run import invalid_args

Run = Callable[[Any], str]
"""Given a Site or a Serving: what was found. Raises Failed; Unable when it cannot be run."""

Needs = Literal["machine", "image", "server"]


@dataclass(frozen=True)
class Kind:
    """needs: what the check runs on. make: its own arguments → what runs it. flag: only for commands that have it."""

    needs: Needs
    make: Callable[..., Run]
    flag: str | None = None


KINDS: dict[str, Kind] = {}


def kind(name: str, needs: Needs, flag: str | None = None) -> Callable[[Callable[..., Run]], Callable[..., Run]]:
    """Register a kind of check. Those of a server run in the order in which they stand here."""

    def register(function: Callable[..., Run]) -> Callable[..., Run]:
        from pydantic import ConfigDict, validate_call

        KINDS[name] = Kind(needs, validate_call(config=ConfigDict(strict=True))(function), flag)
        return function

    return register


def make(check: Check) -> Run:
    """What runs a check. Raises InvalidError when it does not exist or has wrong arguments."""
    from pydantic import ValidationError

    if check.kind not in KINDS:
        raise InvalidError(
            f"check {check.id}: no gpu check {check.kind!r}", next=f"there are: {', '.join(sorted(KINDS))}"
        )
    args = {
        name.replace("-", "_"): tuple(value) if isinstance(value, list) else value for name, value in check.args.items()
    }
    try:
        return KINDS[check.kind].make(**args)
    except ValidationError as error:
        raise invalid_args(check, error) from error


def defaults() -> Iterator[Check]:
    """What every image is asked; a check of a base, layer or recipe with the same id stands for it."""
    for name in ("driver", "device", "triton-jit", "nccl-all-reduce"):
        yield Check(id=name, tier="gpu", kind=name)
    for name, each in KINDS.items():
        if each.needs == "server":
            yield Check(id=name, tier="gpu", kind=name)


def always_there() -> set[str]:
    """Ids of the checks that need no layer: those of every image, and those that an option adds."""
    return {check.id for check in defaults()} | {"nccl-tests", "nccl-two-nodes"}


@kind("driver", "machine")
def driver() -> Run:
    """The driver is of the branch that GB10 and the base need."""
    return lambda site: site.driver()


@kind("device", "image")
def device(*, timeout: float = 600.0) -> Run:
    """torch in the image sees compute capability 12.1 and computes on it."""
    return lambda site: judge.device(site.ask("device", timeout=timeout))


@kind("triton-jit", "image")
def triton_jit(*, arch: str = "sm_121a", timeout: float = 900.0) -> Run:
    """Triton compiles a kernel for the GPU, from nothing, and its numbers are right."""
    return lambda site: judge.triton(site.ask("triton_jit", timeout=timeout), arch=arch)


_FORMATS = Literal["nvfp4", "mxfp4", "fp8", "fp8-block"]


@kind("marlin-moe", "image")
def marlin_moe(*, format: _FORMATS, launches: int = 20, timeout: float = 1800.0) -> Run:
    """vLLM's Marlin kernels for a mixture of experts, on random data, against float64; two seeds, many launches."""
    return _marlin("moe", format, launches, timeout)


@kind("marlin-linear", "image")
def marlin_linear(*, format: _FORMATS, launches: int = 20, timeout: float = 1800.0) -> Run:
    """The same for a linear layer, of the shape where VLLM_MARLIN_USE_ATOMIC_ADD decides how is summed."""
    return _marlin("linear", format, launches, timeout)


def _marlin(what: str, format_: str, launches: int, timeout: float) -> Run:
    asked = json.dumps({"what": what, "format": format_, "seeds": [1, 2], "launches": launches})
    return lambda site: judge.marlin(site.ask("marlin", asked, timeout=timeout), atomic=what == "linear")


@kind("nccl-all-reduce", "image")
def nccl_all_reduce(*, under: str | None = None, version: str | None = None, timeout: float = 600.0) -> Run:
    """NCCL reduces on this node, by the one libnccl below `under`, of this version."""

    def run(site: Site) -> str:
        # One rank needs no network; Linux has this interface everywhere.
        alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
        found = site.ask("allreduce", env={**alone, "NCCL_SOCKET_IFNAME": "lo"}, timeout=timeout)
        return judge.all_reduce([found], under=under, version=version)

    return run


@kind("nccl-two-nodes", "image")
def nccl_two_nodes(
    *,
    transport: Literal["roce", "socket"] = "roce",
    under: str | None = None,
    version: str | None = None,
    at_least: float = 1.0,
    timeout: float = 900.0,
) -> Run:
    """NCCL reduces over both nodes, over the direct link. at-least: GB/s of bus bandwidth."""

    def run(site: Site) -> str:
        found = site.two_nodes(transport, timeout)
        text = judge.all_reduce(found, under=under, version=version, at_least=at_least)
        for each, end in zip(found, (site.link().here, site.link().there), strict=True):
            judge.network(each["log"], transport=transport, interface=end.interface, devices=end.devices)
        return f"{text}, {transport} over {site.link().here.interface}"

    return run


@kind("nccl-tests", "image")
def nccl_tests(*, program: str, timeout: float = 900.0) -> Run:
    """all_reduce_perf of nccl-tests, a program of the host, run in the image with value checks."""
    return lambda site: judge.nccl_tests(site.host_program(program, ("-b", "8", "-e", "256M", "-f", "2"), timeout))


@kind("serve-health", "server")
def serve_health() -> Run:
    """The server comes up."""
    return lambda server: f"healthy after {server.seconds['start']:.0f} s"


@kind("serve-warm-up", "server")
def serve_warm_up(*, within: float = 300.0) -> Run:
    """The first request ends in time."""
    return lambda server: serve.warm_up(server, within=within)


@kind("serve-models", "server")
def serve_models() -> Run:
    """The model is listed."""
    return serve.models


_QUESTION = "What is 12*17? Answer with the number."


@kind("serve-answer", "server")
def serve_answer(*, question: str = _QUESTION, expect: str = "204", max_tokens: int = 4096) -> Run:
    """A question is answered rightly."""
    return lambda server: serve.answer(server, question=question, expect=expect, max_tokens=max_tokens)


@kind("serve-stream", "server")
def serve_stream(*, question: str = _QUESTION, expect: str = "204", max_tokens: int = 4096) -> Run:
    """The same streamed, with reasoning in its own field."""
    return lambda server: serve.stream(server, question=question, expect=expect, max_tokens=max_tokens)


@kind("serve-tools", "server", flag="tool-call-parser")
def serve_tools(*, max_tokens: int = 4096) -> Run:
    """A tool is called."""

    return lambda server: serve.tools(server, max_tokens=max_tokens)


@kind("serve-decode", "server")
def serve_decode(*, at_least: float | None = None) -> Run:
    """Decoding is fast enough. at-least: tokens/s; default: half of what the recipe's source measured, else 20."""
    return lambda server: serve.decode(server, at_least=at_least or serve.expected_rate(server.recipe))


@kind("serve-speculation", "server", flag="speculative-config")
def serve_speculation(*, at_least: float = 0.1) -> Run:
    """Drafted tokens are accepted. at-least: their share."""

    return lambda server: serve.speculation(server, at_least=at_least)


@kind("serve-log", "server")
def serve_log(*, allow: tuple[str, ...] = ()) -> Run:
    """The log has no bad line and no undeclared warning. allow: patterns of further harmless lines."""
    return lambda server: serve.log(server, allow=allow)


@kind("serve-stop", "server")
def serve_stop(*, within: int = 120) -> Run:
    """The server ends when told to."""
    return lambda server: serve.stop(server, within=within)
