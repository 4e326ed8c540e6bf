"""`builder verify`: rebuilds an image and compares it, layer by layer."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from builder.cli.image.built import built_image
from builder.cli.image.given import ask_trust, bundle_and_source
from builder.cli.options import (
    COMPRESSION,
    PLATFORM,
    BaseOption,
    BuilderOption,
    CompressionOption,
    EngineOption,
    JobsOption,
    JsonOption,
    KeyOption,
    MirrorOption,
    OfflineOption,
    PolicyOption,
    ProfileOption,
    SetOption,
    SignedByOption,
    TrustOption,
)
from builder.cli.output import counted, say, size
from builder.cli.progress import Progress
from builder.cli.proof.keys import read_public_keys
from builder.cli.proof.origin import Asked, ProjectPlans
from builder.cli.proof.people import attest_rebuild, attesting_key, demand_only, demand_signed
from builder.cli.proof.policy import image_policy
from builder.cli.proof.vary import as_json, check_varied, steps_engine, vary
from builder.cli.proof.verdict import conclude, verdict_on
from builder.cli.request import PlanRequest, asked, open_store
from builder.engine.interface import Engine
from builder.engine.select import check_engine, select_engine
from builder.errors import UsageError
from builder.mirror.source import MirrorSource, mirror_source
from builder.model.plan import Plan
from builder.model.reference import Reference
from builder.produce.survey import Needs
from builder.project import Project
from builder.registry.client import Registry
from builder.smoke.image.opened import OpenedImage, open_image
from builder.smoke.image.remote import remote_image
from builder.store.store import Store
from builder.verify.compare import Compared, compare_image, compare_layers
from builder.verify.rebuild import needs_no_compiler, rebuild
from builder.verify.statements import compare_statements
from builder.verify.vary.kinds import chosen


@dataclass(frozen=True)
class _Subject:
    """An image, the plan that it is compared with, and where the plan comes from.

    source: a mirror of its inputs. claim: what is known of whose plan it is. own: it is of a project of the user.
    """

    name: str
    image: OpenedImage
    plan: Plan
    origin: str
    source: MirrorSource | None
    claim: str
    own: bool


def verify(
    reference: Annotated[
        str | None, typer.Argument(metavar="REF", help="The image: REGISTRY/REPOSITORY:TAG or @DIGEST.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", "-r", help="Rebuild from this project's recipe, not from the image's bundle."),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option("--project", help="Check that the bundle is the plan of this project: DIR or URL@COMMIT."),
    ] = None,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    compression: CompressionOption = COMPRESSION,
    layer: Annotated[
        list[str] | None, typer.Option("--layer", help="Rebuild only this layer. May be repeated.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Rebuild only layers that need no compiler.")] = False,
    built_: Annotated[
        bool,
        typer.Option("--built", help="Compare with layers that this store has built; rebuild only the others."),
    ] = False,
    vary_: Annotated[
        str | None,
        typer.Option(
            "--vary",
            metavar="GROUPS",
            help="Also rebuild under variations of this machine: all, or some of them, as in time,umask.",
        ),
    ] = None,
    trust_plan: TrustOption = False,
    engine: EngineOption = None,
    builder: BuilderOption = None,
    jobs: JobsOption = None,
    offline: OfflineOption = False,
    mirror: MirrorOption = None,
    signed_by: SignedByOption = None,
    policy: PolicyOption = None,
    no_rebuild: Annotated[
        bool, typer.Option("--no-rebuild", help="Only check who has signed statements; rebuild nothing.")
    ] = False,
    attest: Annotated[
        bool, typer.Option("--attest", help="Sign the outcome with --key, a difference included, and attach it.")
    ] = False,
    key: KeyOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all output of the engine.")] = False,
    json_: JsonOption = False,
) -> None:
    """Rebuild an image and compare it, layer by layer: exit status 0 when it is identical, 8 when it differs.

    Without REF, the image of the recipe that this machine has built. Without --recipe, the plan is the bundle that is
    attached to the image: nobody vouches for it, so its commands run only with consent.
    """
    check_engine(engine, builder)
    variations = chosen(vary_) if vary_ is not None else []
    if built_ and (attest or variations):
        raise UsageError("--built shows no new rebuild: --attest and --vary need one", id="verify-built-no-rebuild")
    engine = steps_engine(engine, builder) if variations else engine
    keys, demanded = read_public_keys(signed_by), image_policy(policy)
    signing = attesting_key(key, reference) if attest else None
    if (keys or policy or no_rebuild) and reference is None:
        raise UsageError(
            "signatures are checked of an image in a registry", id="verify-image-not-given", next="name REF"
        )
    if no_rebuild:
        demand_only(Reference.parse(str(reference)), keys, demanded, rebuild=attest, json=json_)
        return
    request = None
    if recipe is not None:
        request = asked(Project(), recipe, base, set_, profile, PLATFORM, compression)
    elif (base or set_ or profile) and project is None:
        raise UsageError("--base, --set and --profile belong to --recipe", id="verify-recipe-missing")
    if project is not None and (recipe is not None or reference is None):
        what = "--project is about the bundle of REF: name REF, and no recipe"
        raise UsageError(what, id="verify-project-and-recipe")
    origin = Asked(project, base, tuple(set_ or ()), profile) if project is not None else None
    store = open_store()
    source = mirror_source(mirror)
    subject = _subject(reference, request, origin, store, offline=offline, source=source)
    if reference is not None:
        demand_signed(Reference.parse(reference), subject.image.digest, keys, demanded)
    wanted = _chosen(subject.plan, layer or (), quick=quick)
    _say_claims(subject, wanted, signed=bool(keys or policy), built=built_)
    if request is None and not subject.own:
        ask_trust(subject.plan, subject.name, trusted=trust_plan)
    engines: dict[str, Engine] = {}
    with (
        Progress(verbose) as progress,
        rebuild(
            store,
            subject.plan,
            wanted,
            engine=lambda: engines.setdefault("used", select_engine(engine, builder)),
            offline=offline,
            listener=progress.on_event,
            log=progress.on_log,
            announce=lambda needs: _announce(needs, store),
            jobs=jobs,
            source=subject.source,
            built=built_,
        ) as rebuilt,
    ):
        below = [item.digest for item in rebuilt.base.manifest.layers] if rebuilt.base is not None else []
        ours = [item.id for item in subject.plan.layers if item.producer != "config"]
        compared = list(compare_layers(subject.image, below, ours, rebuilt.layers))
        if rebuilt.image is not None:
            compared += compare_image(subject.image, rebuilt.image, compared)
        varied = vary(
            store,
            subject.plan,
            rebuilt.layers,
            variations,
            engine=engine,
            builder=builder,
            jobs=jobs,
            log=progress.on_log,
        )
    for warning in subject.source.warnings() if subject.source is not None else ():
        say(f"warning: {warning}")
    said: list[Compared] = []
    if reference is not None:
        said = list(compare_statements(Registry(), Reference.parse(reference), subject.image.digest, subject.plan))
    verdict = verdict_on(compared, said, subject.name)
    if signing is not None:
        attest_rebuild(
            Reference.parse(str(reference)),
            subject.image.digest,
            subject.plan,
            verdict,
            [*compared, *said],
            varied,
            engine=engines.get("used"),
            key=signing,
        )
    about = {"image": subject.image.digest, "plan": subject.origin, "earlier": list(rebuilt.earlier)} | as_json(varied)
    conclude(about, verdict, compared, said, where=subject.name, json=json_)
    check_varied(varied, subject.name)


def _subject(
    reference: str | None,
    request: PlanRequest | None,
    asked: Asked | None,
    store: Store,
    *,
    offline: bool,
    source: MirrorSource | None,
) -> _Subject:
    claim = "the plan is this project's"
    if reference is None:
        if request is None:
            raise UsageError(
                "no image to verify", id="verify-image-not-given", next="name REF, or a recipe: --recipe NAME"
            )
        built, _ = built_image(request, Project())
        image = open_image(store.root, built.image.digest)
        name = f"{request.recipe} {image.digest}"
        return _Subject(name, image, built.plan, "this project", source, claim, own=True)
    where = Reference.parse(reference)
    client = Registry()
    image = remote_image(where, client)
    name = where.pinned(image.digest)
    if request is not None:
        return _Subject(name, image, request.plan(Project()), "this project", source, claim, own=True)
    with contextlib.ExitStack() as stack:
        plans = stack.enter_context(contextlib.closing(ProjectPlans(asked, store))) if asked is not None else None
        bundle, source = bundle_and_source(
            client, where, image, store, offline=offline, source=source, preferred=plans.makes if plans else None
        )
        claim = "whose plan it is, is not checked"
        if plans is not None:
            plans.check(bundle, name)
            claim = f"the plan is the one of {plans.name(bundle)}"
    origin = f"the attached bundle {bundle.digest}"
    if bundle.revision is not None:
        clean = "" if bundle.revision.clean else ", with changes"
        origin += f", of commit {bundle.revision.commit} as its publisher says{clean}"
    own = plans is not None and not plans.fetched
    return _Subject(name, image, bundle.plan, origin, source, claim, own)


def _chosen(plan: Plan, named: Sequence[str], *, quick: bool) -> list[str]:
    layers = {layer.id: layer for layer in plan.layers if layer.producer != "config"}
    if unknown := next((name for name in named if name not in layers), None):
        raise UsageError(
            f"the plan has no layer {unknown!r}", id="verify-layer-unknown", cause=f"its layers: {', '.join(layers)}"
        )
    return [
        name
        for name, layer in layers.items()
        if (not named or name in named) and (not quick or needs_no_compiler(layer))
    ]


def _say_claims(subject: _Subject, wanted: Sequence[str], *, signed: bool, built: bool) -> None:
    total = sum(layer.producer != "config" for layer in subject.plan.layers)
    how = "takes as this store built them, or rebuilds," if built else "rebuilds"
    say(f"{subject.name}: {how} {len(wanted)} of {counted(total, 'layer')} from {subject.origin}")
    if subject.source is not None:
        say(f"takes inputs from {subject.source.name} first, each by its hash")
    people = "signatures are those demanded" if signed else "no signature is checked"
    say(f"compares unpacked content, blobs, configuration and manifest; {subject.claim}; {people}")


def _announce(needs: Needs, store: Store) -> None:
    disk = needs.download + needs.store + needs.temporary
    say(f"{size(needs.download)} to download; needs up to {size(disk)} of disk at {store.root} meanwhile")
