"""`builder build`: options and output. `build_one` builds one image, `build_all` those of --all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from builder.atomic import check_writable
from builder.cli.image.build_all import build_all, sum_up
from builder.cli.image.build_one import BuildRequest, BuildResult, build_one
from builder.cli.image.given import given_plan
from builder.cli.image.plan_all import plan_all
from builder.cli.options import (
    COMPRESSION,
    PLATFORM,
    BaseOption,
    BuilderOption,
    CacheOption,
    CompressionOption,
    EngineOption,
    JobsOption,
    JsonOption,
    KeyOption,
    LayerPolicyOption,
    MirrorOption,
    OfflineOption,
    PlatformOption,
    ProfileOption,
    PublishOption,
    SetOption,
    TrustOption,
)
from builder.cli.output import print_json, say
from builder.cli.proof.cache import layer_cache, publishing_key
from builder.cli.request import asked_each, check_tag, open_store, recipe_names
from builder.cli.rulecheck import report_violations
from builder.engine.select import check_engine
from builder.errors import BuilderError, UsageError
from builder.mirror.source import mirror_source
from builder.oci.layout import check_folder
from builder.project import Project
from builder.share.load import check_docker


def build(
    recipe: Annotated[
        list[str] | None, typer.Option("--recipe", "-r", help="Recipe to build. May be repeated.")
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Build every recipe that fits the base; print why the others do not.")
    ] = False,
    plan: Annotated[
        str | None,
        typer.Option("--plan", help="Build from a bundle: a file, or the one attached to an image."),
    ] = None,
    trust_plan: TrustOption = False,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    engine: EngineOption = None,
    builder: BuilderOption = None,
    platform: PlatformOption = PLATFORM,
    compression: CompressionOption = COMPRESSION,
    offline: OfflineOption = False,
    mirror: MirrorOption = None,
    cache: CacheOption = None,
    policy: LayerPolicyOption = None,
    publish: PublishOption = False,
    key: KeyOption = None,
    jobs: JobsOption = None,
    output: Annotated[str | None, typer.Option("--output", help="Also write the image to a layout: oci:DIR.")] = None,
    load: Annotated[bool, typer.Option("--load", help="Also load the image into docker.")] = False,
    tag: Annotated[
        str | None, typer.Option("--tag", help="Name for --load and --output; default: RECIPE:DIGEST.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all output of the engine.")] = False,
    json_: JsonOption = False,
) -> None:
    """Build images and print their digests.

    Every input is in the lock, by hash. Layers that are in the store are not built again.
    """
    check_engine(engine, builder)
    check_tag(tag)
    if plan is not None and (recipe or all_ or base or set_ or profile):
        raise UsageError(
            "--plan names a whole image: it takes no recipe", id="plan-with-recipe", next="leave one of them out"
        )
    if key is not None and not publish:
        what = "--key signs the layers that are published"
        raise UsageError(what, id="key-without-publish", next="add --publish")
    layout = _layout(output)
    if load:
        check_docker()
    project = Project()
    names = [] if plan is not None else recipe_names(project, recipe, every=all_, next="builder build --recipe NAME")
    if len(names) > 1 and tag is not None:
        what = "--tag names one image, but this command builds several"
        raise UsageError(what, id="tag-for-several-images", next="leave out --tag: the name is RECIPE:DIGEST")
    request = BuildRequest(
        engine=engine,
        builder=builder,
        offline=offline,
        mirror=mirror_source(mirror),
        cache=layer_cache(cache, policy),
        publish=publishing_key(cache, key) if publish else None,
        jobs=jobs,
        verbose=verbose,
        layout=layout,
        load=load,
        tag=tag,
        brief=all_,
    )
    store = open_store()
    wanted = asked_each(project, names, base, set_, profile, platform, compression)
    left_out: dict[str, str] = {}
    if all_:
        plans, left_out = plan_all(project, wanted)
    else:
        plans = [item.plan(project) for item in wanted]
    report_violations(project, plans, profile)
    if plan is not None:
        given, source, own = given_plan(plan, store, trusted=trust_plan, offline=offline, source=request.mirror)
        plans, request = [given], replace(request, mirror=source, named=own)
    output_of = _Output(json=json_, several=all_ or len(plans) > 1)
    failed: dict[str, BuilderError] = {}
    if all_:
        failed = build_all(store, plans, request, output_of.add)
    else:
        for each in plans:
            output_of.add(build_one(store, each, request))
    output_of.close(left_out)
    if len(wanted) == 1 and not all_:
        say(f"next: {wanted[0].command('run' if load and compression == COMPRESSION else 'test')}")
    if all_:
        sum_up(output_of.results, left_out, failed)


class _Output:
    """Standard output: the digest of each image as soon as it is built, or one JSON document at the end."""

    def __init__(self, *, json: bool, several: bool) -> None:
        self.results: list[BuildResult] = []
        self._json = json
        self._several = several

    def add(self, result: BuildResult) -> None:
        """One more image is built."""
        self.results.append(result)
        if not self._json:
            digest, recipe = result.built.image.digest, result.built.plan.recipe
            print(f"{digest}  {recipe}" if self._several else digest, flush=True)

    def close(self, left_out: dict[str, str]) -> None:
        """All images are built. left_out: the reason for each recipe that was not built."""
        if self._json:
            rows = [item.as_dict() for item in self.results]
            rows += [{"recipe": name, "digest": None, "left_out": why} for name, why in left_out.items()]
            print_json(rows if self._several else rows[0])


def _layout(output: str | None) -> Path | None:
    """The folder of --output, which a build of minutes can write at its end. Raises UsageError."""
    if output is None:
        return None
    kind, _, folder = output.partition(":")
    if kind != "oci" or not folder:
        raise UsageError(
            f"--output {output!r} is not oci:DIR", id="output-invalid", next="--output oci:DIR, a new folder"
        )
    layout = Path(folder)
    check_folder(layout)
    there = next(each for each in (layout.absolute(), *layout.absolute().parents) if each.exists())
    try:
        check_writable(there)
    except OSError:
        raise UsageError(
            "this folder cannot be written",
            id="layout-not-writable",
            where=str(there),
            next="name a folder that you can write: --output oci:DIR",
        ) from None
    return layout
