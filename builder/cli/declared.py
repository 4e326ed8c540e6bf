"""The head of a command: its parameters and its text, without what only its body imports.

The module of a command imports all that the command does: for `build`, 130 modules. The parser, help and completion
need the head alone. It is made from the source of the module: the function without its body, after the imports and
constants that its parameters name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def declared(module: str, function: str) -> Callable[..., Any]:
    """A function with the signature and docstring of a module's function, which imports the module when it is called.

    Its annotations may name what the module imports or assigns; what they name is imported at once.
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

    @wraps(namespace[function])
    def body(**values: Any) -> Any:
        return getattr(import_module(module), function)(**values)

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
