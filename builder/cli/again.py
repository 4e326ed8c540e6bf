"""The command of this process as a command line, for messages that say how to repeat it with another image."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from builder.cli.request import PlanRequest

_IMAGE = ("recipe", "base", "set_", "profile", "compression")
_context: list[Any] = []


def remember(context: Any) -> None:
    """Note the parsed command line (a click.Context) of the command that runs now."""
    _context[:] = [context]


def again(request: PlanRequest, *more: str) -> str:
    """The command that runs now, with its other options, for this image. more: further arguments."""
    (context,) = _context
    words = ["builder", context.info_name]
    options: list[str] = []
    for parameter in context.command.params:
        source, value = context.get_parameter_source(parameter.name), context.params.get(parameter.name)
        if parameter.name in _IMAGE or source is None or source.name != "COMMANDLINE":
            continue
        if parameter.param_type_name == "argument":
            each = value if isinstance(value, list | tuple) else [value]
            words += [str(word) for word in each if word != request.recipe]
        elif isinstance(value, bool):
            options.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        else:
            each = value if isinstance(value, list | tuple) else [value]
            options += [word for item in each for word in (parameter.opts[0], str(item))]
    return shlex.join([*words, *request.words(), *options, *more])
