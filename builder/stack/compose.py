"""`builder new base`: a hermetic base for a version of vLLM, from the package index to a base that plans."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from builder.atomic import write_file
from builder.derive import cuda_section, cuda_version
from builder.errors import InvalidError, PinError, UsageError
from builder.inputs.hosts import wheel_indexes
from builder.knowledge.table import Table, load_table
from builder.lock.findings import LockReport
from builder.lock.freshness import REQUESTS
from builder.lock.refresh import refresh
from builder.lock.requesting import with_request
from builder.lock.selection import LockContext
from builder.lock.wheels import pinned_versions, resolve_wheels, target_tags
from builder.model.base import Base
from builder.model.lock import DebLock, WheelLock, WheelRequest
from builder.model.textfile import read_own
from builder.project import Project
from builder.stack.contents import foreign_modules, overlap, read_contents, read_requires
from builder.stack.release import WIDER, Release, find_release, overrides_for
from builder.stack.text import base_text

GENERATORS = (
    *("nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-cuda-nvcc", "nvidia-cuda-nvrtc", "nvidia-nvjitlink"),
    "nvidia-nvvm",
)
"""The distributions of the CUDA toolkit that make code for a GPU, or are compiled into it."""

COMPILER = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl", "nvidia-cuda-runtime")
"""The distributions of the layer `cuda`."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Made:
    """A base that was written. files: all files that were written. unknown: what a user has to look at."""

    base: Base
    released: Release | None
    files: tuple[Path, ...]
    unknown: tuple[str, ...] = field(default=())


def make_base(project: Project, name: str, version: str, say: Say) -> Made:
    """Write a hermetic base with this version of vLLM, its requests, lock sections and option table.

    project: its first folder is written to. An existing section of the lock is used as it is. When something cannot be
    resolved, requests.yaml stays as it was. Raises UsageError, InvalidError, PinError, NetworkError.
    """
    root = project.roots[0]
    path = root / "recipes/bases" / f"{name}.yaml"
    frame = project.frame(name)
    assert frame.stack is not None
    python, platform = _python(project, frame.stack.root), frame.stack.platform
    section = f"vllm-{version}-cp{python.replace('.', '')}"
    index = wheel_indexes()[0]
    files: list[Path] = []
    release: Release | None = None
    notes: list[str] = []
    if project.has_section(section):
        say(f"the lock has {section} already")
    else:
        say(f"looking up vllm {version}")
        release = find_release(version, target_tags(python, platform), index)
        say("resolving its packages")
        request, notes = _request(release, python, platform, index)
        table, unknown = _options(project, version, say)
        files += _lock(
            project, section, release, request, index, say, audio=table is not None and "audio" in table.extras
        )
        notes += unknown
    locked = Project(project.roots).section(section)
    assert isinstance(locked, WheelLock)
    say("reading the lists of files in the wheels")
    contents, unread = read_contents(locked.wheels, index)
    if unread:
        names = ", ".join([*unread[:3], *(["others"] if len(unread) > 3 else [])])
        notes.append(f"which files are in {names}, and in other wheels too: the index sends no parts of files")
    found = overlap(contents)
    notes += [f"which {file} is right: those of {' and '.join(found.shared[file])} differ" for file in found.unlike]
    foreign = {item.name: modules for item in contents if (modules := foreign_modules(item, python))}
    deep_gemm = any("deep_gemm" in module for module in foreign.get("vllm", ()))
    notes += [
        f"whether {distribution} works without {', '.join(modules[:3])}, compiled for other versions of Python only"
        for distribution, modules in foreign.items()
        if not (distribution == "vllm" and deep_gemm)
    ]
    text = base_text(name, section, found, deep_gemm=deep_gemm, notes=notes)
    write_file(path, text.encode())
    base = Project(project.roots).base(name)
    return Made(base, release, (path, *files), tuple(notes))


def _python(project: Project, root: str) -> str:
    """The release of the interpreter in the root section: "3.13"."""
    section = project.section(root)
    packages = section.packages if isinstance(section, DebLock) else ()
    found = next((re.match(r"3\.\d+", deb.version) for deb in packages if deb.package == "python3"), None)
    if found is None:
        raise PinError(f"the lock section {root} has no python3", id="stack-root-without-python")
    return found[0]


def _request(release: Release, python: str, platform: str, index: str) -> tuple[WheelRequest, list[str]]:
    """The request for the packages of a release, and what could not be had."""
    first = WheelRequest(
        requirements=(f"vllm=={release.version}",), exclude_newer=release.until(), python=python, platform=platform
    )
    notes = [] if release.released else ["what was current at the release: the package index has no dates"]
    request, versions = _resolvable(first, release, index)
    if request.exclude_newer != first.exclude_newer:
        notes.append(f"whether it was tested with files up to {request.exclude_newer}: older ones do not fit together")
    cuda = cuda_version({name: str(version) for name, version in versions.items()})
    if cuda is None:
        raise PinError(
            f"vllm {release.version}: the index has torch {versions.get('torch')} for arm64 without CUDA only",
            id="stack-without-cuda",
            cause="that torch requires no CUDA runtime: the image could not use a GPU",
            next="choose vLLM 0.20.0 or later, or an index whose torch for arm64 has CUDA",
        )
    minor = ".".join(cuda.split(".")[:2])
    there = [name for name in GENERATORS if name in versions]
    other = [name for name in there if not f"{versions[name]}.".startswith(f"{minor}.")]
    if other:
        # A driver loads PTX of its own CUDA and of older ones.
        bound = request.model_copy(update={"constraints": tuple(f"{name}=={minor}.*" for name in there)})
        try:
            pinned_versions(bound, index)
            return bound, notes
        except PinError:
            tools = ", ".join(f"{name} {versions[name]}" for name in other)
            notes.append(f"whether a driver of CUDA {minor} loads what {tools} make: no older ones fit together")
    return request, notes


def _resolvable(first: WheelRequest, release: Release, index: str) -> tuple[WheelRequest, Mapping[str, Version]]:
    """The first request that can be resolved, and its versions: as it is, with overrides, with newer files.

    Raises PinError with the cause for the request as it is.
    """
    try:
        return first, pinned_versions(first, index)
    except PinError as error:
        failure = error
    overrides = overrides_for(release, _requires(first, index), index) or None
    others = [first.model_copy(update={"overrides": overrides})] if overrides else []
    if release.released:
        more = [{"exclude_newer": release.until(window), "overrides": overrides} for window in WIDER]
        others += [first.model_copy(update=update) for update in more]
    for request in others:
        try:
            return request, pinned_versions(request, index)
        except PinError:
            continue
    raise failure


def _requires(request: WheelRequest, index: str) -> tuple[str, ...]:
    (wheel,) = resolve_wheels(request.model_copy(update={"dependencies": False}), (), index)
    return read_requires(wheel, index)


def _lock(
    project: Project, section: str, release: Release, request: WheelRequest, index: str, say: Say, *, audio: bool
) -> Sequence[Path]:
    """Request and lock the sections of a base: vLLM's, its audio extra's, and a CUDA compiler when there is none.

    Returns the written files. requests.yaml is what it was when something cannot be resolved.
    """
    date = f", released {release.released:%Y-%m-%d}" if release.released else ""
    date += f", with files up to {request.exclude_newer[:10]}" if request.exclude_newer else ""
    added = {section: (f"vLLM {release.version}{date}.", request)}
    if audio:
        more = {"requirements": (f"vllm[audio]=={release.version}",), "without": (section,)}
        added[section.replace("vllm", "audio", 1)] = ("Its audio extra.", request.model_copy(update=more))
    versions = {name: str(version) for name, version in pinned_versions(request, index).items()}
    compiler = cuda_section(cuda_version(versions) or "")
    if not project.has_section(compiler):
        minor = compiler.split("-")[1]
        wanted = tuple(f"{name}=={minor}.*" for name in COMPILER)
        needs = WheelRequest(requirements=wanted, python=request.python, platform=request.platform, dependencies=False)
        added[compiler] = (f"The compiler of CUDA {minor}.", needs)
    path = project.roots[0] / "recipes/locks" / REQUESTS
    before = read_own(path)
    text = before or ""
    for name, (comment, wanted_request) in reversed(added.items()):
        text = with_request(text, name, wanted_request, comment)
    write_file(path, text.encode())
    report = LockReport()
    try:
        context = LockContext(Project(project.roots), list(added), writing=True, say=say)
        refresh(context, report)
    except BaseException:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            write_file(path, before.encode())
        for name in added:
            (path.parent / f"{name}.json").unlink(missing_ok=True)
        raise
    return [path, *(path.parent / f"{name}.json" for name in added)]


def _options(project: Project, version: str, say: Say) -> tuple[Table | None, list[str]]:
    """The option table of a version, read from its source distribution when there is none; what is not known of it."""
    table = load_table(version)
    if table is not None:
        return table, []
    # A folder with recipes/ is a project, which has its own tables.
    (project.roots[0] / "recipes").mkdir(parents=True, exist_ok=True)
    try:
        refresh(LockContext(Project(project.roots), [f"vllm=={version}"], writing=True, say=say), LockReport())
    except InvalidError as error:
        return None, [f"the options of vLLM {version}, and whether it has an audio extra: {error.what}"]
    return load_table(version), []


def check_name(project: Project, name: str) -> None:
    """Raises UsageError for a name that a base, an alias or a family has."""
    if (project.roots[0] / "recipes/bases" / f"{name}.yaml").exists():
        raise UsageError(f"recipes/bases/{name}.yaml exists already", id="new-file-exists")
    if taken := project.find_bases(name):
        raise UsageError(
            f"builder has a base {name} already",
            id="new-base-bundled",
            cause=f"{taken[0].name}: {taken[0].title}",
            next="choose another name",
        )
