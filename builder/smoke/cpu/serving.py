"""The cpu check `serve-command`: vLLM's own parser and registries accept the serving command, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from builder.model.check import Check
from builder.smoke.check import CheckFailed, check_kind
from builder.smoke.cpu.execution import Execution, Judge

PROGRAM = r'''
import contextlib, dataclasses, importlib, importlib.util, io, re, typing


def cli_args():
    """The module of vLLM's serving options, which `vllm serve` imports: releases have it in different places."""
    folder = importlib.util.find_spec("vllm.entrypoints").submodule_search_locations[0]
    with open(f"{folder}/cli/serve.py", encoding="utf-8") as file:
        found = re.search(r"^from (vllm(?:\.\w+)+\.cli_args) import ", file.read(), re.MULTILINE)
    if not found:
        raise ImportError(f"{folder}/cli/serve.py imports no module cli_args")
    return importlib.import_module(found[1])


def make_parser():
    """The parser of `vllm serve`."""
    import vllm.platforms
    # Without a driver vLLM cannot detect its device; the parser needs only the device type.
    if not vllm.platforms.current_platform.device_type:
        vllm.platforms.current_platform.device_type = "cuda"
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    return cli_args().make_arg_parser(FlexibleArgumentParser())


def problems(argv, variables=(), made=[]):
    """What vLLM would refuse or ignore of the words after `vllm serve` and of these variables' names."""
    if not made:
        made.append(make_parser())
    printed, found = io.StringIO(), []
    # vLLM looks for this word before anything else and hands the line to vllm-omni, whose parser is vLLM's with
    # options of its own; that one cannot be made without a GPU.
    words = [word for word in argv if word != "--omni"]
    if len(words) < len(argv) and importlib.util.find_spec("vllm_omni") is None:
        found.append("--omni needs vllm-omni")
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            args = made[0].parse_args(words)
    except SystemExit:
        return [line for line in printed.getvalue().splitlines() if "error:" in line] or [printed.getvalue()[-500:]]
    except Exception as error:
        # JSON of the right form with a value that a configuration does not know.
        return [f"{type(error).__name__}: {error}"]
    return [*found, *_refused(args), *_ignored(variables)]


def _refused(args):
    from vllm.config import AttentionConfig, SpeculativeConfig
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager
    found = []
    # Templates and plugins are files of the user's mounts, which are not here.
    template, args.chat_template = args.chat_template, None
    try:
        cli_args().validate_parsed_serve_args(args)
        AttentionConfig(backend=args.attention_backend)
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
    plugged = {"tool_call_parser": "tool_parser_plugin", "reasoning_parser": "reasoning_parser_plugin"}
    for name, manager in (("tool_call_parser", ToolParserManager), ("reasoning_parser", ReasoningParserManager)):
        value = getattr(args, name, None)
        if value and not getattr(args, plugged[name], None) and value not in manager.list_registered():
            found.append(f"no {name} {value}")
    if args.quantization and args.quantization not in QUANTIZATION_METHODS:
        found.append(f"no quantization {args.quantization}")
    given = args.speculative_config or {}
    fields = {field.name: field for field in dataclasses.fields(SpeculativeConfig)}
    found += [f"speculative_config has no {key}" for key in given if key not in fields]
    from vllm.config.speculative import SpeculativeMethod
    methods = set(_literals(SpeculativeMethod))
    if given.get("method") is not None and given["method"] not in methods:
        found.append(f"no speculative method {given['method']}")
    if template and not template.startswith("/"):
        found.append(f"the chat template {template} is no path in the image")
    return found


def _literals(hint):
    for item in typing.get_args(hint):
        if isinstance(item, str):
            yield item
        else:
            yield from _literals(item)


def _ignored(variables):
    import vllm.envs
    known = set(vllm.envs.environment_variables)
    return [f"vLLM does not read {name}" for name in variables if name.startswith("VLLM_") and name not in known]
'''
"""Defines `problems(argv, variables)`. Run in the image, or beside the same version's wheel of another platform."""


@check_kind("cpu", "serve-command")
def serve_command(check: Check, *, argv: Sequence[str], variables: Sequence[str] = ()) -> Execution:
    """vLLM accepts the words after `vllm serve`, knows every name in them, and reads the variables."""
    code = (
        f"{PROGRAM}\nfound = problems({list(argv)!r}, {list(variables)!r})\n"
        "print('\\n'.join(found))\nraise SystemExit(1 if found else 0)\n"
    )
    # Under qemu it takes seven minutes on a two-core machine.
    return Execution(check, _nothing_found(len(argv)), code=code, timeout=1800.0)


def _nothing_found(words: int) -> Judge:
    def judge(status: int, output: str) -> str:
        if status:
            raise CheckFailed(f"vLLM refuses the serving command: {output.strip()[-1500:]}")
        return f"vLLM's parser accepts all {words} words"

    return judge
