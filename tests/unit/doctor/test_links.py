"""The doctor on leaked memory, on a Spark with 64 GB, and on the devices and the rate of the direct link."""

from __future__ import annotations

from typing import Any

import pytest

from builder.doctor.checks import examine
from builder.doctor.host import Outcome
from builder.doctor.question import Answer, Question
from builder.model.recipe import Recipe
from builder.model.variant import merge
from builder.project import Project
from tests.support.recorded_spark import GID, TWO, answers, meminfo, spark

PROJECT = Project()
SMALL = {"MemTotal": 59.8, "MemFree": 52, "MemAvailable": 55, "Cached": 3, "AnonPages": 2, "Slab": 1}
SECOND = "/sys/class/infiniband/roceP2p1s0f0/ports/1"
HCA = "rocep1s0f0,roceP2p1s0f0"
BANDWIDTH = "ib_write_bw -d rocep1s0f0 -x 3 -D 3 --report_gbits 192.168.100.11"
MEASURED = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      624301           0.00               {rate}               0.208099
"""


def two(**changed: Any) -> dict[str, Answer]:
    return answers(spark(**changed), **TWO, hca=HCA)


def with_second(**more: str) -> dict[str, str]:
    gid = "0000:0000:0000:0000:0000:ffff:c0a8:650a\n"
    return {f"{SECOND}/gid_attrs/types/3": "RoCE v2\n", f"{SECOND}/gids/3": gid, **more}


def test_leaked_memory_is_unknown_where_it_cannot_be_told() -> None:
    found = answers(spark())["leaked-memory"]
    assert found.state == "unknown", "nvidia-smi and free show none, and it can be gone"
    assert "reboot" in found.fix


def test_every_rdma_device_of_hca_is_checked() -> None:
    assert "there is no RDMA device roceP2p1s0f0" in two()["roce"].message
    assert two(files=with_second())["roce"].state == "ok"
    found = two(files=with_second(**{f"{SECOND}/gids/3": "fe80::1\n"}))["roce"]
    assert (found.state, "rocep1s0f0" in found.message) == ("failed", False)
    assert "roceP2p1s0f0" in found.message
    one = answers(spark(files=with_second(**{f"{GID}/gids/3": "fe80::1\n"})), **TWO)["roce"]
    assert (one.state, "--hca" in one.fix) == ("ok", True), "any device, but it says how to check each"


def test_every_interface_of_the_link_is_checked() -> None:
    both = {**TWO, "interface": "enp1s0f0np0,enP2p1s0f0np0"}
    assert "there is no interface enP2p1s0f0np0" in answers(spark(), **both)["link"].message
    second = "/sys/class/net/enP2p1s0f0np0"
    files = {f"{second}/mtu": "9000\n", f"{second}/operstate": "up\n"}
    assert answers(spark(files=files), **both)["link"].state == "ok"
    files[f"{second}/mtu"] = "1500\n"
    assert "--interface enP2p1s0f0np0" in answers(spark(files=files), **both)["link"].fix


@pytest.mark.parametrize(
    ("outcome", "state", "part"),
    [
        (Outcome(0, MEASURED.format(rate="109.05")), "ok", "109 Gb/s"),
        (Outcome(0, MEASURED.format(rate="13.42")), "failed", "13 Gb/s"),
        (Outcome(1, "Couldn't connect to 192.168.100.11:18515"), "unknown", "does not answer"),
        (None, "unknown", "not installed"),
    ],
)
def test_the_rate_of_the_link_is_measured_where_perftest_is(outcome: Outcome | None, state: str, part: str) -> None:
    commands = {BANDWIDTH: outcome} if outcome else {}
    found = two(files=with_second(), commands=commands)["bandwidth"]
    assert found.state == state
    assert part in found.message
    assert bool(found.fix) == (state != "ok")
    assert "bandwidth" not in answers(spark(), **TWO), "without --hca nothing is measured"


def small(recipe: Recipe | None) -> Answer:
    machine = spark(files={"/proc/meminfo": meminfo(**SMALL)})
    return {item.id: item for item in examine(Question(machine, recipe))}["machine"]


def test_a_spark_with_64_gb_is_found_and_refuses_recipes_for_128() -> None:
    assert small(None).message == "spark-64: 60 GiB of memory"
    assert "spark-128" in answers(spark())["machine"].message
    recipe = PROJECT.recipe("qwen3.6-35b")
    assert (small(recipe).state, "128 GB" in small(recipe).message) == ("failed", True)
    data = recipe.model_dump(exclude_unset=True)
    profile = {"small": {"title": "Less", "memory_gb": 64}}
    assert "--profile small" in small(Recipe.model_validate(merge(data, {"profiles": profile}))).fix
    assert small(Recipe.model_validate(merge(data, {"memory_gb": 64}))).state == "ok"
