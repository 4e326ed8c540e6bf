"""Judging the output of probes. Good output was recorded on other GPUs and edited to a GB10's values."""

from __future__ import annotations

import math
from typing import Any

import pytest

from builder.smoke.check import CheckFailed, CheckNotRun
from builder.smoke.gpu import judge
from builder.smoke.gpu.docker import CompletedContainer
from builder.smoke.gpu.probe import read
from tests.support.gpu_findings import CASE, DEVICE, LOG, MARLIN, OURS, PERF, REDUCED, SOCKET_LOG, TRITON, changed


class TestDevice:
    def test_a_gb10_passes(self) -> None:
        assert judge.device(DEVICE) == "NVIDIA GB10, 12.1, torch 2.11.0+cu130, CUDA 13.0"

    def test_another_gpu_fails(self) -> None:
        with pytest.raises(CheckFailed, match=r"NVIDIA H200, 9\.0.*a GB10 is 12\.1"):
            judge.device(changed(DEVICE, name="NVIDIA H200", capability=[9, 0]))

    @pytest.mark.parametrize("wrong", [{"rms_float32": 0.5}, {"rms_bfloat16": math.nan}, {"rms_bfloat16": None}])
    def test_wrong_products_fail(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(CheckFailed, match="off by"):
            judge.device(changed(DEVICE, **wrong))


class TestTriton:
    def test_the_right_target_and_numbers_pass(self) -> None:
        assert "sm_121a" in judge.triton(TRITON, arch="sm_121a")

    @pytest.mark.parametrize(
        ("wrong", "expected"),
        [
            ({"target": "sm_120a"}, "compiled for sm_120a, not sm_121a"),
            ({"target": None}, "compiled for None"),
            ({"cubin_bytes": 0}, "compiled for"),
            ({"rms": 0.3}, "wrong numbers"),
            ({"rms": math.inf}, "wrong numbers"),
        ],
    )
    def test_others_fail(self, wrong: dict[str, Any], expected: str) -> None:
        with pytest.raises(CheckFailed, match=expected):
            judge.triton(changed(TRITON, **wrong), arch="sm_121a")


class TestMarlin:
    def test_small_errors_pass(self) -> None:
        assert judge.marlin(MARLIN, atomic=False).startswith("vLLM 0.20.0, 20 launches: rms error 0.0048")

    @pytest.mark.parametrize(
        ("case", "expected"),
        [
            ({"rms": 0.02, "bad": 10}, "wrong numbers"),
            ({"worst": 0.5, "bad": 3}, "in some launches only: a race"),
            ({"rms": math.inf, "worst": math.inf, "bad": 10}, "wrong numbers"),
            ({"rms": math.nan}, "wrong numbers"),
            ({"rms": None}, "wrong numbers"),
            ({"rms": 0.02}, "wrong numbers"),
            ({"different": 4}, "4 launches differ .* a race"),
            ({"launches": 1}, "launched a kernel once only"),
        ],
    )
    def test_errors_and_races_fail(self, case: dict[str, Any], expected: str) -> None:
        for cases in ([{**CASE, **case}, {**CASE, "seed": 2}], [{**CASE, "seed": 2}, {**CASE, **case}]):
            with pytest.raises(CheckFailed, match=expected):
                judge.marlin(changed(MARLIN, cases=cases), atomic=False)

    def test_atomic_additions_may_differ_and_nothing_else(self) -> None:
        cases = [{**CASE, "different": 9}, {**CASE, "seed": 2}]
        assert judge.marlin(changed(MARLIN, cases=cases), atomic=True)
        with pytest.raises(CheckFailed, match="a race"):
            judge.marlin(changed(MARLIN, cases=cases, atomic_add=None), atomic=True)

    def test_a_single_seed_fails(self) -> None:
        for cases in ([CASE, CASE], []):
            with pytest.raises(CheckFailed, match="two seeds are required"):
                judge.marlin(changed(MARLIN, cases=cases), atomic=False)


class TestAllReduce:
    def found(self, **more: Any) -> list[dict[str, Any]]:
        return [REDUCED, changed(REDUCED, **{"rank": 1, **more})]

    def test_right_sums_by_our_library_pass(self) -> None:
        text = judge.all_reduce(self.found(), under="/opt/nccl/", version="2.29.7-1", at_least=1)
        assert text == "2 ranks, NCCL 2.29.7, bus bandwidth 13.4 GB/s"
        alone = changed(REDUCED, size=1, bus_gb_s=0.0)
        assert judge.all_reduce([alone], under="/opt/nccl", version=None) == "1 ranks, NCCL 2.29.7"

    @pytest.mark.parametrize(
        ("wrong", "expected"),
        [
            ({"error": {"sum": 0.5, "scaled": 0.0}}, "rank 1: the sum over 2 ranks is off by 0.5"),
            ({"error": {"sum": 0.0, "scaled": "nan"}}, "the scaled over 2 ranks is off by nan"),
            ({"mapped": {"/usr/lib/libnccl.so.2": 22907}}, "expected one below /opt/nccl"),
            ({"mapped": {OURS: 22907, "/usr/lib/libnccl.so.2": 22907}}, "expected one below /opt/nccl"),
            ({"mapped": {"/opt/nccl-old/libnccl.so.2": 22907}}, "expected one below /opt/nccl"),
            ({"mapped": {}}, "no libnccl is in memory"),
            ({"rank": 0}, "not 2 ranks of one sum: 0 of 2, 0 of 2"),
            ({"size": 1}, "not 2 ranks of one sum: 0 of 2, 1 of 1"),
            ({"mapped": {OURS: 22809}}, r"2\.28\.9\); expected version 2\.29\.7"),
            ({"bus_gb_s": 0.3}, "0.3 GB/s; at least 1 expected"),
            ({"bus_gb_s": None}, "at least 1 expected"),
        ],
    )
    def test_others_fail(self, wrong: dict[str, Any], expected: str) -> None:
        with pytest.raises(CheckFailed, match=expected):
            judge.all_reduce(self.found(**wrong), under="/opt/nccl/", version="2.29.7-1", at_least=1)

    @pytest.mark.parametrize("error", [{}, {"sum": 0.0}])
    def test_missing_sums_fail(self, error: dict[str, float]) -> None:
        with pytest.raises(KeyError):
            judge.all_reduce(self.found(error=error), under=None, version=None)

    def test_without_the_layer_any_libnccl_passes(self) -> None:
        with pytest.raises(CheckFailed, match="rank 1: no libnccl is in memory"):
            judge.all_reduce(self.found(mapped={}), under=None, version=None)


class TestNetwork:
    def test_the_direct_link_passes(self) -> None:
        text = judge.network(LOG, transport="roce", interface="enp1s0f0np0", devices=["rocep1s0f0"])
        assert "rocep1s0f0" in text
        assert judge.network(SOCKET_LOG, transport="socket", interface="enp1s0f0np0", devices=[])

    @pytest.mark.parametrize(
        ("log", "transport", "expected"),
        [
            (SOCKET_LOG, "roce", "should use roce"),
            (LOG, "socket", "should use socket"),
            ([], "roce", "its log names none"),
            ([line.replace("rocep1s0f0", "mlx5_9") for line in LOG], "roce", "should go over rocep1s0f0"),
            ([line.replace(" [RO]", " [1]mlx5_9:1/RoCE [RO]") for line in LOG], "roce", "should go over rocep1s0f0"),
            ([line.replace("enp1s0f0np0", "wlp9s0") for line in SOCKET_LOG], "socket", "should go over enp1s0f0np0"),
        ],
    )
    def test_another_network_fails(self, log: list[str], transport: str, expected: str) -> None:
        with pytest.raises(CheckFailed, match=expected):
            judge.network(log, transport=transport, interface="enp1s0f0np0", devices=["rocep1s0f0"])


class TestNcclTests:
    def test_right_values_pass(self) -> None:
        assert judge.nccl_tests(PERF) == "2 sizes right, average bus bandwidth 0 GB/s"

    def test_wrong_values_fail(self) -> None:
        wrong = PERF.replace("0.00      0     0.22    0.07", "0.00      3     0.22    0.07")
        with pytest.raises(CheckFailed, match="wrong values at 1 sizes"):
            judge.nccl_tests(wrong)
        with pytest.raises(CheckFailed, match="wrong values"):
            judge.nccl_tests(PERF.replace("0 OK", "2 FAILED"))

    def test_no_result_fails(self) -> None:
        with pytest.raises(CheckFailed, match=r"no result: .*NCCL failure"):
            judge.nccl_tests("spark: Test NCCL failure common.cu:1005")
        with pytest.raises(CheckFailed, match="no output"):
            judge.nccl_tests("")

    def test_unchecked_values_fail(self) -> None:
        unchecked = PERF.replace("0.00      0", "0.00    N/A")
        with pytest.raises(CheckFailed, match="checked no values"):
            judge.nccl_tests(unchecked)


class TestRead:
    def test_the_last_marked_line_counts(self) -> None:
        done = CompletedContainer(0, 'noise\n@builder-probe {"a": 1}\n@builder-probe {"a": 2}\nmore\n')
        assert read(done, 5) == {"a": 2}

    def test_nothing_to_probe_is_not_run(self) -> None:
        with pytest.raises(CheckNotRun, match="has no fused_marlin_moe"):
            read(CompletedContainer(0, '@builder-probe {"not_run": "this vLLM has no fused_marlin_moe"}'), 5)

    @pytest.mark.parametrize(
        ("done", "expected"),
        [
            (CompletedContainer(0, '@builder-probe {"error": "RuntimeError: CUDA error"}'), "CUDA error"),
            (
                CompletedContainer(125, "", "docker: could not select device driver\n"),
                "ended with 125 .*could not select device",
            ),
            (CompletedContainer(139, "half a line", ""), "ended with 139 and no result: half a line"),
            (CompletedContainer(None, "", ""), "did not end within 5 s"),
            (CompletedContainer(0, "@builder-probe {"), "not JSON"),
            (CompletedContainer(0, "@builder-probe []"), "no object"),
        ],
    )
    def test_invalid_output_fails(self, done: CompletedContainer, expected: str) -> None:
        with pytest.raises(CheckFailed, match=expected):
            read(done, 5)


@pytest.mark.parametrize("error", [10**400, -(10**400)])
def test_a_number_that_is_too_large_for_a_float_is_no_number(error: int) -> None:
    assert math.isnan(judge._number(error))
