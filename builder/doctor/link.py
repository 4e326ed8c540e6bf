"""Checks of the link between two nodes: MTU, RoCE, locked memory, jumbo frames to the peer."""

from __future__ import annotations

import re

from builder.doctor.question import Answer, Question
from builder.serve.spec import transport


def link(q: Question) -> Answer | None:
    if not q.two:
        return None
    if q.interface is None:
        return Answer("link", "unknown", "the interface of the direct link is not given", "--interface NAME[,NAME]")
    answers = [_interface(q, name) for name in q.interface.split(",")]
    bad = next((answer for answer in answers if answer.state != "ok"), None)
    return bad or Answer("link", "ok", "; ".join(answer.message for answer in answers))


def _interface(q: Question, name: str) -> Answer:
    mtu = q.host.read(f"/sys/class/net/{name}/mtu")
    if mtu is None:
        return Answer("link", "failed", f"there is no interface {name}", "ip -br link lists them")
    if int(mtu) < 9000:
        message = f"{name} has an MTU of {mtu.strip()}"
        recipe = q.recipe.name if q.recipe else "NAME"
        fix = f"builder run --recipe {recipe} --netplan --ip ADDRESS --interface {name}"
        return Answer("link", "failed", message, f"{fix}; it prints the file with MTU 9000")
    state = (q.host.read(f"/sys/class/net/{name}/operstate") or "").strip()
    if state not in ("up", ""):
        return Answer("link", "failed", f"{name} is {state}", "check the cable")
    return Answer("link", "ok", f"{name}: MTU {mtu.strip()}")


def roce(q: Question) -> Answer | None:
    if not q.two or (q.recipe is not None and q.recipe.nodes == 2 and transport(q.recipe) == "socket"):
        return None
    devices = [path.rpartition("/")[2] for path in q.host.glob("/sys/class/infiniband/*")]
    if not devices:
        return Answer("roce", "failed", "no RDMA device", "load mlx5_ib; ibdev2netdev lists devices and interfaces")
    named = _devices(q)
    if missing := [device for device in named if device not in devices]:
        return Answer("roce", "failed", f"there is no RDMA device {', '.join(missing)}", "ibdev2netdev lists them")
    good = [device for device in named or devices if _is_roce(q, device)]
    bad = [device for device in named if device not in good]
    if good and not bad:
        message = f"GID 3 is RoCE v2 over IPv4 on {', '.join(good)}"
        fix = "" if named else "--hca NAMES, as for `builder run`, checks each of them"
        return Answer("roce", "ok", message, fix)
    message = f"{', '.join(bad or devices)}: GID 3 is not RoCE v2 over IPv4"
    return Answer(
        "roce", "failed", message, "give each interface of the link an IPv4 address; show_gids prints the index"
    )


def _devices(q: Question) -> list[str]:
    """The RDMA devices of --hca, without NCCL's prefixes and ports."""
    return [name.partition(":")[0] for name in (q.hca or "").lstrip("=^").split(",") if name]


def _is_roce(q: Question, device: str) -> bool:
    kind = q.host.read(f"/sys/class/infiniband/{device}/ports/1/gid_attrs/types/3") or ""
    return "RoCE v2" in kind and "ffff" in (q.host.read(f"/sys/class/infiniband/{device}/ports/1/gids/3") or "")


def memlock(q: Question) -> Answer | None:
    if not q.two:
        return None
    text = q.host.read("/proc/self/limits") or ""
    found = re.search(r"Max locked memory\s+(\S+)", text)
    if not found:
        return Answer("memlock", "unknown", "the limit on locked memory cannot be read")
    if found[1] == "unlimited":
        return Answer("memlock", "ok", "locked memory is not limited")
    message = f"locked memory is limited to {found[1]} bytes here"
    return Answer("memlock", "warning", message, "builder run passes --ulimit memlock=-1; outside of docker: ulimit -l")


def peer(q: Question) -> Answer | None:
    if not q.two:
        return None
    if q.peer is None:
        return Answer("peer", "unknown", "the address of the other node is not given", "--peer ADDRESS")
    got = q.host.run("ping", "-c", "1", "-W", "2", "-M", "do", "-s", "8972", q.peer)
    if got is None:
        return Answer("peer", "unknown", "ping is not installed here")
    if got.code:
        message = f"{q.peer} does not answer a jumbo ping"
        return Answer("peer", "failed", message, "check cable, addresses and MTU 9000 on both nodes")
    return Answer("peer", "ok", f"{q.peer} answers with jumbo frames")


LEAST_GBITS = 50.0
"""Two Sparks reached 109 Gb/s (dual-spark-minimax-m2.7); a link with a fault says 200 and moves 13 (field)."""


def bandwidth(q: Question) -> Answer | None:
    """The rate of RDMA writes to the peer, in three seconds, with perftest where both nodes have it."""
    if not q.two or q.peer is None or not (devices := _devices(q)):
        return None
    words = ("ib_write_bw", "-d", devices[0], "-x", "3", "-D", "3", "--report_gbits")
    got = q.host.run(*words, q.peer)
    there = f"start on {q.peer}: {' '.join(words)}; then run doctor again within a minute"
    if got is None:
        return Answer("bandwidth", "unknown", "ib_write_bw is not installed here", "apt-get install perftest, on both")
    found = re.search(r"(?m)^\s*\d+\s+\d+\s+\S+\s+(\d+(?:\.\d+)?)\s", got.text)
    if got.code or found is None:
        return Answer("bandwidth", "unknown", f"{q.peer} does not answer ib_write_bw", there)
    rate = float(found[1])
    if rate < LEAST_GBITS:
        message = f"RDMA over {devices[0]} moves {rate:.0f} Gb/s, whatever the link says"
        return Answer("bandwidth", "failed", message, "power-cycle both Sparks; compare firmware versions")
    return Answer("bandwidth", "ok", f"RDMA over {devices[0]}: {rate:.0f} Gb/s")
