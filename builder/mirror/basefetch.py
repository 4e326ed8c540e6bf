"""Reads the manifest and config of a registry base: from the store, else the mirror, else the registry."""

from __future__ import annotations

from builder.digest import Digest
from builder.errors import BuilderError, InvalidError, NetworkError, PinError
from builder.mirror.source import MirrorSource, mirror_command
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.oci.assemble import BaseImage, parse_base
from builder.oci.manifest import check_platform, parse_manifest
from builder.registry.client import Registry
from builder.store.store import Store


def base_image(plan: Plan, store: Store, *, offline: bool, source: MirrorSource | None = None) -> BaseImage | None:
    """The base of a plan, a few kilobytes; None for a hermetic plan. Its layers are not read.

    source: the mirror that `--mirror` names, read before the registry.

    Raises NetworkError when the registry cannot be reached (its advice names the hermetic base where there is one),
    PinError when the image is not the pinned one, or is for another platform, InvalidError when a layer reads a base
    that has commands of its own for builds.
    """
    if plan.base_image is None:
        return None
    assert plan.base_manifest is not None
    reference = Reference.parse(f"{plan.base_image}@{plan.base_manifest}")
    manifest = _from_store(store, plan.base_manifest)
    config = _from_store(store, parse_manifest(manifest, where=str(reference)).config.digest) if manifest else None
    if manifest is None or config is None:
        found = _from_source(plan, source, offline=offline) if source is not None else None
        if found is None and offline:
            raise PinError(
                f"the base {plan.base} is not in the store, and this is offline",
                id="base-missing-offline",
                where=str(reference),
                next="run the same command once without --offline",
            )
        manifest, config = found or _from_registry(plan, reference)
        check_platform(config, plan.platform, str(reference))
        store.put(manifest)
        store.put(config)
    check_platform(config, plan.platform, str(reference))
    base = parse_base(str(reference), manifest, config)
    if any(layer.reads_base for layer in plan.layers) and (base.config.get("config") or {}).get("OnBuild"):
        raise InvalidError(
            f"the base {plan.base} has commands that run in builds on it (OnBuild)",
            id="base-onbuild",
            where=str(reference),
            cause="a layer reads the base: an engine would run them, and no layer says them",
            next="choose another base",
        )
    return base


def pinned_base(reference: Reference, store: Store) -> BaseImage:
    """A base by its digest: from the store, else from its registry; nothing is kept. Raises NetworkError, PinError."""
    assert reference.digest is not None
    manifest = _from_store(store, reference.digest)
    config = _from_store(store, parse_manifest(manifest, where=str(reference)).config.digest) if manifest else None
    if manifest is None or config is None:
        registry = Registry()
        found = registry.manifest(reference)
        manifest, config = found.data, registry.config(reference, found)
    return parse_base(str(reference), manifest, config)


def _from_source(plan: Plan, source: MirrorSource, *, offline: bool) -> tuple[bytes, bytes] | None:
    assert plan.base_manifest is not None
    try:
        return source.base(plan.base_manifest)
    except (PinError, NetworkError, OSError) as error:
        if not offline:
            reason = error.what if isinstance(error, BuilderError) else str(error)
            source.report_missing(f"base {plan.base}", reason)
            return None
        if isinstance(error, PinError):
            command = mirror_command(source.name, "--verify", "--recipe", plan.recipe, "--base", plan.base)
            raise PinError(
                f"the base {plan.base} is neither in the store nor intact in the mirror, and this is offline",
                id="mirror-base-missing",
                where=source.name,
                cause=error.what,
                next=f"where there is a network, complete or repair the mirror: {command}",
            ) from error
        raise NetworkError(
            f"cannot read the base {plan.base} from the mirror",
            id="mirror-base-unreadable",
            where=source.name,
            cause=error.what if isinstance(error, NetworkError) else error.strerror or "",
        ) from error


def _from_registry(plan: Plan, reference: Reference) -> tuple[bytes, bytes]:
    registry = Registry()
    try:
        found = registry.manifest(reference)
        if found.is_index:
            raise index_pin_error(reference, plan.base)
        config = registry.config(reference, found)
    except NetworkError as error:
        raise with_hermetic_hint(error, plan) from error
    return found.data, config


def index_pin_error(reference: Reference, base: str) -> PinError:
    """The error for a pin whose manifest digest is that of an index."""
    return PinError(
        "the pin is the digest of an index, not of one platform's image",
        id="base-pin-index",
        where=str(reference),
        next=f"builder lock --update {base}",
    )


def with_hermetic_hint(error: NetworkError, plan: Plan) -> NetworkError:
    """The same error, with the advice to build on the hermetic base where the recipe has one."""
    if not any(name.startswith("hermetic") for name in plan.compatible):
        return error.replaced()
    hint = "add --base hermetic, which needs no registry"
    return error.replaced(next=f"{hint}; or {error.next}" if error.next else hint)


def _from_store(store: Store, digest: Digest) -> bytes | None:
    """The blob, claimed; None when it is absent or damaged."""
    store.claim(digest)
    try:
        return store.read(digest)
    except PinError:
        return None
