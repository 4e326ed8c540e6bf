"""A project on one base of a registry, as its owner sees the base's file."""

from __future__ import annotations

import pytest
import yaml

from builder.digest import Digest
from tests.support.cli import Cli, CommandResult
from tests.support.project import ask_locks, vendor_base
from tests.support.registry import is_installed

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(not is_installed(), reason="docker-registry is not installed"),
]


BASE = "recipes/bases/vendor.yaml"


BUILD = ("build", "--recipe", "tiny", "--base", "vendor", "--json")


OTHER = Digest("sha256:" + "a" * 64)


class Project:
    """A project whose base `vendor` is an image behind the front."""

    def __init__(self, cli: Cli, image: str) -> None:
        self.cli = cli
        self.image = image
        ask_locks(cli.small.files)
        cli.small.files["recipes/tiny.yaml"] |= {"base": "tiny", "compatible": ["vendor"]}
        cli.small.files["recipes/tiny.yaml"]["layers"].remove("settings")
        self.pin(None)

    def pin(self, manifest: str | None, index: str | None = None) -> None:
        """Write the base with this pin, and with comments in the usual places."""
        base = vendor_base(self.image, manifest or "")
        del base["pin"]
        text = f"# A base\n{yaml.safe_dump(base, sort_keys=False)}pin:  # where it is\n  # the tag\n"
        text += f"  image: {self.image}  # moved once\n"
        text += f"  index: {index}\n" if index else ""
        text += f"  manifest: {manifest}\n" if manifest else ""
        text += "  confidence: none  # yet\n  evidence:\n    - nobody says\nnotes: [one, two]\n"
        self.cli.small.files[BASE] = text

    def __call__(self, *words: str) -> CommandResult:
        return self.cli(*words)

    def tree(self) -> dict[str, bytes]:
        """Every file of the project and the store's images and index."""
        self.cli.write()
        roots = [self.cli.folder / "project", self.cli.folder / "store"]
        files = [path for root in roots for path in sorted(root.rglob("*")) if path.is_file()]
        return {str(path): path.read_bytes() for path in files if path.name not in ("lock", "CACHEDIR.TAG")}

    def refused(self, code: int, *words: str) -> str:
        """The command fails with this code and changes no file; returns its standard error."""
        before = self.tree()
        result = self(*words)
        assert result.code == code, (result.code, result.err)
        assert self.tree() == before
        return result.err

    def not_built(self, code: int) -> str:
        """A build fails with this code, writes no image and keeps nothing of the base; returns its standard error."""
        result = self(*BUILD)
        assert (result.code, result.out) == (code, ""), result.err
        store = self.cli.folder / "store"
        assert [path for path in (store / "images").rglob("*") if path.is_file()] == []
        return result.err


def pins(project: Project) -> dict[str, str]:
    """The base's pin in the file."""
    data = yaml.safe_load((project.cli.folder / "project" / BASE).read_text())
    pin: dict[str, str] = data["pin"]
    return pin
