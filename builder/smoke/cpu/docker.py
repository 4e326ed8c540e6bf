"""Running an image with docker: it is loaded into the daemon under a name of its own, and removed again."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import tarfile
import uuid
from pathlib import Path
from typing import IO

from builder.smoke.cpu.runner import Command, Unable, native, registered
from builder.smoke.image.layerstream import ZSTD, LayerStream
from builder.smoke.image.opened import Image, blob_path


class DockerRunner:
    """`docker run --rm --platform linux/arm64 --network none` of one image."""

    name = "docker"

    def __init__(self, image: Image, folder: Path) -> None:
        """Load the image. Raises Unable when docker is not there, does not answer, or does not take it."""
        self.image = image
        if shutil.which("docker") is None:
            raise Unable("it is not installed")
        try:
            answer = _docker("version", "--format", "{{.Server.Version}}", timeout=10)
        except subprocess.TimeoutExpired as error:
            raise Unable("its daemon does not answer") from error
        if answer.returncode != 0:
            raise Unable("its daemon does not answer")
        self._version = answer.stdout.decode(errors="replace").strip()
        if not native() and not registered():
            raise Unable("it has no qemu to run arm64 code with (binfmt_misc has no entry qemu-aarch64 with flag F)")
        missing = [blob.digest for blob in image.layers if not blob.present]
        if missing:
            raise Unable(f"{len(missing)} layers of the image are not here")
        self.tag = f"builder-smoke:{image.digest.partition(':')[2][:24]}"
        self._loaded = False
        if _docker("image", "inspect", self.tag, timeout=60).returncode != 0:
            self._load(image)
            self._loaded = True

    def start(self, command: Command) -> subprocess.Popen[bytes]:
        """Start a command in a fresh container."""
        name = f"builder-smoke-{uuid.uuid4().hex[:12]}"
        argv = ["docker", "run", "--rm", "--name", name, "--platform", "linux/arm64", "--network", "none", "--init"]
        if command.user:
            argv += ["--user", command.user]
        for key, value in command.env.items():
            argv += ["--env", f"{key}={value}"]
        argv += ["--entrypoint", command.argv[0], self.tag, *command.argv[1:]]
        return _Container(argv, name, command.errors)

    def note(self) -> str:
        """How commands are run."""
        return f"run {'natively' if native() else 'under qemu'} by docker {self._version}, without network"

    def close(self) -> None:
        """Remove the image from the daemon, if it was loaded for this."""
        if self._loaded:
            with contextlib.suppress(subprocess.TimeoutExpired):
                _docker("image", "rm", self.tag, timeout=120)

    def _load(self, image: Image) -> None:
        # Docker before 23.0 does not know zstd; of others none is known to refuse it, but plain tars always work.
        major = self._version.partition(".")[0]
        said = ""
        for plain in (True,) if major.isdigit() and int(major) < 23 else (False, True):
            process = subprocess.Popen(
                ["docker", "load", "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                _archive(image, self.tag, pipe, plain=plain)
            said = process.stdout.read().decode(errors="replace") if process.stdout else ""
            if process.wait() == 0 and _docker("image", "inspect", self.tag, timeout=60).returncode == 0:
                return
        raise Unable(f"docker {self._version} does not load the image: {said.strip()[-200:]}")


class _Container(subprocess.Popen[bytes]):
    """The docker client; killing it removes the container, which killing the client alone does not."""

    def __init__(self, argv: list[str], name: str, errors: IO[bytes] | None) -> None:
        self._container = name
        errors_to = errors or subprocess.STDOUT
        super().__init__(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors_to, bufsize=0)

    def kill(self) -> None:
        """Remove the container and end the client."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            _docker("rm", "--force", self._container, timeout=60)
        super().kill()


def _archive(image: Image, tag: str, pipe: object, *, plain: bool) -> None:
    """Write what `docker load` takes: an OCI layout that is, by its manifest.json, docker's own format as well."""
    layout = image.layers[0].path.parents[2]
    digests = [image.digest, image.manifest["config"]["digest"], *dict.fromkeys(b.digest for b in image.layers)]
    names = {digest: f"blobs/{digest.replace(':', '/')}" for digest in digests}
    size = blob_path(layout, image.digest).stat().st_size
    media_type = image.manifest.get("mediaType", "application/vnd.oci.image.manifest.v1+json")
    described = {
        "mediaType": media_type,
        "digest": image.digest,
        "size": size,
        "annotations": {"io.containerd.image.name": f"docker.io/library/{tag}"},
    }
    texts = {
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
        "index.json": {"schemaVersion": 2, "manifests": [described]},
        "manifest.json": [
            {"Config": names[digests[1]], "RepoTags": [tag], "Layers": [names[b.digest] for b in image.layers]}
        ],
    }
    with tarfile.open(fileobj=pipe, mode="w|") as archive:  # type: ignore[call-overload]
        for name, value in texts.items():
            data = json.dumps(value).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for digest, name in names.items():
            path = blob_path(layout, digest)
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            with path.open("rb") as file:
                if not (plain and file.read(4) == ZSTD):
                    file.seek(0)
                    archive.addfile(member, file)
                    continue
            with LayerStream(path) as layer:
                member.size = layer.stream.seek(1 << 62)
            with LayerStream(path) as layer:
                archive.addfile(member, layer.stream)


def _docker(*arguments: str, timeout: float) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["docker", *arguments], capture_output=True, check=False, timeout=timeout)
