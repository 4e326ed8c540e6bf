"""Images without a plan in which something more runs: each has a finding, and the healthy one has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.errors import InvalidError
from builder.smoke.image.opened import open_image
from builder.smoke.static.run import check_image
from tests.support.errors import fails
from tests.support.images import SITE, Files, Member, elf, folder, layout, link, program
from tests.unit.smoke.static.like_ours import CUDA, LIB, NCCL, PATH, ROOT, SCRIPT, found, wheel


def test_an_image_like_ours_has_no_finding(tmp_path: Path) -> None:
    words = ["CUDA_HOME=/usr/local/cuda", "VLLM_USE_DEEP_GEMM=0", "LANG=C.UTF-8", "MAX_JOBS=4"]
    assert found(tmp_path / "1", [ROOT, CUDA, NCCL], *words) == {}
    assert found(tmp_path / "2", [ROOT], Entrypoint=["/usr/bin/env"], Cmd=["vllm"])["starts"]


FILES: dict[str, tuple[Files, str]] = {
    # name: files of a layer more, the check that fails
    "bytecode by a link": (
        {f"{SITE}/vllm/__pycache__/__init__.cpython-313.pyc": link("/opt/data"), "opt/data": b"evil"},
        "no-bytecode",
    ),
    "a mark of a build tree": (
        {"usr/bin/pybuilddir.txt": b"/srv/x", "usr/Lib": link("lib/python3.13"), "srv/x/_json.py": b""},
        "imports",
    ),
    "a part of a package without __init__": ({"usr/bin/google/protobuf/__init__.py": b"evil"}, "imports"),
    "metadata with entry points": (
        {"usr/local/bin/x-1.dist-info/entry_points.txt": b"[console_scripts]"},
        "imports",
    ),
    "the library of lib64": ({"usr/lib64/python3.13/json/evil.py": b"evil"}, "imports"),
    "a program in place of another": (
        {"usr/bin/python3": link("/opt/python3-evil"), "opt/python3-evil": program(elf(soname="x"))},
        "nothing-covered",
    ),
    "code in a home's cache": ({"opt/home/.cache/flashinfer/a.so": LIB}, "preloads"),
    "compiled by vLLM": ({"srv/.cache/vllm/torch_compile_cache/x.py": b"evil"}, "preloads"),
}


@pytest.mark.parametrize("case", FILES.values(), ids=FILES)
def test_files_that_run(tmp_path: Path, case: tuple[Files, str]) -> None:
    files, kind = case
    assert kind in found(tmp_path, [ROOT, files])


@pytest.mark.parametrize(
    "path",
    [
        "usr/local/bin/uname",
        "usr/local/cuda/bin/uname",
        "usr/local/lib/libnss_db.so.2",
        "usr/share/p11-kit/modules/x.module",
        "etc/profile.d/x.sh",
        "etc/gitconfig",
        "etc/perl/strict.pm",
        "opt/nccl/lib/libnss_db.so.2",
        "opt/nccl/lib/libnccl.so.9.evil",
    ],
)
def test_files_that_only_a_plan_explains(tmp_path: Path, path: str) -> None:
    messages = found(tmp_path, [ROOT, CUDA, NCCL, {path: program(LIB) if "/bin/" in path or ".so" in path else b""}])
    assert path in messages["unplanned"]
    assert set(messages) == {"unplanned"}


@pytest.mark.parametrize(
    "word",
    [
        "CUDA_HOME=/srv/cuda",
        "COMPILER_PATH=/srv/cc",
        "TRITON_LIBDEVICE_PATH=/srv/x.bc",
        "FLASHINFER_EXTRA_LDFLAGS=/srv/x.o",
        "RAY_ADDRESS=203.0.113.1:6379",
        "VLLM_DP_MASTER_IP=203.0.113.1",
        "NCCL_COMM_ID=203.0.113.1:1",
        "GIT_CONFIG_COUNT=1",
        "VLLM_CACHE_ROOT=opt",
        "VLLM_NCCL_SO_PATH=evil",
        "VLLM_USE_MODELSCOPE=1",
        "TORCH_CUDA_ARCH_LIST=9.0",
    ],
)
def test_variables_that_only_a_plan_explains(tmp_path: Path, word: str) -> None:
    assert found(tmp_path, [ROOT], word) == {
        "unplanned": f"only a plan (--recipe) tells whether this is meant: the variable {word.partition('=')[0]}"
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/usr/bin/python3", "-c", "import evil"], "the command /usr/bin/python3 -c import evil"),
        (["vllm", "serve", "--tool-parser-plugin=/opt/x.py"], "/opt/x.py, which the command names"),
        (["vllm", "serve", "opt/x.py"], "/opt/x.py, which the command names"),
        (["vllm", "serve", "file:///opt/x.py"], "/opt/x.py, which the command names"),
        (["vllm", "serve", '{"a":"/opt/x.py"}'], "/opt/x.py, which the command names"),
        (["vllm", "serve", "--logits_processors", "a:b"], "the option --logits_processors"),
        (["/opt/vllm"], "the command /opt/vllm"),
        (["vllm", "serve", "--distributed-executor-backend", "a.B"], "a.B, which the command names"),
        (["vllm", "serve", '{"kv_connector_module_path":"a"}'], "the option {"),
        (["vllm", "serve", "--otlp-traces-endpoint=http://203.0.113.1"], "the option --otlp-traces-endpoint"),
        (["vllm", "serve", "--master-addr", "203.0.113.1"], "the address in --master-addr"),
        (["vllm", "serve", "--data_parallel_address=3405803777"], "the address in --data_parallel_address"),
        (["vllm", "serve", '{"kv_role":"kv_both","kv_ip":"203.0.113.1"}'], "the address in {"),
        (["vllm", "serve", "--kv-transfer-config.kv_ip", "203.0.113.1"], "the address in --kv-transfer"),
        (["vllm", "serve", '{"endpoint":"tcp://203.0.113.1:1"}'], "the address in {"),
        (["vllm", "serve", "s3://203.0.113.1/model"], "the address in s3:"),
        (["vllm", "serve", "--allowed-local-media-path", "/."], "the folder /, which the command names"),
        (["vllm", "serve", "--logits-proc", "a:b"], "the option --logits-proc, which is another one's beginning"),
        (["vllm", "serve", "-dpa", "3405803777"], "the option -dpa, which is another one's beginning"),
        ([], "no command"),
    ],
)
def test_commands_that_only_a_plan_explains(tmp_path: Path, words: list[str], message: str) -> None:
    assert message in found(tmp_path, [ROOT, {"opt/x.py": b""}], Entrypoint=words)["unplanned"]


POINTS = f"{SITE}/x-1.dist-info/entry_points.txt"
DISTRIBUTIONS: dict[str, tuple[str, bytes]] = {
    # a path that a RECORD lists, its content
    "code at the start of Python": (f"{SITE}/x.pth", b"\xef\xbb\xbfimport evil\n"),
    "code in a line that only Python sees": (f"{SITE}/x.pth", b"#\x0cimport evil\n"),
    "code under the name of another's": (f"{SITE}/distutils-precedence.pth", b"import evil\n"),
    "a customization": (f"{SITE}/sitecustomize.py", b"import evil\n"),
    "a customization as a package": (f"{SITE}/usercustomize/__init__.py", b"import evil\n"),
    "a compiled customization": (f"{SITE}/sitecustomize.cpython-313-aarch64-linux-gnu.so", LIB),
    "a plugin of vLLM": (POINTS, b"[vllm.general_plugins]\nx = x:f\n"),
    "a plugin with more brackets": (POINTS, b"[[vllm.general_plugins]]\nx = x:f\n"),
    "a plugin in a line that only Python sees": (POINTS, b"[a]\x1c[vllm.general_plugins]\x1cx = x:f\n"),
    "a plugin of pydantic": (POINTS, b"[pydantic]\nx = x:f\n"),
    "settings": ("etc/profile.d/x.sh", b""),
    "a program that is there": ("usr/local/bin/uname", b"#!/usr/bin/python3\n"),
    "a program of the driver": ("usr/local/bin/nvidia-smi", b"#!/usr/bin/python3\n"),
}


@pytest.mark.parametrize("case", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_what_a_distribution_may_not_explain(tmp_path: Path, case: tuple[str, bytes]) -> None:
    path, data = case
    messages = found(tmp_path, [ROOT, wheel({path: program(data)})])
    assert path in messages["unplanned"]
    assert set(messages) == {"unplanned"}


def test_what_a_distribution_brings(tmp_path: Path) -> None:
    files = {POINTS: b"[console_scripts]\nx = x:f\n", f"{SITE}/x.so": LIB, f"{SITE}/x.py": b""}
    assert found(tmp_path, [ROOT, wheel(files)]) == {}


def test_a_library_of_a_distribution_where_the_loader_looks(tmp_path: Path) -> None:
    files = wheel({f"{SITE}/x/libx.so.1.2": LIB})
    in_place = {**files, "usr/lib/libx.so.1": link(f"/{SITE}/x/libx.so.1.2")}
    assert "/usr/lib/libx.so.1, " in found(tmp_path / "1", [ROOT, in_place])["unplanned"]
    assert "x/libx.so.1.2" in found(tmp_path / "2", [ROOT, files], f"LD_LIBRARY_PATH=/{SITE}/x")["unplanned"]


def test_a_folder_in_the_path_that_adds_one(tmp_path: Path) -> None:
    assert "/opt/src" in found(tmp_path, [ROOT, wheel({f"{SITE}/x.pth": b"\xef\xbb\xbf/opt/src\n"})])["imports"]


@pytest.mark.parametrize("name", ["METADATA", "RECORD"])
def test_many_links_to_one_large_file_are_refused(tmp_path: Path, name: str) -> None:
    """100 kB took 16 s, and the time grew with the number of links."""
    folders = [f"{SITE}/a{number}-1.dist-info" for number in range(4000 if name == "METADATA" else 30)]
    files: dict[str, Member | bytes] = {f"{folder}/METADATA": b"" for folder in folders}
    files |= {f"{folder}/{name}": link("/large") for folder in folders}
    with fails(InvalidError, "image-links-too-many"):
        found(tmp_path, [ROOT, {**files, "large": b"x: " + b"y" * 8_000_000}])


def test_pth_files_have_a_limit_together(tmp_path: Path) -> None:
    """100 files took 8 s, and 4,000 fit into 1.4 MB."""
    many = {f"{SITE}/{number:02}.pth": b"x\n" * 32_000 for number in range(99)}
    messages = found(tmp_path, [ROOT, many])
    assert "the .pth files have more than 524288 bytes" in messages["imports"]
    assert f"/{SITE}/65.pth" in messages["unplanned"], "the first that is not read"


@pytest.mark.parametrize("name", ["a", "z"])
@pytest.mark.parametrize("path", ["envs/__init__.py", "envs.abi3.so"])
def test_one_module_of_two_distributions(tmp_path: Path, name: str, path: str) -> None:
    """Python takes a package before a library, and this before a file."""
    good, other = wheel({f"{SITE}/m/envs.py": b""}, "m"), wheel({f"{SITE}/m/{path}": LIB}, name)
    for number, layers in enumerate(([ROOT, good, other], [{**ROOT, f"{SITE}/m/envs.py": b""}, other])):
        messages = found(tmp_path / str(number), layers)
        assert messages.keys() == {"records"}
        assert "one module of two distributions" in messages["records"]


def test_a_model_in_the_working_directory(tmp_path: Path) -> None:
    """`vllm serve nvidia/model` loads it, and the code that its config.json names."""
    model: Files = {"srv/nvidia/model/config.json": b"{}"}
    assert "/srv, which has files" in found(tmp_path / "1", [ROOT, model], WorkingDir="/srv")["unplanned"]
    words = ["vllm", "serve", "nvidia/model", "--allowed-local-media-path", "/media"]
    root = {**ROOT, "media": folder()}
    assert found(tmp_path / "2", [root], Entrypoint=words) == {}
    root = {**root, "nvidia/model/config.json": b"{}"}
    assert "/nvidia/model, which the command" in found(tmp_path / "3", [root], Entrypoint=words)["unplanned"]
    words[2] = "/srv/nvidia"
    assert "/srv/nvidia, which the command" in found(tmp_path / "4", [ROOT, model], Entrypoint=words)["unplanned"]


@pytest.mark.parametrize("value", ["/tmp/x:/usr/lib", ":/usr/lib", "/opt/$LIB:/usr/lib"])
def test_libraries_of_everyone_on_a_base(tmp_path: Path, value: str) -> None:
    below = {"Env": [PATH, "LD_LIBRARY_PATH=/usr/lib:$ODD"], "Entrypoint": ["vllm"]}

    def failed(where: Path, more: str) -> list[str]:
        settings = {**below, "Env": [PATH, f"LD_LIBRARY_PATH={more}"]}
        image = open_image(layout(where, [{**ROOT, "tmp": folder(0o1777)}, {"opt/a": b""}], **settings))
        rows = check_image(image, [], base=1, settings=below).results
        return [row.kind for row in rows if row.status == "fail"]

    assert failed(tmp_path / "1", value) == ["preloads"]
    assert failed(tmp_path / "2", "/opt/nccl/lib:/usr/lib:$ODD") == []


@pytest.mark.parametrize("name", ["HOME", "HF_HOME"])
def test_a_home_with_files(tmp_path: Path, name: str) -> None:
    assert found(tmp_path / "1", [ROOT], f"{name}=/srv/home") == {}
    assert set(found(tmp_path / "2", [ROOT, {"srv/home/.gitconfig": b""}], f"{name}=/srv/home")) == {"unplanned"}


def test_another_assembler(tmp_path: Path) -> None:
    messages = found(tmp_path, [{**ROOT, "opt/evil": program(LIB)}], "TRITON_PTXAS_PATH=/opt/evil")
    assert "TRITON_PTXAS_PATH, which names /opt/evil" in messages["preloads"]


def test_a_part_of_a_library_that_is_opened_by_name(tmp_path: Path) -> None:
    messages = found(tmp_path, [ROOT, {"opt/x/libcudnn_ops.so.9": LIB}], "LD_LIBRARY_PATH=/opt/x")
    assert "/opt/x/libcudnn_ops.so.9 is a second copy of" in messages["mapped"]


def test_a_file_beside_those_of_a_base(tmp_path: Path) -> None:
    """The entrypoint of NVIDIA's images runs every file in that folder."""
    base = {**ROOT, "opt/nvidia/entrypoint.d/10-banner.sh": b""}
    layers: list[Files] = [base, {"opt/nvidia/entrypoint.d/99-evil.sh": b""}]
    settings = {"Env": [PATH, "OF_BASE=1"], "Entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"]}
    image = open_image(layout(tmp_path, layers, **settings))
    row = next(row for row in check_image(image, [], base=1, settings=settings).results if row.kind == "unplanned")
    assert (row.status, row.message.partition(": ")[2]) == ("warn", "/opt/nvidia/entrypoint.d/99-evil.sh")


@pytest.mark.parametrize(
    "word",
    [
        "PATH=/models/bin:/usr/bin",
        "PATH=/usr/../models:/usr/bin",
        "PATH=/binmodels:/usr/bin",
        "LD_LIBRARY_PATH=/models",
        "LD_LIBRARY_PATH=/usr/lib;/models",
    ],
)
def test_folders_that_a_mount_fills(tmp_path: Path, word: str) -> None:
    for root in (ROOT, {**ROOT, "models/bin": folder()}):
        messages = found(tmp_path / str(len(root)), [root], Env=[*([PATH] * (word[0] == "L")), word])
        assert "models" in messages["unplanned"]


def test_a_tool_that_is_a_link(tmp_path: Path) -> None:
    files = {"usr/local/cuda/bin/ptxas": link("/opt/evil"), "opt/evil": SCRIPT}
    assert "bin/ptxas" in found(tmp_path, [ROOT, CUDA, files])["unplanned"]


CONF: dict[str, tuple[Files, str]] = {
    "another encoding": ({"etc/ld.so.conf": b"/opt/\xff\n", "opt/\udcff/libx.so.1": LIB}, "/opt/\udcff/libx.so.1"),
    "a control character": ({"etc/ld.so.conf": b"/opt/a\x1cb\n", "opt/a\x1cb/libx.so.1": LIB}, "/libx.so.1"),
    "a type": ({"etc/ld.so.conf": b"/opt/a=libc6\n", "opt/a/libx.so.1": LIB}, "/opt/a/libx.so.1"),
    "an end in the line": ({"etc/ld.so.conf": b"/opt/a\0#\n", "opt/a/libx.so.1": LIB}, "/opt/a/libx.so.1"),
    "a class of characters": ({"etc/ld.so.conf": b"include /opt/[[:alpha:]].conf\n"}, "is not followed"),
    "many files": ({"etc/ld.so.conf": b"".join(b"include /opt/%d\n" % i for i in range(102))}, "is not followed"),
    "files that are not kept": (
        {"etc/ld.so.conf": b"include /opt/*.conf\n", **{f"opt/{i:02}.conf": b"/srv\n" for i in range(18)}},
        "links lead to more than 16 others",
    ),
    "a folder of everyone": (
        {"etc/ld.so.conf": b"/tmp/x\n", "tmp": folder(0o1777)},
        "/tmp/x, where everyone may write, is in ld.so.conf",
    ),
    "a long file": ({"etc/ld.so.conf": b"#" * (1 << 20) + b"\n/opt/a\n", "opt/a/libx.so.1": LIB}, "is too long"),
    "an old cache alone": ({"etc/ld.so.cache": b"ld.so-1.7.0\0" + bytes(4)}, "is not read"),
}


@pytest.mark.parametrize("case", CONF.values(), ids=CONF)
def test_the_settings_of_the_loader_as_ldconfig_reads_them(tmp_path: Path, case: tuple[Files, str]) -> None:
    files, message = case
    assert message in found(tmp_path, [{**ROOT, **files}])["libraries"]
