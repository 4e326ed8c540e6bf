"""`--policy`: an image is used only when the statements that a policy demands are attached to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from builder.attest.keys import PublicKey
from builder.attest.policy import Policy, judge
from builder.cli.output import say
from builder.cli.proof.keys import read_public_keys
from builder.digest import Digest
from builder.errors import DiffersError, InvalidError, PinError
from builder.model.reference import Reference
from builder.model.yamlfile import load
from builder.registry.client import Registry
from builder.registry.signed import Said, signed_statements
from builder.smoke.image.remote import remote_image


def pinned(path: Path | None, image: str) -> str:
    """An image in a registry, named by its digest, which meets the policy if one is given. Raises as `enforce`."""
    reference = Reference.parse(image)
    policy = image_policy(path)
    digest = remote_image(reference).digest
    if policy is not None:
        enforce(policy, reference, digest)
    return reference.pinned(digest)


def read_policy(path: Path) -> tuple[Policy, list[PublicKey]]:
    """The policy in a file and its keys, with the names that it gives them. Raises UsageError, InvalidError."""
    policy = load(path, Policy)
    files = {name: path.parent / name for name in policy.keys}
    keys = [replace(key, name=name) for name, key in zip(files, read_public_keys(list(files.values())), strict=True)]
    for key in keys:
        if other := next((item for item in keys if item.hint == key.hint and item.name != key.name), None):
            raise InvalidError(
                f"{key.name} and {other.name} hold the same key, which counts once",
                id="policy-key-twice",
                where=str(path),
            )
    return policy, keys


@dataclass(frozen=True)
class ImagePolicy:
    """A policy for images, its keys, and its file."""

    path: Path
    policy: Policy
    keys: Sequence[PublicKey]


def image_policy(path: Path | None) -> ImagePolicy | None:
    """The policy in a file, if one is given; read before a registry is asked. Raises UsageError, InvalidError."""
    if path is None:
        return None
    policy, keys = read_policy(path)
    if not policy.judges_images:
        raise InvalidError(
            "it has rules for layers only",
            id="policy-without-images",
            where=str(path),
            next="name keys under signed or rebuilt",
        )
    return ImagePolicy(path, policy, keys)


def enforce(demanded: ImagePolicy, reference: Reference, image: Digest) -> None:
    """Print every rule of a policy, and whether the image meets it.

    Raises PinError when a rule is not met, DiffersError when a key of the policy has signed that a rebuild differs,
    NetworkError.
    """
    found = signed_statements(Registry(), reference, image, demanded.keys)
    said = [(item.signer.name, item.statement) for item in found if isinstance(item, Said)]
    rules = judge(demanded.policy, said, datetime.now(UTC))
    for rule in rules:
        say(f"policy: {rule.text}")
    unmet = [rule for rule in rules if not rule.met]
    if not unmet:
        return
    where = reference.pinned(image)
    error = DiffersError if any(rule.differs for rule in unmet) else PinError
    raise error(
        f"the image does not meet {len(unmet)} of {len(rules)} rules of {demanded.path}",
        id="policy-unmet",
        where=where,
        cause="; ".join(rule.text for rule in unmet),
        next=f"rebuild it yourself: builder verify {where}",
    )
