"""Generation with a real vLLM engine of a tiny model with random weights: `vllm_program.py FOLDER [HOLD]`.

It prints the tokens of each prompt, and generates until the file HOLD is there, if one is named.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

LENGTHS, NEW_TOKENS, AT_ONCE = (5, 9, 17, 33, 4, 6), 8, 4


def made(folder: Path) -> Path:
    """A Qwen2 of two layers; the CPU's attention wants heads of at least 32."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 256, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 256}
    Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, bos_token_id=0, eos_token_id=1)).save_pretrained(folder)
    return folder


def main(folder: Path, hold: Path | None) -> None:
    from vllm import LLM, SamplingParams

    limits = {"max_model_len": 128, "max_num_seqs": AT_ONCE, "kv_cache_memory_bytes": 1 << 24}
    plain = {"skip_tokenizer_init": True, "enforce_eager": True, "enable_prefix_caching": False, "dtype": "float32"}
    llm = LLM(str(made(folder / "model")), **limits, **plain)
    sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, detokenize=False, ignore_eos=True)
    prompts = [{"prompt_token_ids": list(range(2, 2 + length))} for length in LENGTHS]
    for answer in llm.generate(prompts, sampling, use_tqdm=False):
        sys.stdout.write(f"{answer.outputs[0].token_ids}\n")
    sys.stdout.flush()
    llm.sleep(1)
    llm.collective_rpc("check_health")
    llm.wake_up()
    while hold is not None and not hold.exists():
        llm.generate(prompts, sampling, use_tqdm=False)
        time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
