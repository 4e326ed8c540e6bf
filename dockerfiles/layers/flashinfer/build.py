"""Compiles modules of FlashInfer for the Spark, as FlashInfer's own generator describes them.

    build.py SITE OUT WHEEL... -- MODULE...    JOBS: how many files are compiled at once

The generator says which sources a module has, writes those that it makes up, and gives the compilers' flags. What would
make the result depend on the machine or the run is left out, as in the other compiled layers: build-id, the compiler's
own version string. Each module lies in FlashInfer's data/aot/NAME/NAME.so, where it looks before it compiles.
"""

import base64
import csv
import hashlib
import os
import shlex
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from generator import CXX, TARGET, Unknown, load

VERSIONS = {"cuda": 1, "cublas": 13, "cublasLt": 13, "nvrtc": 13}
"""Libraries that this root has not: the number in the name that the loader looks for."""

DISTRIBUTION, SUMMARY = "flashinfer-modules", "Modules of FlashInfer, compiled for sm_121a"


def unpack(site, wheels):
    """FlashInfer and what it imports to SITE, headers of CUDA's libraries to the compiler's."""
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                _, nvidia, header = name.rpartition("/include/") if name.startswith("nvidia/") else ("", "", "")
                if name.endswith("/") or (name.startswith("nvidia/") and not nvidia):
                    continue
                target = Path(TARGET, "include", header) if nvidia else Path(site, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(wheel.read(name))


def run(words):
    """Run a command. A failure ends the build with its output, which names the file."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(words)}\n{done.stdout}")


def stub(name):
    """An empty library with the name under which the image has the real one."""
    path = Path("/stubs", f"lib{name}.so")
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        named = f"-Wl,-soname,{path.name}.{VERSIONS[name]}"
        run(["aarch64-linux-gnu-gcc", "-shared", "-nostdlib", named, "-x", "c", "/dev/null", "-o", str(path)])
    return f"-l{name}"


def compile_commands(spec, folder):
    """The commands that compile the sources of a module, and its objects. Two sources may have the same name."""
    commands, objects = [], []
    for source, entry in zip(spec.sources, spec.get_compile_commands(), strict=True):
        target = str(folder / f"{source.parent.name}_{source.name}.o")
        commands.append([*shlex.split(entry["command"])[:-1], target])
        objects.append(target)
    return commands, objects


def link_command(spec, objects, target):
    """The command that links a module: the CUDA runtime, the driver, and what the generator names."""
    names = [word.removeprefix("-l") for word in spec.extra_ldflags or () if word.startswith("-l")]
    words = [stub(name) for name in dict.fromkeys(["cuda", *names]) if name != "cudart"]
    # Debian's linker leaves libraries out of which it sees no symbol used, so all stubs.
    options = ["-shared", "-Wl,--build-id=none,--no-as-needed", "-L/stubs", f"-L{TARGET}/lib"]
    return [CXX, *options, *objects, "-l:libcudart.so.13", *words, "-o", str(target)]


def record(out, site):
    """Describe the modules as a distribution of FlashInfer's version, so that its RECORD names their files."""
    folder = Path(out + site)
    (flashinfer,) = Path(site).glob("flashinfer_python-*.dist-info")
    version = flashinfer.name.removesuffix(".dist-info").partition("-")[2]
    info = folder / f"{DISTRIBUTION.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    head = ("Metadata-Version: 2.1", f"Name: {DISTRIBUTION}", f"Version: {version}", f"Summary: {SUMMARY}")
    (info / "METADATA").write_text("\n".join(head) + "\n")
    (info / "INSTALLER").write_text("builder\n")
    rows = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append((path.relative_to(folder).as_posix(), f"sha256={digest}", len(data)))
    with (info / "RECORD").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([*rows, (f"{info.name}/RECORD", "", "")])


def main(site, out, *rest):
    sys.dont_write_bytecode = True
    wheels, modules = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
    unpack(site, wheels)
    # The generator asks this nvcc for CUDA's release.
    Path(TARGET, "bin").mkdir()
    Path(TARGET, "bin/nvcc").symlink_to("/usr/local/cuda/bin/nvcc")
    try:
        specs = load(site, modules)
    except Unknown as error:
        sys.exit(f"flashinfer: {error}")
    jobs, links = [], []
    for spec in specs:
        if spec.needs_device_linking:
            sys.exit(f"flashinfer: {spec.name} links device code, which this layer cannot")
        folder = Path("/src/objects", spec.name)
        folder.mkdir(parents=True)
        target = Path(f"{out}{site}/flashinfer/data/aot", spec.name, f"{spec.name}.so")
        target.parent.mkdir(parents=True)
        commands, objects = compile_commands(spec, folder)
        jobs += commands
        links.append((link_command(spec, objects, target), target))
    with ThreadPoolExecutor(int(os.environ["JOBS"])) as pool:
        list(pool.map(run, jobs))
    for command, target in links:
        run(command)
        run(["aarch64-linux-gnu-strip", "--strip-unneeded", "-R", ".comment", str(target)])
    record(out, site)


if __name__ == "__main__":
    main(*sys.argv[1:])
