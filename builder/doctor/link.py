"""Checks of the link between two nodes: MTU, RoCE, locked memory, jumbo frames to the peer."""

from __future__ import annotations

import re

from builder.doctor.question import Answer, Question
from builder.serve.spec import transport


def link(q: Question) -> Answer | None:
    if not q.two:
        return None
    if q.interface is None:
        return Answer("link", "unknown", "the interface of the direct link is not given", "--interface NAME")
    mtu = q.host.read(f"/sys/class/net/{q.interface}/mtu")
    if mtu is None:
        return Answer("link", "failed", f"there is no interface {q.interface}", "ip -br link lists them")
    if int(mtu) < 9000:
        message = f"{q.interface} has an MTU of {mtu.strip()}"
        name = q.recipe.name if q.recipe else "NAME"
        fix = f"builder run --recipe {name} --netplan --ip ADDRESS --interface {q.interface}"
        return Answer("link", "failed", message, f"{fix}; it prints the file with MTU 9000")
    state = (q.host.read(f"/sys/class/net/{q.interface}/operstate") or "").strip()
    if state not in ("up", ""):
        return Answer("link", "failed", f"{q.interface} is {state}", "check the cable")
    return Answer("link", "ok", f"{q.interface}: MTU {mtu.strip()}")


def roce(q: Question) -> Answer | None:
    if not q.two or (q.recipe is not None and q.recipe.nodes == 2 and transport(q.recipe) == "socket"):
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
    return Answer("roce", "failed", message, "give the link an IPv4 address; show_gids prints the index")


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
