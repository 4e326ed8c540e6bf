"""The name of a mirror: a folder or a registry."""

from __future__ import annotations

import pytest

from builder.errors import UsageError
from builder.mirror.backend import parse_backend
from builder.mirror.folder import FolderBackend
from builder.mirror.repository import RegistryBackend


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("oci:registry.lan/x", FolderBackend),
        ("/srv/mirror", FolderBackend),
        ("./registry.lan/x", FolderBackend),
        ("../up", FolderBackend),
        ("mirror", FolderBackend),
        ("mirrors/june.2026", FolderBackend),
        ("registry.lan/team/inputs", RegistryBackend),
        ("127.0.0.1:5000/inputs", RegistryBackend),
        ("localhost/inputs", RegistryBackend),
    ],
)
def test_a_name_selects_a_folder_or_a_registry(text: str, kind: type) -> None:
    assert isinstance(parse_backend(text), kind)


@pytest.mark.parametrize("text", ["registry.lan/x:1", f"registry.lan/x@sha256:{'a' * 64}", "", "registry.lan/X"])
def test_a_name_that_cannot_be_a_mirror_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_backend(text)
