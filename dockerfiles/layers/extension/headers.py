"""Takes the headers of torch and CUDA, torch's flags, and the packages that run setup.py out of wheels.

    headers.py FOLDER WHEEL...    writes FOLDER/torch, FOLDER/cuda, FOLDER/python and FOLDER/flags.json
"""

import ast
import json
import re
import sys
import zipfile
from pathlib import Path

PLACES = (
    (re.compile(r"torch/(include/.*|version\.py)"), "torch"),
    (re.compile(r"nvidia/(?:cu13|[a-z_]+)/include/(.*)"), "cuda"),
    (re.compile(r"((?:setuptools|packaging|_distutils_hack|pkg_resources)/.*|[^/]*\.dist-info/.*)"), "python"),
)
FLAGS = "torch/utils/cpp_extension.py"


def flags(text):
    """The flags that this torch gives nvcc, and the C++ standard of its headers."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "COMMON_NVCC_FLAGS":
            standard = max(re.findall(r"-std=(c\+\+\d\d)'", text))
            return {"nvcc": ast.literal_eval(node.value), "standard": standard}
    sys.exit(f"{FLAGS} is not as expected")


def main(folder, *wheels):
    root = Path(folder)
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name == FLAGS:
                    (root / "flags.json").write_text(json.dumps(flags(wheel.read(name).decode())))
                for pattern, place in PLACES:
                    found = pattern.fullmatch(name)
                    if found and not name.endswith("/"):
                        target = root / place / found[1]
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(wheel.read(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
