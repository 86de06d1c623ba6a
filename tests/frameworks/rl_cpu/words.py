"""A tokenizer, a model's shape and prompts, for `cli/train_grpo.py`: what is to be learned are words of reasoning.

Usage: python words.py FOLDER    makes there: model/, data_packed_….bin and .idx, checkpoint/
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from mindspeed_rl.datasets.indexed_dataset import IndexedDatasetBuilder
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config

MARKS = ("<pad>", "<eos>", "<unk>")
# MindSpeed-RL's verifier `step` gives a third for each of these.
STEPS = ("First,", "Second,", "Next,", "Finally,")
VOCABULARY = {text: number for number, text in enumerate([*"0123456789+=abcdefghi", *STEPS, *MARKS])}
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}


def main(folder: Path) -> None:
    made = tokenizer()
    made.save_pretrained(folder / "model")
    shape = Qwen2Config(
        **SHAPE, vocab_size=len(VOCABULARY), intermediate_size=64, max_position_embeddings=64, rms_norm_eps=1e-6,
        architectures=["Qwen2ForCausalLM"], tie_word_embeddings=False,
    )  # fmt: skip
    shape.save_pretrained(folder / "model")
    (folder / "checkpoint").mkdir()
    texts = [(f"{a}+{b}=", f"{a + b}") for a in range(10) for b in range(10)]
    for field, column in (("input_ids", 0), ("attention_mask", 0), ("labels", 1)):
        builder = IndexedDatasetBuilder(str(folder / f"data_packed_{field}_document.bin"))
        for text in texts:
            tokens = torch.tensor(made.encode(text[column]))
            builder.add_item(torch.ones_like(tokens) if field == "attention_mask" else tokens)
            builder.end_document()
        builder.finalize(str(folder / f"data_packed_{field}_document.idx"))


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, but those words."""
    made = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    marks = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **marks)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
