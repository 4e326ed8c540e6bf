"""Bundles in a registry: attached to an image when it is pushed, and found again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from builder.digest import Digest, is_digest
from builder.errors import BuilderError, InvalidError, PinError
from builder.jsontext import parse_json
from builder.mirror.repository import RegistryBackend
from builder.mirror.source import MirrorSource
from builder.model.canonical import canonical
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.oci.assemble import BaseImage, Image, config_of
from builder.oci.manifest import OCI_MANIFEST
from builder.plan.bundle import LIMIT, MEDIA_TYPE, read_bundle, write_bundle
from builder.registry.client import Registry
from builder.registry.referrers import attach, attached, read_attached
from builder.smoke.image.opened import OpenedImage
from builder.text import is_plain_line
from builder.verify.revision import Revision

_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_REVISION = "org.opencontainers.image.revision"
_CLEAN = "org.builder.project.clean"
_INPUTS = "org.builder.inputs"
_PROFILE = "org.builder.profile"
_SETS = "org.builder.set"
_MOST_SETS = 200
_MOST = 20
"""Bundles of one image that are read."""
_ALL = 4 * LIMIT
"""Bytes of all of them."""


@dataclass(frozen=True)
class Bundle:
    """A bundle: its plan, the digest of its bytes, and the revision of the project that its publisher named.

    inputs: whether its publisher says that the inputs are in the repository of the image. profile, sets: the options
    that its publisher says the recipe was planned with.
    """

    plan: Plan
    digest: Digest
    revision: Revision | None
    inputs: bool = False
    profile: str | None = None
    sets: tuple[str, ...] = ()


def subject_of(image: Image) -> dict[str, Any]:
    """The descriptor of an image, for what is attached to it."""
    return {"mediaType": OCI_MANIFEST, "digest": image.digest, "size": len(image.manifest)}


def attach_bundle(
    client: Registry,
    target: Reference,
    image: Image,
    plan: Plan,
    revision: Revision | None,
    inputs: Digest | None = None,
    profile: str | None = None,
    sets: Sequence[str] = (),
) -> Digest:
    """Attach the bundle of a pushed image to it; returns the digest of the artifact. Raises NetworkError, PinError.

    inputs: the digest of the artifact in the same repository that lists all inputs. profile, sets: the options that
    the recipe was planned with.
    """
    said = {_REVISION: revision.commit, _CLEAN: str(revision.clean).lower()} if revision is not None else {}
    said |= {_INPUTS: inputs} if inputs is not None else {}
    said |= {_PROFILE: profile} if profile is not None else {}
    said |= {_SETS: json.dumps(sorted(sets))} if sets else {}
    return attach(client, target, subject_of(image), write_bundle(plan), MEDIA_TYPE, said)


def inputs_source(client: Registry, reference: Reference, bundle: Bundle) -> MirrorSource | None:
    """Where the publisher has put the inputs of a bundle: the repository of its image, and never another place."""
    if not bundle.inputs:
        return None
    return MirrorSource(RegistryBackend(f"{reference.registry}/{reference.repository}", client))


def bundles_of(client: Registry, reference: Reference, image: Digest) -> Iterator[Bundle]:
    """The valid bundles that are attached to an image.

    Anybody who may push can attach one: the caller compares its plan with the image. Raises PinError when none is
    attached, InvalidError when none of them is valid, NetworkError.
    """
    listed = attached(client, reference, image, MEDIA_TYPE)
    if not listed:
        raise PinError(
            "no bundle is attached to the image",
            id="bundle-missing",
            where=reference.pinned(image),
            cause="another program pushed it, or it was copied without what is attached to it",
            next=f"name the recipe that makes it: builder verify {reference.pinned(image)} --recipe NAME",
        )
    found = False
    problem: BuilderError | None = None
    left = _ALL
    for descriptor in listed[:_MOST]:
        try:
            artifact = read_attached(client, reference, descriptor, min(LIMIT, left))
            left -= len(artifact.payload)
            where = f"bundle {descriptor['digest']}"
            if artifact.subject != image:
                raise InvalidError(
                    f"it is about another image, {artifact.subject[:80]!a}", id="bundle-of-other-image", where=where
                )
            plan = read_bundle(artifact.payload, where)
        except (InvalidError, PinError) as error:
            problem = error
            continue
        found = True
        said = artifact.annotations
        commit = said.get(_REVISION, "")
        revision = Revision(commit, said.get(_CLEAN) == "true") if _COMMIT.fullmatch(commit) else None
        # What a stranger wrote makes no line of its own in a message.
        profile = said.get(_PROFILE)
        profile = profile if profile and is_plain_line(profile) else None
        yield Bundle(plan, Digest.of(artifact.payload), revision, _INPUTS in said, profile, _sets(said.get(_SETS)))
    if not found and problem is not None:
        raise problem


def bundle_of(
    client: Registry,
    reference: Reference,
    image: OpenedImage,
    base_of: Callable[[Bundle], BaseImage | None],
    preferred: Callable[[Bundle], bool] | None = None,
) -> Bundle:
    """The bundle of an image: the first that makes its configuration, if its layers are those of the image; else the
    first of all. base_of: reads the base of a bundle's plan. preferred: those to take first. Raises as `bundles_of`.

    A bundle may be attached more than once, with its inputs and without.
    """
    every: dict[Digest, Bundle] = {}
    for bundle in bundles_of(client, reference, image.digest):
        known = every.get(bundle.digest)
        every[bundle.digest] = replace(known, inputs=known.inputs or bundle.inputs) if known is not None else bundle
    candidates = list(every.values())
    if preferred is not None and len(candidates) > 1:
        candidates.sort(key=preferred, reverse=True)
    for bundle in candidates:
        if makes(bundle.plan, base_of(bundle), image):
            return bundle
    return candidates[0]


def makes(plan: Plan, base: BaseImage | None, image: OpenedImage) -> bool:
    """Whether a plan makes the configuration of an image, if its layers are those of the image. base: of the plan."""
    diff_ids = [Digest(text) for text in image.diff_ids if is_digest(text)]
    return Digest.of(canonical(config_of(plan, diff_ids, base))) == image.config_digest


def _sets(text: str | None) -> tuple[str, ...]:
    """The parameters in an annotation; none when it is not a list of lines."""
    try:
        found = parse_json(text.encode(), _MOST_SETS) if text is not None else []
    except ValueError:
        return ()
    texts: list[Any] = found if isinstance(found, list) else [None]
    return tuple(texts) if all(isinstance(item, str) and is_plain_line(item) for item in texts) else ()
