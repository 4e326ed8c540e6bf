"""Parses manifests and configurations, and refuses names that engines written in Go take for others."""

from __future__ import annotations

from typing import Any

from builder.jsontext import parse_json

_NAMES = (
    *("schemaVersion", "mediaType", "artifactType", "config", "layers", "manifests", "subject", "annotations"),
    *("digest", "size", "urls", "data", "platform", "architecture", "os", "os.version", "os.features", "variant"),
    *("rootfs", "type", "diff_ids", "history", "created", "created_by", "author", "comment", "empty_layer"),
    *("User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "Labels", "StopSignal", "Shell"),
    *("OnBuild", "ArgsEscaped", "Healthcheck", "Test", "Interval", "Timeout", "StartPeriod", "StartInterval"),
    *("Retries", "Hostname", "Domainname", "Image", "NetworkDisabled", "MacAddress", "StopTimeout", "Tty"),
    *("AttachStdin", "AttachStdout", "AttachStderr", "OpenStdin", "StdinOnce"),
)
"""The members of manifests, indexes and configurations, in OCI's specification and in docker's."""
_FOLDED = {name.casefold(): name for name in _NAMES}
_MAPS = ("annotations", "Labels", "Volumes", "ExposedPorts")
"""Members whose own members have any names."""


def parse_document(data: bytes) -> Any:
    """A manifest, index or configuration as plain values. Raises ValueError.

    Go's parser, which docker, containerd and podman use, ignores case: `Config` replaces `config`, and this program
    would read the other one.
    """
    document = parse_json(data)
    todo = [document]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif isinstance(value, dict):
            for name in value:
                if (other := _FOLDED.get(name.casefold(), name)) != name:
                    raise ValueError(f"container engines read {name!a} as {other!r}")
            todo += (member for name, member in value.items() if name not in _MAPS)
    return document
