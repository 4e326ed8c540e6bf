"""The options of `builder run` for one of two Sparks: --role, --ip, --head, --interface, --hca and --netplan."""

from __future__ import annotations

import ipaddress

from builder.cli.link import DEVICES, INTERFACE, check_device
from builder.cli.output import say
from builder.errors import UsageError
from builder.model.recipe import Recipe
from builder.serve.spec import Node, check_nodes, transport
from builder.serve.staging import netplan

_EXAMPLES = {
    "--ip": "--ip ADDRESS",
    "--interface": "--interface NAME",
    "--head": "--head ADDRESS",
    "--hca": "--hca DEVICES",
}


def parse_node(
    recipe: Recipe,
    role: str | None,
    ip: str | None,
    head: str | None,
    interface: str | None,
    hca: str | None,
    *,
    links: bool,
) -> Node | None:
    """The node that the options describe; None for a single Spark. links: it has only pairs of
    addresses and interfaces.

    Raises UsageError for options that are missing, all of them at once, do not belong together or have no valid value.
    """
    if role not in (None, "head", "worker"):
        raise UsageError(f"--role {role!r} is neither head nor worker", id="role-unknown", next="--role head")
    values = {"--ip": ip, "--interface": interface, "--head": head, "--hca": hca}
    given = [option for option, value in values.items() if value is not None]
    if recipe.nodes == 1 and role is None and not links:
        if given:
            raise UsageError(
                f"{', '.join(given)} only applies to one of two Sparks",
                id="node-options-without-role",
                cause=f"{recipe.name} runs on one Spark",
                next="leave out the options",
            )
        return None
    if recipe.nodes == 1 and role is not None and not links:
        check_nodes(recipe, Node(role, "", "", ""))
    needed = ["--ip", "--interface"]
    if not links:
        needed += ["--head"] if role == "worker" else []
        needed += ["--hca"] if recipe.nodes == 2 and transport(recipe) == "roce" else []
    missing = [option for option in needed if option not in given]
    add = " ".join(_EXAMPLES[option] for option in missing)
    if role is None and not links:
        raise UsageError(
            f"{recipe.name} runs on two Sparks: the role of this one is missing",
            id="serve-role-missing",
            cause="addresses and the names of devices differ from machine to machine",
            next=f"add --role head {add}",
        )
    if missing or ip is None or interface is None:
        raise UsageError(
            f"{'--netplan' if links else f'--role {role}'} also needs {', '.join(missing)}",
            id="node-options-missing",
            next=f"add {add}; ip -br link and ibdev2netdev list the names of devices",
        )
    for address in ip.split(",") if links else (ip,):
        _check_address("--ip", address)
    if head is not None:
        _check_address("--head", head)
    for name in interface.split(","):
        check_device("--interface", name, INTERFACE)
    if links:
        _check_links(ip.split(","), interface.split(","))
    if hca is not None:
        check_device("--hca", hca, DEVICES)
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
