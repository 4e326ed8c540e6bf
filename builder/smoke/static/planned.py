"""The static checks of the plan: whether an image is the planned one, field by field, and what only a plan explains."""

from __future__ import annotations

import bisect
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from builder.smoke.check import CheckFailed, CheckNotRun, CheckWarned, check_kind
from builder.smoke.image.opened import OpenedImage
from builder.smoke.image.scan import ScanOptions
from builder.smoke.static.context import Context, Reads, variables_of
from builder.smoke.static.libraries import LOADER_FILES, searched
from builder.smoke.static.loader import Loader
from builder.smoke.static.python import installed
from builder.smoke.static.records import CUSTOMIZES, RECORDS, recorded
from builder.smoke.static.variables import strange_command
from builder.text import first_few

_SETS = ("Env", "Labels")


@check_kind("static", "planned", Reads("none"))
def planned(context: Context, *, config: Mapping[str, Any], base: str | None = None) -> str:
    """The configuration is `config`, and nothing else: every field, variable, label, line of history and diff_id.

    A diff_id of null is not known, and then the check does not pass. base: the reference of a base whose configuration
    is not known; then history and diff_ids end with those of `config`, and the other fields are not compared.
    """
    have = context.image.config
    count = len(config["rootfs"]["diff_ids"])
    skip = 0 if base is None else max(0, len(context.image.layers) - count)
    bad = [*_layers(context, config, skip)]
    if base is None:
        bad += _fields("", have, config, ("config", "rootfs", "history"))
        bad += _fields("rootfs.", have.get("rootfs") or {}, config["rootfs"], ("diff_ids",))
        bad += _fields("", have.get("config") or {}, config["config"], _SETS)
        bad += _fields("the variable ", variables_of(have.get("config")), variables_of(config["config"]))
        if not bad and len(have["config"]["Env"]) != len(config["config"]["Env"]):
            bad.append("a variable is set twice")
        bad += _fields("the label ", context.image.settings.get("Labels") or {}, config["config"].get("Labels") or {})
    if bad:
        raise CheckFailed(first_few(bad))
    if base is not None:
        raise CheckNotRun(
            f"the configuration of {base} is not on this machine; our {count} layers are on top, as planned"
        )
    if unknown := config["rootfs"]["diff_ids"].count(None):
        raise CheckNotRun(
            f"{unknown} of {count} layers were not built on this machine, and cannot be compared; the configuration "
            "is as planned"
        )
    return f"{count} layers and the configuration, as planned"


def _layers(context: Context, config: Mapping[str, Any], skip: int) -> Iterator[str]:
    """Differences in number, names and diff_ids of the layers. skip: layers of a base that is not known."""
    image = context.image
    have = image.diff_ids[skip:]
    wanted = config["rootfs"]["diff_ids"]
    if not len(image.layers) - skip == len(have) == len(wanted):
        yield f"{len(image.layers)} layers and {len(image.diff_ids)} diff_ids, {skip + len(wanted)} are planned"
    elif bad := [
        f"{context.name(skip + number)} is {found}, not {digest}"
        for number, (found, digest) in enumerate(zip(have, wanted, strict=False))
        if digest is not None and found != digest
    ]:
        yield from bad
    lines, planned_lines = image.config.get("history") or [], config["history"]
    if skip:
        lines = lines[max(0, len(lines) - len(planned_lines)) :]
    if lines != planned_lines:
        pairs = enumerate(zip([*lines, None], [*planned_lines, None], strict=False))
        number, found = next(((number, one) for number, (one, other) in pairs if one != other), (len(lines), None))
        text = (found or {}).get("created_by", "absent")
        yield f"line {number + 1} of the history is not the planned one: {str(text)[:80]}"


def _fields(what: str, have: Mapping[str, Any], wanted: Mapping[str, Any], skip: Sequence[str] = ()) -> Iterator[str]:
    """Differences in single fields. A field without a value is as good as none."""
    for name in [*wanted, *(name for name in have if name not in wanted)]:
        if name in skip or (have.get(name) or None) == (wanted.get(name) or None):
            continue
        if wanted.get(name) is None:
            yield f"{what}{name} is not planned"
        elif have.get(name) is None:
            yield f"{what}{name} is planned, but not set"
        else:
            yield f"{what}{name} is not as planned"


_PLACES = ("etc/", "usr/", "opt/nvidia/")
_OF_NO_PACKAGE = re.compile(r"(?:home|media|mnt|opt|srv|tmp|var/tmp|root(?!/\.(?:bashrc|profile)$))/")
"""Where no Debian package of the first layer has files."""
_OF_WHEELS = ("usr/local/bin/", "usr/local/include/", "usr/local/share/", "usr/local/etc/")
"""Where wheels put files besides the folders of packages: a RECORD explains nothing elsewhere."""
_CUDA = re.compile(r"usr/local/cuda[^/]*/")
_TOOLS = re.compile(
    r"nvcc|nvcc\.profile|nvlink|ptxas|fatbinary|cudafe\+\+|cicc|bin2c|__nvcc_device_query|cuobjdump|nvdisasm|nvprune|cu\+\+filt"
)
"""The programs of CUDA's compiler, whose layers have no RECORD."""
_TWICE = ("ninja",)
"""Programs that Debian's packages and wheels bring."""
_OF_DRIVER = frozenset(f"nvidia-{name}" for name in ("smi", "debugdump", "persistenced", "imex", "imex-ctl"))
_OF_DRIVER |= {"nvidia-cuda-mps-control", "nvidia-cuda-mps-server"}
"""Programs that NVIDIA's container runtime mounts into /usr/bin."""
_NCCL = re.compile(r"opt/nccl/lib/libnccl\.so(?:\.[0-9]+)*")
_FOLDERS = re.compile(r"/(?:usr|lib|lib64|bin|sbin|opt/nccl)(?:/.*)?")
"""Folders that PATH and the loader's settings may name; others are places of ours or of a mount."""
_LOADER = re.compile(r"etc/ld\.so\.conf\.d/[^/]+\.conf")
_SET = re.compile(
    r"PATH|LD_LIBRARY_PATH|LANG|LANGUAGE|LC_\w+|TZ|TERM|USER|LOGNAME|DEBIAN_FRONTEND|CC|CXX|CUDAHOSTCXX|MAX_JOBS|PYTHON\w+"
    r"|OMP_NUM_THREADS|TOKENIZERS_PARALLELISM|TORCH_CUDA_ARCH_LIST=12\.[01][af]?(?:\+PTX)?|CUTE_DSL_ARCH=sm_12[01][af]?|(?:HF_HUB|TRANSFORMERS)_OFFLINE"
    r"|FLASHINFER_(?:DISABLE_VERSION_CHECK|NVCC_THREADS)|(?:NVIDIA|CUDA)_VISIBLE_DEVICES|NVIDIA_DRIVER_CAPABILITIES"
    r"|VLLM_NCCL_SO_PATH=/opt/nccl/lib/[\w.]+"
    r"|(?!\w*(?:PATH|ROOT|DIR|FOLDER|FILE|HOST|_IP|MODELSCOPE)=)(?:VLLM|NCCL|RAY_memory)_\w+=[\w-]*(?:\.[0-9]+)?"
    r"|TRITON_PTXAS_(?:BLACKWELL_)?PATH=/usr/local/cuda/bin/ptxas|CUDA_HOME=/usr/local/cuda"
)
"""Variables that other checks judge, and those that load no code and ask nobody, some with their value."""
_HOMES = ("HOME", "HF_HOME")
_GROUP = re.compile(
    r"(?:console|gui)_scripts|(?:distutils|egg_info|setuptools|babel)\..*|fsspec\.specs|array_api|pkg_config|pyinstaller40|pytest11"
)
"""Groups of entry points that nothing loads before it is asked to."""
_OWNERS = re.compile(
    r".*-packages/(?:vllm|torch|triton|networkx|sentry_sdk|opentelemetry_(?:api|sdk|exporter_otlp(?:_proto_(?:grpc|http))?))-[^/]*/[^/]*"
)
"""Distributions whose entry points belong to them, or to each other."""
_STARTS = ("*-packages/*.pth", "*/entry_points.txt")
_MOST_START, _MOST_STARTS = 256 << 10, 4 << 20
"""Bytes of a `.pth` file or of entry_points.txt, and of all of them."""


def _keeps(image: OpenedImage, args: Mapping[str, Any]) -> Sequence[str]:
    return () if args.get("planned") else (*RECORDS, *_STARTS, *LOADER_FILES)


@check_kind("static", "unplanned", Reads("ours", keeps=_keeps, scan=ScanOptions(elf=True)))
def unplanned(context: Context, *, planned: bool = False) -> str:
    """Without a plan, a warning for what only a plan explains: files of the first layer where Debian's packages
    have none; files of ours in /etc and /usr, above the first layer, that belong to no Python distribution and not
    to CUDA; programs in PATH, libraries where the loader looks, and files beside those of lower layers, likewise;
    other folders of programs and libraries; code that Python, vLLM or torch run at their start; variables that no
    layer of builder sets; another command than vLLM's, and files and code that it names.

    planned: whether `planned` compares the image with a plan.
    """
    if planned:
        return "the plan says what is in the image"
    found = dict.fromkeys((*_strange_files(context), *_strange_starts(context), *_strange_settings(context)))
    if found:
        raise CheckWarned(f"only a plan (--recipe) tells whether this is meant: {first_few(list(found))}")
    return "every file above the first layer, every variable and the command are as in this project's images"


def _strange_files(context: Context) -> Iterator[str]:
    """Our files above the first layer that nothing explains. `nothing-covered` judges those that replace others,
    `imports` those in the folders of packages."""
    explained = {path for path in recorded(context) if path.startswith(_OF_WHEELS) and not _is_in_place(context, path)}
    explained |= {item.path for item in context.tree.covered if _is_renewed(context, item.path)}
    in_path = context.program_folders
    below: set[str] = set()
    names = {*_OF_DRIVER}
    for layer in sorted(context.tree.layers, key=lambda layer: layer.number):
        paths = [path for path, entry in layer.entries.items() if entry.kind != "dir"]
        programs = {path.rpartition("/")[2] for path in paths if path.rpartition("/")[0] in in_path}
        if layer.number == 0 or not context.is_ours(layer.number):
            below |= {path.rpartition("/")[0] for path in paths}
            names |= programs
            yield from (f"/{path}" for path in paths if context.is_ours(layer.number) and _OF_NO_PACKAGE.match(path))
            continue
        for path in paths:
            folder, _, name = path.rpartition("/")
            if folder in in_path and name in names and name not in _TWICE:
                yield f"/{path}"
            if path in explained or "-packages/" in path or _LOADER.fullmatch(path):
                continue
            is_strange = folder in in_path and (not _TOOLS.fullmatch(name) or layer.entries[path].kind == "symlink")
            if is_strange or (not _CUDA.match(path) and (path.startswith(_PLACES) or folder in below)):
                yield f"/{path}"
        names |= programs
    for path in searched(context):
        real = context.tree.resolve(path)
        layer_number = context.tree.entries[real].layer
        if layer_number and context.is_ours(layer_number) and not _NCCL.fullmatch(real):
            yield f"/{real}"
    for folder in _folders(context):
        if folder and not _FOLDERS.fullmatch(posixpath.normpath(folder)):
            yield f"{folder[:200]}, out of which programs or libraries are loaded"


def _folders(context: Context) -> Iterator[str]:
    """The folders of PATH, LD_LIBRARY_PATH and ld.so.conf that are not a base's own."""
    for name in ("PATH", "LD_LIBRARY_PATH"):
        own = re.split("[:;]", context.own_env.get(name, ""))
        yield from (folder for folder in own[:64] if folder not in re.split("[:;]", context.base_env.get(name, "")))
    loader, paths = Loader(context.tree, {}), context.tree.match("etc/ld.so.conf.d/*.conf")
    own = [f"/{path}" for path in paths if context.is_ours(context.tree.entries[path].layer)]
    yield from (folder for path in own for folder in loader.named_in(path)) if context.base else loader.configured()


def _is_in_place(context: Context, path: str) -> bool:
    """Whether a file below /usr/local comes before one below /usr: a header, a module of Perl, a program."""
    inner = path.removeprefix("usr/local/")
    places = (f"usr/{inner}", f"usr/include/aarch64-linux-gnu/{inner.removeprefix('include/')}")
    return posixpath.basename(path) not in _TWICE and any(map(context.tree.exists, places))


def _is_renewed(context: Context, path: str) -> bool:
    """Whether a link in place of a file leads to NCCL or CUDA, or there is no such link."""
    entry = context.tree.get(path)
    if entry is None or entry.kind != "symlink" or not context.tree.exists(path):
        return True
    real = context.tree.resolve(path)
    return bool(_NCCL.fullmatch(real) or _CUDA.match(real))


def _strange_starts(context: Context) -> Iterator[str]:
    """What distributions make Python, vLLM or torch run: customizations, lines of code in `.pth` files, plugins."""
    for path in recorded(context):
        if CUSTOMIZES.search(path):
            yield f"/{path}"
    left = _MOST_STARTS
    own = {f"{where}/distutils-precedence.pth" for where, name, _, _ in installed(context) if name == "setuptools"}
    for path in (path for pattern in _STARTS for path in context.tree.match(pattern)):
        entry = context.tree.entries[path]
        if entry.kind != "file" or not context.is_ours(entry.layer) or entry.layer == 0:
            continue
        data = context.tree.read(path, min(_MOST_START, left))
        left -= len(data)
        # As Python reads both.
        lines = data.decode("utf-8-sig", "replace").splitlines()
        if path.endswith(".pth"):
            is_strange = path not in own and any(line.startswith(("import ", "import\t")) for line in lines)
        else:
            groups = [line.strip().strip("[]") for line in lines if line.strip().startswith("[")]
            is_strange = not all(map(_GROUP.fullmatch, groups)) and not _OWNERS.fullmatch(path)
        if is_strange or entry.size > len(data):
            yield f"/{path}"


def _strange_settings(context: Context) -> Iterator[str]:
    settings, tree = context.image.settings, context.tree
    entries = tree.entries.items()
    ours = sorted(path for path, item in entries if item.kind != "dir" and item.layer and context.is_ours(item.layer))

    def holds(folder: str) -> bool:
        """Whether a file of ours, above the first layer, is below a folder."""
        inside = f"{tree.resolve(folder)}/" if tree.exists(folder) else "/"
        place = bisect.bisect_left(ours, inside)
        return place < len(ours) and ours[place].startswith(inside)

    for name, value in context.own_env.items():
        strange = not _SET.fullmatch(name) and not _SET.fullmatch(f"{name}={value}")
        if holds(value) if name in _HOMES else strange:
            yield f"the variable {name}"
    base = context.settings or {}
    # OnBuild and Image are of the base alone.
    gone = [
        name for name, value in base.items() if value and not settings.get(name) and name not in ("OnBuild", "Image")
    ]
    gone += [f"the variable {name}" for name in context.base_env if name not in context.image.env]
    yield from (f"{name[:100]}, which the base has and this image has not" for name in gone)
    where = str(settings.get("WorkingDir") or "/")
    if holds(where):
        # vLLM takes `nvidia/model` for a folder before it asks a hub.
        yield f"the working directory {where[:200]}, which has files"
    yield from strange_command(context, holds)
