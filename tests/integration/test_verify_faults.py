"""Faults planted in a pushed image, one of each kind: `verify` finds and names each; `diff` names one of each way."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zstandard

from builder.digest import Digest
from builder.model.reference import Reference
from builder.oci.manifest import OCI_MANIFEST
from builder.plan.bundle import MEDIA_TYPE
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.referrers import attach
from tests.support.cli import Cli
from tests.support.mirror import Mirror
from tests.support.wheels import wheel

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
]
TEXT = "made 2026-01-01T00:00:00Z\nfrom /build/one/x.c\npid 4711\nid 8f14e45fceea167a\none\ntwo\n"
Members = list[tuple[tarfile.TarInfo, bytes]]


@dataclass
class Fault:
    """A change of a layer's members, or of the configuration; what `verify` says of it, and `diff --details`."""

    says: str
    layer: str = "placed"
    members: Callable[[Members], Any] = lambda members: None
    config: Callable[[dict[str, Any]], Any] = lambda config: None
    diff: str = ""


def text(old: str, new: str) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        for number, (info, data) in enumerate(members):
            if info.name.endswith("placed.conf"):
                assert old.encode() in data
                data = data.replace(old.encode(), new.encode())
                info.size = len(data)
                members[number] = (info, data)

    return change


def of(name: str, **fields: Any) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        for info, _ in members:
            if info.name.endswith(name):
                for field, value in fields.items():
                    setattr(info, field, value)

    return change


def extra(members: Members) -> None:
    members.append((tarfile.TarInfo("opt/placed/zzz"), b""))


def another_wheel(members: Members) -> None:
    for number, (info, data) in enumerate(members):
        if info.name.endswith(("RECORD", "__init__.py")):
            info.size = len(data) + 1
            members[number] = (info, data + b"\n")


def compiled(flag: str) -> bytes:
    """A library by a real compiler, the same for the same flag."""
    source = "int twice(int a) { return a + a; }\n"
    with TemporaryDirectory() as folder:
        out = Path(folder) / "a.so"
        words = ["gcc", "-shared", "-fPIC", "-Wl,--build-id=none", flag, "-x", "c", "-", "-o", str(out)]
        subprocess.run(words, input=source, text=True, check=True)
        return out.read_bytes()


def another_flag(members: Members) -> None:
    for number, (info, _) in enumerate(members):
        if info.name.endswith("a.so"):
            data = compiled("-O0")
            info.size = len(data)
            members[number] = (info, data)


def env(config: dict[str, Any]) -> None:
    config["config"]["Env"][-1] = "LAST=other"


FAULTS = {
    "timestamp": Fault(
        "line 1: time: 2026-01-02T03:04:05Z, not 2026", members=text("01-01T00:00:00", "01-02T03:04:05")
    ),
    "path": Fault("line 2: path: /home/two/x.c, not /build/one/x.c", members=text("/build/one", "/home/two")),
    "process id": Fault("line 3: process id: pid 815, not pid 4711", members=text("4711", "815")),
    "random seed": Fault("line 4: random seed or hash: 8f1", members=text("8f14e45fceea167a", "8f1c9f0f895fb98a")),
    "order in a file": Fault("order: the same lines in another order", members=text("one\ntwo", "two\none")),
    "file order": Fault("another order of files", members=lambda members: members.reverse(), diff="0 files changed"),
    "time of a file": Fault(
        "time: files have another modification time", members=of("placed.conf", mtime=1), diff="0 files changed"
    ),
    "extra file": Fault("opt/placed/zzz: only in the image", members=extra, diff="opt/placed/zzz: only in the second"),
    "mode": Fault("mode 0600, not 0644", members=of("placed.conf", mode=0o600), diff="mode 0644, not 0600"),
    "another wheel": Fault("another wheel of alpha (1.0)", "wheels-alpha", another_wheel, diff="alpha/__init__.py"),
    "compiler flag": Fault("another compiler flag or source: the machine code differs", "wheels-alpha", another_flag),
    "environment": Fault("config.Env LAST", config=env, diff="~ env LAST: word → other"),
}


def client() -> Registry:
    return Registry(config=RegistriesConfig(), credentials=Credentials())


class Published:
    """An image in a registry, of which changed copies are pushed with the bundle of the image itself."""

    def __init__(self, cli: Cli, host: str, mirror: Mirror) -> None:
        cli.small.files["dockerfiles/layers/placed/layer.yaml"]["files"][0]["content"] = TEXT
        files: dict[str, dict[str, bytes | str]]
        files = {name: {f"{name}/__init__.py": f"# {name}\n"} for name in ("alpha", "beta", "gamma")}
        files["alpha"]["alpha/a.so"] = compiled("-O2")
        cli.small.add_wheels("tiny-wheels", {name: wheel(name, content) for name, content in files.items()})
        cli.small.serve(mirror)
        self.cli, self.target = cli, f"{host}/faults/image"
        assert cli("build", "--recipe", "tiny").code == 0
        self.digest = Digest(cli("push", f"{self.target}:1", "--recipe", "tiny").out.strip().rpartition("@")[2])
        assert cli("plan", "--recipe", "tiny", "--bundle", str(cli.folder / "bundle")).code == 0

    def push(self, fault: Fault, name: str) -> str:
        """Push a copy of the image with a fault; returns its reference."""
        reference = Reference.parse(f"{self.target}:{name}")
        manifest = json.loads(self.blob(self.digest))
        config = json.loads(self.blob(manifest["config"]["digest"]))
        ids = [line["created_by"] for line in config["history"] if not line.get("empty_layer")]
        place = ids.index(f"builder: {fault.layer}")
        old = zstandard.ZstdDecompressor().decompressobj().decompress(self.blob(manifest["layers"][place]["digest"]))
        with tarfile.open(fileobj=io.BytesIO(old)) as archive:
            members = [(info, b"".join(archive.extractfile(info) or ()) if info.isreg() else b"") for info in archive]
        fault.members(members)
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for info, data in members:
                archive.addfile(info, io.BytesIO(data))
        fault.config(config)
        if out.getvalue() != old:
            config["rootfs"]["diff_ids"][place] = Digest.of(out.getvalue())
        manifest["layers"][place] |= self.put(reference, zstandard.ZstdCompressor(3).compress(out.getvalue()))
        manifest["config"] |= self.put(reference, json.dumps(config).encode())
        data = json.dumps(manifest).encode()
        digest = client().put_manifest(reference, data, OCI_MANIFEST)
        subject = {"mediaType": OCI_MANIFEST, "digest": digest, "size": len(data)}
        attach(client(), reference, subject, (self.cli.folder / "bundle").read_bytes(), MEDIA_TYPE)
        return f"{self.target}:{name}"

    def blob(self, digest: str) -> bytes:
        return (self.cli.folder / "store" / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes()

    def put(self, reference: Reference, data: bytes) -> dict[str, Any]:
        digest = Digest.of(data)
        client().upload(reference, digest, len(data), lambda: iter([data]))
        return {"digest": digest, "size": len(data)}


def test_each_fault_is_found_and_named(online: Cli, host: str, mirror: Mirror) -> None:
    image = Published(online, host, mirror)
    for name, fault in FAULTS.items():
        changed = image.push(fault, name.replace(" ", "-"))
        # One layer is enough, but for the configuration.
        only = () if name == "environment" else ("--layer", fault.layer)
        said = online("verify", changed, *only, BUILDER_STORE=str(online.folder / "stranger"))
        assert said.code == 8 and "[verify-differs]" in said.err, (name, said.err)
        assert fault.says in said.err, (name, said.err)
        if "config.Env" not in fault.says:
            assert said.err.count("likely cause: ") == 1, (name, said.err)
        if not fault.diff and name != "timestamp":
            # `diff` names the contents of files by the same code as `verify`.
            continue
        compared = online("diff", f"{image.target}:1", changed, "--details")
        assert compared.code == 8, (name, compared)
        # The side that `verify` names first is the second one of `diff`.
        assert (fault.diff or fault.says.partition(": ")[2].partition(":")[0]) in compared.out, (name, compared.out)
