"""Renders the templates and conditions of layers, so that no value can become a Dockerfile instruction.

A value in a Dockerfile either has only characters without a meaning to Dockerfile and shell, or went through a filter
that quotes it for its place: `sh` (one shell word), `dockerfile` (one Dockerfile word),
`exec_form` (a JSON array). Any other value fails to render.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from builder.errors import InvalidError
from builder.versions import python_version

_SAFE = re.compile(r"[A-Za-z0-9._:/@+=-]*")

_BROKEN = (
    jinja2.TemplateError,
    TypeError,
    AttributeError,
    ValueError,
    LookupError,
    ArithmeticError,
    RecursionError,
)
"""The exceptions of a broken template or expression."""


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
    return not any(ord(character) < 0x20 or ord(character) == 0x7F for character in text)


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


_dockerfiles = SandboxedEnvironment(
    undefined=jinja2.StrictUndefined, finalize=_finalize, keep_trailing_newline=True, autoescape=False
)
_dockerfiles.filters.update(sh=sh, dockerfile=dockerfile, exec_form=exec_form, word=word, inherited=inherited)
_texts = SandboxedEnvironment(undefined=jinja2.StrictUndefined, autoescape=False)
_texts.globals.update(version=python_version)


def render_dockerfile(text: str, values: Mapping[str, Any], where: str) -> str:
    """A Dockerfile template with these values. Raises InvalidError."""
    try:
        return _dockerfiles.from_string(text).render(**values)
    except InvalidError as error:
        raise error.replaced(where=where) from error
    except _BROKEN as error:
        raise InvalidError(f"template: {_reason(error)}", id="template-broken", where=_line(where, error)) from error


def render_text(text: str, values: Mapping[str, Any], where: str) -> str:
    """A one-line template of a layer.yaml. Raises InvalidError for an unknown name or a broken expression."""
    if "{" not in text:
        return text
    try:
        return _template(text).render(**values)
    except _BROKEN as error:
        raise InvalidError(f"{text!r}: {_reason(error)}", id="template-broken", where=where) from error


def evaluate(expression: str, values: Mapping[str, Any], where: str) -> Any:
    """A condition or expression of a layer.yaml as a value. Raises InvalidError."""
    try:
        value = _expression(expression)(**values)
        if isinstance(value, jinja2.Undefined):
            raise jinja2.UndefinedError(f"{expression} is not defined")
        return value
    except _BROKEN as error:
        raise InvalidError(f"{expression!r}: {_reason(error)}", id="expression-broken", where=where) from error


@functools.lru_cache(1024)
def _template(text: str) -> jinja2.Template:
    return _texts.from_string(text)


@functools.lru_cache(1024)
def _expression(text: str) -> Any:
    return _texts.compile_expression(text, undefined_to_none=False)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"


def _line(where: str, error: Exception) -> str:
    number = getattr(error, "lineno", None)
    return f"{where}:{number}" if number else where
