"""Real trainings by `transformers.Trainer` and trl's SFTTrainer: an update is one stage, and nothing is there twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import quickstart, soak

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(300)]
TESTS = Path(__file__).resolve().parents[1]
STEPS, MICRO_BATCHES = 3, 2
# Of each name of a plain Trainer's ranges the stage, and how often it is there. Checkpoints: after step 2, at the end.
PLAIN = {
    "Trainer.train": (None, 1),
    "Trainer.get_batch_samples": (None, STEPS),
    "Trainer.training_step": ("train_step", STEPS * MICRO_BATCHES),
    "Trainer.evaluate": ("evaluate", 1),
    "Trainer._save_checkpoint": ("save_checkpoint", 2),
    "Accelerator.backward": ("train_step", STEPS * MICRO_BATCHES),
    "Accelerator.clip_grad_norm_": (None, STEPS),
    "AcceleratedOptimizer.step": (None, STEPS),
}
UPDATE = ["+train_step", *["+micro_batch", "-micro_batch"] * MICRO_BATCHES, "-train_step"]
PROGRAM = f"""
import json, sys
import torch
import mstxkit
from builders.watched_pieces import watched
from mstxkit.testing import captured
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments

folder, *frameworks = sys.argv[1:]
mstxkit.autopatch(*frameworks)
sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1)
settings = dict(
    output_dir=folder, max_steps={STEPS}, per_device_train_batch_size=2, gradient_accumulation_steps={MICRO_BATCHES},
    use_cpu=True, report_to=[], save_steps=2, logging_steps=1, disable_tqdm=True,
)
rows = [dict(input_ids=list(range(n, n + 8)), labels=list(range(n, n + 8))) for n in range(3, 19)]


def trained(make):
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=2))
    with captured() as seen, watched("micro_batch") as pieces:
        trainer = make(model)
        trainer.train()
        trainer.evaluate()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return dict(ranges=[(one.name, one.stage, one.step) for one in seen.ranges], pieces=pieces, losses=losses)


def plain(model):
    return Trainer(model, TrainingArguments(**settings), train_dataset=rows, eval_dataset=rows[:2])


def supervised(model):
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from trl import SFTConfig, SFTTrainer

    words = Tokenizer(models.WordLevel({{f"w{{n}}": n for n in range(64)}}, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w2", unk_token="w0")
    data = Dataset.from_list(rows)
    given = dict(train_dataset=data, eval_dataset=data.select(range(2)), processing_class=tokenizer)
    return SFTTrainer(model, args=SFTConfig(**settings), **given)


found = dict(plain=trained(plain), sft=trained(supervised))
mstxkit.unpatch()
print("found", json.dumps(dict(found, unpatched=trained(plain))))
"""


def counted(ranges: list[tuple[str, str | None, int | None]]) -> dict[str, tuple[str | None, int]]:
    found: dict[str, tuple[str | None, int]] = {}
    for name, stage, _ in ranges:
        assert found.get(name, (stage, 0))[0] == stage
        found[name] = (stage, found.get(name, (stage, 0))[1] + 1)
    return found


# As the quick start has it; in soak the other way round, too.
STARTED = next(words for words in quickstart.commands("trl") if words[-1] == "sft.py")
TOGETHER = STARTED[STARTED.index("--autopatch") + 1].split(",")


@pytest.fixture(scope="module", params=soak.rounds([TOGETHER, TOGETHER[::-1]], [TOGETHER]), ids=" ".join)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MSTXKIT_")}
    environment.update(PYTHONPATH=f"{TESTS.parent}:{TESTS}", PYTHONWARNINGS="ignore", HF_HUB_OFFLINE="1")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("trained")), *request.param]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.rpartition("found ")[2])
    return result


def test_a_plain_training_has_each_part_of_an_update_once(found: dict[str, Any]) -> None:
    assert counted(found["plain"]["ranges"]) == PLAIN


def test_parts_of_an_update_have_its_step_also_the_checkpoint_after_it(found: dict[str, Any]) -> None:
    inside = [
        (name, step) for name, _, step in found["plain"]["ranges"] if name not in ("Trainer.train", "Trainer.evaluate")
    ]

    assert [step for name, step in inside if name == "AcceleratedOptimizer.step"] == list(range(STEPS))
    assert [step for name, step in inside if name == "Trainer._save_checkpoint"] == [1, 2]
    assert [step for _, step in inside] == sorted(step for _, step in inside)


def test_an_update_is_one_stage_of_its_micro_batches_up_to_the_optimizers_end(found: dict[str, Any]) -> None:
    told = [event for event in found["plain"]["pieces"] if "train_step" in event or "micro_batch" in event]

    assert told == UPDATE * STEPS


def test_what_trls_patch_has_of_a_trainer_is_not_had_twice(found: dict[str, Any]) -> None:
    names = counted(found["sft"]["ranges"])

    assert [name for name in names if name.startswith("Trainer.")] == []
    assert names["SFTTrainer.training_step"] == (None, STEPS * MICRO_BATCHES)
    assert names["AcceleratedOptimizer.step"] == (None, STEPS)


def test_losses_are_those_of_a_training_without_mstxkit(found: dict[str, Any]) -> None:
    assert found["unpatched"]["ranges"] == []
    assert len(found["plain"]["losses"]) == STEPS
    assert found["plain"]["losses"] == found["unpatched"]["losses"]
