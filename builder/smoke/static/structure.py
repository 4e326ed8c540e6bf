"""The static checks of container-structure-test files: paths, file contents, metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from builder.pattern import compiled
from builder.smoke.check import CheckFailed, check_kind
from builder.smoke.image.index import Entry
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.tree import PathNotFound
from builder.smoke.static.context import Context, Reads

_LARGEST = 64 << 20


@check_kind("static", "structure-file", Reads(one_path=True))
def structure_file(
    context: Context,
    *,
    path: str,
    shouldExist: bool = True,
    permissions: str | None = None,
    uid: int | None = None,
    gid: int | None = None,
    isExecutableBy: str | None = None,
) -> str:
    """The path exists (a dangling symlink counts), or does not; `permissions` as `ls -l` or Go write them."""
    entry = _lstat(context, path)
    if not shouldExist:
        if entry is not None:
            raise CheckFailed(f"{path} exists")
        if context.tree.absent:
            raise PathNotFound(path)
        return "does not exist"
    if entry is None:
        raise PathNotFound(path)
    modes = _modes(entry)
    if permissions is not None and permissions not in modes:
        raise CheckFailed(f"{path} has permissions {modes[0]}, not {permissions}")
    for name, wanted, have in (("user", uid, entry.uid), ("group", gid, entry.gid)):
        if wanted is not None and wanted != have:
            raise CheckFailed(f"{path} belongs to {name} {have}, not {wanted}")
    if isExecutableBy is not None:
        bits = {"owner": 0o100, "group": 0o010, "other": 0o001, "any": 0o111}[isExecutableBy]
        if not context.tree.stat(path).mode & bits:
            raise CheckFailed(f"{path} cannot be executed by {isExecutableBy}: {modes[0]}")
    return modes[0]


def _lstat(context: Context, path: str) -> Entry | None:
    """The entry of a path; symlinks in parent folders are followed, a final one is not."""
    parent, _, name = path.rstrip("/").rpartition("/")
    if not name:
        return Entry("dir", 0o755, 0, 0, 0, "", 0, "")
    try:
        folder = context.tree.resolve(parent)
    except PathNotFound:
        return None
    return context.tree.get(f"{folder}/{name}")


def _modes(entry: Entry) -> tuple[str, str]:
    """Permissions in the form of `ls -l` ("-rwsr-xr-x") and of Go ("urwxr-xr-x")."""
    bits = "".join(letter if entry.mode >> (8 - place) & 1 else "-" for place, letter in enumerate("rwxrwxrwx"))
    kinds = {"file": "-", "dir": "d", "symlink": "l", "char": "c", "block": "b", "fifo": "p"}
    listed = list(bits)
    for flag, place, letter in ((0o4000, 2, "s"), (0o2000, 5, "s"), (0o1000, 8, "t")):
        if entry.mode & flag:
            listed[place] = letter if listed[place] == "x" else letter.upper()
    go = {"dir": "d", "symlink": "L", "char": "Dc", "block": "D", "fifo": "p"}.get(entry.kind, "")
    go += "".join(letter for flag, letter in ((0o4000, "u"), (0o2000, "g"), (0o1000, "t")) if entry.mode & flag)
    return kinds[entry.kind] + "".join(listed), (go or "-") + bits


def _path(image: OpenedImage, args: Mapping[str, Any]) -> Iterable[str]:
    return (str(args["path"]),)


@check_kind("static", "structure-content", Reads(keeps=_path, one_path=True))
def structure_content(
    context: Context, *, path: str, expected: Sequence[str] = (), excluded: Sequence[str] = ()
) -> str:
    """The file matches every pattern of `expected` and no pattern of `excluded`."""
    text = context.tree.read(path, _LARGEST).decode(errors="replace")
    for wanted in expected:
        if not compiled(wanted).search(text):
            raise CheckFailed(f"{path} does not contain {wanted!r}")
    for unwanted in excluded:
        if compiled(unwanted).search(text):
            raise CheckFailed(f"{path} contains {unwanted!r}")
    return f"{len(text)} characters"


@check_kind("static", "structure-metadata", Reads("none"))
def structure_metadata(
    context: Context,
    *,
    envVars: Sequence[Mapping[str, Any]] = (),
    unboundEnvVars: Sequence[Mapping[str, Any]] = (),
    labels: Sequence[Mapping[str, Any]] = (),
    entrypoint: Sequence[str] | None = None,
    cmd: Sequence[str] | None = None,
    exposedPorts: Sequence[str] = (),
    unexposedPorts: Sequence[str] = (),
    volumes: Sequence[str] = (),
    unmountedVolumes: Sequence[str] = (),
    workdir: str | None = None,
    user: str | None = None,
) -> str:
    """The image's configuration has these values."""
    settings, env = context.image.settings, context.image.env
    bad = [*_values("variable", env, envVars), *_values("label", settings.get("Labels") or {}, labels)]
    bad += [f"the variable {item['key']} is set" for item in unboundEnvVars if item["key"] in env]
    for name, wanted in (("Entrypoint", entrypoint), ("Cmd", cmd)):
        have = list(settings.get(name) or [])
        if wanted is not None and have != list(wanted):
            bad.append(f"{name} is {have}, not {list(wanted)}")
    ports = {text for port in settings.get("ExposedPorts") or {} for text in (port, port.removesuffix("/tcp"))}
    mounted = set(settings.get("Volumes") or {})
    bad += [f"port {port} is not exposed" for port in exposedPorts if port not in ports]
    bad += [f"port {port} is exposed" for port in unexposedPorts if port in ports]
    bad += [f"{path} is not a volume" for path in volumes if path not in mounted]
    bad += [f"{path} is a volume" for path in unmountedVolumes if path in mounted]
    for name, wanted_text in (("WorkingDir", workdir), ("User", user)):
        value = settings.get(name) or ""
        if wanted_text is not None and value != wanted_text:
            bad.append(f"{name} is {value!r}, not {wanted_text!r}")
    if bad:
        raise CheckFailed("; ".join(bad))
    return "as expected"


def _values(what: str, have: Mapping[str, str], wanted: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    for item in wanted:
        name, value = item["key"], item["value"]
        if name not in have:
            yield f"the {what} {name} is not set"
        elif item["isRegex"] and not compiled(value).search(have[name]):
            yield f"the {what} {name} is {have[name]!r}, which does not match {value!r}"
        elif not item["isRegex"] and have[name] != value:
            yield f"the {what} {name} is {have[name]!r}, not {value!r}"
