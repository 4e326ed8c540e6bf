"""The class of all commands: a recipe may be a plain word, and the command line is noted for messages."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from typer.core import TyperCommand

from builder.cli.words import choices

_IMAGES = ("push", "test", "sbom", "verify", "load", "deploy")
"""Commands whose other words are references: a reference has a slash or a colon, the name of a recipe has none."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


_METAVARS = {"set_": "LAYER.PARAMETER=VALUE"}


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

            words = dict(ctx.params)
            # A recipe that is a plain word is not parsed while a shell asks.
            if not words.get("recipe") and ctx.args and _NAME.fullmatch(ctx.args[0]):
                words["recipe"] = ctx.args[0]
            found = values(str(command.name), str(param.name), words)
            return [_item(name) for name in found if name.startswith(incomplete)]

        if parameter._custom_shell_complete is None:
            # The attribute behind the option `shell_complete`, which typer does not pass on.
            parameter._custom_shell_complete = complete


def _item(value: str) -> Any:
    core: Any = import_module("typer.core")
    return core.CompletionItem(value)


class Command(TyperCommand):
    """One command. `builder build NAME` is `builder build --recipe NAME`, and so for every command with that option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and self._recipe is not None and not {"-h", "--help"} & set(args):
            args = self._with_recipe(ctx, list(args))
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces: list[str] = super().collect_usage_pieces(ctx)
        if self._recipe is not None and (self.name in (*_IMAGES, "explain", "mirror") or not self._own):
            word = "[RECIPE]..." if self._recipe.multiple else "[RECIPE]"
            pieces.insert(len(pieces) if self.name == "mirror" else 1, word)
        return pieces

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Recipes, where a plain word can be one; and options."""
        found = super().shell_complete(ctx, incomplete)
        if self._recipe is None or incomplete.startswith("-") or (self._own and self.name not in _IMAGES):
            return found
        from builder.cli.completion import values

        names = values(str(self.name), "recipe", ctx.params)
        return [*(_item(name) for name in names if name.startswith(incomplete)), *found]

    def invoke(self, ctx: Any) -> Any:
        # Imported here: `--help` does not need it.
        from builder.cli.again import remember

        remember(ctx)
        return super().invoke(ctx)

    @property
    def _recipe(self) -> Any:
        """The option --recipe, if the command has it."""
        return next((each for each in self.params if each.name == "recipe" and "--recipe" in each.opts), None)

    @property
    def _own(self) -> bool:
        """Whether the command has arguments of its own."""
        return any(each.param_type_name == "argument" for each in self.params)

    def _with_recipe(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments with `--recipe` before each plain word that is a recipe."""
        given, words = self._split(ctx, args)
        if given.get("recipe") or not words:
            return args
        places = [place for place in range(len(args)) if self._is_word(ctx, args, place, given, len(words))]
        if self.name == "mirror":
            places = places[1:]
        elif self.name in _IMAGES:
            places = [place for place in places if _NAME.fullmatch(args[place])][:1]
        elif self.name == "explain":
            places = places[:1]
        elif self._own:
            return args
        elif not self._recipe.multiple:
            places = places[:1]
        named = [word for place in places for word in ("--recipe", args[place])]
        return [*named, *(word for place, word in enumerate(args) if place not in places)]

    def _is_word(self, ctx: Any, args: list[str], place: int, given: dict[str, Any], count: int) -> bool:
        """Whether this argument is neither an option nor the value of one: without it the options are the same."""
        try:
            found, words = self._split(ctx, [*args[:place], *args[place + 1 :]])
        except Exception:
            # The parser's own error: an option lost its value.
            return False
        return found == given and len(words) == count - 1

    def _split(self, ctx: Any, args: list[str]) -> tuple[dict[str, Any], list[str]]:
        """The options of a command line, and its other words."""
        parser = type(self.make_parser(ctx))(ctx)
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "option":
                parameter.add_to_parser(parser, ctx)
        given, words, _ = parser.parse_args(list(args))
        return given, list(words)
