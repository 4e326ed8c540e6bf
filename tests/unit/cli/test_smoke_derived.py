"""`builder test` of images derived from ours, or made to look like ours: the difference fails a check."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from builder.digest import Digest
from builder.store.store import Store
from tests.support.engine import FakeEngine, build
from tests.support.fixtures import MakePlan
from tests.support.images import SITE, Files, Member, distribution, elf, layout, link, pack, program, tar
from tests.support.mirror import Mirror
from tests.unit.cli.conftest import Cli, CommandResult

OURS: dict[str, Any] = {
    **distribution("vllm", "0.20.0", {f"{SITE}/vllm/__init__.py": b""}),
    "usr/bin/python3": program(elf()),
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
}
TOKEN = b"hf_" + b"QzWxEcRvTbYnUmIkOlPaSdFgHjKlZx" + b"CvBn"
FAULTS: dict[str, tuple[Files, str]] = {
    "vllm removed": ({f"{SITE}/.wh.vllm": b""}, "image-places"),
    "python removed": ({"usr/bin/.wh.python3": b""}, "image-places"),
    "a program for amd64": ({"usr/bin/tool": program(elf(machine=62))}, "image-elf-ours"),
    "setuid": ({"usr/bin/tool": Member(elf(), 0o4755)}, "image-no-setuid"),
    "a token": ({"srv/notes": TOKEN}, "image-no-secrets"),
}


def statuses(done: CommandResult) -> dict[str, str]:
    return {row["id"]: row["status"] for row in json.loads(done.out)["results"]}


@pytest.mark.parametrize(("files", "id"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("place", ["top", "bottom"])
def test_a_foreign_layer_does_not_count_as_a_layer_of_the_base(cli: Cli, files: Files, id: str, place: str) -> None:
    """Also below our layers: no pin of this project names the foreign layer as one of a base."""
    layers = [({"etc/issue": b"x"}, "builder: root"), (OURS, "builder: wheels")]
    layers.insert(2 if place == "top" else 1, (files, "RUN /bin/sh -c make"))
    if place == "bottom":
        layers[0] = (layers[0][0], "COPY root")
    image = layout(cli.folder / "image", [item[0] for item in layers], history=[{"created_by": i[1]} for i in layers])
    done = cli("test", f"oci:{image}", "--json")
    assert (done.code, statuses(done)[id]) == (7, "fail"), done


def test_no_file_check_passes_when_a_layer_was_not_read(cli: Cli) -> None:
    history = [{"created_by": "FROM somewhere"}, {"created_by": "builder: wheels"}]
    image = layout(cli.folder / "image", [{"opt/x": b""}, {"opt/y": b""}], history=history)
    manifest = json.loads(
        (image / Digest(json.loads((image / "index.json").read_text())["manifests"][0]["digest"]).path).read_text()
    )
    (image / Digest(manifest["layers"][0]["digest"]).path).unlink()
    found = statuses(cli("test", f"oci:{image}", "--json"))
    for id in ("no-secrets", "no-setuid", "elf-ours", "owners", "places", "blobs"):
        assert found[f"image-{id}"] == "not-run", found
    assert found["image-platform"] == "pass"
    assert cli("test", f"oci:{image}", "--require").code == 7


@pytest.fixture
def built(cli: Cli, make_plan: MakePlan, mirror: Mirror, engine: FakeEngine) -> Path:
    """A layout of the built image of the recipe `tiny`."""
    build(make_plan(), Store(cli.folder / "store"), engine)
    done = cli("build", "--recipe", "tiny", "--output", "oci:image")
    assert done.code == 0, done
    return cli.folder / "image"


def changed(image: Path, change: Any) -> None:
    """Change manifest and configuration of the layout's only image; digests are recomputed."""

    def put(data: bytes) -> dict[str, Any]:
        (image / Digest.of(data).path).write_bytes(data)
        return {"digest": Digest.of(data), "size": len(data)}

    index = json.loads((image / "index.json").read_bytes())
    manifest = json.loads((image / Digest(index["manifests"][0]["digest"]).path).read_bytes())
    config = json.loads((image / Digest(manifest["config"]["digest"]).path).read_bytes())
    change(manifest, config, put)
    manifest["config"] |= put(json.dumps(config).encode())
    index["manifests"][0] |= put(json.dumps(manifest).encode())
    (image / "index.json").write_text(json.dumps(index))


def add_layer(manifest: Any, config: Any, put: Any) -> None:
    data = tar({"opt/more": link("/etc")})
    manifest["layers"].append({**manifest["layers"][0], **put(pack(data, "zstd"))})
    config["rootfs"]["diff_ids"].append(Digest.of(data))
    config["history"].append({**config["history"][-1], "created_by": "builder: more"})


def drop_layer(manifest: Any, config: Any, put: Any) -> None:
    del manifest["layers"][-1], config["rootfs"]["diff_ids"][-1]
    del config["history"][max(n for n, line in enumerate(config["history"]) if not line.get("empty_layer"))]


def other_layer(manifest: Any, config: Any, put: Any) -> None:
    data = tar({"opt/more": link("/etc")})
    manifest["layers"][-1] |= put(pack(data, "zstd"))
    config["rootfs"]["diff_ids"][-1] = Digest.of(data)


def field(name: str, value: Any) -> Any:
    return lambda manifest, config, put: config["config"].__setitem__(name, value)


def variable(word: str) -> Any:
    return lambda manifest, config, put: config["config"]["Env"].append(word)


DERIVED: dict[str, tuple[Any, str]] = {
    "a layer more": (add_layer, "are planned"),
    "a layer less": (drop_layer, "are planned"),
    "another layer": (other_layer, "not sha256:"),
    "a preloaded library": (variable("LD_PRELOAD=/opt/x.so"), "the variable LD_PRELOAD is not planned"),
    "a path of Python": (variable("PYTHONPATH=/opt"), "the variable PYTHONPATH is not planned"),
    "devices of CUDA": (variable("CUDA_VISIBLE_DEVICES=-1"), "the variable CUDA_VISIBLE_DEVICES is not planned"),
    "a volume": (field("Volumes", {"/usr/local": {}}), "Volumes is not planned"),
    "a folder": (field("WorkingDir", "/srv"), "WorkingDir is not as planned"),
    "a user": (field("User", "nobody"), "User is not planned"),
    "a check of health": (field("Healthcheck", {"Test": ["CMD", "/x"]}), "Healthcheck is not planned"),
    "a shell": (field("Shell", ["/x"]), "Shell is not planned"),
    "an entrypoint": (field("Entrypoint", ["/x"]), "Entrypoint is not"),
    "a variant": (lambda manifest, config, put: config.update(variant="v9"), "variant is not planned"),
    "a feature": (lambda manifest, config, put: config.update({"os.features": ["x"]}), "os.features is not planned"),
}


@pytest.mark.parametrize(("change", "expected"), DERIVED.values(), ids=DERIVED)
@pytest.mark.parametrize("store", ["here", "elsewhere"])
def test_an_image_that_is_not_the_planned_one_fails(
    cli: Cli, built: Path, change: Any, expected: str, store: str
) -> None:
    healthy = cli("test", "oci:image", "--recipe", "tiny", "--json")
    assert statuses(healthy)["image-planned"] == "pass"
    changed(built, change)
    if store == "elsewhere":
        if expected == "not sha256:":
            pytest.skip("without a record of the layer, its digest is not known")
        shutil.rmtree(cli.folder / "store", ignore_errors=True)
    done = cli("test", "oci:image", "--recipe", "tiny", "--json")
    (result,) = [row for row in json.loads(done.out)["results"] if row["id"] == "image-planned"]
    assert (done.code, result["status"]) == (7, "fail") and expected in result["message"], result


def test_diff_ids_and_media_types_are_those_of_the_blobs(cli: Cli, built: Path) -> None:
    def other_diff_id(manifest: Any, config: Any, put: Any) -> None:
        config["rootfs"]["diff_ids"][0] = "sha256:" + "0" * 64

    def other_type(manifest: Any, config: Any, put: Any) -> None:
        manifest["layers"][0]["mediaType"] = "application/vnd.oci.image.layer.v1.tar+gzip"

    for change, expected in ((other_diff_id, "not to the diff_id"), (other_type, "its media type is")):
        again = built.with_name(f"image-{change.__name__}")
        shutil.copytree(built, again)
        changed(again, change)
        done = cli("test", f"oci:{again}", "--json")
        (result,) = [row for row in json.loads(done.out)["results"] if row["id"] == "image-blobs"]
        assert result["status"] == "fail" and expected in result["message"], result


MODEL = f"{SITE}/vllm/model_executor/models/gemma4.py"
SHIPPED: Files = {**distribution("vllm", "0.20.0", {MODEL: b"right = True\n"}), "usr/bin/python3": program(elf())}


@pytest.mark.parametrize(
    ("names", "status"),
    [
        # A layer of this project declares that it replaces the file. Whether it is that one, only a plan can tell.
        (["root", "placed"], "warn"),
        # The layer is named, but another one replaces the file.
        (["placed", "compiled"], "fail"),
        (["placed", ""], "fail"),
        (["root", "more"], "fail"),
    ],
)
def test_a_name_in_the_history_does_not_hide_a_changed_file(cli: Cli, names: list[str], status: str) -> None:
    declared = ["{{ base.site }}/" + MODEL.removeprefix(f"{SITE}/")]
    cli.small.files["dockerfiles/layers/placed/layer.yaml"]["replaces"] = declared
    history = [{"created_by": f"builder: {name}"} for name in names]
    image = layout(cli.folder / "image", [SHIPPED, {MODEL: b"import evil\n"}], history=history)
    found = cli("test", f"oci:{image}", "--json")
    assert statuses(found)["nothing-covered"] == status, found


@pytest.mark.parametrize("place", ["container_config", "annotations"])
def test_a_token_in_any_member_is_found(cli: Cli, place: str) -> None:
    image = layout(cli.folder / "image", [SHIPPED])

    def hide(manifest: Any, config: Any, put: Any) -> None:
        if place == "annotations":
            manifest["layers"][0]["annotations"] = {"note": TOKEN.decode()}
        else:
            config["container_config"] = {"Env": [f"A={TOKEN.decode()}"]}

    changed(image, hide)
    done = cli("test", f"oci:{image}", "--only", "image-no-secrets", "--json")
    assert statuses(done) == {"image-no-secrets": "fail"}


def test_layers_that_cannot_be_compared_with_the_plan_are_not_passed(cli: Cli, built: Path) -> None:
    changed(built, other_layer)
    shutil.rmtree(cli.folder / "store")
    done = cli("test", "oci:image", "--recipe", "tiny", "--only", "image-planned", "--json")
    assert statuses(done) == {"image-planned": "not-run"}
