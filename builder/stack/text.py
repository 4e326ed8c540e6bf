"""The text of a new base's file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from builder.model.yamlfile import parse_yaml
from builder.stack.contents import Overlap

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def base_text(name: str, section: str, found: Overlap, *, deep_gemm: bool, notes: Sequence[str]) -> str:
    """The file of a hermetic base.

    section: with vLLM's wheels. deep_gemm: it is not compiled for this Python.
    """
    lines = [
        "# Facts and layers of this base follow from its lock sections and recipes/families/hermetic.yaml.",
        f"name: {name}",
    ]
    if deep_gemm:
        lines += ["env:", "  # vLLM's DeepGEMM extension is compiled for other versions of Python only."]
        lines += ['  VLLM_USE_DEEP_GEMM: "0"']
    lines += ["stack:", f"  wheels: {section}"]
    if found.shared:
        lines += ["  # Files that several wheels contain; the file of the first one stays.", "  shared:"]
        lines += [f"    {_word(path)}: [{', '.join(map(_word, owners))}]" for path, owners in found.shared.items()]
    if found.leave_out:
        lines.append("  leave_out:")
        lines += [f"    {_word(distribution)}: {_text(why)}" for distribution, why in found.leave_out.items()]
    if notes:
        lines += ["notes:", *(f"  - {_text('Not known: ' + note)}" for note in notes)]
    return "\n".join(lines) + "\n"


def _word(value: str) -> str:
    """A string as YAML, as it is where that is read as this string: `null` and `on` are not."""
    return value if _PLAIN.fullmatch(value) and parse_yaml(value, "") == value else _text(value)


def _text(value: str) -> str:
    """A string as YAML: JSON strings are valid YAML, but for characters that YAML cannot contain."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
