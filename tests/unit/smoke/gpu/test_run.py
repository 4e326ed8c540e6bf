"""The whole gpu tier against a recorded machine, a fake docker daemon, and a simulated server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder.doctor.host import Outcome
from builder.model.check import Check
from builder.smoke.check import CheckNotRun
from builder.smoke.gpu.machine import Options, require_spark
from builder.smoke.gpu.run import run_gpu
from builder.smoke.report import Report
from tests.support.gpu_findings import PERF, REDUCED, changed
from tests.support.gpu_machine import CHECKS, DRIVER, IDS, NAME, PROJECT, QUERY, Machine, Recorded, by_id, is_server


def test_a_healthy_image_passes_everything(machine: Machine) -> None:
    report = machine.run()
    assert {result.id: result.message for result in report.results if result.status != "pass"} == {}
    assert [result.id for result in report.results] == IDS
    assert {result.tier for result in report.results} == {"gpu"}
    assert report.ok(require=True)
    assert "NVIDIA GB10, driver 580.142" in report.notes[-1]
    assert "Qwen/Qwen3-1.7B" in report.notes[-1]


def test_containers_are_those_of_builder_run_and_only_this_machine_reaches_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    machine.run()
    made = machine.containers()
    assert len({each.name for each in made}) == len(made)
    for each in made:
        assert each.body["Image"] == NAME
        assert each.host["DeviceRequests"][0]["Count"] == -1
        assert not each.host.get("RestartPolicy")
    [server] = filter(is_server, made)
    (published,) = server.host["PortBindings"]["8000/tcp"]
    assert published["HostIp"] == "127.0.0.1"
    assert server.env["HF_TOKEN"] == "hf_secret"
    assert server.words[0] == "Qwen/Qwen3-1.7B"
    assert str(Path.home() / "vllm") + ":/models" in server.host["Binds"]
    for probe in made:
        if probe is not server:
            assert "HF_TOKEN" not in probe.env
            assert not probe.host.get("Binds")
    assert f"POST /containers/{server.id}/stop" in machine.docker.calls, "it is asked to end before it is removed"


class TestOtherMachines:
    """On a machine that cannot run the tier, no check passes."""

    def all_not_run(self, report: Report, why: str) -> None:
        assert [result.id for result in report.results] == IDS
        assert {result.status for result in report.results} == {"not-run"}
        assert all(why in result.message for result in report.results)
        assert report.ok() and not report.ok(require=True)

    def test_no_gpu(self, machine: Machine) -> None:
        self.all_not_run(machine.run(Recorded(commands={})), "this machine has no NVIDIA GPU")
        assert not machine.docker.calls

    def test_a_driver_that_does_not_answer(self, machine: Machine) -> None:
        host = Recorded({QUERY: Outcome(9, "NVIDIA-SMI has failed")}, {"/proc/driver/nvidia/version": "NVRM version"})
        self.all_not_run(machine.run(host), "nvidia-smi does not answer, though NVIDIA's driver is loaded")

    def test_another_gpu(self, machine: Machine) -> None:
        host = Recorded({QUERY: Outcome(0, "NVIDIA H200, 9.0, 580.159.04\n")})
        self.all_not_run(machine.run(host), "NVIDIA H200 is not a GB10: compute capability 9.0, not 12.1")

    def test_no_daemon(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{machine.home}/none")
        self.all_not_run(machine.run(), "docker's daemon does not answer: No such file or directory")

    def test_an_image_that_docker_does_not_get(self, machine: Machine) -> None:
        machine.docker.images[NAME] = "sha256:" + "3" * 64
        self.all_not_run(machine.run(), "the image cannot be loaded into docker")
        assert machine.loads == 1, "another image of this name does not do"

    def test_this_machine(self) -> None:
        if Path("/dev/nvidia0").exists():
            pytest.skip("this machine has a GPU")
        from builder.doctor.host import ThisHost

        with pytest.raises(CheckNotRun):
            require_spark(ThisHost())


def test_an_image_is_loaded_when_docker_lacks_it(machine: Machine) -> None:
    machine.docker.images.clear()
    image = machine.image()
    machine.write("probes.json", machine.probes)

    def load() -> None:
        machine.docker.images[NAME] = "sha256:" + "2" * 64

    report = run_gpu(
        "sha256:" + "a" * 64,
        [],
        PROJECT.recipe("nemotron-omni"),
        PROJECT.base("hermetic-0.20"),
        replace(image, load=load),
        options=Options(start=120.0, patience=60.0, interval=0.02),
        host=Recorded(),
    )
    assert by_id(report)["device"][0] == "pass", "known by its config's digest"


@pytest.mark.parametrize(
    ("version", "status", "expected"),
    [("580.95", "pass", "580.95"), ("590.48", "fail", "deadlocks"), ("570.1", "fail", "older than 580")],
)
def test_the_driver_is_judged_as_doctor_does(machine: Machine, version: str, status: str, expected: str) -> None:
    host = Recorded()
    host.commands[DRIVER] = Outcome(0, f"{version}\n")
    machine.write("server", "does not start")
    found = by_id(machine.run(host))["driver"]
    assert found[0] == status
    assert expected in found[1]


def test_a_driver_that_does_not_answer_is_not_judged(machine: Machine) -> None:
    host = Recorded()
    del host.commands[DRIVER]
    machine.write("server", "does not start")
    assert by_id(machine.run(host))["driver"][0] == "not-run"


def test_each_probe_fails_by_itself(machine: Machine) -> None:
    machine.probes["device"] = {"error": "RuntimeError: torch sees no GPU"}
    machine.probes["triton_jit"] = {"exit": 139, "stderr": "Segmentation fault"}
    machine.probes["marlin"] = {"not_run": "this vLLM has no fused_marlin_moe"}
    machine.probes["allreduce RANK=0"] = changed(REDUCED, mapped={"/usr/lib/libnccl.so.2": 22907})
    machine.write("server", "does not start")
    found = by_id(machine.run())
    assert found["device"] == ("fail", "RuntimeError: torch sees no GPU")
    assert found["triton-jit"] == ("fail", "the probe ended with 139 and no result: Segmentation fault")
    assert found["marlin-moe-nvfp4"] == ("not-run", "this vLLM has no fused_marlin_moe")
    assert found["nccl-all-reduce"][0] == "fail"
    assert found["driver"][0] == "pass"
    assert found["serve-health"][0] == "fail"
    assert "could not select device driver" in found["serve-health"][1]
    assert found["serve-answer"] == ("not-run", "the server did not come up")


def test_output_without_its_numbers_fails(machine: Machine) -> None:
    machine.probes["device"] = {"name": "NVIDIA GB10"}
    machine.write("server", "does not start")
    assert by_id(machine.run())["device"] == ("fail", "the answer cannot be read: KeyError: 'capability'")


def test_a_server_that_dies_fails_once_and_the_rest_is_not_run(machine: Machine) -> None:
    machine.write("server", "dies")
    found = by_id(machine.run())
    assert found["serve-health"][0] == "fail"
    assert "no code for sm_121" in found["serve-health"][1]
    rest = {name: each for name, each in found.items() if name.startswith("serve-") and name != "serve-health"}
    assert set(rest.values()) == {("not-run", "the server did not come up")}


def test_one_check_alone_fails_with_the_server(machine: Machine) -> None:
    machine.write("server", "dies")
    report = machine.run(only=("serve-answer",))
    assert [result.id for result in report.results] == ["serve-answer"]
    assert by_id(report)["serve-answer"][0] == "fail"
    assert all(map(is_server, machine.containers())), "no probe was asked for"


def test_faults_of_a_running_server_are_found_each_by_its_check(machine: Machine) -> None:
    machine.write("server", "wrong,no tool call,low acceptance,short,warns,stubborn")
    checks = [*CHECKS, Check(id="serve-stop", tier="gpu", kind="serve-stop", args={"within": 1})]
    found = by_id(machine.run(checks=checks))
    failed = {name for name, (status, _) in found.items() if status == "fail"}
    faulty = ("answer", "stream", "tools", "speculation", "models", "log", "stop")
    assert failed == {f"serve-{name}" for name in faulty}
    assert found["serve-stop"][1] == "it ended with 137, killed after 1 s"
    assert "Something is odd" in found["serve-log"][1]


def test_a_recipe_declares_warnings_and_stricter_limits(machine: Machine) -> None:
    machine.write("server", "warns,half accepted")
    checks = [
        Check(id="serve-log", tier="gpu", kind="serve-log", args={"allow": ["Something is odd"]}),
        Check(id="serve-speculation", tier="gpu", kind="serve-speculation", args={"at-least": 0.9}),
    ]
    found = by_id(machine.run(checks=checks))
    assert found["serve-log"][0] == "pass"
    assert found["serve-speculation"] == ("fail", "190 of 381 drafted tokens accepted, 50%; at least 90% expected")


def test_with_its_own_model_only_the_recipes_features_are_checked(machine: Machine) -> None:
    recipe = PROJECT.recipe("nemotron-omni")
    report = machine.run(recipe=recipe, serve="recipe", offline=True)
    found = by_id(report)
    assert "serve-speculation" not in found
    assert any("serve-speculation does not apply" in note for note in report.notes)
    assert found["serve-models"] == ("fail", "/v1/models has small, not nemotron-omni")
    [server] = filter(is_server, machine.containers())
    assert recipe.model.id in server.words
    assert server.env["HF_HUB_OFFLINE"] == "1"
    assert str(Path.home() / "media") + ":/media:ro" in server.host["Binds"]


@pytest.mark.parametrize(("output", "status"), [(PERF, "pass"), ("Test NCCL failure", "fail")])
def test_a_given_nccl_tests_program_is_run_in_the_image(machine: Machine, output: str, status: str) -> None:
    machine.write("program", output)
    machine.write("server", "does not start")
    program = machine.home / "all_reduce_perf"
    program.touch()
    assert by_id(machine.run(nccl_tests=program))["nccl-tests"][0] == status
    [made] = [each for each in machine.containers() if "/opt/builder-program" in each.words]
    assert f"{program}:/opt/builder-program:ro" in made.host["Binds"]
