"""The gpu checks of the machine and of one container each: driver, torch, Triton, Marlin kernels, NCCL."""

from __future__ import annotations

import json
from typing import Literal

from builder.smoke.check import check_kind
from builder.smoke.gpu import judge
from builder.smoke.gpu.machine import Machine, Needs

_IMAGE = Needs("image")


@check_kind("gpu", "driver", Needs("machine"))
def driver(machine: Machine) -> str:
    """The driver is of a branch that the GB10 and the base need."""
    return machine.driver()


@check_kind("gpu", "device", _IMAGE)
def device(machine: Machine, *, timeout: float = 600.0) -> str:
    """torch in the image sees compute capability 12.1 and computes on it."""
    return judge.device(machine.ask("device", timeout=timeout))


@check_kind("gpu", "triton-jit", _IMAGE)
def triton_jit(machine: Machine, *, arch: str = "sm_121a", timeout: float = 900.0) -> str:
    """Triton compiles a kernel for the GPU with an empty cache, and its results are right."""
    return judge.triton(machine.ask("triton_jit", timeout=timeout), arch=arch)


_FORMATS = Literal["nvfp4", "mxfp4", "fp8", "fp8-block"]


@check_kind("gpu", "marlin-moe", _IMAGE)
def marlin_moe(machine: Machine, *, format: _FORMATS, launches: int = 20, timeout: float = 1800.0) -> str:
    """vLLM's Marlin kernels for a mixture of experts, on random data, against float64; two seeds, many launches."""
    return _marlin(machine, "moe", format, launches, timeout)


@check_kind("gpu", "marlin-linear", _IMAGE)
def marlin_linear(machine: Machine, *, format: _FORMATS, launches: int = 20, timeout: float = 1800.0) -> str:
    """vLLM's Marlin kernels for a linear layer, of a shape where VLLM_MARLIN_USE_ATOMIC_ADD selects the summation."""
    return _marlin(machine, "linear", format, launches, timeout)


def _marlin(machine: Machine, what: str, format_: str, launches: int, timeout: float) -> str:
    asked = json.dumps({"what": what, "format": format_, "seeds": [1, 2], "launches": launches})
    return judge.marlin(machine.ask("marlin", asked, timeout=timeout), atomic=what == "linear")


@check_kind("gpu", "nccl-all-reduce", _IMAGE)
def nccl_all_reduce(
    machine: Machine, *, under: str | None = None, version: str | None = None, timeout: float = 600.0
) -> str:
    """NCCL all-reduces on this node, with one libnccl in memory: below `under`, of this version."""
    # One rank needs no network; Linux has this interface everywhere.
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    found = machine.ask("allreduce", env={**alone, "NCCL_SOCKET_IFNAME": "lo"}, timeout=timeout)
    return judge.all_reduce([found], under=under, version=version)


@check_kind("gpu", "nccl-two-nodes", _IMAGE)
def nccl_two_nodes(
    machine: Machine,
    *,
    transport: Literal["roce", "socket"] = "roce",
    under: str | None = None,
    version: str | None = None,
    at_least: float = 1.0,
    timeout: float = 900.0,
) -> str:
    """NCCL all-reduces on two nodes, over the direct link. at-least: GB/s of bus bandwidth."""
    found = machine.two_nodes(transport, timeout)
    text = judge.all_reduce(found, under=under, version=version, at_least=at_least)
    for each, end in zip(found, (machine.link().here, machine.link().there), strict=True):
        judge.network(each["log"], transport=transport, interface=end.interface, devices=end.devices)
    return f"{text}, {transport} over {machine.link().here.interface}"


@check_kind("gpu", "nccl-tests", _IMAGE)
def nccl_tests(machine: Machine, *, program: str, timeout: float = 900.0) -> str:
    """all_reduce_perf of nccl-tests, a program of the host, run in the image with value checks."""
    return judge.nccl_tests(machine.host_program(program, ("-b", "8", "-e", "256M", "-f", "2"), timeout))
