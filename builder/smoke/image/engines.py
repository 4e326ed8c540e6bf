"""What container engines refuse in a manifest and a configuration: those of Go read them strictly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from builder.oci.assemble import CONFIG_TYPE
from builder.smoke.image.opened import OpenedImage

_CONFIGS = (CONFIG_TYPE, "application/vnd.docker.container.image.v1+json")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_PORT = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?(?:/(?:tcp|udp|sctp))?")
_LONGEST, _MOST = (1 << 17) - 1, 1 << 20
"""Bytes of a word of a command or its environment, and of all together: Linux starts no program with more."""


def refused(image: OpenedImage) -> Iterator[str]:
    """What is wrong, in a few words each."""
    if (kind := image.manifest["config"].get("mediaType")) not in _CONFIGS:
        yield f"the configuration has the media type {kind}"
    rootfs = image.config.get("rootfs")
    if rootfs and rootfs.get("type") != "layers":
        yield f"rootfs has the type {rootfs.get('type')}"
    yield from (f"{name} is set" for name in ("os.version", "os.features") if image.config.get(name))
    yield from _types(image.config)
    ports = [*(image.settings.get("ExposedPorts") or ())]
    yield from (f"the port {port[:100]}" for port in ports if not _is_port(port))
    folder = image.settings.get("WorkingDir")
    if folder and not folder.startswith("/"):
        yield f"the working directory {folder[:100]} is relative"
    command = [*(image.settings.get("Entrypoint") or ()), *(image.settings.get("Cmd") or ())]
    yield from _words([*command, *(image.settings.get("Env") or ())], [folder or "", image.settings.get("User") or ""])


def _types(config: dict[str, Any]) -> Iterator[str]:
    for place, row in (("", config), *(("history: ", row) for row in config.get("history") or ())):
        if not _is_time(row.get("created")):
            yield f"{place}created is no time"
        texts = [row.get(name) for name in ("author", "created_by", "comment")]
        if not all(text is None or isinstance(text, str) for text in texts):
            yield f"{place}author, created_by or comment is no text"
        if not isinstance(row.get("empty_layer"), bool | None):
            yield f"{place}empty_layer is neither true nor false"


def _is_time(value: Any) -> bool:
    return value is None or (isinstance(value, str) and _TIME.fullmatch(value) is not None)


def _is_port(text: str) -> bool:
    found = _PORT.fullmatch(text)
    return found is not None and all(int(number) < 1 << 16 for number in found.groups() if number)


def _words(words: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    if any("\0" in word for word in (*words, *others)):
        yield "a text with a NUL"
    sizes = [len(word.encode("utf-8", "surrogatepass")) for word in words]
    if sum(sizes) > _MOST or max(sizes, default=0) > _LONGEST:
        yield "the command and its environment are too long"
