"""Runs an extension's own setup.py with a stand-in for torch that compiles for the Spark, and installs the result.

    build.py PYTHON SITE NAME VERSION OUT    in the folder of the sources; JOBS: how many files are compiled at once

setup.py says which sources are compiled with which macros and folders. What would make the result depend on the machine
or the run is left out: architectures, debug information, build-id, the compiler's own version string.
"""

import base64
import csv
import hashlib
import json
import os
import runpy
import shutil
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HEADERS = Path("/headers")
CUDA = "/usr/local/cuda"
LIBRARIES = f"{CUDA}/targets/sbsa-linux/lib"
ARCH = ["-gencode=arch=compute_121a,code=sm_121a"]
CXX = "aarch64-linux-gnu-g++"
PAIRS = ("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code", "-t", "--threads")
"""Options of nvcc that are left out, with the word after them where their value is not in the same one."""
TORCH = ("c10", "torch", "torch_cpu", "torch_python")
TORCH_CUDA = ("c10_cuda", "torch_cuda")
VERSIONS = {"cuda": 1, "cublas": 13, "cublasLt": 13, "cusparse": 12, "cusolver": 12, "curand": 10, "nvrtc": 13}
"""Libraries that the image has and this root has not: the number in the name that the loader looks for."""


def kept(words):
    """The words of a compiler's command line without architectures, debug information and jobs."""
    found, skip = [], False
    for word in map(str, words):
        option, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif option in PAIRS:
            skip = not equals
        elif not word.startswith(("-lineinfo", "--generate-line-info", "-march", "-mtune", "-split-compile")) and not (
            word.startswith("-g") and word[2:] in ("", "1", "2", "3", "gdb")
        ):
            found.append(word)
    return found


def run(*words):
    """Run a command. A failure ends the build with its output, which names the file."""
    command = list(map(str, words))
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}")


def stub(name, version=None):
    """An empty library with the name under which the image has the real one."""
    folder = Path("/stubs")
    folder.mkdir(exist_ok=True)
    path = folder / f"lib{name}.so"
    soname = path.name if version is None else f"{path.name}.{version}"
    if not path.exists():
        named = f"-Wl,-soname,{soname}"
        run("aarch64-linux-gnu-gcc", "-shared", "-nostdlib", named, "-x", "c", "/dev/null", "-o", path)
    return f"-l{name}"


def includes(python):
    torch = HEADERS / "torch" / "include"
    folders = [torch, torch / "torch/csrc/api/include", f"{CUDA}/targets/sbsa-linux/include", HEADERS / "cuda"]
    folders += [HEADERS / "usr/include" / f"python{python}", HEADERS / "usr/include"]
    return [word for folder in folders for word in ("-isystem", str(folder))]


def make_builder(python):
    """torch's BuildExtension, as far as setup.py uses it."""
    from setuptools.command.build_ext import build_ext

    torch_flags = json.loads((HEADERS / "flags.json").read_text())

    class BuildExtension(build_ext):
        def __init__(self, *arguments, **options):
            for name in ("no_python_abi_suffix", "use_ninja"):
                options.pop(name, None)
            super().__init__(*arguments, **options)

        @classmethod
        def with_options(cls, **options):
            return cls

        def get_ext_filename(self, fullname):
            limited = any(each.name == fullname and each.py_limited_api for each in self.extensions)
            suffix = ".abi3.so" if limited else f".cpython-{python.replace('.', '')}-aarch64-linux-gnu.so"
            return fullname.replace(".", "/") + suffix

        def run(self):
            self.build_extensions()

        def build_extensions(self):
            jobs = [(each, source) for each in self.extensions for source in each.sources]
            with ThreadPoolExecutor(int(os.environ["JOBS"])) as pool:
                list(pool.map(lambda job: self._compile(*job), jobs))
            for each in self.extensions:
                self._link(each)

        def _object(self, extension, source):
            return Path("build/objects", extension.name, f"{os.path.relpath(source).replace('../', '')}.o")

        def _compile(self, extension, source):
            target = self._object(extension, source)
            target.parent.mkdir(parents=True, exist_ok=True)
            cuda = str(source).endswith(".cu")
            given = extension.extra_compile_args
            more = kept(given.get("nvcc" if cuda else "cxx", ()) if isinstance(given, dict) else given)
            words = [f"-D{name}" + ("" if value is None else f"={value}") for name, value in extension.define_macros]
            words += [f"-I{folder}" for folder in extension.include_dirs] + includes(python)
            words += ["-DTORCH_API_INCLUDE_EXTENSION_H", f"-DTORCH_EXTENSION_NAME={extension.name.rpartition('.')[2]}"]
            standard = [] if any("-std" in word for word in more) else [f"-std={torch_flags['standard']}"]
            if cuda:
                host = ["-ccbin", CXX, "--compiler-options", "-fPIC"]
                words = ["/usr/local/bin/nvcc", *host, *words, *torch_flags["nvcc"], *more, *standard, *ARCH]
            else:
                words = [CXX, "-fPIC", "-fwrapv", "-DNDEBUG", "-O2", *words, *more, *standard]
            run(*words, "-c", source, "-o", target)

        def _link(self, extension):
            target = Path(self.build_lib, self.get_ext_filename(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            names = [*TORCH, *(TORCH_CUDA if extension.cuda else ())]
            words = [stub(name) for name in names] + (["-l:libcudart.so.13"] if extension.cuda else [])
            known = {*names, "cudart"}
            more = [name for name in extension.libraries if name not in known]
            words += [stub(name, VERSIONS[name]) if name in VERSIONS else f"-l{name}" for name in more]
            objects = [self._object(extension, source) for source in extension.sources]
            folders = ["-L/stubs", f"-L{LIBRARIES}", *(f"-L{folder}" for folder in extension.library_dirs)]
            flags = [word for word in kept(extension.extra_link_args) if "rpath" not in word]
            # Debian's linker leaves libraries out of which it sees no symbol used, so all stubs.
            run(CXX, "-shared", "-Wl,--build-id=none,--no-as-needed", *objects, *folders, *flags, *words, "-o", target)
            run("aarch64-linux-gnu-strip", "--strip-unneeded", "-R", ".comment", target)

    return BuildExtension


def stand_in(python):
    """Modules in place of torch, and of wheel, whose only part that setup.py files use is in setuptools."""
    from setuptools import Extension
    from setuptools.command import bdist_wheel

    def extension(cuda):
        def make(name, sources, *arguments, **options):
            options.pop("dlink", None), options.pop("dlink_libraries", None)
            made = Extension(name, [str(each) for each in sources], *arguments, **{"language": "c++", **options})
            made.cuda = cuda
            return made

        return make

    version = {}
    exec((HEADERS / "torch/version.py").read_text(), version)
    modules = {name: types.ModuleType(name) for name in ("torch", "torch.version", "torch.cuda", "torch.utils")}
    modules["torch.utils.cpp_extension"] = cpp = types.ModuleType("torch.utils.cpp_extension")
    torch = modules["torch"]
    torch.__version__, torch.__file__ = version["__version__"], str(HEADERS / "torch/__init__.py")
    torch._C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)
    torch.compiled_with_cxx11_abi = lambda: True
    modules["torch.version"].__dict__.update({k: v for k, v in version.items() if not k.startswith("__")})
    modules["torch.cuda"].__dict__.update(
        is_available=lambda: False, device_count=lambda: 0, get_device_capability=lambda *_: (12, 1)
    )
    cpp.__dict__.update(
        **{"BuildExtension": make_builder(python), "CUDAExtension": extension(True), "CppExtension": extension(False)},
        **{"CUDA_HOME": CUDA, "ROCM_HOME": None, "HIP_HOME": None, "IS_HIP_EXTENSION": False, "IS_WINDOWS": False},
        **{"include_paths": lambda *_, **__: [], "library_paths": lambda *_, **__: []},
    )
    for name, module in modules.items():
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    sys.modules["wheel"] = wheel = types.ModuleType("wheel")
    sys.modules["wheel.bdist_wheel"] = wheel.bdist_wheel = bdist_wheel


def install(built, site, name, version, out):
    """Place the built packages and the distribution's metadata below OUT, with a RECORD of all of them."""
    target = Path(out + site)
    shutil.copytree(built, target)
    (info,) = Path("build/info").glob("*.dist-info")
    stem = f"{name.replace('-', '_')}-{version}"
    if info.name.removesuffix(".dist-info").lower() != stem.lower():
        sys.exit(f"setup.py names {info.name.removesuffix('.dist-info')}, the recipe names {stem}")
    shutil.copytree(info, target / info.name)
    (target / info.name / "INSTALLER").write_text("builder\n")
    tag = "Wheel-Version: 1.0\nGenerator: builder\nRoot-Is-Purelib: false\nTag: py3-none-linux_aarch64\n"
    (target / info.name / "WHEEL").write_text(tag)
    rows = []
    for path in sorted(path for path in target.rglob("*") if path.is_file()):
        data = path.read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append((path.relative_to(target).as_posix(), f"sha256={digest}", len(data)))
    with (target / info.name / "RECORD").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([*rows, (f"{info.name}/RECORD", "", "")])


def main(python, site, name, version, out):
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(HEADERS / "python"), str(Path.cwd())]
    os.environ |= {"CUDA_HOME": CUDA, "TORCH_CUDA_ARCH_LIST": "12.1a", "SETUPTOOLS_USE_DISTUTILS": "local"}
    os.environ |= {"SOURCE_DATE_EPOCH": "1577836800", "PATH": f"{os.environ['PATH']}:{CUDA}/bin"}
    stand_in(python)
    for words in (["build", "--build-lib", "build/lib"], ["dist_info", "--output-dir", "build/info"]):
        Path(words[-1]).mkdir(parents=True, exist_ok=True)
        sys.argv = ["setup.py", *words]
        runpy.run_path("setup.py", run_name="__main__")
    install("build/lib", site, name, version, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
