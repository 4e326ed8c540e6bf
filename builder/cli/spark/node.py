"""The options of `builder run` for one of two Sparks: --role, --ip, --head, --interface, --hca and --netplan."""

from __future__ import annotations

import ipaddress
import re

from builder.cli.output import say
from builder.errors import UsageError
from builder.serve import spec
from builder.serve.spec import Node

_INTERFACE = r"[^\s/:;'\"\\]{1,15}"
_DEVICES = r"[=^]*[A-Za-z0-9_.:,-]{1,255}"


def parse_node(
    role: str | None, ip: str | None, head: str | None, interface: str | None, hca: str | None, *, netplan: bool
) -> Node | None:
    """The node that the options describe; None for a single Spark. netplan: only address and interface are needed.

    Raises UsageError for options that are missing, do not belong together or have no valid value.
    """
    if role not in (None, "head", "worker"):
        raise UsageError(f"--role {role!r} is neither head nor worker", id="role-unknown")
    if role is None and not netplan:
        values = {"--ip": ip, "--head": head, "--interface": interface, "--hca": hca}
        if given := [option for option, value in values.items() if value is not None]:
            raise UsageError(
                f"{', '.join(given)} only applies to one of two Sparks",
                id="node-options-without-role",
                next="add --role head or --role worker",
            )
        return None
    if ip is None or interface is None or (head is None and role == "worker" and not netplan):
        option = "--netplan" if netplan else "--role"
        raise UsageError(
            f"{option} needs --ip and --interface" + ("" if netplan else ", and --head on the worker"),
            id="node-options-missing",
        )
    _check_address("--ip", ip)
    if head is not None:
        _check_address("--head", head)
    _check_device("--interface", interface, _INTERFACE)
    if hca is not None:
        _check_device("--hca", hca, _DEVICES)
    return Node(role or "head", ip, head or ip, interface, hca)


def print_netplan(node: Node) -> None:
    """Print the netplan file of the direct link, and how to use it."""
    print(spec.netplan(node.interface, node.ip), end="")
    say("save it as /etc/netplan/60-direct-link.yaml on this Spark, readable by root only; then: sudo netplan apply")
    peer = node.head if node.head != node.ip else "ADDRESS-OF-THE-OTHER"
    say(f"when both Sparks are configured, test the link: ping -M do -s 8972 {peer}")


def _check_address(option: str, address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise UsageError(
            f"{option} {address!r} is not an IPv4 address",
            id="address-invalid",
            next=f"{option} 192.168.100.10, without a name or a mask",
        ) from None


def _check_device(option: str, name: str, pattern: str) -> None:
    if not re.fullmatch(pattern, name):
        raise UsageError(
            f"{option} {name!r} cannot be the name of a device", id="device-name-invalid", next="ip link; ibdev2netdev"
        )
