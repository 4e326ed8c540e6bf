"""Reads a vLLM source distribution into an option table, without importing or running any of it."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from builder.errors import InvalidError
from builder.knowledge.pysource import Sources, constant_keys, moved_error
from builder.knowledge.table import FlagKind, Table

_ARGS, _PARSER = "vllm/engine/arg_utils.py", "vllm/utils/argparse_utils.py"
_INVERSE = {"enable": "disable", "disable": "enable"}
_SPECULATIVE = "vllm/config/speculative.py"
_W8A8 = "vllm/model_executor/layers/quantization/utils/w8a8_utils.py"
_LIBRARIES = ("torch", "flashinfer-python", "fastsafetensors", "instanttensor", "ray", "nvidia-cudnn-frontend")


def extract(version: str, sdist: Path) -> Table:
    """The table of `version` from its source distribution. Raises InvalidError for a definition that moved."""
    sources = Sources.from_sdist(sdist)
    try:
        return read(version, sources, hashlib.sha256(sdist.read_bytes()).hexdigest())
    except (ValueError, LookupError, RecursionError, SyntaxError, MemoryError) as error:
        # The file is not trusted: its contents can raise any of these.
        cause = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        raise InvalidError(
            "cannot be read into an option table", id="vllm-source-unreadable", where=str(sdist), cause=cause
        ) from error


def read(version: str, sources: Sources, sha256: str) -> Table:
    """The table from sources in memory."""
    flags: dict[str, FlagKind] = {}
    choices: dict[str, tuple[str, ...]] = {}
    for name, kind, allowed in [*_engine_flags(sources), *_frontend_flags(sources)]:
        flags[name] = kind
        if allowed:
            choices[name] = allowed
    flags = {**_inverses(sources, flags), **flags}
    choices |= _registries(sources)
    for flag in ("moe-backend", "attention-backend", "kv-cache-dtype", "load-format"):
        if flag not in choices or flag not in flags:
            raise moved_error(f"no choices found for --{flag}", where=f"vllm {version}")
    return Table(
        vllm=version,
        sdist=sha256,
        flags=dict(sorted(flags.items())),
        choices={name: values for name, values in sorted(choices.items()) if name in flags},
        json_keys=_json_keys(sources),
        speculative_methods=tuple(sorted(_literals(sources, _SPECULATIVE, "SpeculativeMethod"))),
        env=tuple(sorted(_keys(sources, "vllm/envs.py", "environment_variables"))),
        extras=_extras(sources),
        libraries=_libraries(sources),
        docker=_docker(sources),
        fp8_constants=_fp8_constants(sources),
    )


Found = tuple[str, FlagKind, tuple[str, ...]]


def _engine_flags(sources: Sources) -> Iterator[Found]:
    for node in ast.walk(sources.tree(_ARGS)):
        if isinstance(node, ast.FunctionDef) and node.name in ("add_cli_args", "_add_cli_args"):
            yield from _arguments(sources, _ARGS, node)


def _frontend_flags(sources: Sources) -> Iterator[Found]:
    modules = (p for p in sorted(sources.modules) if p.startswith("vllm/entrypoints/"))
    path = next((p for p in modules if b"\nclass FrontendArgs(" in sources.files[p]), None)
    if path is None:
        raise moved_error("no class FrontendArgs", where="vllm/entrypoints")
    # vLLM handles it before its parser exists, and passes the whole command line to vllm-omni.
    if '"--omni"' in sources.text("vllm/entrypoints/cli/main.py"):
        yield "omni", "switch", ()
    for node in sources.tree(path).body:
        if isinstance(node, ast.ClassDef) and node.name in ("BaseFrontendArgs", "FrontendArgs"):
            for name, field in sources.fields(node).items():
                yield _from_hint(sources, path, name.replace("_", "-"), field.annotation)
        if isinstance(node, ast.FunctionDef) and node.name == "make_arg_parser":
            yield from _arguments(sources, path, node)


def _inverses(sources: Sources, flags: Mapping[str, FlagKind]) -> dict[str, FlagKind]:
    """What vLLM's parser adds to toggles from 0.33 on: `--disable-x` to `--enable-x`, and the other way round."""
    if b"class EnableDisableAction(" not in sources.files.get(_PARSER, b""):
        return {}
    toggles = [name.partition("-") for name, kind in flags.items() if kind == "toggle"]
    return {f"{_INVERSE[verb]}-{rest}": "switch" for verb, _, rest in toggles if verb in _INVERSE}


def _arguments(sources: Sources, path: str, function: ast.FunctionDef) -> Iterator[Found]:
    """The options that the `add_argument` calls of a function declare."""
    configs: dict[str, str] = {}
    fields: dict[str, tuple[str, str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            target, value = node.targets[0].id, node.value
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "get_kwargs":
                configs[target] = ast.unparse(value.args[0])
            elif (key := _field_of(value, configs)) is not None:
                fields[target] = key
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"):
            continue
        words = [str(word.value) for word in node.args if isinstance(word, ast.Constant)]
        for word in words:
            if word.startswith("--"):
                yield _argument(sources, path, word[2:], node, configs, fields)


def _field_of(value: ast.expr, configs: dict[str, str]) -> tuple[str, str] | None:
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and isinstance(value.slice, ast.Constant):
        config = configs.get(value.value.id)
        return (config, str(value.slice.value)) if config else None
    return None


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    return (item for item in ast.walk(node) if isinstance(item, ast.expr))


def _argument(
    sources: Sources, path: str, name: str, call: ast.Call, configs: dict[str, str], fields: dict[str, tuple[str, str]]
) -> Found:
    keywords = {item.arg: item.value for item in call.keywords}
    if "action" in keywords:
        action = ast.unparse(keywords["action"])
        if "BooleanOptionalAction" in action:
            return name, "toggle", ()
        if "store_true" in action or "store_false" in action:
            return name, "switch", ()
    if isinstance(listed := keywords.get("choices"), ast.List | ast.Tuple):
        return name, "value", tuple(str(item.value) for item in listed.elts if isinstance(item, ast.Constant))
    unpacked = keywords.get(None)
    if unpacked is not None:
        # **kwargs["field"], **field_kwargs, or **{**kwargs["field"], "default": None}
        known = (fields.get(n.id) if isinstance(n, ast.Name) else _field_of(n, configs) for n in _expressions(unpacked))
        found = next((item for item in known if item is not None), None)
        where = sources.find(path, found[0]) if found else None
        if found and where and isinstance(where[1], ast.ClassDef):
            field = sources.fields(where[1]).get(found[1])
            return _from_hint(sources, where[0], name, field.annotation if field else None)
    return name, "value", ()


def _from_hint(sources: Sources, path: str, name: str, annotation: ast.expr | None) -> Found:
    hint = sources.hint(path, annotation)
    if hint.is_bool and not hint.literals:
        # A bool that may also be text (--hf-token) is an option whose value can be left out, without a negation.
        return name, "value" if "str" in hint.names else "toggle", ()
    return name, "value", hint.literals if hint.closed else ()


def _registries(sources: Sources) -> dict[str, tuple[str, ...]]:
    """The options whose values are names in a registry or a Literal that the annotation widens to any text."""
    loader = "vllm/model_executor/model_loader/__init__.py"
    backends = next((p for p in sorted(sources.modules) if p.endswith("attention/backends/registry.py")), "vllm")
    enum = sources.find(backends, "AttentionBackendEnum") if backends in sources.modules else None
    if enum is None or not isinstance(enum[1], ast.ClassDef):
        raise moved_error("no AttentionBackendEnum", where=backends)
    quantization = "vllm/model_executor/layers/quantization/__init__.py"
    return {
        "load-format": _literals(sources, loader, "LoadFormats"),
        "quantization": _literals(sources, quantization, "QuantizationMethods"),
        "kv-cache-dtype": _literals(sources, "vllm/config/cache.py", "CacheDType"),
        "reasoning-parser": _keys(sources, "vllm/reasoning/__init__.py", "_REASONING_PARSERS_TO_REGISTER"),
        "tool-call-parser": _keys(sources, "vllm/tool_parsers/__init__.py", "_TOOL_PARSERS_TO_REGISTER"),
        "attention-backend": sources.hint(backends, ast.Name("AttentionBackendEnum")).literals,
    }


def _literals(sources: Sources, path: str, name: str) -> tuple[str, ...]:
    found = sources.hint(path, ast.Name(name)).literals
    if not found:
        raise moved_error(f"no choices found for {name}", where=path)
    return found


def _keys(sources: Sources, path: str, name: str) -> tuple[str, ...]:
    found = sources.find(path, name)
    keys = constant_keys(found[1]) if found else ()
    if not keys:
        raise moved_error(f"{name} is not a dict of names", where=path)
    return keys


def _json_keys(sources: Sources) -> dict[str, tuple[str, ...]]:
    found = {}
    for flag, path, name in (
        ("compilation-config", "vllm/config/compilation.py", "CompilationConfig"),
        ("speculative-config", _SPECULATIVE, "SpeculativeConfig"),
    ):
        where = sources.find(path, name)
        if where is None or not isinstance(where[1], ast.ClassDef):
            raise moved_error(f"no class {name}", where=path)
        found[flag] = tuple(sorted(key for key in sources.fields(where[1]) if not key.startswith("_")))
    return found


def _extras(sources: Sources) -> dict[str, tuple[str, ...]]:
    """What `pip install vllm[NAME]` adds, by NAME."""
    for node in ast.walk(sources.tree("setup.py")):
        if isinstance(node, ast.keyword) and node.arg == "extras_require" and isinstance(node.value, ast.Dict):
            pairs = zip(node.value.keys, node.value.values, strict=True)
            return {
                str(key.value): tuple(str(item.value) for item in value.elts if isinstance(item, ast.Constant))
                for key, value in pairs
                if isinstance(key, ast.Constant) and isinstance(value, ast.List)
            }
    raise moved_error("no extras_require", where="setup.py")


def _libraries(sources: Sources) -> dict[str, str]:
    text = sources.text("requirements/cuda.txt") + sources.text("requirements/common.txt")
    found = {}
    for name in (*_LIBRARIES, "transformers"):
        if match := re.search(rf"(?m)^{re.escape(name)}(?:\[[^]\n]*\])?\s*([=<>!~][^#;\n]*)", text):
            found[name] = "".join(match[1].split())
    if "torch" not in found:
        raise moved_error("no torch", where="requirements/cuda.txt")
    return found


def _docker(sources: Sources) -> dict[str, str]:
    text = sources.text("docker/Dockerfile")
    found = {}
    for name in ("CUDA_VERSION", "UBUNTU_VERSION", "PYTHON_VERSION"):
        if match := re.search(rf"(?m)^ARG {name}=(\S+)", text):
            found[name] = match[1]
    if "CUDA_VERSION" not in found:
        raise moved_error("no CUDA_VERSION", where="docker/Dockerfile")
    return found


def _fp8_constants(sources: Sources) -> tuple[str, ...]:
    """Constants of w8a8_utils.py that hold the result of the function of the same name in lower case."""
    names = []
    for node in sources.tree(_W8A8).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if ast.unparse(node.value) == f"{name.lower()}()":
                names.append(name)
    return tuple(names)


def dump(table: Table) -> str:
    """A table as the text of its file."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    # Lists in flow style and wrapped, so that people find a name in a table.
    Dumper.add_representer(list, lambda d, v: d.represent_sequence("tag:yaml.org,2002:seq", v, flow_style=True))
    data = table.model_dump(mode="json")
    text = yaml.dump(data, Dumper=Dumper, sort_keys=False, width=116, default_flow_style=False)
    return f"# Read from vLLM's source distribution by builder/knowledge/extract.py; not edited by hand.\n{text}"
