"""Statements about how an image came to be: SLSA provenance, results of checks, and rebuilds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from builder import __version__
from builder.attest.inventory import part_of
from builder.digest import Digest
from builder.model.plan import Plan

BUILD_TYPE = "urn:builder:plan:v1"
BUILDER = "urn:builder"
"""Who built: the program. The machine is not named, for the bytes do not depend on it."""


def provenance(plan: Plan, bundle: Digest) -> dict[str, Any]:
    """The predicate of SLSA v1 provenance (https://slsa.dev/spec/v1.0/provenance) of a plan's image.

    bundle: the digest of the plan's bundle, which is the build definition. Locked inputs, also those of the toolchain,
    and the base are the resolved dependencies. Equal plans have equal provenance: no time is in it.
    """
    external = {"bundle": {"sha256": bundle.hex}, "recipe": plan.recipe, "base": plan.base, "platform": plan.platform}
    inputs = {item.sha256: item for layer in (*plan.layers, *plan.used_toolchains) for item in layer.inputs}
    dependencies = [
        {"name": item.file, "uri": part_of(item).purl, "digest": {"sha256": item.sha256}} for item in inputs.values()
    ]
    dependencies.sort(key=lambda item: (item["name"], item["uri"]))
    if plan.base_image is not None and plan.base_manifest is not None:
        dependencies.append({"name": plan.base_image, "digest": {"sha256": plan.base_manifest.hex}})
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": external,
            "internalParameters": {"layers": {layer.id: layer.key for layer in plan.layers if layer.key}},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {"builder": {"id": BUILDER, "version": {"builder": __version__}}},
    }


def tested(image: Digest, results: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """The predicate of results of checks (https://in-toto.io/attestation/test-result/v0.1).

    results: tier, id and status (pass, warn, fail or not-run) of each check. Checks that did not run are in no list.
    """
    names: dict[str, list[str]] = {"pass": [], "warn": [], "fail": []}
    for tier, name, status in results:
        if status in names:
            names[status].append(f"{tier}/{name}")
    result = "FAILED" if names["fail"] else "WARNED" if names["warn"] else "PASSED"
    return {
        "result": result,
        "configuration": [{"name": "image", "digest": {"sha256": image.hex}}],
        "passedTests": sorted(names["pass"]),
        "warnedTests": sorted(names["warn"]),
        "failedTests": sorted(names["fail"]),
    }


def rebuilt(
    verdict: str,
    parts: Sequence[Mapping[str, Any]],
    keys: Mapping[str, str],
    *,
    plan: Digest,
    machine: Mapping[str, str | None],
    finished: str,
    variations: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The predicate of a rebuild, a difference included.

    parts: outcome, expected and got of each part of the image. keys: of layers, by id. plan: the digest of the bundle
    of the plan that was rebuilt. machine: architecture and engine of the machine. finished: RFC 3339, in UTC.
    variations: name, the layers rebuilt under it, and those of them that changed.
    """
    rows = [{**part, "key": keys[part["part"]]} if part["part"] in keys else dict(part) for part in parts]
    return {
        "verdict": verdict,
        "bundle": {"sha256": plan.hex},
        "verifier": {"builder": __version__, **machine},
        "finishedOn": finished,
        "parts": rows,
        "variations": list(variations),
    }
