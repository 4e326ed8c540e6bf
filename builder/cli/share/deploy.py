"""`builder deploy`: an image into the docker of other machines."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from builder.cli.image.built import built_image, image_name
from builder.cli.image.sending import Pulling
from builder.cli.options import COMPRESSION, PLATFORM, BaseOption, JsonOption, ProfileOption, SetOption
from builder.cli.output import counted, print_json, print_line, say, size
from builder.cli.proof.policy import ImagePolicy, enforce, image_policy
from builder.cli.request import asked, check_tag, open_store
from builder.digest import Digest
from builder.errors import BuilderError, EngineError, UsageError
from builder.model.reference import Reference
from builder.oci.manifest import parse_manifest
from builder.parallel import each
from builder.project import Project
from builder.registry.client import Registry
from builder.share.deploy import deploy as deploy_to
from builder.share.deploy import status as status_of
from builder.share.parcel import Parcel, parcel_of
from builder.share.tunnel import checked_host
from builder.share.way import Via
from builder.store.store import Store


def deploy(
    reference: Annotated[
        str | None, typer.Argument(metavar="REF", help="An image in a registry: REGISTRY/REPOSITORY:TAG or @DIGEST.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST[,HOST]", help="Machines, as for ssh: [USER@]HOST[:PORT]."),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", "-r", help="Deploy the image of this recipe, built on this machine.")
    ] = None,
    base: BaseOption = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    tag: Annotated[
        str | None, typer.Option("--tag", help="Name of the image there; default: RECIPE:DIGEST, or REF.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Deploy REF only if it has what this file demands.")
    ] = None,
    via: Annotated[
        str | None,
        typer.Option("--via", metavar="HOST", help="Send the layers to this machine once; the others get them there."),
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Change nothing; print what the machines have.")] = False,
    json_: JsonOption = False,
) -> None:
    """Bring an image into the docker of other machines, by ssh. They need nothing but docker.

    Each machine pulls by digest the layers that it lacks from this one, through a tunnel of ssh; nothing listens on a
    network. A connection that breaks is made again. --via is for machines with a faster link to each other: it starts
    python3 there, and ssh, so the other hosts are named as that machine knows them.
    """
    check_tag(tag)
    hosts = list(dict.fromkeys(checked_host(one) for item in host or () for one in item.split(",")))
    via = checked_host(via) if via is not None else None
    if not hosts or (reference is None) == (recipe is None):
        what = "no machine is given" if not hosts else "an image is needed: either REF or --recipe"
        raise UsageError(what, id="deploy-incomplete", next="builder deploy --host HOST --recipe NAME")
    store: Store
    if recipe is not None:
        if policy is not None:
            raise UsageError("--policy judges an image in a registry", id="policy-without-image", next="name it: REF")
        project = Project()
        built, store = built_image(asked(project, recipe, base, set_, profile, PLATFORM, COMPRESSION), project)
        parcel, name = parcel_of(built.image, recipe), tag or image_name(built)
    else:
        demanded, store = image_policy(policy), open_store()
        parcel = _of_registry(Reference.parse(str(reference)), store, demanded)
        name = tag or _name(Reference.parse(str(reference)), parcel)
    print_result(hosts, parcel, store, name, via, status=status, json=json_)


def print_result(
    hosts: list[str], parcel: Parcel, store: Store, name: str, via: str | None, *, status: bool, json: bool
) -> None:
    """Deploy to all machines at once, or ask them. Raises EngineError when one fails; the others go on."""
    if status:
        results = each(lambda host: status_of(host, parcel, name, via), hosts, BuilderError)
    else:
        results = _deployed(hosts, parcel, store, name, via)
    failed = [item for item in zip(hosts, results, strict=True) if isinstance(item[1], BuilderError)]
    texts = [f"failed: {item.what}" if isinstance(item, BuilderError) else item for item in results]
    if json:
        rows = [{"host": one, "outcome": text} for one, text in zip(hosts, texts, strict=True)]
        print_json({"image": parcel.digest, "name": name, "hosts": rows})
    else:
        for one, text in zip(hosts, texts, strict=True):
            print_line(f"{one}  {name}  {parcel.digest[:19]}  {text}", hang=2)
    if failed:
        host, error = failed[0]
        assert isinstance(error, BuilderError)
        if len(hosts) == 1:
            raise error
        raise EngineError(
            f"{len(failed)} of {len(hosts)} machines failed: {', '.join(one for one, _ in failed)}",
            id="deploy-failed",
            where=host,
            cause=f"{error.what}: {error.cause}",
            next=error.next,
        )


def _deployed(hosts: list[str], parcel: Parcel, store: Store, name: str, via: str | None) -> list[str | BuilderError]:
    sizes = {layer.digest.short: layer.size for layer in parse_manifest(store.read(parcel.digest)).layers}
    with Via(via, hosts, parcel, store) if via else nullcontext() as relay, Pulling(sizes) as shown:

        def act(host: str) -> str:
            say(f"{host}: its docker takes what it lacks of {counted(len(parcel.layers), 'layer')}", hang=2)
            done = deploy_to(host, parcel, store, name, say, shown.listener(host), via=relay)
            return f"pulled {done.moved} in {done.seconds:.1f} s" if done.moved else "had the image"

        results = each(act, hosts, BuilderError)
        if relay is not None:
            if relay.sent:
                say(f"{size(relay.sent)} went from this machine to {relay.host}")
            if not any(isinstance(result, BuilderError) for result in results):
                relay.finish()
    return results


def _of_registry(reference: Reference, store: Store, policy: ImagePolicy | None) -> Parcel:
    """An image in a registry: its manifest is put into the store, its layers are streamed when they are asked for.

    Raises PinError, NetworkError, and as `enforce`.
    """
    client = Registry()
    manifest, _ = client.platform_manifest(reference, PLATFORM)
    if policy is not None:
        enforce(policy, reference, manifest.digest)
    store.put(manifest.data)
    store.put(client.config(reference.at(manifest.digest), manifest))
    layers: frozenset[Digest] = frozenset(layer.digest for layer in manifest.layers)
    repository = reference.repository.rpartition("/")[2]
    source = reference.pinned(manifest.digest)
    return Parcel(repository, manifest.digest, manifest.config.digest, layers, PLATFORM, source)


def _name(reference: Reference, parcel: Parcel) -> str:
    place = f"{reference.registry}/{reference.repository}"
    return f"{place}:{reference.tag or parcel.digest.short}"
