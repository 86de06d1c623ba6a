"""A task so small that a CPU learns it: sums of two digits, a random Qwen2 of two layers as actor and as critic.

Usage: python sums.py FOLDER [for_vllm]    makes there: model/, model_critic/, train.parquet
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen2ForTokenClassification

MARKS = ("<pad>", "<eos>", "<unk>", "<u>", "<a>")
# vLLM has no kernels for a CPU with smaller heads.
FOR_VLLM = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2}
# As Qwen's tokenizers have it: bytes by their stand-ins, a newline among them, which verl 0.9.1 asks for.
VOCABULARY = {text: number for number, text in enumerate([*"0123456789+=ĠĊ", *MARKS])}
TEMPLATE = (
    "{% for m in messages %}{{ '<a>' if m['role'] == 'assistant' else '<u>' }}{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


def main(folder: Path, *options: str) -> None:
    """Both models, their tokenizer, and the data."""
    config = {**configuration(), **(FOR_VLLM if "for_vllm" in options else {})}
    for name, seed, of_what, more in (
        ("model", 0, Qwen2ForCausalLM, {}),
        ("model_critic", 1, Qwen2ForTokenClassification, {"num_labels": 1}),
    ):
        torch.manual_seed(seed)
        of_what(Qwen2Config(**config, **more)).save_pretrained(folder / name)
        tokenizer().save_pretrained(folder / name)
    pd.DataFrame([row(a, b) for a in range(8) for b in range(8)]).to_parquet(folder / "train.parquet")


def configuration() -> dict[str, object]:
    """Of both models."""
    return {
        "vocab_size": len(VOCABULARY), "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": None,
        "eos_token_id": VOCABULARY["<eos>"], "pad_token_id": VOCABULARY["<pad>"], "tie_word_embeddings": False,
    }  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a character."""
    made = Tokenizer(models.BPE(VOCABULARY, [], unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    marks = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=made, additional_special_tokens=["<u>", "<a>"], chat_template=TEMPLATE, **marks
    )


def row(a: int, b: int) -> dict[str, object]:
    """One question, as verl reads it."""
    return {
        "data_source": "sum", "ability": "math", "prompt": [{"role": "user", "content": f"{a}+{b}="}],
        "reward_model": {"style": "rule", "ground_truth": str(a + b)},
        "extra_info": {"index": a * 8 + b, "split": "train"},
    }  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
