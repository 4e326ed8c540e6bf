"""Regular expressions that are data: of layers, checks and test files, or applied to text of an image. They are RE2's.

RE2 has no backtracking: the time is linear in the text, whoever wrote the pattern or the text. The syntax is
https://github.com/google/re2/wiki/Syntax: no look-around and no back references.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re

_LONGEST = 4096
_MEMORY = 8 << 20
"""Bytes that one compiled pattern may use."""
_PROGRAM = 1 << 18
"""The same, for the program of the pattern alone: the time of the compiler is quadratic in the program's size."""


@lru_cache(256)
def compiled(pattern: Any) -> re.Pattern[Any]:
    """A pattern over text, or over bytes if it is bytes. Raises ValueError when it is not valid or needs too much."""
    # Imported here: it takes 15 ms.
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    if isinstance(pattern, bytes):
        options.encoding = re2.Options.Encoding.LATIN1
    if len(pattern) > _LONGEST:
        raise ValueError(f"the pattern is longer than {_LONGEST} characters")
    try:
        options.max_mem = _PROGRAM
        re2.compile(pattern, options)
        options.max_mem = _MEMORY
        made: re.Pattern[Any] = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"not a pattern of RE2: {pattern!r}: {reason}") from None
    return made
