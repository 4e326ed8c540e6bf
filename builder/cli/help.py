"""The help of commands: usage, arguments, options, examples, and the page of the documents; on request as a manual."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from builder import __version__
from builder.errors import BuilderError, ExitCode
from builder.text import relative_path

REF = "registry.example/team/omni:1"

PAGES: dict[str, tuple[str, ...]] = {
    "list": ("recipes/README.md", "list", "list bases --json"),
    "show": ("add-a-recipe.md", "show nemotron-omni", f"show {REF} --signed-by team.pub"),
    "new": (
        "add-a-recipe.md",
        "new recipe my-recipe --model nvidia/Qwen3-32B-NVFP4",
        "new recipe my-omni --extends nemotron-omni --layer librosa",
        "new layer my-layer --compiled",
        "new base hermetic-0.31 --vllm 0.31.0",
    ),
    "add": (
        "add-packages.md",
        "add wheels librosa 'librosa>=0.10' --base hermetic --beside audio",
        "add debs tools jq 'strace>=6' --base hermetic",
    ),
    "lint": ("rules.md", "lint", "lint nemotron-omni --base hermetic --machine spark-64", "lint --sarif >lint.sarif"),
    "rules": ("rules.md", "rules", "rules GB10-007"),
    "schema": ("add-a-recipe.md", "schema recipe", "schema recipe >schemas/recipe.json"),
    "lock": ("locks.md", "lock --check", "lock --update vllm-openai-0.23", "lock --update sources --keep-going"),
    "plan": (
        "architecture.md",
        "plan nemotron-omni --base hermetic --set nccl.functions=inference",
        "plan nemotron-omni --profile ngram --bundle omni.json",
    ),
    "render": ("architecture.md", "render nemotron-omni --base hermetic --context some-new-folder"),
    "build": (
        "sharing.md",
        "build nemotron-omni --base hermetic --load",
        "build --all --base hermetic",
        "build nemotron-omni --cache registry.example/team/layers --policy team.yaml",
    ),
    "test": ("testing.md", "test nemotron-omni --tier static --tier cpu", f"test {REF} --require --junit results.xml"),
    "verify": (
        "verify.md",
        f"verify {REF}",
        f"verify {REF} --project https://example.org/project.git@COMMIT",
        f"verify {REF} --signed-by team.pub --attest --key my.pem",
        f"verify {REF} --quick --vary time,zone,umask",
    ),
    "diff": ("compare.md", "diff nemotron-omni@hermetic-0.20 nemotron-omni@hermetic-0.23", "diff v1.0: HEAD:"),
    "explain": ("compare.md", "explain nemotron-omni", "explain nemotron-omni nccl --since v1.0"),
    "graph": ("compare.md", "graph nemotron-omni --format mermaid"),
    "sbom": ("statements.md", "sbom nemotron-omni --format spdx >omni.spdx.json"),
    "bisect": ("compare.md", "bisect --recipe nemotron-omni --good v1.0 --bad HEAD --load -- ./try.sh"),
    "push": ("publish.md", f"push nemotron-omni {REF} --with-inputs", f"push nemotron-omni {REF} --key my.pem"),
    "site": ("site.md", "site public registry.example/team/omni:1"),
    "serve": ("sharing.md", "serve"),
    "load": ("sharing.md", "load nemotron-omni --base hermetic", f"load {REF} --policy team.yaml"),
    "deploy": ("sharing.md", "deploy nemotron-omni --host spark1,spark2 --base hermetic"),
    "mirror": ("air-gapped.md", "mirror /media/disk/inputs nemotron-omni --base hermetic"),
    "images": ("sharing.md", "images", "images nemotron-omni --json"),
    "gc": ("sharing.md", "gc", "gc --older-than 30d --dry-run"),
    "fsck": ("sharing.md", "fsck --repair"),
    "run": (
        "troubleshooting.md",
        "run nemotron-omni --base hermetic",
        "run nemotron-omni --base hermetic --profile ngram --profile fast-load --format compose >compose.yaml",
    ),
    "prefetch": ("troubleshooting.md", "prefetch nemotron-omni --exec"),
    "cache": ("troubleshooting.md", "cache"),
    "bench": ("troubleshooting.md", "bench --url http://localhost:8000"),
    "doctor": ("gpu-tier.md", "doctor nemotron-omni"),
    "engines": ("architecture.md", "engines"),
}
"""For each command: its page in docs/, and examples without `builder`."""


def write_help(command: Any, context: Any, formatter: Any) -> None:
    """Arguments, options, examples and the page of a command."""
    for title, rows in (("Arguments", arguments(command)), ("Options", options(command, context))):
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
    if command.name in PAGES:
        page, *examples = PAGES[command.name]
        with formatter.section("Examples"):
            for example in examples:
                # Not wrapped: it is to be pasted.
                formatter.write(f"  builder {example}\n")
        formatter.write(f"\nMore: {documents()}/{page}\n")


def documents() -> str:
    """The folder of the documents: of the installed package, or of the checkout."""
    package = Path(__file__).resolve().parents[1]
    folder = package / "data/docs" if (package / "data").is_dir() else package.parent / "docs"
    return relative_path(folder)


def usage(command: Any) -> list[str]:
    """The words of the usage line after the name of the command."""
    return ["[OPTIONS]", *(_usage(each) for each in command.params if each.param_type_name == "argument")]


def _usage(argument: Any) -> str:
    # The words that it can be are below; more than three would be split where the line ends.
    name = _name(argument) if _name(argument).count("|") < 3 else argument.name.strip("_").upper()
    word = f"{name}..." if argument.nargs == -1 else name
    return word if argument.required else f"[{word}]"


def _name(argument: Any) -> str:
    metavar: str = argument.metavar or argument.name.strip("_").upper()
    return metavar


def arguments(command: Any) -> list[tuple[str, str]]:
    """Names and texts of a command's arguments."""
    return [(_name(each), each.help or "") for each in command.params if each.param_type_name == "argument"]


def options(command: Any, context: Any) -> list[tuple[str, str]]:
    """Names and texts of a command's options."""
    found = [each.get_help_record(context) for each in command.get_params(context) if each.param_type_name == "option"]
    return [each for each in found if each is not None]


def manual(groups: Mapping[str, Sequence[str]], load: Callable[[str], Any]) -> Iterator[str]:
    """The lines of a manual page, builder(1). load: a command by its name."""
    yield f'.TH BUILDER 1 "" "builder {__version__}" "User Commands"'
    yield from (".SH NAME", r"builder \- reproducible vLLM container images for NVIDIA DGX Spark")
    yield from (".SH SYNOPSIS", ".B builder", ".I COMMAND", "[OPTIONS]")
    for title, names in groups.items():
        yield f".SH {_roff(title.upper())}"
        for name in names:
            yield from _manual_of(load(name))
    yield from (".SH EXIT STATUS", ".TP", ".B 0", "done")
    for kind in sorted(BuilderError.__subclasses__(), key=lambda each: each.code):
        yield from (".TP", f".B {kind.code}", _roff((kind.__doc__ or "").splitlines()[0]))
    yield from (".TP", f".B {ExitCode.BUG}", "a bug: please report it")
    yield from (".SH SEE ALSO", _roff(f"The documents in {documents()}."))


def _manual_of(command: Any) -> Iterator[str]:
    context = command.make_context(command.name, [], resilient_parsing=True)
    yield f".SS {_roff(' '.join(['builder', command.name, *usage(command)]))}"
    for paragraph in (command.help or "").split("\n\n"):
        yield from (_roff(" ".join(paragraph.split())), ".PP")
    for name, text in (*arguments(command), *options(command, context)):
        yield from (".TP", f".B {_roff(name)}", _roff(text))
    yield from (".PP", "Examples:", ".nf")
    yield from (rf"\&  builder {_roff(example)}" for example in PAGES[command.name][1:])
    yield ".fi"


def _roff(text: str) -> str:
    """Text as a line of roff: no request, no escape, hyphens that can be copied."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("\n", " ").replace("…", "...")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
