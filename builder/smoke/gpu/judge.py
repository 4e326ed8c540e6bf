"""Judging the output of probes: limits and expected values. Each function returns a message or raises CheckFailed."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from builder.smoke.check import CheckFailed
from builder.versions import nccl_version, same_nccl

GB10 = (12, 1)


def device(found: Mapping[str, Any]) -> str:
    """torch sees compute capability 12.1, has code that runs there, and computes."""
    capability = tuple(found["capability"])
    text = f"{found['name']}, {capability[0]}.{capability[1]}, torch {found['torch']}, CUDA {found['cuda']}"
    if capability != GB10:
        raise CheckFailed(f"torch in the image sees {text}; a GB10 is 12.1")
    # Float32 has 24 bits and bfloat16 8, over sums of 256: far below these limits when right, about 1 when wrong.
    for name, limit in (("rms_float32", 1e-3), ("rms_bfloat16", 1e-2)):
        if not (error := _number(found[name])) <= limit:
            raise CheckFailed(f"{text}: a product is off by {error:.2g} ({name}, at most {limit:g})")
    return text


def triton(found: Mapping[str, Any], *, arch: str) -> str:
    """The kernel was compiled for `arch`, and its result is right."""
    text = f"Triton {found['triton']}, ptxas {found['ptxas'] or 'unknown'}"
    if found["target"] != arch or not found["cubin_bytes"]:
        raise CheckFailed(f"{text}: compiled for {found['target']}, not {arch}")
    # Products of bfloat16 numbers summed in float32: 2^-24 times a few.
    if not (error := _number(found["rms"])) <= 1e-4:
        raise CheckFailed(f"{text}: {arch} computes wrong numbers, off by {error:.2g} (at most 1e-4)")
    return f"{text}: {arch}, off by {error:.1g}"


def marlin(found: Mapping[str, Any], *, atomic: bool) -> str:
    """Every launch is near the reference, and a kernel that adds in a fixed order gives equal results in all launches.

    atomic: the kernel may sum in any order, if VLLM_MARLIN_USE_ATOMIC_ADD is 1.
    """
    limit, cases = found["tolerance"], found["cases"]
    if len({case["seed"] for case in cases}) < 2:
        raise CheckFailed(f"the probe has {len(cases)} cases of one seed; two seeds are required")
    rms, worst = (_largest([case[name] for case in cases]) for name in ("rms", "worst"))
    launches = sum(case["launches"] for case in cases)
    if min(case["launches"] for case in cases) < 2:
        raise CheckFailed("the probe launched a kernel once only: a race would not show")
    text = f"vLLM {found['vllm']}, {launches} launches: rms error {rms:.2g} (≤ {limit['rms']:.2g}), "
    text += f"worst {worst:.2g} (≤ {limit['worst']:.2g})"
    bad = sum(case["bad"] for case in cases)
    if bad or not rms <= limit["rms"] or not worst <= limit["worst"]:
        alone = " in some launches only: a race" if 0 < bad < launches else ""
        raise CheckFailed(f"{text}: wrong numbers{alone}")
    different = sum(case["different"] for case in cases)
    if different and not (atomic and found["atomic_add"] == "1"):
        raise CheckFailed(f"{text}: {different} launches differ from the first with the same input: a race")
    return text


def all_reduce(
    found: Sequence[Mapping[str, Any]], *, under: str | None, version: str | None, at_least: float = 0.0
) -> str:
    """Every rank has the right sum, computed by the expected libnccl. at_least: GB/s of bus bandwidth."""
    if [(each["rank"], each["size"]) for each in found] != [(rank, len(found)) for rank in range(len(found))]:
        ranks = ", ".join("{rank} of {size}".format(**each) for each in found)
        raise CheckFailed(f"not {len(found)} ranks of one sum: {ranks}")
    for each in found:
        where = f"rank {each['rank']}: " if len(found) > 1 else ""
        # Float32 sums of a few numbers: a few units of the last of 24 bits.
        limit = each["largest"] * 2.0**-20
        for name in ("sum", "scaled"):
            error = each["error"][name]
            if not _number(error) <= limit:
                raise CheckFailed(
                    f"{where}the {name} over {each['size']} ranks is off by {error} (at most {limit:.1g})"
                )
        versions = {path: nccl_version(number) for path, number in each["mapped"].items()}
        text = ", ".join(f"{path} ({number})" for path, number in versions.items()) or "none"
        if not versions:
            raise CheckFailed(f"{where}no libnccl is in memory: NCCL did not compute this")
        if under and (len(versions) != 1 or not next(iter(versions)).startswith(under.rstrip("/") + "/")):
            raise CheckFailed(f"{where}libnccl in memory: {text}; expected one below {under}")
        if version and not all(same_nccl(number, version) for number in versions.values()):
            raise CheckFailed(f"{where}libnccl in memory: {text}; expected version {version}")
    first = found[0]
    rate = -_largest([-_number(each["bus_gb_s"]) for each in found])
    text = f"{first['size']} ranks, NCCL {', '.join(sorted(set(map(nccl_version, first['mapped'].values()))))}"
    if len(found) > 1:
        text += f", bus bandwidth {rate:.1f} GB/s"
        if not rate >= at_least:
            raise CheckFailed(f"{text}; at least {at_least:g} expected: check the link and its MTU")
    return text


def network(log: Sequence[str], *, transport: str, interface: str, devices: Sequence[str]) -> str:
    """NCCL's log shows that it uses the direct link. transport: roce or socket; devices: the link's RDMA devices."""
    used = [line for line in log if "Using network" in line or "NET/IB : Using" in line or "NET/Socket : Using" in line]
    text = "; ".join(line.partition("NCCL INFO ")[2] or line for line in used) or "its log names none"
    kind = {"roce": "IB", "socket": "Socket"}[transport]
    if not any(f"Using network {kind}" in line for line in used):
        raise CheckFailed(f"NCCL should use {transport}: {text}")
    chosen = " ".join(line for line in used if f"NET/{kind} : Using" in line)
    wanted = list(devices) if transport == "roce" else [interface]
    names = re.findall(r"\[\d+\]([^\s:]+):", chosen)
    if not names or not set(names) <= set(wanted):
        raise CheckFailed(f"NCCL should go over {', '.join(wanted)}: {text}")
    return text


def nccl_tests(output: str) -> str:
    """all_reduce_perf of nccl-tests with -c 1: no element was wrong."""
    if not (bounds := [line for line in output.splitlines() if "Out of bounds values" in line]):
        tail = " | ".join(output.strip().splitlines()[-2:])[-400:]
        raise CheckFailed(f"all_reduce_perf prints no result: {tail or 'no output'}")
    rows = [line.split() for line in output.splitlines() if line.strip()[:1].isdigit()]
    wrong = [row for row in rows if len(row) >= 13 and (row[8] not in ("0", "N/A") or row[12] not in ("0", "N/A"))]
    checked = [row for row in rows if len(row) >= 13 and row[8] != "N/A"]
    if wrong or not all(line.rstrip().endswith("OK") for line in bounds):
        raise CheckFailed(f"all_reduce_perf finds wrong values at {len(wrong)} sizes: {bounds[0].strip('# ')}")
    if not checked:
        raise CheckFailed("all_reduce_perf checked no values")
    rate = next((line.partition(":")[2].strip() for line in output.splitlines() if "Avg bus bandwidth" in line), "?")
    return f"{len(checked)} sizes right, average bus bandwidth {rate} GB/s"


def _number(value: Any) -> float:
    """A float; NaN, which is below no limit, for a missing value or text."""
    with contextlib.suppress(OverflowError):
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    return math.nan


def _largest(values: Sequence[Any]) -> float:
    """The largest number; NaN when one of them is NaN."""
    numbers = [_number(value) for value in values]
    return math.nan if any(map(math.isnan, numbers)) else max(numbers, default=math.nan)
