"""Checks of the options that name the direct link of two Sparks: interfaces, RDMA devices, the other machine."""

from __future__ import annotations

import re

from builder.errors import UsageError

INTERFACE = r"[^\s/:;'\"\\]{1,15}"
_HOST = r"[A-Za-z0-9:][A-Za-z0-9.:_-]{0,252}"
DEVICES = r"[=^]*[A-Za-z0-9_.:,-]{1,255}"


def check_link(interface: str | None, peer: str | None, hca: str | None) -> None:
    """Raises UsageError for names that no interface, machine or RDMA device can have; commands get them as words."""
    for name in interface.split(",") if interface is not None else ():
        check_device("--interface", name, INTERFACE)
    if hca is not None:
        check_device("--hca", hca, DEVICES)
    if peer is not None and not re.fullmatch(_HOST, peer):
        raise UsageError(
            f"--peer {peer[:100]!r} is not an address", id="peer-invalid", next="--peer 192.168.100.11, or a host name"
        )


def check_device(option: str, name: str, pattern: str) -> None:
    """Raises UsageError for a name that no device can have."""
    if not re.fullmatch(pattern, name):
        raise UsageError(
            f"{option} {name[:100]!r} cannot be the name of a device",
            id="device-name-invalid",
            next="ip link; ibdev2netdev",
        )
