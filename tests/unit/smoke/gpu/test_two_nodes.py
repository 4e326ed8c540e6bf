"""The gpu tier on two nodes."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.support.gpu_findings import REDUCED, changed
from tests.support.gpu_machine import CHECKS, NAME, PROJECT, TWO_NODES, Machine, by_id, is_server


class TestTwoNodes:
    def ranks(self, machine: Machine, **second: Any) -> None:
        machine.probes["allreduce RANK=0"] = REDUCED
        machine.probes["allreduce RANK=1"] = changed(REDUCED, rank=1, **second)
        machine.write("server", "does not start")

    def test_both_ends_reduce_over_the_link(self, machine: Machine) -> None:
        self.ranks(machine)
        found = by_id(machine.run(checks=[*CHECKS, TWO_NODES], peer="192.168.100.11"))["nccl-two-nodes"]
        assert found == ("pass", "2 ranks, NCCL 2.29.7, bus bandwidth 13.4 GB/s, roce over enp1s0f0np0")
        here = next(each for each in machine.docker.containers if each.env.get("WORLD_SIZE") == "2")
        there = next(each for each in machine.peer.containers if each.env.get("WORLD_SIZE") == "2")
        for made, rank, address in ((here, "0", "10"), (there, "1", "11")):
            assert made.env["RANK"] == rank
            assert made.env["VLLM_HOST_IP"] == f"192.168.100.{address}"
            assert made.env["MASTER_ADDR"] == "192.168.100.10"
            assert made.env["NCCL_IB_HCA"] == "rocep1s0f0"
            assert made.env["NCCL_SOCKET_IFNAME"] == "enp1s0f0np0"
            assert made.host["Devices"][0]["PathOnHost"] == "/dev/infiniband"
            assert made.host["Ulimits"] == [{"Name": "memlock", "Soft": -1, "Hard": -1}]

    def test_without_the_layer_a_peer_is_enough(self, machine: Machine) -> None:
        self.ranks(machine)
        assert by_id(machine.run(peer="192.168.100.11"))["nccl-two-nodes"][0] == "pass"

    def test_without_a_peer_it_is_not_run(self, machine: Machine) -> None:
        self.ranks(machine)
        assert by_id(machine.run(checks=[*CHECKS, TWO_NODES]))["nccl-two-nodes"] == (
            "not-run",
            "a second Spark is needed: --peer ADDRESS",
        )

    @pytest.mark.parametrize(
        ("second", "expected"),
        [
            ({"log": ["NCCL INFO NET/Socket : Using [0]wlp9s0:10.0.0.2<0>", "NCCL INFO Using network Socket"]}, "roce"),
            ({"error": {"sum": 3.0, "scaled": 0.0}}, "rank 1: the sum over 2 ranks is off by 3"),
            ({"mapped": {"/usr/lib/libnccl.so.2": 22907}}, "rank 1: libnccl in memory"),
        ],
    )
    def test_a_fault_on_the_other_node_fails(self, machine: Machine, second: dict[str, Any], expected: str) -> None:
        self.ranks(machine, **second)
        status, message = by_id(machine.run(checks=[*CHECKS, TWO_NODES], peer="192.168.100.11"))["nccl-two-nodes"]
        assert status == "fail"
        assert expected in message

    def test_a_rank_that_breaks_fails(self, machine: Machine) -> None:
        self.ranks(machine)
        machine.probes["allreduce RANK=1"] = {"exit": 1, "stderr": "NCCL WARN connection refused"}
        status, message = by_id(machine.run(checks=[*CHECKS, TWO_NODES], peer="192.168.100.11"))["nccl-two-nodes"]
        assert (status, message.partition(":")[0]) == ("fail", "rank 1")
        assert "connection refused" in message

    @pytest.mark.parametrize(
        ("images", "status", "expected"),
        [({}, "not-run", "has no image"), ({NAME: "sha256:" + "9" * 64}, "fail", "another image on 192.168.100.11")],
    )
    def test_the_peer_needs_the_same_image(
        self, machine: Machine, images: dict[str, str], status: str, expected: str
    ) -> None:
        self.ranks(machine)
        machine.peer.images = images
        found = by_id(machine.run(checks=[*CHECKS, TWO_NODES], peer="192.168.100.11"))["nccl-two-nodes"]
        assert found[0] == status
        assert expected in found[1]

    def test_a_peer_that_ssh_does_not_reach_is_not_run(self, machine: Machine) -> None:
        self.ranks(machine)
        machine.program("ssh", "echo 'Permission denied (publickey).' >&2; exit 255")
        status, message = by_id(machine.run(checks=[*CHECKS, TWO_NODES], peer="192.168.100.11"))["nccl-two-nodes"]
        assert status == "not-run"
        assert "Permission denied" in message

    def test_an_address_that_is_not_on_the_link_is_not_run(self, machine: Machine) -> None:
        self.ranks(machine)
        for options, expected in (({"peer": "10.0.0.9"}, "no route"), ({"interface": "eth7"}, "not over eth7")):
            report = machine.run(checks=[*CHECKS, TWO_NODES], **{"peer": "192.168.100.11", **options})
            status, message = by_id(report)["nccl-two-nodes"]
            assert status == "not-run"
            assert expected in message

    def test_its_own_model_is_served_by_head_and_worker(self, machine: Machine) -> None:
        recipe = PROJECT.recipe("minimax-m2.7-dual")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        flags = {**recipe.serve.flags, "port": port, "served-model-name": "small"}
        recipe = recipe.model_copy(
            update={
                "run": recipe.run.model_copy(update={"port": port}),
                "serve": recipe.serve.model_copy(update={"flags": flags}),
            }
        )
        report = machine.run(recipe=recipe, serve="recipe", peer="192.168.100.11", pause=0.0)
        found = by_id(report)
        assert found["serve-health"][0] == found["serve-answer"][0] == found["serve-stop"][0] == "pass"
        [head] = filter(is_server, machine.docker.containers)
        [worker] = filter(is_server, machine.peer.containers)
        assert head.env["VLLM_HOST_IP"] == "192.168.100.10"
        assert list(head.words[-6:]) == ["--nnodes", "2", "--node-rank", "0", "--master-addr", "192.168.100.10"]
        assert list(worker.words[-5:]) == ["--node-rank", "1", "--master-addr", "192.168.100.10", "--headless"]
        assert worker.env["VLLM_HOST_IP"] == "192.168.100.11"

    def test_its_own_model_needs_a_peer(self, machine: Machine) -> None:
        found = by_id(machine.run(recipe=PROJECT.recipe("minimax-m2.7-dual"), serve="recipe"))
        assert found["serve-answer"] == ("not-run", "a second Spark is needed: --peer ADDRESS")
