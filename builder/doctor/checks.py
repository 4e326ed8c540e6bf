"""The checks. Each looks at one thing; what cannot be seen here is said, not failed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from builder.doctor.host import Host
from builder.model.base import Base
from builder.model.recipe import Recipe

State = Literal["ok", "warning", "failed", "unknown"]
GIB = 1 << 30


@dataclass(frozen=True)
class Question:
    """What the machine is asked for: serving this recipe on this base, with this peer. All may be missing."""

    host: Host
    recipe: Recipe | None = None
    base: Base | None = None
    interface: str | None = None
    peer: str | None = None

    @property
    def two(self) -> bool:
        """Whether it is about two nodes."""
        asked = self.interface is not None or self.peer is not None
        return asked or (self.recipe is not None and self.recipe.nodes == 2)


@dataclass(frozen=True)
class Answer:
    """What a check found."""

    id: str
    state: State
    message: str
    fix: str = ""


Check = Callable[[Question], Answer | None]
"""None: the check has nothing to do with the question."""


def driver(q: Question) -> Answer:
    got = q.host.run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if got is None or got.code:
        return Answer("driver", "unknown", "nvidia-smi gives no driver version here")
    version = got.text.strip().splitlines()[0]
    branch = version.partition(".")[0]
    if branch == "580":
        return Answer("driver", "ok", f"driver {version}")
    if branch.isdigit() and int(branch) >= 590:
        message = f"driver {version}: the 590 branch deadlocks in CUDA graphs on GB10"
        return Answer("driver", "failed", message, "go back to 580; 580.142 is known good")
    return Answer("driver", "failed", f"driver {version} is older than 580", "install 580.142, for CUDA 13")


def gpu(q: Question) -> Answer:
    got = q.host.run("nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader")
    if got is None or got.code:
        return Answer("gpu", "unknown", "no NVIDIA GPU is visible here")
    name = got.text.strip().splitlines()[0]
    if "12.1" in name:
        return Answer("gpu", "ok", name)
    return Answer("gpu", "warning", f"{name} is not a GB10 (12.1)", "images are built for sm_121")


def kernel(q: Question) -> Answer:
    got = q.host.run("uname", "-r")
    if got is None or got.code:
        return Answer("kernel", "unknown", "uname says nothing")
    release = got.text.strip()
    off = "kho=off" in (q.host.read("/proc/cmdline") or "")
    if release.startswith("7.0.0-1019") and not off:
        message = f"kernel {release} with KHO breaks RDMA memory registration (ENOMEM)"
        return Answer("kernel", "failed" if q.two else "warning", message, "boot 6.17.0-1032, or with kho=off")
    return Answer("kernel", "ok", f"kernel {release}")


def docker(q: Question) -> Answer:
    got = q.host.run("docker", "info", "--format", "{{json .}}")
    if got is None:
        return Answer("docker", "unknown", "docker is not installed here", "install docker to run images")
    if "permission denied" in got.text:
        fix = "sudo usermod -aG docker $USER && newgrp docker"
        return Answer("docker", "failed", "docker.sock: permission denied", fix)
    if got.code:
        return Answer("docker", "failed", "the docker daemon does not answer", "sudo systemctl start docker")
    return Answer("docker", "ok", "docker answers")


def gpu_runtime(q: Question) -> Answer:
    got = q.host.run("docker", "info", "--format", "{{json .}}")
    try:
        info = json.loads(got.text) if got is not None and not got.code else None
    except ValueError:
        info = None
    if not isinstance(info, dict):
        return Answer("gpu-runtime", "unknown", "docker does not say which runtimes it has")
    if "nvidia" in (info.get("Runtimes") or {}) or any("nvidia" in str(x) for x in info.get("DiscoveredDevices") or ()):
        return Answer("gpu-runtime", "ok", "docker has NVIDIA's runtime")
    fix = "install nvidia-container-toolkit; sudo nvidia-ctk runtime configure --runtime=docker; restart docker"
    return Answer("gpu-runtime", "failed", "docker has no NVIDIA runtime", fix)


def _meminfo(q: Question) -> dict[str, int]:
    text = q.host.read("/proc/meminfo") or ""
    return {m[1]: int(m[2]) * 1024 for m in re.finditer(r"(?m)^(\w+):\s+(\d+) kB", text)}


def memory(q: Question) -> Answer:
    found = _meminfo(q)
    if not {"MemTotal", "MemAvailable"} <= found.keys():
        return Answer("memory", "unknown", "/proc/meminfo cannot be read")
    total, free = found["MemTotal"], found["MemAvailable"]
    share = q.recipe.serve.flags.get("gpu-memory-utilization", 0.9) if q.recipe else 0.85
    needed = float(str(share)) * total
    message = f"{free / GIB:.0f} of {total / GIB:.0f} GiB can be had; {needed / GIB:.0f} are asked for"
    if free >= needed:
        return Answer("memory", "ok", message)
    fix = "stop neighbours, or lower --gpu-memory-utilization"
    return Answer("memory", "failed" if q.recipe else "warning", message, fix)


def page_cache(q: Question) -> Answer:
    found = _meminfo(q)
    if "Cached" not in found:
        return Answer("page-cache", "unknown", "/proc/meminfo cannot be read")
    size, total = found["Cached"], found.get("MemTotal", 0)
    if total and size > 0.2 * total:
        message = f"{size / GIB:.0f} GiB of page cache compete with CUDA"
        return Answer("page-cache", "warning", message, "sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'")
    return Answer("page-cache", "ok", f"{size / GIB:.1f} GiB of page cache")


def leaked(q: Question) -> Answer:
    found = _meminfo(q)
    apps = q.host.run("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader")
    if not {"MemTotal", "MemFree", "Cached"} <= found.keys() or apps is None or apps.code:
        return Answer("leaked-memory", "unknown", "whether memory leaked cannot be seen here")
    parts = ("MemFree", "Cached", "Buffers", "AnonPages", "Slab", "Shmem", "PageTables", "KernelStack")
    known = sum(found.get(name, 0) for name in parts) - found.get("Shmem", 0)
    missing = found["MemTotal"] - known
    if not apps.text.strip() and missing > 16 * GIB:
        message = f"{missing / GIB:.0f} GiB are held by nobody: a killed container leaks CUDA memory"
        return Answer("leaked-memory", "failed", message, "reboot; nothing else gives it back")
    return Answer("leaked-memory", "ok", "no leaked CUDA memory")


def disk(q: Question) -> Answer:
    free = q.host.free_disk("/var/lib/docker") or q.host.free_disk("/")
    if free is None:
        return Answer("disk", "unknown", "free space cannot be seen")
    weights = (q.recipe.model.memory_gb or 0) * 1e9 if q.recipe else 0
    needed = 30e9 + weights
    message = f"{free / 1e9:.0f} GB free; about {needed / 1e9:.0f} for image and weights"
    return Answer("disk", "ok" if free >= needed else "failed", message, "" if free >= needed else "docker image prune")


def token(q: Question) -> Answer | None:
    if q.recipe is None or not q.recipe.model.gated:
        return None
    if q.host.env("HF_TOKEN"):
        return Answer("token", "ok", "HF_TOKEN is set")
    fix = "accept the licence on the model's page and set HF_TOKEN"
    return Answer("token", "failed", f"{q.recipe.model.id} is gated and HF_TOKEN is not set", fix)


def link(q: Question) -> Answer | None:
    if not q.two:
        return None
    if q.interface is None:
        return Answer("link", "unknown", "say which interface is the direct link", "--interface NAME")
    mtu = q.host.read(f"/sys/class/net/{q.interface}/mtu")
    if mtu is None:
        return Answer("link", "failed", f"there is no interface {q.interface}", "ip -br link lists them")
    if int(mtu) < 9000:
        message = f"{q.interface} has an MTU of {mtu.strip()}"
        return Answer("link", "failed", message, "builder run --netplan prints the file with MTU 9000")
    state = (q.host.read(f"/sys/class/net/{q.interface}/operstate") or "").strip()
    if state not in ("up", ""):
        return Answer("link", "failed", f"{q.interface} is {state}", "check the cable")
    return Answer("link", "ok", f"{q.interface}: MTU {mtu.strip()}")


def roce(q: Question) -> Answer | None:
    if not q.two:
        return None
    devices = [path.rpartition("/")[2] for path in q.host.glob("/sys/class/infiniband/*")]
    if not devices:
        return Answer("roce", "failed", "no RDMA device", "load mlx5_ib; ibdev2netdev lists devices and interfaces")
    good = []
    for device in devices:
        kind = q.host.read(f"/sys/class/infiniband/{device}/ports/1/gid_attrs/types/3") or ""
        gid = q.host.read(f"/sys/class/infiniband/{device}/ports/1/gids/3") or ""
        if "RoCE v2" in kind and "ffff" in gid:
            good.append(device)
    if good:
        return Answer("roce", "ok", f"GID 3 is RoCE v2 over IPv4 on {', '.join(good)}")
    message = f"{', '.join(devices)}: GID 3 is not RoCE v2 over IPv4"
    return Answer("roce", "failed", message, "give the link an IPv4 address; show_gids tells the index")


def memlock(q: Question) -> Answer | None:
    if not q.two:
        return None
    text = q.host.read("/proc/self/limits") or ""
    found = re.search(r"Max locked memory\s+(\S+)", text)
    if not found:
        return Answer("memlock", "unknown", "the limit on locked memory cannot be seen")
    if found[1] == "unlimited":
        return Answer("memlock", "ok", "locked memory is not limited")
    message = f"locked memory is limited to {found[1]} bytes here"
    return Answer("memlock", "warning", message, "builder run passes --ulimit memlock=-1; outside of docker: ulimit -l")


def peer(q: Question) -> Answer | None:
    if not q.two:
        return None
    if q.peer is None:
        return Answer("peer", "unknown", "say the other node's address", "--peer ADDRESS")
    got = q.host.run("ping", "-c", "1", "-W", "2", "-M", "do", "-s", "8972", q.peer)
    if got is None:
        return Answer("peer", "unknown", "ping is not installed here")
    if got.code:
        message = f"{q.peer} does not answer a jumbo ping"
        return Answer("peer", "failed", message, "check cable, addresses and MTU 9000 on both nodes")
    return Answer("peer", "ok", f"{q.peer} answers with jumbo frames")


CHECKS: tuple[Check, ...] = (
    driver,
    gpu,
    kernel,
    docker,
    gpu_runtime,
    memory,
    page_cache,
    leaked,
    disk,
    token,
    link,
    roce,
    memlock,
    peer,
)


def examine(q: Question) -> list[Answer]:
    """The answers of all checks that have to do with the question."""
    return [answer for check in CHECKS if (answer := check(q)) is not None]
