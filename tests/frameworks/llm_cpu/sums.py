"""A random Qwen3 of two layers with its tokenizer, and a hundred sums, for `train_fsdp2.py`.

Usage: python sums.py FOLDER    makes there: model/, sums.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

MARKS = ("\n", "<pad>", "<unk>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
VOCABULARY = {text: number for number, text in enumerate([*map(chr, range(32, 127)), *MARKS])}


def main(folder: Path) -> None:
    torch.manual_seed(0)
    Qwen3ForCausalLM(configuration()).save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    pairs = [(a, b) for a in range(10) for b in range(10)]
    sums = [{"instruction": f"add {a} and {b}", "input": "", "output": f"{a + b}"} for a, b in pairs]
    (folder / "sums.json").write_text(json.dumps(sums))


def configuration() -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(VOCABULARY), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=256, tie_word_embeddings=False,
    )  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a character."""
    made = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    marks = {"pad_token": "<pad>", "eos_token": "<|im_end|>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, additional_special_tokens=["<|im_start|>"], **marks)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
