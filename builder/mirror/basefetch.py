"""A registry base's manifest and config: from the store when they are there, else by digest from its registry."""

from __future__ import annotations

import json

from builder.errors import BuilderError, NetworkError, PinError
from builder.mirror.source import MirrorSource, mirror_command
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.oci.assemble import BaseImage, parse_base
from builder.oci.manifest import check_platform
from builder.registry.client import Registry
from builder.store.store import Store


def base_image(plan: Plan, store: Store, *, offline: bool, source: MirrorSource | None = None) -> BaseImage | None:
    """The base of a plan, a few kilobytes; None for a hermetic one. Its layers are not touched.

    source: a mirror of ours, asked before the registry.

    Raises NetworkError when its registry cannot be reached (naming the hermetic base where there is one), PinError
    when it is another image than the pinned one, or for another platform.
    """
    if plan.base_image is None:
        return None
    assert plan.base_manifest is not None
    reference = Reference.parse(f"{plan.base_image}@{plan.base_manifest}")
    manifest = _from_store(store, plan.base_manifest)
    config = _from_store(store, json.loads(manifest)["config"]["digest"]) if manifest else None
    if manifest is None or config is None:
        found = _from_source(plan, source, offline=offline) if source is not None else None
        if found is None and offline:
            raise PinError(
                f"the base {plan.base} is not in the store, and this is offline",
                where=str(reference),
                next="run the same command once without --offline",
            )
        manifest, config = found or _from_registry(plan, reference)
        check_platform(config, plan.platform, str(reference))
        store.put(manifest)
        store.put(config)
    check_platform(config, plan.platform, str(reference))
    return parse_base(str(reference), manifest, config)


def _from_source(plan: Plan, source: MirrorSource, *, offline: bool) -> tuple[bytes, bytes] | None:
    assert plan.base_manifest is not None
    try:
        return source.base(plan.base_manifest)
    except (PinError, NetworkError, OSError) as error:
        if not offline:
            source.lacks(f"base {plan.base}", error.what if isinstance(error, BuilderError) else str(error))
            return None
        if isinstance(error, OSError):
            raise NetworkError(f"cannot read the base {plan.base} from the mirror", where=source.name) from error
        raise type(error)(
            f"the base {plan.base} is neither in the store nor in the mirror, and this is offline",
            where=source.name,
            cause=error.what,
            next="complete or mend the mirror where there is a network: "
            + mirror_command(source.name, "--verify", "--recipe", plan.recipe, "--base", plan.base),
        ) from error


def _from_registry(plan: Plan, reference: Reference) -> tuple[bytes, bytes]:
    registry = Registry()
    try:
        found = registry.manifest(reference)
        if found.is_index:
            raise PinError(
                "the pin is an index, not one platform's image",
                where=str(reference),
                next=f"builder lock --update {plan.base}",
            )
        config = registry.config(reference, found)
    except NetworkError as error:
        raise with_hermetic_hint(error, plan) from error
    return found.data, config


def with_hermetic_hint(error: BuilderError, plan: Plan) -> NetworkError:
    """The same error, naming the way that needs no registry, where the recipe has one."""
    if not any(name.startswith("hermetic") for name in plan.compatible):
        return NetworkError(error.what, where=error.where, cause=error.cause, next=error.next)
    return NetworkError(
        error.what,
        where=error.where,
        cause=error.cause,
        next=f"builder build --recipe {plan.recipe} --base hermetic needs no registry"
        + (f"; or {error.next}" if error.next else ""),
    )


def _from_store(store: Store, digest: str) -> bytes | None:
    return store.read(digest) if store.has(digest) else None
