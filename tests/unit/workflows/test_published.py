"""Comparing the images of several machines, and tagging pushed images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from builder.digest import Digest
from tests.support.project import ROOT, write_files
from tests.unit.workflows.checkout import DIGEST

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


class TestRegistry:
    """Tags and comparisons, against a registry that has two manifests."""

    BLOB: ClassVar = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": DIGEST, "size": 2}
    MANIFEST = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": BLOB, "layers": []}).encode()

    @pytest.fixture
    def held(self) -> dict[str, bytes]:
        return {}

    @pytest.fixture
    def registry(self, held: dict[str, bytes]) -> Iterator[str]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = held.get(self.path.removeprefix("/v2/"))
                absent = 403 if "secret" in self.path else 404
                self.send_response(200 if data is not None or self.path == "/v2/" else absent)
                self.send_header("Content-Type", MANIFEST_TYPE)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(data or b"")

            do_HEAD = do_GET

            def do_PUT(self) -> None:
                held[self.path.removeprefix("/v2/")] = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()

    @property
    def digest(self) -> str:
        return Digest.of(self.MANIFEST)

    def record(
        self,
        folder: Path,
        recipe: str,
        registry: str = "",
        digest: str = "",
        plan: str = "a" * 64,
        tested: tuple[str, ...] = ("static", "cpu"),
    ) -> None:
        digest = digest or self.digest
        reference = f"{registry}/team/{recipe}@{digest}" if registry else None
        record = {"recipe": recipe, "base": "tiny", "plan": plan, "digest": digest, "reference": reference}
        record["tested"] = list(tested)  # type: ignore[assignment]
        write_files(folder, {f"{recipe}.json": record})

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"BUILDER_PYTHON": sys.executable}
        environment = {name: value for name, value in environment.items() if not name.startswith("GITHUB_")}
        environment |= more
        return subprocess.run(
            ["scripts/ci/run", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    def images(self, folder: Path) -> str:
        """The output of `compare` for the job that writes tags."""
        output = folder / "output"
        done = self.run("compare", str(folder), GITHUB_OUTPUT=str(output))
        assert done.returncode == 0, done.stderr
        outputs = dict(line.split("=", 1) for line in output.read_text("utf-8").splitlines())
        assert outputs.keys() == {"images", "subjects"}
        return outputs["images"]

    TIP: ClassVar = ("--commit", "c" * 40, "--tip", "c" * 40)

    def test_tags(self, registry: str, held: dict[str, bytes], tmp_path: Path) -> None:
        for recipe in ("one", "two"):
            held[f"team/{recipe}/manifests/{self.digest}"] = self.MANIFEST
            self.record(tmp_path / recipe, recipe, registry)
        done = self.run("tag", self.images(tmp_path), *self.TIP)
        assert done.returncode == 0, done.stderr
        for recipe in ("one", "two"):
            assert held[f"team/{recipe}/manifests/latest"] == self.MANIFEST
            assert held[f"team/{recipe}/manifests/plan-{'a' * 16}"] == self.MANIFEST

    def test_no_tag_when_one_image_is_missing(self, registry: str, held: dict[str, bytes], tmp_path: Path) -> None:
        held[f"team/one/manifests/{self.digest}"] = self.MANIFEST
        for recipe in ("one", "two"):
            self.record(tmp_path / recipe, recipe, registry)
        assert self.run("tag", self.images(tmp_path), *self.TIP).returncode == 4
        assert list(held) == [f"team/one/manifests/{self.digest}"]

    @pytest.mark.parametrize("tip", ["", "d" * 40])
    def test_an_older_commit_does_not_move_latest(
        self, registry: str, held: dict[str, bytes], tmp_path: Path, tip: str
    ) -> None:
        held[f"team/one/manifests/{self.digest}"] = self.MANIFEST
        held["team/one/manifests/latest"] = b"newer"
        self.record(tmp_path, "one", registry)
        done = self.run("tag", self.images(tmp_path), "--commit", "c" * 40, "--tip", tip)
        assert (done.returncode, "latest stays where it is" in done.stderr) == (0, True), done.stderr
        assert held["team/one/manifests/latest"] == b"newer"
        assert held[f"team/one/manifests/plan-{'a' * 16}"] == self.MANIFEST

    def test_the_tag_of_a_plan_is_not_overwritten(self, registry: str, held: dict[str, bytes], tmp_path: Path) -> None:
        for recipe in ("one", "two"):
            held[f"team/{recipe}/manifests/{self.digest}"] = self.MANIFEST
            self.record(tmp_path, recipe, registry)
        held[f"team/two/manifests/plan-{'a' * 16}"] = self.MANIFEST + b"\n"
        before = dict(held)
        done = self.run("tag", self.images(tmp_path), *self.TIP)
        assert (done.returncode, "[publish-differs]" in done.stderr) == (8, True)
        assert held == before

    def test_another_name_moves_alone(self, registry: str, held: dict[str, bytes], tmp_path: Path) -> None:
        held[f"team/one/manifests/{self.digest}"] = self.MANIFEST
        self.record(tmp_path, "one", registry)
        assert self.run("tag", self.images(tmp_path), *self.TIP, "--name", "gpu-tested").returncode == 0
        assert "team/one/manifests/gpu-tested" in held
        assert "team/one/manifests/latest" not in held

    @pytest.mark.parametrize(
        "images", ["{}", "[1]", '[{"recipe": "a"}]', "[", '[{"recipe": "../../etc", "base": "a"}]']
    )
    def test_damaged_outputs_are_not_tagged(self, images: str) -> None:
        assert self.run("tag", images, *self.TIP).returncode == 3

    @pytest.mark.parametrize(
        ("old", "new"),
        [("sha256:", "sha512:"), ('"one"', '"one $(id)"'), ('"plan"', '"plans"'), ("}", ""), ('"aaaa', '"AAAA')],
    )
    def test_a_damaged_artifact_is_refused(self, tmp_path: Path, old: str, new: str) -> None:
        self.record(tmp_path, "one")
        path = tmp_path / "one.json"
        path.write_text(path.read_text().replace(old, new))
        done = self.run("compare", str(tmp_path))
        assert (done.returncode, "[record-invalid]" in done.stderr) == (3, True)

    @pytest.mark.parametrize("place", ["team/one@sha256:" + "e" * 64, "team/other@DIGEST", "elsewhere/one@DIGEST"])
    def test_a_record_that_names_another_image_gets_no_tag(
        self, registry: str, held: dict[str, bytes], tmp_path: Path, place: str
    ) -> None:
        """The job that only builds again writes one, too, and cannot push."""
        for machine in ("arm64", "amd64"):
            self.record(tmp_path / machine, "one", registry)
        path = tmp_path / "amd64/one.json"
        other = f"{registry}/{place.replace('DIGEST', self.digest)}"
        path.write_text(path.read_text().replace(f"{registry}/team/one@{self.digest}", other))
        done = self.run("compare", str(tmp_path), "--builds", "2", "--tested", "--published", f"{registry}/team")
        assert (done.returncode, "[record-" in done.stderr) == (3, True), done.stderr

    def test_a_tag_is_of_the_digest_that_was_signed(
        self, registry: str, held: dict[str, bytes], tmp_path: Path
    ) -> None:
        self.record(tmp_path, "one", registry)
        other = self.MANIFEST + b"\n"
        held[f"team/one/manifests/{Digest.of(other)}"] = other
        images = self.images(tmp_path).replace(f"@{self.digest}", f"@{Digest.of(other)}")
        assert self.run("tag", images, *self.TIP).returncode == 3
        assert len(held) == 1

    def test_an_image_that_one_machine_built_is_not_published(self, registry: str, tmp_path: Path) -> None:
        self.record(tmp_path / "arm64", "one", registry)
        self.record(tmp_path / "arm64", "two", registry)
        self.record(tmp_path / "amd64", "one", tested=())
        done = self.run("compare", str(tmp_path), "--builds", "2", "--tested", GITHUB_OUTPUT=str(tmp_path / "output"))
        assert (done.returncode, "fewer than 2" in done.stderr) == (8, True)
        assert not (tmp_path / "output").exists()
        self.record(tmp_path / "amd64", "two", tested=())
        done = self.run("compare", str(tmp_path), "--builds", "2", "--tested", GITHUB_OUTPUT=str(tmp_path / "output"))
        assert done.returncode == 0, done.stderr
        assert f'"name":"{registry}/team/two"' in (tmp_path / "output").read_text()

    def test_two_records_of_one_machine_are_not_two_builds(self, registry: str, tmp_path: Path) -> None:
        """Code that left its sandbox in the job that only builds again could have any older image signed and tagged."""
        for place in ("amd64", "amd64/again"):
            self.record(tmp_path / place, "one", registry)
        done = self.run("compare", str(tmp_path), "--builds", "2", "--tested")
        assert (done.returncode, "[record-twice]" in done.stderr) == (3, True), done.stderr

    def test_an_image_that_the_run_does_not_build_is_refused(self, tmp_path: Path) -> None:
        for recipe in ("one", "two"):
            self.record(tmp_path, recipe)
        for recipes, code in (("one two", 0), ("two", 3)):
            matrix = json.dumps({"include": [{"group": "tiny", "base": "hermetic", "recipes": recipes}]})
            done = self.run("compare", str(tmp_path), "--matrix", matrix)
            assert (done.returncode, "[record-unwanted]" in done.stderr) == (code, code != 0), done.stderr

    @pytest.mark.parametrize("tested", [(), ("static",), ("cpu",)])
    def test_an_untested_image_is_not_published(self, tmp_path: Path, tested: tuple[str, ...]) -> None:
        self.record(tmp_path, "one", tested=tested)
        done = self.run("compare", str(tmp_path), "--tested")
        assert (done.returncode, "[publish-untested]" in done.stderr) == (7, True)

    def test_equal_digests(self, tmp_path: Path) -> None:
        for machine in ("amd64", "arm64"):
            self.record(tmp_path / machine, "one")
        done = self.run("compare", str(tmp_path))
        assert (done.returncode, "2 built | equal" in done.stderr) == (0, True)

    def test_different_digests(self, tmp_path: Path) -> None:
        self.record(tmp_path / "amd64", "one")
        self.record(tmp_path / "arm64", "one", digest=DIGEST)
        done = self.run("compare", str(tmp_path))
        assert (done.returncode, "**differ**" in done.stderr) == (8, True)

    def test_different_plans(self, tmp_path: Path) -> None:
        """Both come from one commit: a plan that depends on the machine is a fault, not something else to build."""
        self.record(tmp_path / "amd64", "one", plan="a" * 64)
        self.record(tmp_path / "arm64", "one", plan="b" * 64)
        done = self.run("compare", str(tmp_path))
        assert (done.returncode, "2 built by 2 plans | **differ**" in done.stderr) == (8, True)

    def test_a_single_image_is_not_called_equal(self, tmp_path: Path) -> None:
        self.record(tmp_path, "one")
        done = self.run("compare", str(tmp_path))
        assert (done.returncode, "1 built | single, not compared" in done.stderr) == (0, True)

    def test_published(self, registry: str, held: dict[str, bytes], tmp_path: Path) -> None:
        self.record(tmp_path, "one")
        published = ("--published", f"{registry}/team")
        done = self.run("compare", str(tmp_path), *published)
        assert (done.returncode, "not published" in done.stderr) == (0, True)
        held[f"team/one/manifests/plan-{'a' * 16}"] = self.MANIFEST
        assert self.run("compare", str(tmp_path), *published).returncode == 0
        held[f"team/one/manifests/plan-{'a' * 16}"] = self.MANIFEST + b"\n"
        assert self.run("compare", str(tmp_path), *published).returncode == 8

    def test_a_registry_that_does_not_answer(self, registry: str, tmp_path: Path) -> None:
        self.record(tmp_path, "one")
        assert self.run("compare", str(tmp_path), "--published", f"{registry}/secret").returncode == 6

    @pytest.mark.parametrize(("program", "argument"), [("compare", "."), ("tag", "[]")])
    def test_nothing_to_do(self, program: str, argument: str, tmp_path: Path) -> None:
        assert self.run(program, argument.replace(".", str(tmp_path))).returncode == 2
