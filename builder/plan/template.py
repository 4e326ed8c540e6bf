"""Renders the templates of layers, so that no template runs code and no value becomes a Dockerfile instruction.

Templates see plain data (mappings, text, numbers, None) and named functions. A text of a layer.yaml has placeholders,
`{{ base.site }}`, and nothing else. A Dockerfile template is Jinja without what can run code or grow without bound: no
attribute of a Python object, no method, no arithmetic, no macro, no loop over anything but given data.

A value in a Dockerfile either has only characters without a meaning to Dockerfile and shell, or went through a filter
that quotes it for its place: `sh` (one shell word), `dockerfile` (one Dockerfile word),
`exec_form` (a JSON array). Any other value fails to render.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes

from builder.errors import InvalidError
from builder.model.layer import PLACEHOLDER
from builder.text import printable

_SAFE = re.compile(r"[A-Za-z0-9._:/@+=-]*")

_BROKEN = (jinja2.TemplateError, SyntaxError, TypeError, ValueError, LookupError, RecursionError, MemoryError)
"""The exceptions of a broken template. Python's compiler raises SyntaxError or MemoryError for deep nesting."""

_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Assign, nodes.Tuple),
    *(nodes.Name, nodes.NSRef, nodes.Getattr, nodes.Const, nodes.Concat, nodes.Compare, nodes.Operand),
    *(nodes.And, nodes.Or, nodes.Not, nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Call),
)
"""What a Dockerfile template may be made of. What is not here could run code, or produce text without bound."""

_TESTS = ("none", "defined")
_DEEPEST = 2
"""Levels of nested loops."""

_LONGEST_TEMPLATE, _LONGEST = 1 << 16, 1 << 20
"""Characters of a template, and of what it renders to."""

_MOST_JOINED = 100
"""The operands of all `~`: the length of what they give is limited only where it is written."""

_MOST_NODES = 10_000
"""The nodes of a template; Jinja compiles them in a second."""

_MOST_WORK = 300_000
"""The steps that a template may take; they take a few seconds."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Quoted(str):
    """Text that a filter quoted for its place."""


def sh(value: object) -> Quoted:
    """One shell word inside a RUN instruction. Raises InvalidError for line breaks, which RUN cannot hold."""
    text = _one_line(str(value))
    quoted = shlex.quote(text)
    if quoted.endswith("\\"):
        raise InvalidError(f"a value must not end in a backslash here: {text!r}", id="value-ends-in-backslash")
    return Quoted(quoted)


def dockerfile(value: object) -> Quoted:
    """One double-quoted word of a Dockerfile instruction, with a literal `$`."""
    text = _one_line(str(value))
    return Quoted('"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$") + '"')


def exec_form(value: Any) -> Quoted:
    """The JSON form of ENTRYPOINT and CMD."""
    return Quoted(json.dumps([_one_line(str(item)) for item in value], ensure_ascii=False))


def word(value: object) -> Quoted:
    """A name, unquoted. Raises InvalidError for characters with a meaning to Dockerfile or shell."""
    text = str(value)
    if not text or not _SAFE.fullmatch(text):
        raise InvalidError(f"not usable in a Dockerfile: {text!r}", id="value-not-a-word")
    return Quoted(text)


def is_line(text: str) -> bool:
    """Whether the text has no control characters, which no Dockerfile can hold inside a value."""
    return not _CONTROL.search(text)


def inherited(name: object) -> Quoted:
    """The suffix of a value that is prepended to the base's: a colon and the base's value, if the base has one."""
    safe = word(name)
    return Quoted(f"${{{safe}:+:${{{safe}}}}}")


def _one_line(text: str) -> str:
    if not is_line(text):
        raise InvalidError(f"a Dockerfile cannot hold control characters: {text!r}", id="value-control-characters")
    return text


def _finalize(value: Any) -> Any:
    if isinstance(value, Quoted):
        return value
    text = str(value)
    if not _SAFE.fullmatch(text):
        raise InvalidError(
            f"unquoted value in a Dockerfile template: {text!r}",
            id="value-unquoted",
            next="use the filter `sh` or `dockerfile`",
        )
    return text


def _listed(value: Any) -> Any:
    """What a loop goes over."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"a loop goes over a list, not over {value!r}")
    return value


class _Environment(jinja2.Environment):
    """Jinja for Dockerfiles: `a.b` is the item b of the mapping a, never an attribute of an object."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return self.undefined(obj=obj, name=attribute)


_dockerfiles = _Environment(
    undefined=jinja2.StrictUndefined,
    finalize=_finalize,
    keep_trailing_newline=True,
    autoescape=False,
    optimized=False,  # The time of Jinja's optimizer is cubic in the depth of an expression.
)
_FILTERS = {"sh": sh, "dockerfile": dockerfile, "exec_form": exec_form, "word": word, "inherited": inherited}
_dockerfiles.filters = {**_FILTERS, "list": _listed}
_dockerfiles.globals.clear()


@lru_cache(64)
def _compiled(text: str, functions: frozenset[str]) -> tuple[jinja2.Template, Counter[tuple[int, bool]]]:
    """A template that may call these functions, and its nodes, counted as `_nodes` does. Raises TemplateError."""
    if len(text) > _LONGEST_TEMPLATE:
        raise jinja2.TemplateError(f"the template is longer than {_LONGEST_TEMPLATE} characters")
    parsed = _dockerfiles.parse(text)
    _require_plain(parsed, functions)
    found = _nodes(parsed)
    for loop in list(parsed.find_all(nodes.For)):
        # It refuses anything but a list.
        loop.iter = nodes.Filter(loop.iter, "list", [], [], None, None, lineno=loop.lineno)
    return _dockerfiles.from_string(parsed), found


def render_dockerfile(text: str, values: Mapping[str, Any], where: str) -> str:
    """A Dockerfile template with these values. Raises InvalidError."""
    try:
        template, found = _compiled(text, frozenset(name for name, value in values.items() if callable(value)))
        _require_bounded(found, values)
        parts: list[str] = []
        length = 0
        for part in template.generate(**values):
            parts.append(part)
            length += len(part)
            if length > _LONGEST:
                raise jinja2.TemplateError(f"the result is longer than {_LONGEST} characters")
        text = "".join(parts)
        if printable(text) != text:
            raise jinja2.TemplateError("the result has hidden characters, which a terminal or editor does not show")
        return text
    except InvalidError as error:
        raise error.replaced(where=where) from error
    except _BROKEN as error:
        raise InvalidError(f"template: {_reason(error)}", id="template-broken", where=_line(where, error)) from error


def render_text(text: str, values: Mapping[str, Mapping[str, Any]], where: str) -> str:
    """A text of a layer.yaml with its placeholders replaced. Raises InvalidError for an unknown or missing value."""

    def value(found: re.Match[str]) -> str:
        value = values[found["of"]].get(found["name"])
        if value is None or isinstance(value, tuple | list | dict):
            raise InvalidError(
                f"{text!r}: {found['of']}.{found['name']} has no value here", id="template-broken", where=where
            )
        return str(value)

    return PLACEHOLDER.sub(value, text)


def _require_plain(template: nodes.Template, functions: frozenset[str]) -> None:
    """Raises TemplateError for a construct that is not in `_ALLOWED`."""
    if sum(len(node.nodes) for node in template.find_all(nodes.Concat)) > _MOST_JOINED:
        raise jinja2.TemplateError(f"more than {_MOST_JOINED} texts are joined")
    assigned = {name for each in template.find_all(nodes.Assign) for name in _names(each, "store")}
    pending: list[tuple[nodes.Node, int]] = [(template, 0)]
    left = _MOST_NODES
    while pending:
        node, depth = pending.pop()
        left -= 1
        if left < 0:
            raise jinja2.TemplateError(f"the template has more than {_MOST_NODES} parts")
        problem = ""
        if not isinstance(node, _ALLOWED):
            problem = f"{type(node).__name__} is not allowed in a template"
        elif isinstance(node, nodes.Filter) and node.name not in _FILTERS:
            problem = f"no filter named {node.name!r}"
        elif isinstance(node, nodes.Filter) and any(node.find_all(nodes.Filter)):
            # Each filter may quote the quotes of the one before, which multiplies the length.
            problem = "a value goes through one filter"
        elif isinstance(node, nodes.Test) and node.name not in _TESTS:
            problem = f"no test named {node.name!r}"
        elif isinstance(node, nodes.Call) and not (isinstance(node.node, nodes.Name) and node.node.name in functions):
            problem = f"only {', '.join(sorted(functions)) or 'nothing'} can be called"
        elif isinstance(node, nodes.For):
            depth += 1
            if depth > _DEEPEST or node.recursive or not isinstance(node.iter, nodes.Name | nodes.Getattr):
                problem = f"a loop goes over a given list, at most {_DEEPEST} deep"
        elif isinstance(node, nodes.Assign) and assigned & _names(node, "load"):
            # Each such step could double a text.
            problem = "a value that is set cannot use another value that is set"
        if problem:
            raise jinja2.TemplateSyntaxError(problem, node.lineno)
        pending += [(child, depth) for child in node.iter_child_nodes()]


def _nodes(template: nodes.Template) -> Counter[tuple[int, bool]]:
    """How many nodes are inside so many loops; True: filters and calls, each of which may read all values."""
    found: Counter[tuple[int, bool]] = Counter()
    pending: list[tuple[nodes.Node, int]] = [(template, 0)]
    while pending:
        node, depth = pending.pop()
        found[depth, isinstance(node, nodes.Filter | nodes.Call)] += 1
        depth += isinstance(node, nodes.For)
        pending += [(child, depth) for child in node.iter_child_nodes()]
    return found


def _require_bounded(found: Counter[tuple[int, bool]], values: Mapping[str, Any]) -> None:
    """Raises TemplateError when rendering could take long: each step of a loop runs its whole body."""
    longest, size = _longest(values), 1 + len(repr(values)) // 1000
    if sum(count * longest**depth * (size if reads else 1) for (depth, reads), count in found.items()) > _MOST_WORK:
        raise jinja2.TemplateError("the template has too many steps for the lists and texts that it reads")


def _longest(value: Any) -> int:
    """The length of the longest list in a value."""
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return max([len(inside) if isinstance(value, list | tuple) else 1, *map(_longest, inside)])


def _names(assignment: nodes.Assign, ctx: str) -> set[str]:
    """The names that a `set` writes ("store") or reads ("load")."""
    return {name.name for name in assignment.find_all(nodes.Name) if name.ctx == ctx}


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"


def _line(where: str, error: Exception) -> str:
    number = getattr(error, "lineno", None)
    return f"{where}:{number}" if number else where
