"""The static checks of unwanted content: secrets in files and configuration, compiled Python."""

from __future__ import annotations

import json
from collections.abc import Sequence

from builder.smoke.check import CheckFailed, check_kind
from builder.smoke.image.scan import ScanOptions
from builder.smoke.image.secrets import find_in_text, find_in_variable, find_shapes
from builder.smoke.static.context import Context, Reads
from builder.smoke.static.files import allowed_by
from builder.text import first_few


@check_kind("static", "no-bytecode", Reads("ours"))
def no_bytecode(context: Context) -> str:
    """No compiled Python: its bytes differ between builds, and it is stale when its source is patched."""
    bad = [
        f"/{path}"
        for path, entry in context.tree.entries.items()
        if entry.kind == "file" and path.endswith((".pyc", ".pyo")) and context.is_ours(entry.layer)
    ]
    if bad:
        raise CheckFailed(f"compiled Python: {first_few(bad)}")
    return "none"


@check_kind("static", "no-secrets", Reads("ours", scan=ScanOptions(secrets=True)))
def no_secrets(context: Context, *, allowed: Sequence[str] = ()) -> str:
    """No private key, token, login or password in the files of our layers, including files that a later layer hides,
    and in variables, labels, history, entrypoint and command. allowed: patterns of files (published test keys)."""
    bad = []
    for layer in context.tree.layers:
        if context.is_ours(layer.number):
            found = [(path, what) for path, what in layer.secrets if not allowed_by(path, allowed)]
            bad += [f"{what} in /{path} ({context.name(layer.number)})" for path, what in found]
            names = "\n".join([*layer.entries, *(entry.link for entry in layer.entries.values() if entry.link)])
            bad += [
                f"{what} in the name of a file ({context.name(layer.number)})"
                for what in find_shapes(names.encode("utf-8", "surrogateescape"))
            ]
    image = context.image
    for name, value in image.env.items():
        bad += [f"{what} in the variable {name}" for what in find_in_variable(name, value)]
    for name, value in {**(image.settings.get("Labels") or {}), **(image.manifest.get("annotations") or {})}.items():
        bad += [f"{what} in the label {name}" for what in find_in_variable(name, str(value))]
    for line in image.config.get("history") or ():
        text = " ".join(str(line.get(key) or "") for key in ("created_by", "comment", "author"))
        bad += [f"{what} in the history" for what in find_in_text(text)]
    for key in ("Entrypoint", "Cmd", "Healthcheck"):
        bad += [f"{what} in {key}" for what in find_in_text(str(image.settings.get(key) or ""))]
    # Such as docker's container_config, and annotations of a layer.
    whole = json.dumps([image.manifest, image.config], ensure_ascii=False).encode("utf-8", "replace")
    bad += [] if bad else [f"{what} in the manifest or configuration" for what in find_shapes(whole)]
    if bad:
        raise CheckFailed(first_few(list(dict.fromkeys(bad))))
    return "none"
