"""Containers of two nodes, compile caches, revisions of models, and variables for images of others."""

from __future__ import annotations

import pytest

from builder.model.recipe import Recipe
from builder.model.variant import merge, with_profile
from builder.project import Project
from builder.serve.formats import docker_words
from builder.serve.spec import Node
from builder.serve.staging import prefetch, verification
from tests.support.containers import HEAD, WORKER, made

PROJECT = Project()
DUAL = ["minimax-m2.7-dual", "qwen3.5-122b-fp8-dual"]
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("user", [None, "1000:1000"])
def test_every_compiler_keeps_its_cache_in_the_folder_of_the_image(user: str | None) -> None:
    c = made(PROJECT.recipe("nemotron-omni"), user=user)
    (mount,) = [item for item in c.mounts if item.host == f"~/vllm-compile-cache/{'a1' * 32}"]
    env = dict(c.env)
    for name in (
        "VLLM_CACHE_ROOT",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "FLASHINFER_WORKSPACE_BASE",
        "TILELANG_CACHE_DIR",
        "CUTE_DSL_CACHE_DIR",
    ):
        assert env[name].startswith(f"{mount.container}/")
    assert ("HOME" in env) == (user is not None), "images have no home for another user"


@pytest.mark.parametrize("name", DUAL)
@pytest.mark.parametrize("profile", [None, "ray"])
def test_two_nodes(name: str, profile: str | None) -> None:
    recipe = with_profile(PROJECT.recipe(name), profile)
    head, worker = made(recipe, HEAD), made(recipe, WORKER)
    for c, node in ((head, HEAD), (worker, WORKER)):
        assert dict(c.env)["VLLM_HOST_IP"] == node.ip
        assert dict(c.env)["GLOO_SOCKET_IFNAME"] == node.interface
        assert "host" in docker_words(c)
        assert c.memlock
        assert c.devices == ("/dev/infiniband",)
    assert ("NCCL_IB_HCA" in dict(head.env)) == (name == "minimax-m2.7-dual")


@pytest.mark.parametrize("name", DUAL)
def test_two_nodes_need_no_ray(name: str) -> None:
    head, worker = (made(PROJECT.recipe(name), node) for node in (HEAD, WORKER))
    rank = ("--nnodes", "2", "--node-rank", "0", "--master-addr", "192.168.100.10")
    assert (head.entrypoint, worker.entrypoint) == (None, None), "the image's own"
    assert head.command[-6:] == rank
    assert worker.command == (*head.command[:-6], *rank[:3], "1", *rank[4:], "--headless")
    assert not [c for c in (head, worker) if " ray " in " ".join(c.command)]


@pytest.mark.parametrize("name", DUAL)
def test_ray_is_a_profile(name: str) -> None:
    head, worker = (made(with_profile(PROJECT.recipe(name), "ray"), node) for node in (HEAD, WORKER))
    assert head.entrypoint == "/bin/bash"
    assert "ray start --head --port=6379 --num-gpus=1" in head.command[1]
    assert "vllm serve" in head.command[1]
    assert "--address=192.168.100.10:6379" in worker.command[1]
    assert "vllm serve" not in worker.command[1]


def test_ngc_keeps_its_entrypoint_with_ray() -> None:
    head = made(with_profile(PROJECT.recipe("gpt-oss-120b"), "two-node"), HEAD)
    assert (head.entrypoint, head.command[:2]) == (None, ("/bin/bash", "-c"))


def test_names_of_devices_may_differ_between_nodes_and_be_several() -> None:
    node = Node("worker", "192.168.100.11", "192.168.100.10", "enp1s0f1np1,enP2p1s0f1np1", "rocep1s0f1,roceP2p1s0f1")
    env = dict(made(PROJECT.recipe("minimax-m2.7-dual"), node).env)
    assert env["NCCL_SOCKET_IFNAME"] == "enp1s0f1np1,enP2p1s0f1np1"
    assert env["NCCL_IB_HCA"] == "rocep1s0f1,roceP2p1s0f1"
    assert env["GLOO_SOCKET_IFNAME"] == "enp1s0f1np1", "gloo takes one"


def test_a_strange_image_gets_the_variables_of_the_recipe_and_its_profile() -> None:
    recipe = with_profile(PROJECT.recipe("qwen3.6-35b"), "yarn")
    assert "VLLM_ALLOW_LONG_MAX_MODEL_LEN" not in dict(made(recipe).env), "the recipe's own image has it"
    env = dict(made(recipe, foreign=True).env)
    assert (env["VLLM_ALLOW_LONG_MAX_MODEL_LEN"], env["CUTE_DSL_ARCH"]) == ("1", "sm_121a")


def test_a_pinned_model_is_served_and_downloaded_at_its_revision() -> None:
    pinned = {"model": {"revision": REVISION}, "run": {"downloads": [f"a/drafter@{REVISION}", "a/parser:x.py"]}}
    data = merge(PROJECT.recipe("qwen3.6-35b").model_dump(exclude_unset=True), pinned)
    recipe = Recipe.model_validate(data)
    command = made(recipe).command
    assert command[:3] == (recipe.model.id, "--revision", REVISION)
    model, drafter, file = prefetch(recipe)
    assert model[1] == ("hf", "download", recipe.model.id, "--revision", REVISION)
    assert drafter[1] == ("hf", "download", "a/drafter", "--revision", REVISION)
    assert file[1][:4] == ("hf", "download", "a/parser", "x.py")
    assert model[0]["HF_HUB_DISABLE_SHARED_BLOBS"] == "1", "a copied folder of a model is complete"
    check = verification(model)
    assert check is not None
    assert check[1][-3:] == (recipe.model.id, "--revision", REVISION)
    assert verification(file) is None


def test_a_revision_belongs_to_its_repository() -> None:
    data = PROJECT.recipe("qwen3.6-35b").model_dump(exclude_unset=True)
    pinned = merge(data, {"model": {"revision": REVISION}})
    assert "revision" not in merge(pinned, {"model": {"id": "other/model"}})["model"]
    assert merge(pinned, {"model": {"id": data["model"]["id"]}})["model"]["revision"] == REVISION
