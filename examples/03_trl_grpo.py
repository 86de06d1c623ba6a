"""GRPO with trl: a model of two layers learns to answer each word with the same word, over and over.

There is no line of mstxkit in this file. Recorded it is by starting it so:

    pip install trl 'mstxkit[report]'
    MSTXKIT_AUTOPATCH=trl mstxkit run --run runs/trl -- python examples/03_trl_grpo.py
    mstxkit report runs/trl

Model and tokenizer are made here: nothing is downloaded. Half a minute on a CPU.
"""

from __future__ import annotations

import argparse
import tempfile

import datasets
import tokenizers
import torch
import transformers
import trl

WORDS = ("one", "two", "three", "four")
SPECIAL = ("<pad>", "<end>")
ANSWER_TOKENS = 8


def make_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """One token per word."""
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )


def write_model(folder: str, tokenizer: transformers.PreTrainedTokenizerFast) -> None:
    """Two layers, random weights. A file, because trl reads it twice: what is trained, and the reference."""
    transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=64,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    ).save_pretrained(folder)


def repeats_the_word(prompts: list[str], completions: list[str], **others: object) -> list[float]:
    """The reward, which anybody can verify: the share of the answer that is the word asked for."""
    return [answer.split().count(word) / ANSWER_TOKENS for word, answer in zip(prompts, completions)]


class ShowReward(transformers.TrainerCallback):
    """Prints what is logged of each step."""

    def on_log(self, args, state, control, logs=None, **others):  # type: ignore[no-untyped-def]
        if "reward" in logs:
            print(f"step {state.global_step - 1:2}  reward {logs['reward']:.4f}  loss {logs['loss']:+.6f}", flush=True)


def train(steps: int, folder: str) -> list[float]:
    """Train; the mean reward of each step."""
    tokenizer = make_tokenizer()
    write_model(f"{folder}/model", tokenizer)
    questions = datasets.Dataset.from_dict({"prompt": list(WORDS) * 64})
    trainer = trl.GRPOTrainer(
        model=f"{folder}/model",
        processing_class=tokenizer,
        reward_funcs=repeats_the_word,
        train_dataset=questions,
        eval_dataset=questions.select(range(len(WORDS))),
        callbacks=[ShowReward()],
        args=trl.GRPOConfig(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=32,
            gradient_accumulation_steps=2,
            num_generations=8,
            max_completion_length=ANSWER_TOKENS,
            learning_rate=3e-3,
            beta=0.01,
            seed=1,
            eval_strategy="steps",
            eval_steps=steps,
            save_steps=steps,
            logging_steps=1,
            report_to=[],
            disable_tqdm=True,
            bf16=False,
            use_cpu=True,
        ),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return [logged["reward"] for logged in trainer.state.log_history if "reward" in logged]


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=100)
    arguments = options.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)  # so small a model is no faster with more
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        rewards = train(arguments.steps, folder)
    print(f"reward first {rewards[0]:.4f}, last {rewards[-1]:.4f}")
