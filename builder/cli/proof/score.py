"""`builder show REF`: what signed statements show of how reproducible an image is."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from builder.attest.score import Score, image_level, scores
from builder.cli.output import counted, print_json, print_line, say
from builder.cli.proof.keys import read_public_keys
from builder.cli.proof.people import read_statements
from builder.model.reference import Reference
from builder.registry.client import Registry
from builder.registry.signed import Said
from builder.smoke.image.remote import remote_image


def show_score(name: str, signed_by: list[Path] | None, *, json: bool) -> None:
    """Print the score of each layer of an image in a registry, and of the image.

    signed_by: the keys whose statements count. Raises UsageError, InvalidError, NetworkError, PinError.
    """
    keys = read_public_keys(signed_by)
    reference, client = Reference.parse(name), Registry()
    image = remote_image(reference, client)
    found: list[Said] = []
    if keys:
        found, _ = read_statements(client, reference, image.digest, keys)
    else:
        say("no statement counts: name the keys of those whom you trust with --signed-by KEY.pub")
    said = [(item.signer.name, item.statement) for item in found]
    layers = scores([item.digest for item in image.layers], said)
    level = image_level(layers, said)
    if json:
        print_json({"image": image.digest, "score": level, "layers": [asdict(item) for item in layers]})
        return
    print_line(f"{reference.pinned(image.digest)}: {level}", hang=2)
    width = max((len(item.name) for item in layers), default=0)
    for item in layers:
        print_line(f"  {item.name:{width}}  {item.level:17}  {_shown(item)}".rstrip(), hang=4)


def _shown(score: Score) -> str:
    if score.differs:
        return f"says {', '.join(score.differs[:3])}"
    if not score.signers:
        return ""
    people = f"{counted(len(score.signers), 'signer')} on {', '.join(score.machines[:3])}"
    return f"{people}; {counted(len(score.variations), 'variation')}"
