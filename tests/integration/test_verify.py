"""`builder push` attaches a bundle; `builder verify` rebuilds the image from it, without the project that made it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from builder.digest import Digest
from builder.model.canonical import fingerprint
from builder.model.reference import Reference
from builder.oci.manifest import OCI_INDEX, OCI_MANIFEST
from builder.plan.bundle import MEDIA_TYPE, read_bundle, write_bundle
from builder.registry.auth import Credentials
from builder.registry.client import Registry
from builder.registry.config import RegistriesConfig
from builder.registry.referrers import attach, attached
from builder.store.images import stored_images
from builder.store.store import Store
from tests.support.cli import Cli, CommandResult
from tests.support.mirror import Mirror

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed"),
]
RECIPE = ("--recipe", "tiny")
NO_REFERRERS = b'{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}'


class Pushed:
    """The small image in a registry, and this machine without the project and the store that made it."""

    def __init__(self, cli: Cli, host: str, name: str) -> None:
        self.cli = cli
        self.target = f"{host}/verify/{name}:1"
        self.push()

    def push(self, *options: str) -> None:
        """Build the project as it is now, and push it."""
        assert self.cli("build", *RECIPE, *options).code == 0
        said = self.cli("push", self.target, *RECIPE, *options)
        assert said.code == 0, said.err
        self.digest = Digest(said.out.strip().rpartition("@")[2])

    def bundle(self, folder: Path) -> bytes:
        """The bundle of the project as it is now."""
        assert self.cli("plan", *RECIPE, "--bundle", str(folder / "bundle.json")).code == 0
        return (folder / "bundle.json").read_bytes()

    def attach(self, bundle: bytes, subject: str | None = None) -> None:
        """Attach another bundle to the image."""
        about = {"mediaType": OCI_MANIFEST, "digest": subject or self.digest, "size": 1}
        attach(client(), Reference.parse(self.target), about, bundle, MEDIA_TYPE)

    def verify(self, *words: str, store: str = "stranger") -> CommandResult:
        """`builder verify REF` where there is no project and nothing is built."""
        empty = self.cli.folder / "empty"
        empty.mkdir(exist_ok=True)
        more = {"BUILDER_PROJECT": str(empty), "BUILDER_STORE": str(self.cli.folder / store)}
        return self.cli("verify", self.target, *words, **more)


def client() -> Registry:
    return Registry(config=RegistriesConfig(), credentials=Credentials())


@pytest.fixture
def pushed(online: Cli, host: str, request: pytest.FixtureRequest) -> Pushed:
    name = "".join(letter for letter in request.node.name.lower() if letter.isalnum())
    return Pushed(online, host, name)


def outcomes(said: CommandResult) -> dict[str, str]:
    return {part["part"]: part["outcome"] for part in json.loads(said.out)["parts"]}


def test_a_stranger_rebuilds_the_image(pushed: Pushed) -> None:
    shutil.rmtree(pushed.cli.folder / "store")
    said = pushed.verify()
    assert (said.code, said.out) == (0, "identical\n"), said.err
    assert "whose plan it is, is not checked" in said.err
    report = json.loads(pushed.verify("--json").out)
    assert (report["image"], report["verdict"]) == (pushed.digest, "identical")
    assert {"root", "placed", "config", "manifest"} <= {part["part"] for part in report["parts"]}
    assert {part["outcome"] for part in report["parts"]} == {"identical"}
    # Nothing but inputs is kept.
    assert list((pushed.cli.folder / "stranger" / "layers").iterdir()) == []
    assert list((pushed.cli.folder / "stranger" / "tmp").iterdir()) == []


def test_layers_that_the_store_has_built_are_not_built_again(pushed: Pushed) -> None:
    said = pushed.verify("--built", "--json", store="store")
    report = json.loads(said.out)
    layers = report["earlier"]
    assert (said.code, report["verdict"], {*layers} > {"root", "placed"}) == (0, "identical", True), said.err
    assert {part["part"] for part in report["parts"]} >= {*layers, "config", "manifest"}
    assert "takes as this store built them" in said.err
    # A layer of a cache is somebody else's build, and a damaged blob is nobody's.
    store = pushed.cli.folder / "store"
    first, second = sorted((store / "layers").iterdir())[:2]
    taken, damaged = (json.loads(path.read_bytes()) for path in (first, second))
    data = {name: value for name, value in taken.items() if name != "check"} | {"origin": "cache.example/x"}
    first.write_text(json.dumps(data | {"check": fingerprint([first.stem, data])}))
    blob = store / "blobs" / "sha256" / damaged["digest"].partition(":")[2]
    blob.chmod(0o600)
    blob.write_bytes(b"\0" * damaged["size"])
    said = pushed.verify("--built", "--json", store="store")
    report = json.loads(said.out)
    assert (said.code, report["verdict"]) == (0, "identical"), said.err
    assert len(report["earlier"]) == len(layers) - 2
    pushed.verify("--built", "--vary", "time").failed(2, "verify-built-no-rebuild")


def test_pushing_again_attaches_nothing_new(pushed: Pushed) -> None:
    pushed.push()
    assert len(attached(client(), Reference.parse(pushed.target), pushed.digest, MEDIA_TYPE)) == 1


def test_a_bundle_builds_the_image(pushed: Pushed, tmp_path: Path) -> None:
    pushed.bundle(tmp_path)
    for number, plan in enumerate((str(tmp_path / "bundle.json"), pushed.target)):
        more = {"BUILDER_STORE": str(tmp_path / f"other-{number}")}
        said = pushed.cli("build", "--plan", plan, **more)
        assert (said.code, said.out.strip()) == (0, pushed.digest), said.err
        # A stranger's plan may say the name of any recipe.
        assert [image.named for image in stored_images(Store(Path(more["BUILDER_STORE"])))] == [not number]
    pushed.cli("build", "--plan", pushed.target, *RECIPE).failed(2, "plan-with-recipe")


def test_an_image_without_a_bundle(pushed: Pushed, host: str) -> None:
    pushed.target = f"{host}/verify/bare:1"
    bare = Reference.parse(pushed.target)
    whole = client().manifest(Reference.parse(pushed.target.replace("bare", "testanimagewithoutabundle")))
    for blob in (whole.config, *whole.layers):
        assert client().mount(bare, blob.digest, "verify/testanimagewithoutabundle")
    client().put_manifest(bare, whole.data, OCI_MANIFEST)
    pushed.verify().failed(4, "bundle-missing")
    said = pushed.cli("verify", pushed.target, *RECIPE)
    assert (said.code, said.out) == (0, "identical\n"), said.err
    assert "the plan is this project's" in said.err


@pytest.mark.parametrize(
    ("change", "part", "line"),
    [
        ({"recipes/tiny.yaml": ("word", "other")}, "config", "config.Env LAST"),
        (
            {"dockerfiles/layers/placed/layer.yaml": ("placed\n", "changed\n")},
            "placed",
            "etc/placed.conf: 8 bytes, not 7",
        ),
        (
            {"dockerfiles/layers/placed/layer.yaml": ("placed\n", "PLACED\n")},
            "placed",
            "etc/placed.conf: content",
        ),
        (
            {"dockerfiles/layers/placed/layer.yaml": ("/etc/placed.conf", "/etc/another")},
            "placed",
            "opt/placed/link: link to /etc/another, not /etc/placed.conf",
        ),
        (
            {"dockerfiles/layers/placed/layer.yaml": ("opt/placed/link", "opt/placed/other")},
            "placed",
            "opt/placed/link: only in the rebuilt layer",
        ),
    ],
    ids=["environment", "size", "content", "link", "name"],
)
def test_an_image_that_its_bundle_does_not_make(
    pushed: Pushed, tmp_path: Path, change: dict[str, tuple[str, str]], part: str, line: str
) -> None:
    bundle = pushed.bundle(tmp_path)
    for name, (old, new) in change.items():
        text = json.dumps(pushed.cli.small.files[name])
        assert json.dumps(old)[1:-1] in text
        pushed.cli.small.files[name] = json.loads(text.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1]))
    pushed.target = pushed.target.replace(":1", ":changed")
    built = pushed.cli("build", *RECIPE).out.strip()
    # An image with a bundle that is not its own.
    pushed.push()
    assert pushed.digest == built
    reference = Reference.parse(pushed.target)
    client().put_manifest(
        Reference(reference.registry, reference.repository, pushed.digest.tag),
        NO_REFERRERS,
        OCI_INDEX,
    )
    pushed.attach(bundle)
    said = pushed.verify("--json")
    assert said.code == 8 and "[verify-differs]" in said.err, said.err
    found = outcomes(said)
    assert found[part] == "differs"
    assert found["root"] == "identical"
    # The configuration names the layers, and the manifest the configuration.
    assert {name for name, outcome in found.items() if outcome != "identical"} == {part, "config", "manifest"}
    assert line in said.err
    # With its own bundle too, the one that makes the configuration is found.
    pushed.attach(pushed.bundle(tmp_path))
    if part == "config":
        assert pushed.verify().code == 0


def test_another_compression_is_content_identical(pushed: Pushed) -> None:
    pushed.push("--compression", "gzip")
    said = pushed.cli("verify", pushed.target, *RECIPE, "--json")
    assert said.code == 8 and json.loads(said.out)["verdict"] == "content identical"
    found = outcomes(said)
    assert {found[name] for name in ("root", "placed")} == {"content identical"}
    assert found["config"] == "identical" and found["manifest"] == "content identical"


def test_a_part_of_the_image(pushed: Pushed) -> None:
    said = pushed.verify("--layer", "placed")
    assert (said.code, said.out) == (0, "identical as far as compared\n")
    assert "compared 1 of" in said.err
    pushed.verify("--layer", "other").failed(2, "verify-layer-unknown")


def test_an_input_that_has_vanished(pushed: Pushed, mirror: Mirror) -> None:
    mirror.pool.clear()
    assert pushed.verify().code in (4, 6)
    mirror.wheels.clear()


def test_commands_of_a_stranger_need_consent(pushed: Pushed) -> None:
    cli = pushed.cli
    cli.small.files["recipes/tiny.yaml"]["layers"].insert(0, "compiled")
    reference = Reference.parse(pushed.target)
    client().put_manifest(
        Reference(reference.registry, reference.repository, pushed.digest.tag), NO_REFERRERS, OCI_INDEX
    )
    pushed.attach(pushed.bundle(cli.folder))
    for words in (("verify", pushed.target), ("build", "--plan", pushed.target)):
        said = cli(*words, BUILDER_STORE=str(cli.folder / "stranger"))
        said.failed(2, "plan-not-trusted")
        assert "make -f /context/inputs/widget-1.0.tar.gz" in said.err
        # Then it is the engine that is missing.
        cli(*words, "--trust-plan", BUILDER_STORE=str(cli.folder / "stranger")).failed(5, "engine-missing")
    cli("build", "--plan", str(cli.folder / "bundle.json")).failed(5, "engine-missing")
    # A file in the folder of a stranger that has the name of the image.
    file = cli.folder / pushed.target
    file.parent.mkdir(parents=True)
    file.write_bytes((cli.folder / "bundle.json").read_bytes())
    cli("build", "--plan", pushed.target).failed(2, "plan-ambiguous")
    cli("build", "--plan", f"./{pushed.target}").failed(5, "engine-missing")


def test_a_damaged_bundle(pushed: Pushed, tmp_path: Path) -> None:
    bundle = pushed.bundle(tmp_path)
    (tmp_path / "bundle.json").write_bytes(bundle.replace(b"placed\\n", b"played\\n"))
    pushed.cli("build", "--plan", str(tmp_path / "bundle.json")).failed(3, "bundle-invalid")
    (tmp_path / "bundle.json").write_bytes(bundle[:-9])
    pushed.cli("build", "--plan", str(tmp_path / "bundle.json")).failed(3, "bundle-invalid")
    assert write_bundle(read_bundle(bundle, "here")) == bundle
