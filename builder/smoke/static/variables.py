"""The variables of an image that decide which code is loaded, by a name that is known or by a path to code of ours; and
what is strange in its command: programs, code, servers and files that it names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from builder.knowledge.table import load_table
from builder.plan.imageconfig import VLLM_LABEL
from builder.smoke.image.tree import PathNotFound
from builder.smoke.static.context import MOST_FOLDERS, Context
from builder.smoke.static.files import is_open
from builder.smoke.static.python import distributions

_PRELOADS = ("LD_PRELOAD", "LD_AUDIT", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONPATH")
_LOADS = re.compile(
    r"LD_(?!LIBRARY_PATH$)\w+|GLIBC_TUNABLES|GCONV_PATH|BASH_ENV|ENV|OPENSSL_(?:CONF|MODULES|ENGINES)"
    r"|PYTHON(?!(?:UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8|FAULTHANDLER|NOUSERSITE|SAFEPATH)$)\w+"
    r"|\w+_INJECTION(?:32|64)_PATH|NCCL_\w+_PLUGIN|BASH_FUNC_.*|BASHOPTS|SHELLOPTS|PS4|PROMPT_COMMAND"
    r"|TRITON_CACHE_MANAGER|NVCC_(?:PRE|AP)PEND_FLAGS|(?:IBV|RDMAV)_DRIVERS|OMP_TOOL_LIBRARIES|PERL5(?:DB|LIB|OPT)"
    r"|GIT_(?:EXEC_PATH|SSH|SSH_COMMAND|EXTERNAL_DIFF|ASKPASS)|(?:NODE|RUBY)_?OPT(?:IONS)?|JAVA_TOOL_OPTIONS"
    r"|VLLM_(?:CUDART_SO|RUST_FRONTEND|LOGGING_CONFIG|CUDA_COMPATIBILITY|MODEL_REDIRECT)_PATH|LLVM_PASS_PLUGIN_PATH"
    r"|TRITON_(?:KERNEL_OVERRIDE|OVERRIDE_DIR|PASS_PLUGIN_PATH|PLUGIN_(?:DIRS|PATHS))|FLASHINFER_(?:NVCC|CUBIN_DIR)"
    r"|DG_JIT_\w+_COMPILER|NUMBA_CUDA_DRIVER|CUTE_DSL_LIBS|TVM_LIBRARY_PATH|NVSHMEM_\w+_PLUGIN|UCX_MODULE_DIR"
    r"|HWLOC_PLUGINS_PATH|FI_PROVIDER_PATH|(?:OMPI|PMIX|PRTE)_MCA_\w+"
)
"""Variables that name code to load, or change how the loader, Python or a program finds or runs it."""
_COMPILERS = re.compile(r"CC|CXX|CUDAHOSTCXX")
_USUAL = ("", "cc", "c++", "gcc", "g++", "clang", "clang++")
_CACHES = re.compile(
    r"\w+_CACHE(?:_DIR|_PATH|_ROOT|_HOME)?|TRITON_HOME|TORCH_EXTENSIONS_DIR|FLASHINFER_WORKSPACE_BASE|HF_HOME|HOME"
    r"|XDG_(?:CONFIG|DATA)_HOME|VLLM_CONFIG_ROOT|TORCH_HOME"
)
"""Variables that name the programs that compile at run time, and folders out of which compiled code is loaded."""
_CACHE = re.compile(r"(?:^|/)\.(?:cache|triton|nv)/")
"""Where vLLM, FlashInfer, Inductor, Triton and the driver keep what they compile, in a user's home."""
_LISTS = ("PATH", "LD_LIBRARY_PATH")
_MOST_NAMES = 500
"""Paths in variables that are looked up."""
_OPTIONS = re.compile(
    r"--(?:middleware|logits-processors|worker-(?:extension-)?cls|scheduler-cls|\w+(?:-\w+)*-plugin|otlp-traces-endpoint)(?:=.*)?"
    r"|.*module-path.*",
    re.DOTALL,
)
"""Options of vLLM that name code or a server, also as keys of JSON."""
_NAMES_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
"""A part of a command that may be the name of a class: `module.Class`."""
_NUMBER = re.compile(r"-[0-9.]+")
_BETWEEN = re.compile(r"[=,;:@\"'{}()\[\]\s]+")
_MOST_PIECES = 1000
"""Parts of the words of a command that may be paths."""
_ADDRESSES = frozenset(("addr", "address", "ip", "endpoint", "url", "urls", "host", "hosts"))
"""The last words of options and keys that name a machine; `--host` is where the server listens."""


def loading_variables(context: Context) -> Iterator[str]:
    """The variables that load code by their names, in a few words each. Of those of a base, only the worst."""
    env, own = context.image.env, context.own_env
    yield from (f"the variable {name}" for name in _PRELOADS if env.get(name))
    other = [name for name in own if _LOADS.fullmatch(name) and name not in _PRELOADS]
    yield from (f"the variable {name}" for name in other if own[name] not in ("", "none"))
    yield from (f"the variable {name}" for name in own if _COMPILERS.fullmatch(name) and own[name] not in _USUAL)
    if not context.base:
        yield from _caches(context)
    folders = own.get("LD_LIBRARY_PATH", "/").replace(";", ":").split(":")
    if len(folders) > MOST_FOLDERS:
        yield "too many folders in LD_LIBRARY_PATH"
    of_base = context.base_env.get("LD_LIBRARY_PATH")
    below = () if of_base is None else of_base.replace(";", ":").split(":")
    for folder in folders[:MOST_FOLDERS]:
        if folder in below:
            continue
        if "$" in folder:
            yield f"{folder[:100]}, to which the loader gives another name, by LD_LIBRARY_PATH"
        elif not folder.startswith("/"):
            yield "the working directory, by LD_LIBRARY_PATH"
        elif is_open(context, folder):
            yield f"{folder}, where everyone may write, by LD_LIBRARY_PATH"


def naming_variables(context: Context, libraries: Collection[str]) -> Iterator[str]:
    """Other variables that name a program of ours outside of PATH, or a library that is none of `libraries`: those
    that the loader finds or torch maps."""
    left = _MOST_NAMES
    known: set[str] | None = None
    for name, value in context.image.env.items():
        if name in _LISTS or _LOADS.fullmatch(name):
            continue
        for path in re.split("[:;, ]", value)[:MOST_FOLDERS]:
            if not path.startswith("/"):
                continue
            left -= 1
            if left < 0:
                yield "too many variables with paths"
                return
            try:
                real = context.tree.resolve(path)
            except PathNotFound:
                continue
            entry = context.tree.entries.get(real)
            if entry is None or entry.kind != "file" or not (entry.machine is not None or entry.script):
                continue
            if known is None:
                known = {context.tree.resolve(path) for path in libraries} | set(_in_path(context))
            if real not in known:
                yield f"the variable {name}, which names {path[:200]}"


def _in_path(context: Context) -> Iterator[str]:
    """The programs in the folders of PATH, with links followed."""
    for folder in context.path:
        if context.tree.exists(folder):
            inside = context.tree.inside(context.tree.resolve(folder))
            yield from (context.tree.resolve(path) for path in inside if context.tree.exists(path))


def _caches(context: Context) -> Iterator[str]:
    """Code of ours in a cache: in the folder of a variable, or in one that is usual in a home."""
    named = [(name, value) for name, value in context.image.env.items() if _CACHES.fullmatch(name)]
    if len(named) > MOST_FOLDERS:
        yield "too many variables of caches"
    places: dict[str, str] = {}
    for name, value in named[:MOST_FOLDERS]:
        if context.tree.exists(value) and (where := context.tree.resolve(value)):
            places[f"{where}/"] = name
    named_places = tuple(places)
    for path, item in context.tree.entries.items():
        is_code = item.machine is not None or path.endswith((".py", ".pyc", ".cubin"))
        if not is_code or not context.is_ours(item.layer):
            continue
        if path.startswith(named_places):
            name = next(name for place, name in places.items() if path.startswith(place))
            yield f"/{path}, out of the cache of the variable {name}"
            return
        if _CACHE.search(path):
            yield f"/{path}, out of a cache"
            return


def strange_command(context: Context, holds: Callable[[str], bool]) -> Iterator[str]:
    """What only a plan explains in a command, in a few words each. holds: whether a folder has files of ours."""
    settings, tree = context.image.settings, context.tree
    where = str(settings.get("WorkingDir") or "/")
    words = [*(settings.get("Entrypoint") or ()), *(settings.get("Cmd") or ())]
    if not words:
        yield "no command"
    if not {"Entrypoint", "Cmd"} & set(context.own_fields):
        return
    started = words[1:2] if words and posixpath.basename(words[0]) == "env" else words[:1]
    if words and started != ["vllm"] and started not in [[f"{folder}/vllm"] for folder in context.path]:
        yield f"the command {' '.join(words)[:100]}"
    yield from (f"the option {word[:100]}" for word in words if _OPTIONS.fullmatch(word.replace("_", "-")))
    yield from (
        f"the option {word[:100]}, which is another one's beginning, or unknown" for word in _short(context, words)
    )
    yield from (f"the address in {word[:100]}" for word in words if "://" in word or any(_addressed(word)))
    parts = [piece for word in words[1:] for piece in _BETWEEN.split(word)]
    yield from (f"{piece[:100]}, which the command names" for piece in parts if _NAMES_CODE.fullmatch(piece))
    pieces = [piece for piece in parts if "/" in piece] + words[1:]
    if len(pieces) > _MOST_PIECES:
        yield "a very long command"
    for piece in dict.fromkeys(pieces[:_MOST_PIECES]):
        if piece.startswith("/") and posixpath.normpath(piece).strip("/") == "":
            yield "the folder /, which the command names"
        path = posixpath.join("/", where, piece)
        is_inside = bool(piece.strip("./")) and tree.exists(path)
        if is_inside and (tree.stat(path).kind == "file" or not piece.startswith("/") or holds(path)):
            yield f"{path[:200]}, which the command names"


def _short(context: Context, words: Sequence[str]) -> Iterator[str]:
    """The options that vLLM's table does not have in these letters: its parser completes what is unique."""
    version = next(iter(distributions(context, "vllm")), "")
    table = load_table(version or str((context.image.settings.get("Labels") or {}).get(VLLM_LABEL)))
    for word in words if table is not None else ():
        name = word.partition("=")[0].partition(".")[0].replace("_", "-")
        is_option = word.startswith("-") and not _NUMBER.fullmatch(word)
        if is_option and not (table is not None and name.startswith("--") and table.has_flag(name[2:])):
            yield word


def _addressed(word: str) -> Iterator[str]:
    """The options and keys in a word whose values are addresses of machines."""
    for piece in _BETWEEN.split(word):
        is_name = piece.startswith("--") or "{" in word
        if is_name and piece != "--host" and re.split("[-_.]", piece.lower())[-1] in _ADDRESSES:
            yield piece
