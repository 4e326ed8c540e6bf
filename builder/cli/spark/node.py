"""The options of `builder run` for one of two Sparks: --role, --ip, --head, --interface, --hca and --netplan."""

from __future__ import annotations

import ipaddress
import re

from builder.cli.output import say
from builder.errors import UsageError
from builder.serve.spec import Node
from builder.serve.staging import netplan

_INTERFACE = r"[^\s/:;'\"\\]{1,15}"
_DEVICES = r"[=^]*[A-Za-z0-9_.:,-]{1,255}"


def parse_node(
    role: str | None, ip: str | None, head: str | None, interface: str | None, hca: str | None, *, links: bool
) -> Node | None:
    """The node that the options describe; None for a single Spark. links: it has only pairs of
    addresses and interfaces.

    Raises UsageError for options that are missing, do not belong together or have no valid value.
    """
    if role not in (None, "head", "worker"):
        raise UsageError(f"--role {role!r} is neither head nor worker", id="role-unknown")
    if role is None and not links:
        values = {"--ip": ip, "--head": head, "--interface": interface, "--hca": hca}
        if given := [option for option, value in values.items() if value is not None]:
            raise UsageError(
                f"{', '.join(given)} only applies to one of two Sparks",
                id="node-options-without-role",
                next="add --role head or --role worker",
            )
        return None
    if ip is None or interface is None or (head is None and role == "worker" and not links):
        option = "--netplan" if links else "--role"
        raise UsageError(
            f"{option} needs --ip and --interface" + ("" if links else ", and --head on the worker"),
            id="node-options-missing",
        )
    for address in ip.split(",") if links else (ip,):
        _check_address("--ip", address)
    if head is not None:
        _check_address("--head", head)
    for name in interface.split(","):
        _check_device("--interface", name, _INTERFACE)
    if links:
        _check_links(ip.split(","), interface.split(","))
    if hca is not None:
        _check_device("--hca", hca, _DEVICES)
    return Node(role or "head", ip, head or ip, interface, hca)


def print_netplan(node: Node) -> None:
    """Print the netplan file of the direct link, and how to use it."""
    print(netplan(list(zip(node.interface.split(","), node.ip.split(","), strict=True))), end="")
    say("save it as /etc/netplan/60-direct-link.yaml on this Spark, readable by root only; then: sudo netplan apply")
    say("a cable between two Sparks is two interfaces and two RDMA devices: --interface A,B --ip ADDRESS-A,ADDRESS-B")
    peer = node.head if node.head != node.ip else "ADDRESS-OF-THE-OTHER"
    say(f"when both Sparks are configured, test the link: ping -M do -s 8972 {peer}")


def _check_links(addresses: list[str], interfaces: list[str]) -> None:
    networks = {ipaddress.IPv4Network(f"{address}/24", strict=False) for address in addresses}
    if len(addresses) != len(interfaces) or len(networks) != len(addresses):
        raise UsageError(
            "--netplan needs one address for each interface, each in a network of its own",
            id="links-unpaired",
            next="--interface A,B --ip 192.168.100.10,192.168.101.10",
        )


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
