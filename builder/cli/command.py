"""What all commands have in common: the recipe as a plain word, `--quiet`, completion, bodies imported late."""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import re
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from builder.cli.help import usage, write_help
from builder.cli.words import choices
from builder.errors import UsageError

_IMAGES = ("push", "test", "sbom", "verify", "load", "deploy")
"""Commands whose other words are references: a reference has a slash or a colon, the name of a recipe has none."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_METAVARS = {"set_": "LAYER.PARAMETER=VALUE"}
_QUIET = Annotated[bool, typer.Option("--quiet", "-q", help="Print only results, warnings and errors.")]


class Command(TyperCommand):
    """One command. Its command line is noted for messages that repeat it."""

    def get_params(self, ctx: Any) -> list[Any]:
        return late(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return usage(self)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        for before, word in zip(["", *own], own, strict=False):
            # The parser would make an empty path the current folder.
            if not ctx.resilient_parsing and re.fullmatch("--[a-z-]+=", word if word else f"{before}="):
                raise _empty((word or before).rstrip("="), ctx)
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def invoke(self, ctx: Any) -> Any:
        # Imported here: `--help` does not need it.
        from builder.cli.again import remember

        remember(ctx)
        for parameter in self.params:
            _check_value(parameter, ctx.params.get(parameter.name), ctx)
        return super().invoke(ctx)


def _check_value(parameter: Any, value: Any, ctx: Any) -> None:
    """Raises UsageError for an empty text. Only the command of `bisect` may have empty words."""
    if "" in (value if isinstance(value, list | tuple) else [value]) and parameter.nargs != -1:
        option = parameter.param_type_name == "option"
        raise _empty(parameter.opts[0] if option else (parameter.metavar or parameter.name.upper()), ctx)


def _empty(name: str, ctx: Any) -> UsageError:
    cause = "a variable of the shell that has no value?"
    return UsageError(f"{name} is empty", id="value-empty", cause=cause, next=f"{ctx.command_path} --help")


def common(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a command, with `--quiet`; where it has --recipe, the recipe may be a plain word, too."""
    given = inspect.signature(function, eval_str=True).parameters
    parameters = {key: each.replace(kind=each.KEYWORD_ONLY) for key, each in given.items()}
    own = next((key for key, each in parameters.items() if _is_argument(each)), None)
    recipe = parameters.get("recipe") if name != "bisect" else None
    if recipe is not None:
        many = list[str] in get_args(get_args(recipe.annotation)[0])
        kind = list[str] if many else str
        argument = typer.Argument(metavar="RECIPE", help="As with --recipe.")
        word = recipe.replace(name="word", default=None, annotation=Annotated[kind | None, argument])
        parameters["recipe"] = recipe.replace(default=None)
        # DIR comes first in `mirror DIR RECIPE...`.
        parameters = {**parameters, "word": word} if many else {"word": word, **parameters}
    if profile := parameters.get("profile"):
        option = get_args(profile.annotation)[1]
        parameters["profile"] = profile.replace(annotation=Annotated[list[str] | None, option])
    quiet = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_QUIET)
    parameters.setdefault("quiet", quiet)

    @functools.wraps(function)
    def called(**values: Any) -> Any:
        from builder.cli.output import hush

        hush(values["quiet"] if "quiet" in given else values.pop("quiet"))
        if profile:
            values["profile"] = "+".join(sorted({*_as_list(values["profile"])})) or None
        if recipe is not None:
            words = _as_list(values.pop("word"))
            if many:
                values["recipe"] = [*_as_list(values["recipe"]), *words] or None
            else:
                _place(name, values, words, own)
            if not values["recipe"] and recipe.default is recipe.empty:
                next = f"builder {name} RECIPE; builder list, for the names"
                raise UsageError("no recipe given", id="recipe-not-given", next=next)
        return function(**values)

    changed: Any = called
    changed.__signature__ = inspect.Signature([*parameters.values()])
    changed.__annotations__ = {key: each.annotation for key, each in parameters.items()}
    return called


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(each, typer.models.ArgumentInfo) for each in get_args(parameter.annotation)[1:])


def _as_list(value: Any) -> list[str]:
    return [*value] if isinstance(value, list | tuple) else [value] if value else []


def _place(name: str, values: dict[str, Any], words: list[str], own: str | None) -> None:
    """Make one of the words the recipe, if no option names it, and the others the command's own argument."""
    words += _as_list(values[own]) if own else []
    if not values["recipe"]:
        found = [word for word in words if name not in _IMAGES or _NAME.fullmatch(word)]
        values["recipe"] = found[0] if found else None
        words = [word for place, word in enumerate(words) if not found or place != words.index(found[0])]
    if own and name == "push":
        values[own] = words
        return
    if len(words) > (own is not None):
        raise UsageError(f"one word too many: {words[-1]!r}", id="word-too-many", next=f"builder {name} --help")
    if own:
        values[own] = words[0] if words else None


def complete_values(command: Any) -> None:
    """Let the options and arguments of a command complete their values, and show them in its help."""
    for parameter in command.params:
        words = choices(str(command.name), str(parameter.name))
        if parameter.metavar is None and words:
            parameter.metavar = "|".join(words)
        elif parameter.metavar is None and parameter.param_type_name == "option" and not parameter.is_flag:
            parameter.metavar = _METAVARS.get(parameter.name, str(parameter.name).strip("_").upper())

        def complete(ctx: Any, param: Any, incomplete: str) -> list[Any]:
            from builder.cli.completion import values

            core: Any = import_module("typer.core")
            # An option without its value ends the parsing of a command line: the words before it are left over.
            given = {"word": ctx.args, **{name: value for name, value in ctx.params.items() if value}}
            found = values(str(command.name), str(param.name), given)
            return [core.CompletionItem(name) for name in found if name.startswith(incomplete)]

        if parameter._custom_shell_complete is None:
            # The attribute behind the option `shell_complete`, which typer does not pass on.
            parameter._custom_shell_complete = complete


def late(parameters: list[Any]) -> list[Any]:
    """Parameters that convert only what is given, and nothing for a shell's question: typer imports pydantic for it."""
    for parameter in parameters:
        if "process_value" not in vars(parameter):
            parameter.process_value = functools.partial(_process, parameter, parameter.process_value)
    return parameters


def _process(parameter: Any, convert: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    # Of several values, none is an empty list.
    absent = value is None and parameter.nargs == 1 and not (parameter.required or parameter.multiple)
    return value if absent or ctx.resilient_parsing else convert(ctx, value)


def declared(module: str, function: str) -> Callable[..., Any]:
    """A function with the signature and docstring of a module's function, which imports the module when it is called.

    The module imports all that the command does: for `build`, 130 modules. The parser, help and completion need the
    head alone. It is made from the module's source: the function without its body, after those imports and constants
    that its parameters name.
    """
    loader: Any = getattr(find_spec(module), "loader", None)
    statements = ast.parse(loader.get_source(module)).body
    place, head = next(
        (place, each)
        for place, each in enumerate(statements)
        if isinstance(each, ast.FunctionDef) and each.name == function
    )
    # Only the docstring of the body.
    head.body = head.body[:1]
    kept: list[ast.stmt] = [head]
    named = _names(head.args)
    for statement in reversed(statements[:place]):
        if named & _bound(statement):
            kept.insert(0, statement)
            named |= _names(statement)
    namespace: dict[str, Any] = {"__name__": module}
    exec(compile(ast.Module(kept, []), loader.get_filename(module), "exec"), namespace)

    @functools.wraps(namespace[function])
    def body(**values: Any) -> Any:
        command = getattr(import_module(module), function)
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        return command(**values)

    return body


def _names(node: ast.AST) -> set[str]:
    """The names that an expression or a statement reads."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a meaning."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {each.asname or each.name for each in statement.names}
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return {
            each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
    return set()
