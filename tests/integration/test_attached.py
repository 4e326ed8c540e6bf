"""What anybody who may push, or a hostile registry, attaches to an image: it stops no command and fills no memory."""

from __future__ import annotations

import base64
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.attest.envelope import MEDIA_TYPE, read_envelope, sign
from builder.attest.keys import public_key, signing_key
from builder.attest.statement import SIGNED, STATEMENT, write_statement
from builder.digest import Digest
from builder.errors import NetworkError
from builder.model.canonical import canonical
from builder.model.reference import Reference
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.plan.bundle import MEDIA_TYPE as BUNDLE
from builder.registry.config import RegistryEntry
from builder.registry.referrers import EMPTY_TYPE, artifact, attach_manifest, attached
from builder.registry.signed import Ignored, Said, signed_statements
from builder.smoke.results import MEDIA_TYPE as RESULTS
from tests.support.cli import Cli
from tests.support.errors import fails
from tests.support.http_registry import Answer, Server, client, entry, image_manifest, serving
from tests.support.registry import is_installed
from tests.support.signed import Signed
from tests.support.statements import new_key

MANY = 30
IMAGE = Digest.of(b"image")


@pytest.mark.registry
@pytest.mark.skipif(not is_installed(), reason="docker-registry is not installed")
def test_an_artifact_that_is_none_stops_no_command(online: Cli, host: str) -> None:
    """Two blobs in place of one, of every type that is looked for."""
    signed = Signed(online, host, "attached")
    subject = {"mediaType": OCI_MANIFEST, "digest": signed.digest, "size": 1}
    for kind in (BUNDLE, MEDIA_TYPE, STATEMENT, RESULTS):
        made = json.loads(artifact(subject, b"{}", kind, {}))
        attach_manifest(signed.registry, Reference.parse(signed.target), canonical({**made, "layers": []}))
    assert signed.people().code == 0
    said = signed.verify("--trust-plan")
    assert said.code == 0, said.err
    site = online("site", "site", signed.target, "--signed-by", str(signed.public))
    assert site.code == 0, site.err


class Attached:
    """A registry that lists artifacts which are made when they are asked for."""

    def __init__(self, server: Server, make: Callable[[int], bytes]) -> None:
        listed = []
        for number in range(MANY):
            data = make(number)
            subject = {"mediaType": OCI_MANIFEST, "digest": IMAGE, "size": 1}
            manifest = artifact(subject, data, MEDIA_TYPE, {"number": str(number)})
            server.serve_manifest(manifest)
            path = f"/v2/team/app/blobs/{Digest.of(data)}"
            server.on("GET", path, lambda asked, number=number: Answer(200, make(number)))
            listed.append({**entry(Digest.of(manifest), ""), "artifactType": MEDIA_TYPE, "platform": None})
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}
        server.on("GET", f"/v2/team/app/referrers/{IMAGE}", Answer(200, json.dumps(index).encode()))


def peak(work: Callable[[], object]) -> int:
    """The memory that Python's objects took at most, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_large_statements_of_a_stranger_are_not_kept(tmp_path: Path) -> None:
    private, _ = new_key(tmp_path, "stranger")
    _, own = new_key(tmp_path, "own")
    keys = [public_key(own.read_bytes(), "own.pub")]
    key = signing_key(private.read_bytes(), None, "stranger.pem")
    predicate = {str(number): [number] for number in range(15_000)}
    bundle = sign(write_statement(IMAGE, SIGNED, predicate), key)

    def made(number: int) -> bytes:
        return bundle[:-1] + b',"x":%d}' % number

    found: list[Said | Ignored] = []
    with serving() as server:
        Attached(server, made)
        used = peak(lambda: found.extend(signed_statements(client(), server.ref(), IMAGE, keys)))
    assert len(found) == MANY and all(isinstance(item, Ignored) for item in found)
    assert used < 60 << 20


def test_a_statement_that_is_attached_again_and_again_counts_once(tmp_path: Path) -> None:
    private, public = new_key(tmp_path, "own")
    keys = [public_key(public.read_bytes(), "own.pub")]
    bundle = sign(write_statement(IMAGE, SIGNED, {}), signing_key(private.read_bytes(), None, "own.pem"))
    with serving() as server:
        Attached(server, lambda number: bundle[:-1] + b',"x":%d}' % number)
        assert len(list(signed_statements(client(), server.ref(), IMAGE, keys))) == 1


@pytest.mark.parametrize("path", ["tags/list", f"referrers/{IMAGE}"], ids=["tags", "referrers"])
def test_a_list_without_end_takes_no_memory_without_end(path: str) -> None:
    """500 pages of 4 MB."""
    text = "x" * 3_000_000

    def page(asked: object) -> Answer:
        nonlocal count
        count += 1
        listed = [{**entry(Digest.of(b"%d" % count), ""), "platform": None, "annotations": {"a": text}}]
        index: dict[str, object] = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}
        index = {"tags": [f"{count}{text}"]} if path == "tags/list" else index
        return Answer(200, json.dumps(index).encode(), {"Link": f'</v2/team/app/{path}?last={count}>; rel="next"'})

    count = 0
    with serving() as server:
        server.on("GET", f"/v2/team/app/{path}", page)
        with fails(NetworkError, "registry-list-endless"):
            if path.startswith("tags"):
                client().tags(server.ref())
            else:
                client().referrers(server.ref(), IMAGE, MEDIA_TYPE)
    assert count < 10


def test_confused_signatures_count_for_nothing(tmp_path: Path) -> None:
    """Signed bytes that are read as something else: the type of the payload, other subjects, keys twice."""
    private, public = new_key(tmp_path, "own")
    key, own = signing_key(private.read_bytes(), None, "own.pem"), public_key(public.read_bytes(), "own.pub")
    other = json.loads(sign(write_statement(Digest.of(b"other"), SIGNED, {}), key))
    statement = write_statement(IMAGE, SIGNED, {})
    envelope = other["dsseEnvelope"]
    # The same signature over another payload, and a signature of the bare payload without DSSE's encoding.
    swapped = {**other, "dsseEnvelope": {**envelope, "payload": base64.b64encode(statement).decode()}}
    bare = {**swapped["dsseEnvelope"], "signatures": [{"sig": base64.b64encode(key.sign(statement)).decode()}]}
    twice = {**envelope, "signatures": [*envelope["signatures"], *envelope["signatures"]]}
    for made in (swapped, {**other, "dsseEnvelope": bare}):
        assert read_envelope(canonical(made), "x").signer([own]) is None
    with pytest.raises(Exception, match=r"lacks a member|too many values"):
        read_envelope(canonical({**other, "dsseEnvelope": twice}), "x")
    doubled = statement[:-1] + b',"subject":' + canonical([{"digest": {"sha256": IMAGE.hex}}]) + b"}"
    with pytest.raises(Exception, match=r"twice in one object"):
        read_envelope(sign(doubled, key), "x").statement()


def tag_of(server: Server, *listed: dict[str, object]) -> None:
    """List artifacts of the image under the tag of a registry without a list of its own."""
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}
    server.serve_manifest(json.dumps(index).encode(), IMAGE.tag, media_type=OCI_INDEX)


def test_a_malformed_artifact_stops_nobody() -> None:
    """Container engines read its `Layers` as `layers`."""
    with serving() as server:
        bad = json.dumps({**json.loads(image_manifest()), "Layers": []}).encode()
        tag_of(server, {**entry(server.serve_manifest(bad), "linux"), "artifactType": EMPTY_TYPE})
        assert attached(client(), server.ref(), IMAGE, MEDIA_TYPE) == []
        server.serve_manifest(bad, IMAGE.tag)
        assert attached(client(), server.ref(), IMAGE, MEDIA_TYPE) == []


def test_the_list_of_a_mirror_is_not_written_to_its_registry() -> None:
    """It may be old: the statements of others would go."""
    with serving() as server, serving() as mirror:
        others = [{**entry(Digest.of(name), "linux"), "artifactType": MEDIA_TYPE} for name in (b"a", b"b")]
        tag_of(server, *others)
        tag_of(mirror)
        manifest = artifact({"mediaType": OCI_MANIFEST, "digest": IMAGE, "size": 1}, b"x", MEDIA_TYPE, {})
        server.on("PUT", f"/v2/team/app/manifests/{Digest.of(manifest)}", Answer(201))
        server.on("PUT", f"/v2/team/app/manifests/{IMAGE.tag}", Answer(201))
        writer = client(entries={server.host: RegistryEntry(mirror=(mirror.host,))})
        attach_manifest(writer, server.ref(), manifest)
        written = json.loads(server.requests[-1].body)["manifests"]
    assert [item["digest"] for item in written] == [Digest.of(b"a"), Digest.of(b"b"), Digest.of(manifest)]
