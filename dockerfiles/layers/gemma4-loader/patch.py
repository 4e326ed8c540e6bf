"""Lets vLLM 0.19.0 load Gemma 4 checkpoints whose experts have scales of their own, as 0.19.1 does.

    patch.py FILE RESULT    writes the patched gemma4.py; fails where FILE is not as in 0.19.0
"""

import ast
import sys
from pathlib import Path

# What is mapped are prefixes, so that `.weight_scale` and its like follow `.weight`.
MAPPING = (
    """\
                "experts.w13_weight"
                if proj_name in ["gate_proj", "up_proj"]
                else "experts.w2_weight",
                f"experts.{expert_id}.{proj_name}",
""",
    """\
                "experts.w13_"
                if proj_name in ["gate_proj", "up_proj"]
                else "experts.w2_",
                f"experts.{expert_id}.{proj_name}.",
""",
)
MATCH = (
    """\
                    if weight_name not in name:
                        continue
                    moe_name = name.replace(weight_name, param_name)
""",
    """\
                    bare = weight_name.rstrip(".")
                    if weight_name in name:
                        moe_name = name.replace(weight_name, param_name)
                    elif name.endswith(bare):
                        moe_name = name.replace(bare, param_name.rstrip("_") + "_weight")
                    else:
                        continue
""",
)
# Scales have one dimension or none; the loader tells a scale by the mapped name.
LOAD = (
    """\
                    assert loaded_weight.dim() == 2, (
                        f"Expected 2D expert weight for {weight_name}, "
                        f"got shape {loaded_weight.shape}"
                    )
                    weight_loader = param.weight_loader
                    weight_loader(
                        param,
                        loaded_weight,
                        weight_name + ".weight",
""",
    """\
                    weight_loader = param.weight_loader
                    weight_loader(
                        param,
                        loaded_weight,
                        moe_name,
""",
)
# Experts that are stored one by one lie under `.experts.ID.`, the model's parameters under `.moe.experts.ID.`.
RENAME = (
    """\
                # MoE expert weights: checkpoint stores as 3D packed
""",
    """\
                name = re.sub(r"\\.experts\\.(\\d+)\\.", r".moe.experts.\\1.", name)

                # MoE expert weights: checkpoint stores as 3D packed
""",
)


def patched(text):
    """The text with all four changes. Raises ValueError where one has no place, or more than one."""
    for number, (old, new) in enumerate((MAPPING, MATCH, LOAD, RENAME), 1):
        if text.count(old) != 1:
            raise ValueError(f"change {number} fits {text.count(old)} places")
        text = text.replace(old, new)
    ast.parse(text)
    return text


def main(arguments):
    source, target = map(Path, arguments)
    try:
        result = patched(source.read_text("utf-8"))
    except (ValueError, SyntaxError) as error:
        sys.exit(f"gemma4.py is not that of vLLM 0.19.0: {error}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(result, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
