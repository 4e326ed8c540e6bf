"""`builder push`: a built image to a registry, with its bundle, and the results of its smoke checks if asked."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Annotated, Any

import typer

from builder.attest.provenance import tested
from builder.attest.statement import TESTED
from builder.cli.image.built import built_image
from builder.cli.image.mirror import raise_for
from builder.cli.image.sending import Sending
from builder.cli.options import (
    COMPRESSION,
    PLATFORM,
    BaseOption,
    CompressionOption,
    JsonOption,
    KeyOption,
    MirrorOption,
    ProfileOption,
    RecipeOption,
    SetOption,
)
from builder.cli.output import print_json, print_line, say, size
from builder.cli.progress import Progress
from builder.cli.proof.keys import read_signing_key
from builder.cli.request import PlanRequest, asked
from builder.digest import Digest
from builder.errors import UsageError
from builder.folders import FILE
from builder.mirror.artifact import artifact_tag
from builder.mirror.copy import Copier
from builder.mirror.repository import RegistryBackend
from builder.mirror.source import MirrorSource, mirror_source
from builder.model.reference import Reference
from builder.oci.assemble import Image
from builder.parallel import Pool
from builder.produce.image import Built
from builder.project import Project
from builder.registry.client import Registry
from builder.registry.push import push_image, survey_push
from builder.registry.referrers import attach
from builder.regular import read_regular
from builder.smoke.results import LIMIT, MEDIA_TYPE, read_results, results_folder, results_path
from builder.store.images import note_push
from builder.store.store import Store
from builder.verify.bundles import attach_bundle, subject_of
from builder.verify.inventory import built_inventory
from builder.verify.revision import Revision, revision_of
from builder.verify.statements import attach_statements, statements_about


def push(
    references: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="REF",
            help="Targets: REGISTRY/REPOSITORY:TAG; default tag: latest. Default: RECIPE in builder.toml's registry.",
        ),
    ] = None,
    *,
    recipe: RecipeOption,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    compression: CompressionOption = COMPRESSION,
    with_results: Annotated[
        bool, typer.Option("--with-results", help="Also attach the results of the image's smoke checks to it.")
    ] = False,
    with_inputs: Annotated[
        bool, typer.Option("--with-inputs", help="Also put all inputs beside the image: it can then always be rebuilt.")
    ] = False,
    mirror: MirrorOption = None,
    key: KeyOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Send nothing; print what would be sent.")] = False,
    json_: JsonOption = False,
) -> None:
    """Push a built image and print its reference by digest. Blobs that the registry has already are not sent.

    Several tags of one repository cost nothing more; another repository gets the image and all that is attached.

    Attached to it are the bundle of its plan, from which `builder verify` rebuilds it, its SBOMs and its provenance.
    With --key, they and the image are signed.
    """
    project = Project()
    project.recipe(recipe)
    targets = _targets(references or (), recipe, project)
    signing = read_signing_key(key)
    request = asked(project, recipe, base, set_, profile, PLATFORM, compression)
    built, store = built_image(request, project)
    results = _results(store, built.image.digest, request) if with_results else None
    for note in built.plan.notes:
        say(f"warning: {note}", hang=2)
    client = Registry()
    if dry_run:
        _print_survey(built, targets, client, json=json_)
        return
    done: list[dict[str, object]] = []
    made: list[dict[str, dict[str, Any]]] = []
    # What is said of the image takes seconds to make: beside the upload.
    with Pool(1) as beside:
        beside.submit(lambda: made.append(statements_about(built_inventory(built, store), built.plan)))
        for target in targets:
            again = target.pinned(built.image.digest) in [each["pinned"] for each in done]
            with Sending() as sending:
                printed = (lambda *_: None) if again else _print_blobs(built)
                digest = push_image(built.image, store, target, printed, client, sending)
            pinned = target.pinned(digest)
            if again:
                say(f"{target} is the same image", hang=2)
            else:
                inputs = _push_inputs(client, target, built, store, mirror_source(mirror)) if with_inputs else None
                revision = revision_of(project.roots[0])
                bundle = attach_bundle(
                    client,
                    target,
                    built.image,
                    built.plan,
                    revision,
                    inputs,
                    request.profile,
                    sorted(request.sets),
                )
                say(f"  bundle attached as {bundle}", hang=4)
                beside.wait()
                said = made[0]
                if results is not None:
                    say(f"  results attached as {_attach(target, built.image, results)}", hang=4)
                    said = said | _tested(digest, _outcomes(store, digest))
                attach_statements(client, target, digest, len(built.image.manifest), said, signing)
                signed = f", signed with {signing.name}" if signing is not None else ""
                say(f"  SBOMs and provenance attached{signed}")
                _print_seen(built, target, revision)
            note_push(store, built.plan.key, str(target))
            done.append({"reference": str(target), "digest": digest, "pinned": pinned})
            if not json_:
                print(pinned, flush=True)
    if json_:
        print_json(done)


def _targets(references: Sequence[str], recipe: str, project: Project) -> list[Reference]:
    """The references to push to, each with a tag or a digest. Raises UsageError."""
    registry = project.choices.registry
    if not references and registry is None:
        raise UsageError(
            "no reference to push to",
            id="push-reference-missing",
            next=f"builder push {shlex.quote(recipe)} REGISTRY/REPOSITORY:TAG; or set `registry` in {FILE}",
        )
    parsed = [Reference.parse(text) for text in references or (f"{registry}/{recipe}",)]
    return [each if each.tag or each.digest else replace(each, tag="latest") for each in parsed]


def _print_seen(built: Built, target: Reference, revision: Revision | None) -> None:
    """Print what a reader of the registry sees of the image: its labels, and the commit that its bundle names."""
    config = json.loads(built.image.config)
    say(f"what a reader of {target} sees:", hang=2)
    size_of = f"{len(built.image.layers)} layers, {size(built.image.size)}"
    say(f"  {'platform':12} {config['os']}/{config['architecture']}, {size_of}")
    labels = config.get("config", {}).get("Labels") or {}
    for name in ("title", "description", "created", "base.name", "source", "licenses"):
        if value := labels.get(f"org.opencontainers.image.{name}"):
            say(f"  {name:12} {value}", hang=15)
    if revision is None:
        say(f"  {'revision':12} none: the project is not in git, or git is missing", hang=15)
    else:
        changed = "" if revision.clean else ", with changes that are not committed"
        say(f"  {'revision':12} {revision.commit}{changed} (of the bundle: the image depends on no commit)", hang=15)


def _print_survey(built: Built, targets: Sequence[Reference], client: Registry, *, json: bool) -> None:
    """Print what a push would do with each layer, and how many bytes each kind of it is."""
    names = {record.digest: name for name, record in built.records.items()}
    layers = {layer.digest: layer for layer in built.image.layers}
    done: list[dict[str, object]] = []
    for target in targets:
        found = survey_push(built.image, target, client)
        rows = [
            {"layer": names.get(digest, "base"), "action": found[digest], "size": layer.size, "digest": digest}
            for digest, layer in layers.items()
        ]
        total = {
            action: sum(layer.size for digest, layer in layers.items() if found[digest] == action)
            for action in ("present", "mount", "stream", "upload")
        }
        done.append({"reference": str(target), "digest": built.image.digest, "bytes": total, "layers": rows})
        if not json:
            for digest, layer in layers.items():
                print_line(
                    f"  {names.get(digest, 'base'):24} {found[digest]:9} {size(layer.size):>10}  {digest[:19]}",
                    row=True,
                )
            print_line(f"{target}: {', '.join(f'{action} {size(count)}' for action, count in total.items())}", hang=2)
    if json:
        print_json(done)


def _print_blobs(built: Built) -> Callable[[Digest, str, int], None]:
    """Prints each blob when it is in the registry: its layer, or `base`, and how many there are."""
    names = {record.digest: name for name, record in built.records.items()}
    blobs = {layer.digest for layer in built.image.layers}
    done: list[Digest] = []
    lock = Lock()

    def listener(digest: Digest, state: str, count: int) -> None:
        # In one piece: several threads push, and the numbers come in order.
        with lock:
            done.append(digest)
            place = f"[{len(done)}/{len(blobs)}]"
            say(f"  {place:>7} {names.get(digest, 'base'):24} {state:9} {size(count):>10}  {digest[:19]}", row=True)

    return listener


def _results(store: Store, digest: Digest, request: PlanRequest) -> bytes:
    folder = results_folder(store.root)
    if read_results(folder, digest) is None:
        raise UsageError(f"there are no results of {digest}", id="results-missing", next=request.command("test"))
    return read_regular(results_path(folder, digest), LIMIT)


def _tested(digest: Digest, outcomes: Sequence[tuple[str, str, str]]) -> dict[str, dict[str, Any]]:
    """The predicate about checks; none when no check was run: nothing failed then, and nothing was shown either."""
    return {TESTED: tested(digest, outcomes)} if any(status != "not-run" for *_, status in outcomes) else {}


def _outcomes(store: Store, digest: Digest) -> list[tuple[str, str, str]]:
    report = read_results(results_folder(store.root), digest)
    return [(item.tier, item.id, item.status) for item in report.results] if report is not None else []


def _push_inputs(
    client: Registry, target: Reference, built: Built, store: Store, source: MirrorSource | None
) -> Digest:
    """Copy what a rebuild reads to the repository of the image, attached to the image. Raises BuilderError."""
    backend = RegistryBackend(f"{target.registry}/{target.repository}", client)
    with Progress() as progress:
        copier = Copier(
            backend,
            store,
            offline=False,
            source=source,
            verify=False,
            listener=progress.on_event,
            subject=subject_of(built.image),
        )
        report = copier.run({artifact_tag(built.plan): built.plan}, base_layers=False)
    raise_for(report)
    ((artifact, _),) = report.artifacts.values()
    sent = sum(report.sent.values())
    say(f"  inputs: {len(artifact.contents)} files, {size(artifact.size)}, of which {size(sent)} sent")
    return artifact.digest


def _attach(target: Reference, image: Image, results: bytes) -> str:
    return attach(Registry(), target, subject_of(image), results, MEDIA_TYPE)
