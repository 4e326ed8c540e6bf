"""Projects on disk: a folder from a dict of files, and a small whole project whose inputs are made in Python."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from builder.digest import Digest
from builder.lock.seal import sealed
from builder.model.lock import LockSection
from builder.project import Project
from builder.store.store import Store
from tests.support.debs import PASSWD, deb
from tests.support.mirror import Mirror
from tests.support.tars import Content, tar
from tests.support.wheels import wheel, wheel_name

ROOT = Path(__file__).resolve().parents[2]
LOCKED = "2026-01-02T03:04:05Z"


class _Dumper(yaml.SafeDumper):
    """Writes digests as the strings that they are."""


_Dumper.add_representer(Digest, yaml.SafeDumper.represent_str)


def write_files(folder: Path, files: Mapping[str, Any]) -> Path:
    """Write files by relative path: text and bytes as they are, other values as YAML or JSON by the file's suffix."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, str):
            path.write_text(content, "utf-8")
        elif path.suffix == ".json":
            path.write_text(json.dumps(content, indent=1), "utf-8")
        else:
            path.write_text(_yaml(content), "utf-8")
    return folder


_texts: dict[str, str] = {}


def _yaml(content: Any) -> str:
    """A value as YAML. Most tests write the same ones, and each command writes them again."""
    key = repr(content)
    if key not in _texts:
        _texts[key] = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return _texts[key]


def shipped(*names: str) -> dict[str, Any]:
    """Files of this repository, by path."""
    return {name: (ROOT / name).read_bytes() for name in names}


def hashed(data: bytes) -> dict[str, Any]:
    """The fields that every locked file has."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


@dataclass
class Sample:
    """A project with the inputs that its lock names. Change `files` before `write`; inputs are served by a mirror."""

    files: dict[str, Any] = field(default_factory=dict)
    pool: dict[str, bytes] = field(default_factory=dict)
    wheels: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def write(self, folder: Path) -> Project:
        """The project, with nothing but its own files."""
        return Project((write_files(folder, self.files),))

    def serve(self, mirror: Mirror) -> None:
        """Put the inputs on a mirror."""
        mirror.pool.update(self.pool)
        for name, files in self.wheels.items():
            mirror.wheels.setdefault(name, {}).update(files)

    def add_debs(self, section: str, packages: Mapping[str, bytes], architecture: str = "arm64") -> None:
        """A lock section of Debian packages."""
        entries = []
        for name, data in packages.items():
            path = f"pool/main/{name}_{section}_all.deb"
            self.pool[path] = data
            entries.append({"package": name, "version": "1", "architecture": "all", "path": path, **hashed(data)})
        self.files[f"recipes/locks/{section}.json"] = {
            "kind": "debs",
            "name": section,
            "locked": LOCKED,
            "request": {"suite": "trixie", "architecture": architecture, "packages": sorted(packages)},
            "packages": entries,
        }

    def add_wheels(self, section: str, wheels: Mapping[str, bytes], version: str = "1.0") -> None:
        """A lock section of wheels, all of one version."""
        entries = []
        for name, data in wheels.items():
            file = wheel_name(name, version)
            self.wheels.setdefault(name, {})[file] = data
            entries.append({"name": name, "version": version, "file": file, **hashed(data)})
        self.files[f"recipes/locks/{section}.json"] = {
            "kind": "wheels",
            "name": section,
            "locked": LOCKED,
            "request": {"requirements": sorted(wheels), "python": "3.13", "platform": "aarch64-manylinux_2_39"},
            "wheels": entries,
        }

    def add_sources(self, sources: Mapping[str, bytes]) -> None:
        """The section of sources; names are NAME/VERSION."""
        entries = []
        for key, data in sources.items():
            name, _, version = key.partition("/")
            path = f"pool/main/{name}_{version}.orig.tar.gz"
            self.pool[path] = data
            mirrors = [{"kind": "debian", "path": path}]
            identity = {"name": name, "version": version, "file": f"{name}-{version}.tar.gz"}
            commits = {"commit": "1" * 40, "tree": "2" * 40}
            entries.append({**identity, **hashed(data), **commits, "mirrors": mirrors})
        self.files["recipes/locks/sources.json"] = {
            "kind": "sources",
            "name": "sources",
            "locked": LOCKED,
            "sources": entries,
        }


def ask_locks(files: dict[str, Any]) -> None:
    """Among a project's files: requests for its lock sections but the sources, and their seals."""
    wanted: dict[str, dict[str, Any]] = {"debs": {}, "wheels": {}}
    for path, data in files.items():
        if path.startswith("recipes/locks/") and path.endswith(".json"):
            section: LockSection = TypeAdapter(LockSection).validate_python(data)
            files[path] = sealed(section).model_dump(mode="json")
            if data["kind"] in wanted:
                wanted[data["kind"]][data["name"]] = data["request"]
    files["recipes/locks/requests.yaml"] = wanted


def root_packages(**files: Mapping[str, Content]) -> dict[str, bytes]:
    """base-passwd and a package for each keyword."""
    return {"base-passwd": deb("base-passwd", PASSWD)} | {name: deb(name, content) for name, content in files.items()}


def vendor_base(image: str, manifest: str, **more: Any) -> dict[str, Any]:
    """A base of the family vllm-openai, pinned."""
    return {
        "name": "vendor",
        "family": "vllm-openai",
        "title": "A vendor's image",
        "entrypoint": "vllm-serve",
        "pin": {"image": image, "manifest": manifest},
        **more,
    }


def read_base(small: Sample, image: str, pin: str) -> None:
    """Make the sample's layer one that copies a file of a registry base."""
    small.files["recipes/bases/vendor.yaml"] = vendor_base(image, pin)
    small.files["recipes/tiny.yaml"] |= {"compatible": ["vendor"], "layers": ["reader", "entrypoint"]}
    small.files["dockerfiles/layers/reader/layer.yaml"] = {
        "name": "reader",
        "title": "Reads the base",
        "producer": "dockerfile",
        "reads_base": True,
    }
    small.files["dockerfiles/layers/reader/Dockerfile.j2"] = (
        "FROM --platform=linux/arm64 {{ base.pin.image ~ '@' ~ base.pin.manifest }} AS {{ id }}-base\n"
        "FROM scratch AS {{ id }}\nCOPY --from={{ id }}-base /usr/lib/base.py /opt/reader/copy.py\n"
    )


def stored_base(store: Store) -> str:
    """Puts a base without layers into a store; returns its manifest's digest."""
    config = store.put(json.dumps({"os": "linux", "architecture": "arm64", "rootfs": {"diff_ids": []}}).encode())
    described = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": 1}
    return store.put(json.dumps({"schemaVersion": 2, "config": described, "layers": []}).encode())


def sample() -> Sample:
    """A hermetic base of a root and two groups of wheels; a recipe with a compiled, a placed and a config layer."""
    made = Sample()
    made.files |= shipped(
        *(f"dockerfiles/{name}.Dockerfile.j2" for name in ("toolchain", "files", "image")),
        *(f"dockerfiles/layers/{name}/layer.yaml" for name in ("root", "wheels", "entrypoint")),
    )
    layers = "dockerfiles/layers"
    made.files |= {
        f"{layers}/toolchain/layer.yaml": {
            "name": "toolchain",
            "title": "The small toolchain",
            "producer": "files",
            "root": True,
            "families": [],
            "parameters": {"arch": {"type": "text", "choices": ["amd64", "arm64"], "default": "amd64", "help": "arch"}},
            "inputs": {"debs": "toolchain-{{ params.arch }}"},
        },
        f"{layers}/compiled/layer.yaml": {
            "name": "compiled",
            "title": "Compiled from source",
            "producer": "dockerfile",
            "parameters": {
                "version": {"type": "text", "choices": ["1.0", "2.0"], "default": "1.0", "help": "version"},
                "words": {"type": "text", "pattern": "[A-Za-z0-9 *|()]+", "default": "all", "help": "words"},
            },
            "inputs": {"toolchain": True, "sources": ["widget/{{ params.version }}"]},
            "env": [{"name": "WIDGET", "value": "{{ params.version }}"}],
            "labels": [{"name": "org.example.widget", "value": "{{ params.version }}"}],
        },
        f"{layers}/compiled/Dockerfile.j2": (
            "FROM toolchain AS {{ id }}-build\nARG JOBS\n"
            "RUN --mount=type=bind,target=/context "
            "make -f /context/inputs/{{ source('widget') }} {{ params.words | sh }}\n"
            "\nFROM scratch AS {{ id }}\nCOPY --from={{ id }}-build /out /\n"
        ),
        f"{layers}/compiled/patch.diff": "a patch\n",
        f"{layers}/placed/layer.yaml": {
            "name": "placed",
            "title": "Files as they are",
            "producer": "files",
            "files": [
                {"path": "etc/placed.conf", "content": "placed\n"},
                {"path": "opt/placed/link", "link": "/etc/placed.conf"},
            ],
        },
        f"{layers}/settings/layer.yaml": {
            "name": "settings",
            "title": "Settings",
            "producer": "config",
            "env": [
                {"name": "LIBS", "value": "/opt/widget", "mode": "prepend"},
                {"name": "MODE", "value": "fast"},
            ],
        },
        "recipes/bases/tiny.yaml": {
            "name": "tiny",
            "family": "hermetic",
            "title": "Tiny",
            "aliases": ["hermetic"],
            "python": "3.13",
            "site": "/usr/local/lib/python3.13/dist-packages",
            "entrypoint": "vllm-serve",
            "path": ["/usr/bin"],
            "env": {"LANG": "C.UTF-8"},
            "layers": [
                {"root": {"lock": "tiny-root"}},
                {"wheels": {"lock": "tiny-wheels", "group": "alpha", "only": ["alpha"]}},
                {"wheels": {"lock": "tiny-wheels", "group": "other"}},
            ],
        },
        "recipes/tiny.yaml": {
            "name": "tiny",
            "title": "Tiny",
            "model": {"id": "someone/tiny"},
            "base": "tiny",
            "layers": ["compiled", "placed", "settings", "entrypoint"],
            "env": {"LAST": "word"},
            "serve": {"model": "someone/tiny", "flags": {"port": 8000}},
        },
    }
    made.add_debs("tiny-root", root_packages(tool={"usr/bin/tool": "#!/bin/sh\n", "etc/tool.conf": "a=1\n"}))
    made.add_debs("toolchain-amd64", root_packages(make={"usr/bin/make": "amd64"}), "amd64")
    made.add_debs("toolchain-arm64", root_packages(make={"usr/bin/make": "arm64"}), "arm64")
    names = ("alpha", "beta", "gamma")
    made.add_wheels("tiny-wheels", {name: wheel(name, {f"{name}/__init__.py": f"# {name}\n"}) for name in names})
    made.add_sources({f"widget/{version}": tar({f"widget-{version}/Makefile": version}) for version in ("1.0", "2.0")})
    return made


WIDGET: dict[str, Content] = {"opt/widget/lib/libwidget.so": b"\x7fELF widget"}
"""The files that an engine makes for the layer `compiled`."""
