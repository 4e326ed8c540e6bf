"""Makes vLLM answer that no CUTLASS FP8 kernel fits: the stock ones are compiled for sm_120 and crash on sm_121.

    patch.py take WHEEL FOLDER    takes w8a8_utils.py out of a wheel
    patch.py patch FILE RESULT    writes the patched file; fails where the file is not as expected
"""

import ast
import sys
import zipfile
from pathlib import Path

MEMBER = "vllm/model_executor/layers/quantization/utils/w8a8_utils.py"
FUNCTIONS = ("cutlass_fp8_supported", "cutlass_block_fp8_supported")
ASKS = {"cutlass_fp8_supported": "supports_fp8", "cutlass_block_fp8_supported": "supports_block_fp8"}


def patched(text):
    """The text with both functions returning False, and the constants that hold their answers False too."""
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS}
    missing = [name for name in FUNCTIONS if name not in functions]
    if missing:
        raise ValueError(f"no function {missing[0]}")
    edits = []
    for name, node in functions.items():
        if node.args.args or ASKS[name] not in ast.get_source_segment(text, node):
            raise ValueError(f"{name} is not as expected")
        edits.append((node.body[0].lineno, node.body[-1].end_lineno, "    return False\n"))
    constants = 0
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = getattr(node.value.func, "id", "")
            if called in FUNCTIONS:
                edits.append((node.lineno, node.end_lineno, f"{node.targets[0].id} = False\n"))
                constants += 1
    if not constants:
        raise ValueError("no constant holds the answer")
    for first, last, line in sorted(edits, reverse=True):
        lines[first - 1 : last] = [line]
    result = "".join(lines)
    ast.parse(result)
    return result


def main(arguments):
    command, source, target = arguments
    if command == "take":
        folder = Path(target)
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(source) as wheel:
            (folder / "w8a8_utils.py").write_bytes(wheel.read(MEMBER))
        return
    try:
        result = patched(Path(source).read_text("utf-8"))
    except (ValueError, SyntaxError) as error:
        sys.exit(f"w8a8_utils.py cannot be patched: {error}")
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(result, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
