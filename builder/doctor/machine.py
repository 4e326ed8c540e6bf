"""Checks of the machine itself: driver, GPU, kernel, disk, and memory for the recipe's model."""

from __future__ import annotations

import glob
import re

from builder.doctor.question import Answer, Question
from builder.serve.staging import prefetch
from builder.versions import at_least, semantic

GIB = 1 << 30
_REST = 2 * GIB
"""The least that vLLM needs besides the weights: activations, CUDA graphs and a cache for one request."""


def driver(q: Question) -> Answer:
    got = q.host.run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if got is None or got.code:
        return Answer("driver", "unknown", "nvidia-smi gives no driver version here")
    version = got.text.strip().splitlines()[0]
    installed = semantic(version)
    branch = installed.major if installed else 0
    if branch == 580:
        wanted = (q.base.driver if q.base else None) or ""
        if at_least(wanted, "590.0"):
            message = f"driver {version}; {q.base.name if q.base else 'the base'} is built for {wanted}"
            fix = "stay on 580: its log should show Forward Compatibility mode ENABLED; if it shows UNAVAILABLE, use "
            return Answer("driver", "warning", message, f"{fix}a vllm-openai base")
        return Answer("driver", "ok", f"driver {version}" + (f"; the base needs {wanted}" if wanted else ""))
    if branch >= 590:
        message = f"driver {version}: the 590 branch deadlocks in CUDA graphs on GB10"
        return Answer("driver", "failed", message, "go back to 580; 580.142 is known good")
    return Answer("driver", "failed", f"driver {version} is older than 580", "install 580.142, for CUDA 13")


def gpu(q: Question) -> Answer:
    name = _gpu(q)
    if name is None:
        return Answer("gpu", "unknown", "no NVIDIA GPU is visible here")
    if "12.1" in name:
        return Answer("gpu", "ok", name)
    return Answer("gpu", "warning", f"{name} is not a GB10 (12.1)", "images are built for sm_121")


def _gpu(q: Question) -> str | None:
    """The first GPU: its name and compute capability."""
    got = q.host.run("nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader")
    return got.text.strip().splitlines()[0] if got is not None and not got.code and got.text.strip() else None


def kernel(q: Question) -> Answer:
    got = q.host.run("uname", "-r")
    if got is None or got.code:
        return Answer("kernel", "unknown", "uname prints no kernel release")
    release = got.text.strip()
    off = "kho=off" in (q.host.read("/proc/cmdline") or "")
    if release.startswith("7.0.0-1019") and not off:
        message = f"kernel {release} with KHO breaks RDMA memory registration (ENOMEM)"
        return Answer("kernel", "failed" if q.two else "warning", message, "boot 6.17.0-1032, or with kho=off")
    return Answer("kernel", "ok", f"kernel {release}")


def _meminfo(q: Question) -> dict[str, int]:
    text = q.host.read("/proc/meminfo") or ""
    return {m[1]: int(m[2]) * 1024 for m in re.finditer(r"(?m)^(\w+):\s+(\d+) kB", text)}


def memory(q: Question) -> Answer:
    """Whether what vLLM takes is free, and whether the recipe's weights fit into it."""
    found = _meminfo(q)
    if not {"MemTotal", "MemAvailable"} <= found.keys():
        return Answer("memory", "unknown", "/proc/meminfo cannot be read")
    total, free = found["MemTotal"], found["MemAvailable"]
    given = q.recipe.serve.flags.get("gpu-memory-utilization") if q.recipe else 0.85
    # vLLM's own default.
    share = float(given) if isinstance(given, int | float) else 0.9
    taken, weights = share * total, (q.recipe.model.memory_gb or 0) * 1e9 if q.recipe else 0
    takes = f"vLLM takes {taken / GIB:.0f} ({share:g} of all)"
    if weights and weights + _REST > taken:
        message = f"{weights / GIB:.0f} GiB of weights do not fit: {takes} of {total / GIB:.0f} GiB"
        return Answer("memory", "failed", message, "use a smaller model or a quantized one: builder list")
    message = f"{free / GIB:.0f} of {total / GIB:.0f} GiB are available; {takes}"
    message += f", {weights / GIB:.0f} for weights and {(taken - weights) / GIB:.0f} for the rest" if weights else ""
    if free >= taken:
        return Answer("memory", "ok", message)
    lower = int(free / total * 100) / 100
    fix = f"stop other programs, or set --gpu-memory-utilization to {lower:g} in the recipe"
    fix = fix if weights + _REST < lower * total else "stop other programs"
    return Answer("memory", "failed" if q.recipe else "warning", message, fix)


SPARKS = {64: "spark-64", 128: "spark-128"}
"""The machines by their memory in GB."""


def model(q: Question) -> Answer:
    """Which Spark this is, by its memory, and whether the recipe is for it; or that it is no Spark."""
    if other := _no_spark(q):
        message = f"this machine is no Spark: {other}; images are for linux/arm64 with a GB10"
        fix = "run doctor on the Spark; this machine can build, test --tier static, push and deploy"
        return Answer("machine", "failed" if q.recipe else "warning", message, fix)
    found = _meminfo(q)
    if "MemTotal" not in found:
        return Answer("machine", "unknown", "/proc/meminfo cannot be read")
    total = found["MemTotal"]
    gigabytes = 64 if total < 80 * GIB else 128
    name = f"{SPARKS[gigabytes]}: {total / GIB:.0f} GiB of memory"
    if total < 48 * GIB:
        return Answer("machine", "warning", f"{total / GIB:.0f} GiB of memory: less than any Spark")
    if q.recipe is not None and q.recipe.memory_gb > gigabytes:
        others = [title for title, item in q.recipe.profiles.items() if item.memory_gb == gigabytes]
        fix = f"--profile {others[0]}" if others else "use a recipe for 64 GB: builder list"
        return Answer("machine", "failed", f"{name}; {q.recipe.name} is for {q.recipe.memory_gb} GB", fix)
    return Answer("machine", "ok", name)


def _no_spark(q: Question) -> str:
    """What shows that this machine is no Spark: its processor or its GPU. Empty when nothing does."""
    processor = q.host.run("uname", "-m")
    if processor is not None and not processor.code and processor.text.strip() != "aarch64":
        return f"its processor is {processor.text.strip()}"
    seen = _gpu(q)
    return f"its GPU is {seen}" if seen and "12.1" not in seen else ""


def page_cache(q: Question) -> Answer:
    found = _meminfo(q)
    if "Cached" not in found:
        return Answer("page-cache", "unknown", "/proc/meminfo cannot be read")
    size, total = found["Cached"], found.get("MemTotal", 0)
    if total and size > 0.2 * total:
        message = f"{size / GIB:.0f} GiB of page cache compete with CUDA for memory"
        return Answer("page-cache", "warning", message, "sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'")
    return Answer("page-cache", "ok", f"{size / GIB:.1f} GiB of page cache")


def leaked(q: Question) -> Answer:
    found = _meminfo(q)
    apps = q.host.run("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader")
    if not {"MemTotal", "MemFree", "Cached"} <= found.keys() or apps is None or apps.code:
        return Answer("leaked-memory", "unknown", "leaked memory cannot be measured here")
    parts = ("MemFree", "Cached", "Buffers", "AnonPages", "Slab", "Shmem", "PageTables", "KernelStack")
    known = sum(found.get(name, 0) for name in parts) - found.get("Shmem", 0)
    missing = found["MemTotal"] - known
    if not apps.text.strip() and missing > 16 * GIB:
        message = f"{missing / GIB:.0f} GiB are in use, but by no process: a killed container leaks CUDA memory"
        return Answer("leaked-memory", "failed", message, "reboot; nothing else frees it")
    message = "no leak is visible; CUDA memory of a killed container can be gone although nvidia-smi and free show none"
    return Answer(
        "leaked-memory", "unknown", message, "if vLLM finds much less free memory than `memory` above: reboot"
    )


def disk(q: Question) -> Answer:
    free = q.host.free_disk("/var/lib/docker") or q.host.free_disk("/")
    if free is None:
        return Answer("disk", "unknown", "free space cannot be read")
    # memory_gb is per node; both nodes store all of the weights.
    weights = (q.recipe.model.memory_gb or 0) * q.recipe.nodes * 1e9 if q.recipe else 0
    what = "image and weights" if weights else "the image"
    if weights and _staged(q):
        weights, what = 0, "the image; the weights are on the disk"
    needed = 30e9 + weights
    message = f"{free / 1e9:.0f} GB free; about {needed / 1e9:.0f} for {what}"
    fix = "docker image prune; builder gc"
    return Answer("disk", "ok" if free >= needed else "failed", message, "" if free >= needed else fix)


def _staged(q: Question) -> bool:
    """Whether the weights are in the folder that `builder prefetch` downloads them to."""
    assert q.recipe is not None
    home = q.host.env("HOME") or "/root"
    for env, words in prefetch(q.recipe)[:1]:
        folder = words[-1] if "--local-dir" in words else f"{env['HF_HOME']}/hub/models--{words[2].replace('/', '--')}"
        # A recipe's folder with wildcards would be a search of the whole disk.
        pattern = glob.escape(folder.replace("~", home, 1)) + ("" if "--local-dir" in words else "/snapshots/*")
        return bool(q.host.glob(f"{pattern}/*.safetensors"))
    return False
