"""A Qwen3 with two layers that a CPU serves at once and whose answers are known: FOLDER. Runs beside vLLM.

Attention and MLP add nothing, the embedding is the identity, and the output matrix says which token follows which.
The chat template ends a prompt with the token that begins a chain: of thought and answer, of a tool call, or of a copy.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

SIZE, LAYERS, HEADS, KEYS, WIDTH, INNER = 512, 2, 4, 2, 32, 64
THOUGHT = ["12*17", " is 12*10", " plus 12*7"]
ANSWER = ["\n\nThe answer", " is", " 204", "."]
CALL = ["<tool_call>", '\n{"name": "get_weather", ', '"arguments": {"city": "Paris"}}\n', "</tool_call>"]
COPIED = "The quick brown fox jumps over the lazy dog while seven wizards quietly mix a dozen jugs of liquid. "
COPY = [f"{word} " for word in COPIED.split()]
TEXT = "The DGX Spark is a compact GB10 system with 128 GB of unified memory. [run 0] Read the text below, then reply."
END, CALLS, COPIES, ANSWERS = "<|im_end|>", "<|calls|>", "<|copies|>", "<|answers|>"
TEMPLATE = """{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
{% if tools %}<|calls|>{% elif messages[-1].content.startswith('Repeat') %}<|copies|>
{%- elif enable_thinking is defined and not enable_thinking %}<think>

</think>
<|answers|>{% else %}<think>{% endif %}"""


def followers() -> dict[str, str]:
    """Which token follows which; all others are followed by x."""
    chains = [
        ["<think>", *THOUGHT, "</think>", *ANSWER, END],
        [ANSWERS, ANSWER[0]],
        [CALLS, *CALL, END],
        [COPIES, *COPY],
        ["x", "y", "x"],
    ]
    return {first: second for chain in chains for first, second in pairwise(chain)} | {COPY[-1]: COPY[0]}


def tokenizer() -> tuple[str, dict[str, int]]:
    """tokenizer.json and the numbers of its tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    special = ["<|endoftext|>", "<|im_start|>", END, CALLS, COPIES, ANSWERS]
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    words = ["<think>", "</think>", *THOUGHT, *ANSWER, *CALL, *COPY]
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in words])
    return made.to_str(), made.get_vocab(with_added_tokens=True)


def weights(numbers: dict[str, int]) -> dict[str, object]:
    """The tensors of the checkpoint."""
    import torch

    kind = torch.bfloat16
    after = torch.zeros(SIZE, SIZE, dtype=kind)
    follow = {numbers[first]: numbers[second] for first, second in followers().items()}
    for token in range(SIZE):
        after[follow.get(token, numbers["x"]), token] = 1
    found = {"model.embed_tokens.weight": torch.eye(SIZE, dtype=kind), "lm_head.weight": after}
    ones = {"model.norm": SIZE}
    zeros = {}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        ones |= {f"{at}input_layernorm": SIZE, f"{at}post_attention_layernorm": SIZE}
        ones |= {f"{at}self_attn.{name}_norm": WIDTH for name in "qk"}
        zeros |= {f"{at}self_attn.{name}_proj": (KEYS * WIDTH, SIZE) for name in "kv"}
        zeros |= {f"{at}self_attn.q_proj": (HEADS * WIDTH, SIZE), f"{at}self_attn.o_proj": (SIZE, HEADS * WIDTH)}
        zeros |= {f"{at}mlp.{name}_proj": (INNER, SIZE) for name in ("gate", "up")}
        zeros |= {f"{at}mlp.down_proj": (SIZE, INNER)}
    found |= {f"{name}.weight": torch.ones(size, dtype=kind) for name, size in ones.items()}
    found |= {f"{name}.weight": torch.zeros(*size, dtype=kind) for name, size in zeros.items()}
    return found


def write(folder: Path) -> None:
    """Write configuration, tokenizer and weights."""
    from safetensors.torch import save_file

    text, numbers = tokenizer()
    assert len(numbers) <= SIZE
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(text)
    save_file(weights(numbers), folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": SIZE,
        "vocab_size": SIZE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "head_dim": WIDTH,
        "intermediate_size": INNER,
        "hidden_act": "silu",
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eos_token_id": numbers[END],
    }
    names = {"eos_token": END, "pad_token": "<|endoftext|>", "chat_template": TEMPLATE}
    how = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    sampling = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "eos_token_id": numbers[END]}
    for name, content in (("config", config), ("tokenizer_config", names | how), ("generation_config", sampling)):
        (folder / f"{name}.json").write_text(json.dumps(content))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
