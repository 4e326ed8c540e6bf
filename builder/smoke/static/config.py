"""The static checks of an image's configuration: platform, environment, labels, entrypoint, its first program."""

from __future__ import annotations

import glob
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from builder.pattern import compiled
from builder.plan.imageconfig import VLLM_LABEL
from builder.smoke.check import CheckFailed, check_kind
from builder.smoke.image.engines import refused
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.tree import LONGEST_PATH, PathNotFound
from builder.smoke.static.context import MOST_FOLDERS, Context, Reads
from builder.smoke.static.files import is_open
from builder.smoke.static.python import distributions
from builder.text import first_few

_SETTINGS = {"Cmd", "Entrypoint", "Env", "Labels", "WorkingDir", "ExposedPorts"}
"""The fields that `builder` sets, and one that changes nothing."""
_OPENS = re.compile(r"VLLM_(?:ALLOW_INSECURE_SERIALIZATION|ALLOW_RUNTIME_LORA_UPDATING|SERVER_DEV_MODE)")
_ASKS = re.compile(
    r"(?i:https?|all)_(?i:proxy)|HF_(?:INFERENCE_)?ENDPOINT|SSL_CERT_(?:FILE|DIR)|(?:REQUESTS|CURL)_CA_BUNDLE|SSLKEYLOGFILE"
    r"|(?:PIP|UV)_(?:\w+_)?INDEX(?:_URL)?|OTEL_EXPORTER_\w*ENDPOINT|VLLM_USAGE_STATS_SERVER|FLASHINFER_CUBINS_REPOSITORY"
    r"|(?:AWS|S3)_ENDPOINT_URL(?:_S3)?"
)


@check_kind("static", "platform", Reads("none"))
def platform(context: Context, *, platform: str = "linux/arm64") -> str:
    """The platform in the configuration is `platform`; the variant, if there is one, is v8."""
    config = context.image.config
    found = f"{config.get('os')}/{config.get('architecture')}"
    if config.get("variant") not in (None, "", "v8"):
        found += f"/{config['variant']}"
    if found != platform:
        raise CheckFailed(f"the image is for {found}, not {platform}")
    return found


@check_kind("static", "config", Reads("none"))
def config(context: Context) -> str:
    """The configuration fits the layers: one diff_id and one line of history for each, variables with values. Container
    engines can read it and start a container."""
    image = context.image
    count = len(image.layers)
    if len(image.diff_ids) != count:
        raise CheckFailed(f"{count} layers, but {len(image.diff_ids)} diff_ids")
    lines = image.config.get("history")
    if lines is not None and (named := sum(not line.get("empty_layer") for line in lines)) != count:
        raise CheckFailed(f"{count} layers, but the history has {named}")
    words = image.settings.get("Env") or []
    if bad := [word for word in words if not re.match(r"[^=\s]+=", word)]:
        raise CheckFailed(f"not NAME=VALUE: {bad[0]!r}")
    if wrong := first_few(list(refused(image))):
        raise CheckFailed(f"container engines refuse this: {wrong}")
    names = [word.partition("=")[0] for word in words]
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise CheckFailed(f"set twice: {', '.join(twice)}")
    return f"{count} layers, {len(words)} variables"


@check_kind("static", "settings", Reads(keeps=lambda image, args: ("etc/passwd", "etc/group")))
def settings(context: Context) -> str:
    """What a container starts with is there: its folder and user, folders of PATH that not everyone may write, no
    volume over our files, the vLLM of the label. Besides those of a base: no other fields, and no variable that hides
    or refuses the GPU, opens the server, or makes it trust or ask others."""
    found = context.image.settings
    bad = ["OnBuild runs commands in images on this one"] if found.get("OnBuild") else []
    bad += [f"{name} is set" for name in context.own_fields if name not in _SETTINGS]
    env = context.own_env
    bad += [f"the variable {name} is {env[name]!r}" for name in env if _decides(name, env[name])]
    volumes = list(found.get("Volumes") or ())
    bad += ["too many volumes"] if len(volumes) > MOST_FOLDERS else []
    for volume in volumes[:MOST_FOLDERS]:
        where = context.tree.resolve(volume) if context.tree.exists(volume) else volume
        inside = (path for path, entry in context.tree.below(where) if context.is_ours(entry.layer))
        if (covered := next(inside, None)) is not None:
            bad.append(f"the volume {volume} covers /{covered}")
    paths = context.image.env.get("PATH", "/").split(":")
    bad += [f"{problem} in PATH" for problem in _open_folders(context, paths[:MOST_FOLDERS])]
    bad += ["too many folders in PATH"] if len(paths) > MOST_FOLDERS else []
    bad += _missing_user(context, found.get("User") or "")
    folder = found.get("WorkingDir") or "/"
    above = folder[:LONGEST_PATH]
    while not context.tree.exists(above):
        above = posixpath.dirname(above.rstrip("/"))
    if context.tree.stat(above).kind != "dir":
        bad.append(f"the working directory {folder} is no folder")
    version, label = distributions(context, "vllm"), (found.get("Labels") or {}).get(VLLM_LABEL)
    if label and label not in version and (version or not context.tree.absent):
        bad.append(f"the label {VLLM_LABEL} is {label}, vLLM is {version[0] if version else 'not installed'}")
    if bad:
        raise CheckFailed(first_few(bad))
    return f"{len(found)} fields"


def _decides(name: str, value: str) -> bool:
    """Whether a variable hides the GPU from CUDA or a container, makes a container refuse this machine's driver, lets
    clients run code in the server, or names a proxy, hub or certificates."""
    if _OPENS.fullmatch(name):
        return value not in ("", "0")
    if _ASKS.fullmatch(name):
        return value != ""
    if name == "NVIDIA_DRIVER_CAPABILITIES":
        return not {"all", "compute"} & set(value.split(","))
    return name.startswith(("NVIDIA_REQUIRE_", "CUDA_FORCE_", "CUDA_DISABLE_")) or (
        name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES") and value not in ("all", "0")
    )


def _open_folders(context: Context, folders: Iterable[str]) -> Iterable[str]:
    for folder in folders:
        if not folder.startswith("/"):
            yield f"{folder!r}, which is relative to the working directory,"
        elif is_open(context, folder):
            yield f"{folder}, which everyone may write,"


def _missing_user(context: Context, text: str) -> Iterable[str]:
    names = text.split(":")
    if len(names) > 2 or any(name.isdecimal() and (len(name) > 10 or int(name) >= 1 << 31) for name in names):
        yield f"the user {text[:100]!r} is none that a container can have"
        return
    for what, name, file in zip(("user", "group"), names, ("/etc/passwd", "/etc/group"), strict=False):
        is_number = name.isascii() and name.isdecimal()
        if name and not is_number and (context.tree.exists(file) or not context.tree.absent):
            lines = context.tree.read(file).decode(errors="replace").splitlines()
            if name not in (line.partition(":")[0] for line in lines):
                yield f"the {what} {name} is not in {file}"


@check_kind("static", "env", Reads("none"))
def env(
    context: Context,
    *,
    name: str,
    value: str | None = None,
    starts: str | None = None,
    matches: str | None = None,
    absent: bool = False,
) -> str:
    """The variable is `value`, begins with `starts`, or matches `matches` as a whole; or, with `absent`, is not set."""
    return _text(
        f"the variable {name}", context.image.env.get(name), value=value, starts=starts, matches=matches, absent=absent
    )


@check_kind("static", "label", Reads("none"))
def label(
    context: Context,
    *,
    name: str,
    value: str | None = None,
    starts: str | None = None,
    matches: str | None = None,
    absent: bool = False,
) -> str:
    """The label exists, with the same conditions as `env`."""
    labels = context.image.settings.get("Labels") or {}
    return _text(f"the label {name}", labels.get(name), value=value, starts=starts, matches=matches, absent=absent)


@check_kind("static", "entrypoint", Reads("none"))
def entrypoint(
    context: Context,
    *,
    entrypoint: Sequence[str] | None = None,
    command: Sequence[str] | None = None,
    begins: bool = False,
) -> str:
    """Entrypoint and command are equal to the arguments; with `begins`, they begin with them."""
    settings = context.image.settings
    found = {"entrypoint": settings.get("Entrypoint") or [], "command": settings.get("Cmd") or []}
    for what, wanted in (("entrypoint", entrypoint), ("command", command)):
        if wanted is None:
            continue
        have = found[what][: len(wanted)] if begins else found[what]
        if list(have) != list(wanted):
            raise CheckFailed(
                f"the {what} is {found[what]}, expected {'it to begin with ' if begins else ''}{list(wanted)}"
            )
    words = [*found["entrypoint"], *found["command"]]
    return " ".join(words)[:200] or "neither entrypoint nor command"


def _commands(image: OpenedImage, args: Mapping[str, Any]) -> Iterable[str]:
    words = [*(image.settings.get("Entrypoint") or []), *(image.settings.get("Cmd") or [])]
    return map(glob.escape, candidates(image, words[0])) if words else ()


@check_kind("static", "starts", Reads(keeps=_commands))
def starts(context: Context) -> str:
    """The program that a container starts is in its PATH and executable; the interpreter of a script exists;
    the kernel's folders can be mounted."""
    image = context.image
    words = [*(image.settings.get("Entrypoint") or []), *(image.settings.get("Cmd") or [])]
    for folder in ("proc", "sys", "dev"):
        if (place := context.tree.get(folder)) is not None and place.kind != "dir":
            raise CheckFailed(f"/{folder} is a {place.kind}: no container starts")
    if not words:
        return "neither entrypoint nor command"
    for path in candidates(image, words[0]):
        try:
            entry = context.tree.stat(path)
        except PathNotFound:
            continue
        if entry.kind != "file" or not entry.mode & 0o001:
            continue
        if entry.machine is not None:
            return path
        line = context.tree.read(path, 256).partition(b"\n")[0]
        if not line.startswith(b"#!"):
            raise CheckFailed(f"{path} is neither a program nor a script")
        if line.endswith(b"\r"):
            raise CheckFailed(f"{path} has a first line that ends with a carriage return")
        interpreter = (line[2:].decode(errors="replace").split() or [""])[0]
        found = context.tree.stat(interpreter)
        if found.kind != "file" or not found.mode & 0o001:
            raise CheckFailed(f"{path} is run by {interpreter}, which is not a file that everyone can execute")
        return f"{path}, run by {interpreter}"
    if "/" in words[0]:
        raise PathNotFound(words[0], " as a program that everyone can run")
    raise PathNotFound(
        words[0], f" in {image.env.get('PATH', 'PATH, which is not set')} as a program that everyone can run"
    )


def candidates(image: OpenedImage, word: str) -> list[str]:
    """The paths at which a container looks for the program of this name."""
    if "/" in word:
        return [posixpath.join("/", image.settings.get("WorkingDir") or "", word)]
    folders = image.env.get("PATH", "").split(":", MOST_FOLDERS)[:MOST_FOLDERS]
    return [f"{folder.rstrip('/')}/{word}" for folder in folders if folder]


def _text(
    what: str, found: str | None, *, value: str | None, starts: str | None, matches: str | None, absent: bool
) -> str:
    if absent:
        if found is not None:
            raise CheckFailed(f"{what} is {found!r}, it must not be set")
        return "not set"
    if found is None:
        raise CheckFailed(f"{what} is not set")
    if value is not None and found != value:
        raise CheckFailed(f"{what} is {found!r}, expected {value!r}")
    if starts is not None and not found.startswith(starts):
        raise CheckFailed(f"{what} is {found!r}, expected it to begin with {starts!r}")
    if matches is not None and not compiled(matches).fullmatch(found):
        raise CheckFailed(f"{what} is {found!r}, which does not match {matches!r}")
    return found
