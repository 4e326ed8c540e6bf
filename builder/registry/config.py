"""The configuration file `registries.yaml`: mirrors of registries, and registries without TLS.

docker.io:
  mirror: [mirror.lan:5000/hub]     # tried in order, then the registry itself; a path is put before the repository
mirror.lan:5000:
  insecure: true                    # plain http, the default for registries on this machine
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, TypeAdapter, ValidationError

from builder.errors import InvalidError
from builder.model.common import Boolean, Strict
from builder.model.reference import DOCKER_HUB, HUB_NAMES, is_registry, is_repository

_HUB_API = "registry-1.docker.io"


def _host(text: str) -> str:
    if not is_registry(text):
        raise ValueError("must be HOST or HOST:PORT, lower case, without https://")
    if text in HUB_NAMES:
        raise ValueError(f"write {DOCKER_HUB} for Docker Hub")
    return text


def _mirror(text: str) -> str:
    host, slash, prefix = text.partition("/")
    _host(host)
    if slash and not is_repository(prefix):
        raise ValueError("must be HOST[:PORT] or HOST[:PORT]/PATH")
    return text


class RegistryEntry(Strict):
    """The configuration of one registry."""

    mirror: tuple[Annotated[str, AfterValidator(_mirror)], ...] = ()
    insecure: Boolean = False


_ENTRIES = TypeAdapter(dict[Annotated[str, AfterValidator(_host)], RegistryEntry])


@dataclass(frozen=True)
class Endpoint:
    """A registry or a mirror of it. host: its login applies. base: URL without a trailing slash.

    prefix: comes before the repository. once: no retries, because another endpoint can be tried.
    """

    host: str
    base: str
    prefix: str = ""
    once: bool = False

    def repository(self, name: str) -> str:
        """The path of the repository `name` at this endpoint."""
        return f"{self.prefix}/{name}" if self.prefix else name


class RegistriesConfig:
    """Mirrors and insecure registries. entries: by registry."""

    def __init__(self, entries: dict[str, RegistryEntry] | None = None) -> None:
        self.entries = dict(entries or {})

    @classmethod
    def load(cls, path: Path | None = None) -> RegistriesConfig:
        """Read `path`, else BUILDER_REGISTRIES, else builder/registries.yaml below XDG_CONFIG_HOME or ~/.config.

        Only the last may be absent. Raises InvalidError.
        """
        chosen = path or (Path(name) if (name := os.environ.get("BUILDER_REGISTRIES")) else None)
        folder = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        file = chosen or Path(folder) / "builder" / "registries.yaml"
        try:
            text = file.read_bytes()
        except FileNotFoundError:
            if chosen is None:
                return cls()
            raise InvalidError(
                "no such file", id="registries-file-missing", where=str(file), next="correct BUILDER_REGISTRIES"
            ) from None
        except OSError as error:
            raise InvalidError(
                f"cannot read: {error.strerror}", id="registries-file-unreadable", where=str(file)
            ) from None
        return cls(_parse(text, str(file)))

    def origin(self, registry: str) -> Endpoint:
        """The registry itself."""
        return self._endpoint(registry)

    def endpoints(self, registry: str) -> list[Endpoint]:
        """The endpoints to read from: the mirrors in order, then the registry itself."""
        entry = self.entries.get(registry)
        return [self._endpoint(mirror) for mirror in (entry.mirror if entry else ())] + [self._endpoint(registry)]

    def _endpoint(self, name: str) -> Endpoint:
        host, _, prefix = name.partition("/")
        entry = self.entries.get(host)
        configured = entry is not None and "insecure" in entry.model_fields_set
        plain = entry.insecure if entry is not None and configured else is_loopback(host)
        address = _HUB_API if host == DOCKER_HUB else host
        return Endpoint(host, f"{'http' if plain else 'https'}://{address}", prefix)


def is_loopback(host: str) -> bool:
    """Whether HOST[:PORT] names the loopback interface, where plain http is safe."""
    if host.startswith("["):
        return host.partition("]")[0] == "[::1"
    return host.partition(":")[0] in ("localhost", "127.0.0.1")


def _parse(text: bytes, where: str) -> dict[str, RegistryEntry]:
    # Imported here: most machines have no registries.yaml, and a push then needs no YAML.
    from builder.model.yamlfile import compose, line_of, parse_yaml, yaml_message

    try:
        value = parse_yaml(text.decode("utf-8"), where)
    except UnicodeDecodeError:
        raise InvalidError("not UTF-8 text", id="registries-file-not-utf8", where=where) from None
    if value is None:
        return {}
    try:
        return _ENTRIES.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        path = [part for part in first["loc"] if part != "[key]"]
        keys = ".".join(str(part) for part in path)
        line = line_of(compose(text.decode("utf-8")), path)
        message = yaml_message(first["msg"])
        raise InvalidError(
            f"{keys}: {message}" if keys else message, id="registries-file-invalid", where=f"{where}:{line}"
        ) from None


def state_folder(name: str) -> Path:
    """`builder/NAME` below XDG_STATE_HOME or ~/.local/state: what one run notes about registries for the next."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "builder" / name
