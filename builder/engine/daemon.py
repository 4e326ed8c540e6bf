"""The docker daemon through the docker SDK: version and information, images, containers.

Import this module only where the daemon is needed: the SDK takes 0.3 s to import. Builds are in
`builder.engine.docker`, because the SDK does not support buildx. Every error of the SDK and of its HTTP library is
raised as an EngineError with one of the ids `docker-…`, and every request has a time limit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import docker
import docker.auth
import docker.constants
import docker.errors
import requests
from docker.models.containers import Container
from docker.types import LogConfig
from urllib3.exceptions import HTTPError, ReadTimeoutError

from builder.digest import Digest
from builder.engine.answers import agreed, bound, causes, follow, refused, settings, shown
from builder.engine.containers import ContainerState, ListedContainer
from builder.engine.dockercontext import client_settings
from builder.engine.sshsocket import SshSocket
from builder.engine.stream import WrittenStream
from builder.errors import EngineError
from builder.events import Listener

TIMEOUT = 30.0
"""Seconds that the daemon has to answer a request that moves no data."""
TRANSFER = 1800.0
"""Seconds of silence that are allowed while the daemon unpacks an image."""
_CHUNK = 1 << 20
_MOST_OUTPUT = 32 << 20
"""Bytes of a container's output that the daemon keeps on disk; at more it begins again."""
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
_START = "start the daemon (sudo systemctl start docker), or check DOCKER_HOST and `docker context ls`"


class Daemon:
    """A connection to one daemon. Close it, or use it as a context manager."""

    def __init__(self, host: str | None = None, via: str | None = None) -> None:
        """Connect and agree on a version of the API. via: for ssh, as in `ssh_argv`.

        host: a URL (unix://, tcp://, ssh://). Default: the docker command's, of DOCKER_HOST with DOCKER_TLS_VERIFY and
        DOCKER_CERT_PATH, else of DOCKER_CONTEXT or the current context. Raises EngineError when none answers.
        """
        self._tunnel: SshSocket | None = None
        self._settings = {"base_url": host} if host else client_settings()
        self.host = str(self._settings.get("base_url") or "unix:///var/run/docker.sock")
        if self.host.startswith("ssh://"):
            self._tunnel = SshSocket(self.host, via)
            self._settings = {"base_url": self._tunnel.url}
        try:
            self._docker = self._connect(TIMEOUT)
            # Much of the SDK's lower interface has no types.
            self._api: Any = self._docker.api
        except BaseException:
            self._close_tunnel()
            raise

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._docker.close()
        self._close_tunnel()

    def version(self) -> str:
        """The version of the daemon ("28.2.2")."""
        with self._errors("ask for its version"):
            return str(self._docker.version().get("Version", "unknown"))

    def info(self) -> Mapping[str, Any]:
        """What `docker info` shows: runtimes, devices, storage driver."""
        with self._errors("ask for its settings"):
            return settings(self._docker.info())

    def image_id(self, name: str) -> Digest | None:
        """The id of an image; None when the daemon has none of that name.

        With the containerd image store it is the digest of the manifest, with a graph driver (overlay2) the digest of
        the config.
        """
        with self._errors(f"inspect the image {name}"), contextlib.suppress(docker.errors.NotFound):
            return Digest(str(self._api.inspect_image(name)["Id"]))
        return None

    def image_names(self) -> frozenset[str]:
        """All names of the images that the daemon has: tags, references by digest, and ids as `@sha256:…`."""
        with self._errors("list its images"):
            rows = self._api.images()
            return frozenset(
                name
                for row in rows
                for name in (*(row.get("RepoTags") or ()), *(row.get("RepoDigests") or ()), f"@{row.get('Id', '')}")
            )

    def load(self, write: Callable[[IO[bytes]], object]) -> None:
        """Stream the archive that `write` writes to a file object into the daemon, without a copy in memory or on disk.

        An exception of `write` is raised here. Raises EngineError when the daemon refuses the archive.
        """
        with contextlib.closing(WrittenStream(write)) as archive, contextlib.closing(self._connect(TRANSFER)) as client:
            try:
                with self._errors("load the image"):
                    follow(client, "/images/load", "load the image", data=archive.chunks(_CHUNK))
            except EngineError:
                # When the stream broke, the error of `write` is the cause.
                archive.check()
                raise

    def pull(
        self,
        name: str,
        platform: str | None = None,
        login: Mapping[str, str] | None = None,
        listener: Listener | None = None,
    ) -> None:
        """Make the daemon pull an image by its digest (REPOSITORY@sha256:…). Raises EngineError.

        login: username and password; by default those of docker's configuration. listener: as in `follow`.
        """
        repository, _, digest = name.partition("@")
        asked = {"fromImage": repository, "tag": digest} | ({"platform": platform} if platform else {})
        with contextlib.closing(self._connect(TRANSFER)) as client, self._errors(f"pull {name}"):
            registry = docker.auth.resolve_repository_name(repository)[0]
            header = docker.auth.encode_header(login) if login else docker.auth.get_config_header(client.api, registry)
            headers = {"X-Registry-Auth": header} if header else {}
            follow(client, "/images/create", f"pull {name}", listener, params=asked, headers=headers)

    def tag(self, image: str, name: str) -> None:
        """Give an image, by name or id, another name: [REGISTRY/]REPOSITORY[:TAG]. Raises EngineError."""
        with self._errors(f"name the image {name}"):
            self._api.tag(image, *docker.utils.parse_repository_tag(name))

    def remove_image(self, name: str) -> None:
        """Remove a name of an image, and the image with its last name. A missing name is no error."""
        with self._errors(f"remove the image {name}"), contextlib.suppress(docker.errors.NotFound):
            self._api.remove_image(name)

    def containers(self) -> tuple[ListedContainer, ...]:
        """The running containers."""
        with self._errors("list its containers"):
            return tuple(
                ListedContainer(
                    name=str((row.get("Names") or [""])[0]).lstrip("/"),
                    image=str(row.get("Image", "")),
                    networks=tuple((row.get("NetworkSettings") or {}).get("Networks") or ()),
                )
                for row in self._api.containers()
            )

    def create(self, name: str, image: str, command: Sequence[str], **options: Any) -> DaemonContainer:
        """Create a container, which does not run yet. options: those of the SDK's `containers.create`.

        The caller removes the container. Until then the daemon keeps its output, within bounds.
        """
        try:
            with self._errors(f"create the container {name}"):
                kept = LogConfig(type=LogConfig.types.JSON, config={"max-size": str(_MOST_OUTPUT)})
                created = self._docker.containers.create(image, list(command), name=name, log_config=kept, **options)
                return DaemonContainer(self, created, name)
        except BaseException:
            # The daemon may have created it before the request was interrupted.
            with contextlib.suppress(EngineError):
                self.remove(name)
            raise

    def remove(self, name: str) -> None:
        """Remove a container and its anonymous volumes, running or not. A missing container is no error."""
        with self._errors(f"remove the container {name}"):
            try:
                self._api.remove_container(name, force=True, v=True)
            except docker.errors.NotFound:
                return
            except docker.errors.APIError as error:
                # 409: another thread is removing it.
                if error.status_code != 409:
                    raise

    def _connect(self, timeout: float) -> docker.DockerClient:
        with self._errors("agree on a version of the API"):
            oldest = docker.constants.MINIMUM_DOCKER_API_VERSION
            client = docker.DockerClient(timeout=timeout, version=oldest, **self._settings)  # type: ignore[arg-type]
            api: Any = client.api
            # Before the first request, which asks for the version.
            bound(api)
            api._version = agreed(api._retrieve_server_version())
            return client

    def _close_tunnel(self) -> None:
        if self._tunnel is not None:
            self._tunnel.close()

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Raises EngineError for errors of the SDK and of HTTP. doing: the request, as in "docker could not …"."""
        try:
            yield
        except docker.errors.APIError as error:
            raise refused(doing, str(error.explanation or error)) from error
        except (docker.errors.DockerException, requests.RequestException, HTTPError, OSError) as error:
            raise self._unreachable(doing, error) from error
        except Exception as error:
            # For a container that is no object the SDK raises Exception itself.
            if not isinstance(error, _MALFORMED) and type(error) is not Exception:
                raise
            raise refused(doing, f"its answer is not one of docker ({type(error).__name__})") from error

    def _unreachable(self, doing: str, error: Exception) -> EngineError:
        parts = list(causes(error))
        if any(isinstance(part, PermissionError) for part in parts):
            return EngineError(
                "docker's daemon refuses this user",
                id="docker-permission-denied",
                where=self.host,
                cause="the socket belongs to root and the group docker",
                next="sudo usermod -aG docker $USER && newgrp docker",
            )
        if any(isinstance(part, requests.Timeout | ReadTimeoutError | TimeoutError) for part in parts):
            return EngineError(
                "docker's daemon does not answer in time",
                id="docker-timeout",
                where=self.host,
                next="docker info; sudo systemctl restart docker",
            )
        if not any(isinstance(part, OSError | HTTPError) for part in parts):
            # An error of the SDK itself: an unknown option, or a credential helper that fails.
            return refused(doing, str(error))
        system = next((part.strerror for part in parts if isinstance(part, OSError) and part.strerror), "")
        cause = (self._tunnel.problem() if self._tunnel else "") or system or shown(str(error))
        return EngineError(
            "docker's daemon does not answer",
            id="docker-unreachable",
            where=self.host,
            cause=cause,
            next="ssh HOST docker version" if self._tunnel else _START,
        )


class DaemonContainer:
    """A container that `Daemon.create` has created."""

    def __init__(self, daemon: Daemon, container: Container, name: str) -> None:
        self._daemon = daemon
        self._container = container
        self.name = name

    def start(self) -> None:
        """Start the container. Raises EngineError when the daemon cannot."""
        with self._errors("start"):
            self._container.start()

    def wait(self, timeout: float) -> int | None:
        """Wait for the end and return the exit status; None when the container still runs after `timeout` seconds."""
        try:
            with self._errors("wait for"):
                return int(self._container.wait(timeout=timeout)["StatusCode"])
        except EngineError as error:
            if error.id == "docker-timeout":
                return None
            raise

    def log(self, *, stdout: bool = True, stderr: bool = True) -> str:
        """The output so far."""
        with self._errors("read the log of"):
            return self._container.logs(stdout=stdout, stderr=stderr).decode("utf-8", "replace")

    def follow(self, *, stdout: bool = True, stderr: bool = True) -> Iterator[bytes]:
        """The output as a stream, from the start to the end of the container."""
        with self._errors("read the log of"):
            yield from self._container.logs(stdout=stdout, stderr=stderr, stream=True, follow=True)

    def state(self) -> ContainerState:
        """The current state. Raises EngineError when the daemon has no such container."""
        with self._errors("inspect"):
            self._container.reload()
            found = self._container.attrs["State"]
            return ContainerState(bool(found["Running"]), int(found["ExitCode"]), bool(found.get("OOMKilled")))

    def stop(self, patience: int) -> None:
        """Send SIGTERM; the daemon kills the container after `patience` seconds."""
        with self._errors("stop"):
            self._container.stop(timeout=patience)

    def remove(self) -> None:
        """Remove the container, running or not. A missing container is no error."""
        self._daemon.remove(self.name)

    def _errors(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return self._daemon._errors(f"{doing} the container {self.name}")
