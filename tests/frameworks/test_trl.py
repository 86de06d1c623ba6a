"""A real GRPO training with the real trl: recorded whole with no line of mstxkit in it, and the same as unrecorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builders import quickstart, soak
from builders.real_job import RealJob, listening, progress, sessions

import mstxkit
from mstxkit.patches.trl import PATCH
from mstxkit.patching.declare import CORE

# In processes of their own, which import trl for seconds.
each_alone = pytest.mark.daily(1)
pytestmark = [pytest.mark.days("odd"), pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "03_trl_grpo.py"
STEPS, MICRO_BATCHES = 3, 2
# How often a training of the example calls each target of GRPOTrainer and of accelerate, with one evaluation and one
# checkpoint at its end; and of the others why not.
CALLS = {
    "GRPOTrainer.train": 1,
    "GRPOTrainer.get_batch_samples": STEPS,
    "GRPOTrainer.training_step": STEPS * MICRO_BATCHES,
    "GRPOTrainer._prepare_inputs": STEPS * MICRO_BATCHES + 1,
    "GRPOTrainer._generate_and_score_completions": STEPS + 1,
    "GRPOTrainer._generate": STEPS + 1,
    "GRPOTrainer._generate_single_turn": STEPS + 1,
    "GRPOTrainer._calculate_rewards": STEPS + 1,
    "GRPOTrainer._get_per_token_logps_and_entropies": STEPS * (MICRO_BATCHES + 1) + 2,
    "GRPOTrainer.compute_loss": STEPS * MICRO_BATCHES + 1,
    "GRPOTrainer.evaluate": 1,
    "GRPOTrainer._save_checkpoint": 1,
    "Accelerator.backward": STEPS * MICRO_BATCHES,
    "Accelerator.clip_grad_norm_": STEPS,
    "AcceleratedOptimizer.step": STEPS,
}
# What accelerate does for a trainer of RL is a part of its update: in each of these one more, with the stage.
UPDATES = {
    "Accelerator.backward": "backward",
    "Accelerator.clip_grad_norm_": "clip_grad_norm",
    "AcceleratedOptimizer.step": "optimizer_step",
}
NOT_CALLED = {
    "GRPOTrainer._tool_call_loop": "there are no tools",
    "VLLMGeneration.sync_weights": "there is no vLLM",
    "VLLMGeneration.generate": "there is no vLLM",
}
# The quick start's picture is cut above them.
ONLY_AT_THE_END = {"evaluate", "save_checkpoint"}
ONCE_AT_THE_END = {"GRPOTrainer.evaluate", "GRPOTrainer._save_checkpoint"}


def run(command: list[str], **variables: str) -> str:
    """What a command prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MSTXKIT_")}
    environment.update(variables, PYTHONPATH=str(ROOT), PYTHONWARNINGS="ignore", HF_HUB_OFFLINE="1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


class Training(NamedTuple):
    """The example under `mstxkit run`.

    Args:
        printed: What the example printed.
        folder: The run's.
        ranges: All its ranges, as dicts.
    """

    printed: list[str]
    folder: Path
    ranges: list[dict[str, Any]]

    def of(self, name: str) -> list[dict[str, Any]]:
        """Ranges of this name."""
        return [row for row in self.ranges if row["name"] == name]


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    folder = tmp_path_factory.mktemp("trl") / "run"
    recorder = quickstart.mstxkit("trl", "run", folder)
    printed = run([*recorder, sys.executable, str(EXAMPLE), "--steps", str(STEPS)])
    return Training(printed.splitlines(), folder, mstxkit.open_run(folder).ranges().to_dicts())


def test_the_example_says_nothing_of_mstxkit_outside_its_docstring() -> None:
    _, _, code = EXAMPLE.read_text().split('"""', 2)

    assert "mstx" not in code


def test_rewards_and_losses_are_the_same_as_without_mstxkit(training: Training) -> None:
    plain = run([sys.executable, str(EXAMPLE), "--steps", str(STEPS)]).splitlines()

    assert len(plain) == STEPS + 1
    assert training.printed == plain


def test_every_target_that_applies_and_is_called_has_all_its_calls(training: Training) -> None:
    applied = applied_names(training.folder)

    counts = {name: len(training.of(name)) for name in applied - NOT_CALLED.keys()}
    assert {name: count for name, count in counts.items() if not name.startswith("RLOO")} == CALLS
    assert {row["name"] for row in training.ranges} == CALLS.keys() | set(UPDATES.values())


def test_the_run_keeps_what_the_trainer_was_configured_with(training: Training) -> None:
    settings = mstxkit.open_run(training.folder).trainer_settings()

    assert settings["max_steps"] == [str(STEPS)]
    assert settings["gradient_accumulation_steps"] == [str(MICRO_BATCHES)]
    assert "output_dir" not in settings and "hub_token" not in settings


def test_what_accelerate_does_is_part_of_the_update(training: Training) -> None:
    for name, part in UPDATES.items():
        assert len(training.of(part)) == CALLS[name]
        assert {(row["stage"], row["step"]) for row in training.of(part)} == {
            ("actor_update", step) for step in range(STEPS)
        }


def applied_names(folder: Path) -> set[str]:
    """Names of the targets that the run says were applied."""
    named = {target.path: target.name or target.qualname for target in PATCH.targets if target.tier == CORE}
    (record,) = (folder / "patches").iterdir()
    states = json.loads(record.read_text())["targets"]
    return {named[one["path"]] for one in states if one["state"] == "applied"}


def test_each_range_has_its_stage_and_every_step(training: Training) -> None:
    declared = {target.name or target.qualname: target for target in PATCH.targets}

    for name in CALLS.keys() - {"GRPOTrainer.train"}:
        rows, stage = training.of(name), declared[name].stage
        assert stage is None or {row["stage"] for row in rows} == {stage}, name
        steps = [STEPS - 1] if name in ONCE_AT_THE_END else list(range(STEPS))
        assert sorted({row["step"] for row in rows}) == steps, name
    assert not [row for row in training.ranges if row["error"] or row["open"]]


def test_the_parts_of_a_step_lie_in_it(training: Training) -> None:
    """What has no stage of its own belongs to the stage that it is in."""
    for step in range(STEPS):
        probabilities = training.of("GRPOTrainer._get_per_token_logps_and_entropies")
        found = [
            (row["stage"], json.loads(row["attributes"])["model"])
            for row in probabilities
            if row["step"] == step and row["stage"] != "evaluate" and row["start_ns"] < before_evaluation(training)
        ]

        assert sorted(found) == [("actor_update", "actor")] * MICRO_BATCHES + [("train_step", "reference")]


def before_evaluation(training: Training) -> int:
    (evaluation,) = training.of("GRPOTrainer.evaluate")
    start: int = evaluation["start_ns"]
    return start


def test_attributes_are_what_the_example_asks_for(training: Training) -> None:
    generated = [json.loads(row["attributes"]) for row in training.of("GRPOTrainer._generate")]
    steps = [json.loads(row["attributes"]) for row in training.of("GRPOTrainer.training_step")]

    assert generated == [{"prompts": 64}] * STEPS + [{"prompts": 32}]
    assert steps == [{"micro_batch": number} for number in range(STEPS * MICRO_BATCHES)]


def test_the_process_is_the_trainer(training: Training) -> None:
    assert {row["role"] for row in training.ranges} == {"trainer"}


def test_the_report_shows_the_stages(training: Training) -> None:
    shown = run(quickstart.mstxkit("trl", "report", training.folder))

    stages = {"train_step", "actor_generate", "reward", "actor_update", "evaluate", "save_checkpoint"}
    assert stages <= {line.split()[0] for line in shown.splitlines() if line.strip()}
    assert stages.intersection(quickstart.shown("trl")) == stages - ONLY_AT_THE_END


HELD = """
import importlib.util, os, sys, tempfile, time
import torch

spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


class Held(example.ShowReward):
    def on_pre_optimizer_step(self, *_, **__):
        while not os.path.exists(sys.argv[2]):
            time.sleep(0.05)


example.ShowReward = Held
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    example.train(int(sys.argv[3]), folder)
"""
UPDATED = {
    "GRPOTrainer.compute_loss": MICRO_BATCHES,
    "backward": MICRO_BATCHES,
    "clip_grad_norm": 1,
    "optimizer_step": 1,
}
ONE_MICRO_BATCH = {"GRPOTrainer.compute_loss": 1, "backward": 1}
# What is asked for beside one step, and what the only session holds: of an update all, or the second micro-batch.
SECOND = {"per": "micro_batch", "skip": 1}
ASKED: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "actor_update": ({}, {**UPDATED, "GRPOTrainer._generate": 0}),
    "train_step": ({}, {**UPDATED, "GRPOTrainer.training_step": MICRO_BATCHES, "GRPOTrainer._generate": 1}),
    "actor_update by micro_batch": ({"sample": SECOND}, dict.fromkeys(UPDATED, 0) | ONE_MICRO_BATCH),
    "train_step by micro_batch": ({"sample": SECOND}, dict.fromkeys(UPDATED, 0) | ONE_MICRO_BATCH),
}


@each_alone
@pytest.mark.parametrize("what", soak.rounds([*ASKED], ["actor_update"]))
def test_a_step_of_a_stage_is_one_session_of_all_its_calls(what: str, tmp_path: Path) -> None:
    """Asked for in the middle of the first update, and recorded in the second."""
    stage, (asked, held) = what.split()[0], ASKED[what]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MSTXKIT_")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1"}
    recorder = quickstart.mstxkit("trl", "run", tmp_path / "run")
    program = [sys.executable, "-c", HELD, str(EXAMPLE), str(tmp_path / "go"), str(STEPS)]
    job = RealJob(tmp_path, [*recorder, *program], environment, tmp_path)
    try:
        job.until(lambda: listening(job.run, stage))
        id = job.ask(stage=stage, ranks=[0], steps=1, **asked)
        job.go()
        assert job.end() == 0, job.output[-4000:]
    finally:
        job.clear()

    fate = progress(job.run, id)
    ((session, names),) = sessions(job.run, stage)
    assert fate.is_done, str(fate)
    assert (session["state"], session["step"], session["problems"]) == ("recorded", 1, [])
    assert {name: names[name] for name in held} == held


RESUMED = """
import functools, importlib.util, sys, tempfile
import torch, transformers, trl
import mstxkit
from mstxkit.testing import captured

spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    example.train(2, folder)
    mstxkit.autopatch("trl")
    train = trl.GRPOTrainer.train
    trl.GRPOTrainer.train = functools.partialmethod(train, resume_from_checkpoint=folder + "/checkpoint-2")
    with captured() as seen:
        example.train(4, folder)
print(sorted({one.step for one in seen.ranges if one.name == "GRPOTrainer.training_step"}))
"""


@each_alone
def test_steps_go_on_where_a_checkpoint_left_off() -> None:
    printed = run([sys.executable, "-c", RESUMED, str(EXAMPLE)])

    assert printed.splitlines()[-1] == "[2, 3]"


IDENTITY = """
import json, sys, types
import mstxkit

def load():
    import accelerate, trl.trainer.grpo_trainer, trl.trainer.rloo_trainer, trl.generation.vllm_generation
    import trl.trainer.sft_trainer, trl.trainer.dpo_trainer, trl.trainer.reward_trainer
    import trl.experimental.online_dpo.online_dpo_trainer, trl.experimental.async_grpo.async_grpo_trainer

def held():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("trl", "accelerate", "transformers"):
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                found[(name, attribute)] = value
                if isinstance(value, type):
                    found.update({(name, attribute, key): one for key, one in list(vars(value).items())})
    # A function may stay the same object, with other code.
    codes = {(*key, "code"): one.__code__ for key, one in found.items() if isinstance(one, types.FunctionType)}
    return {**found, **codes}

load()
before = held()
report = mstxkit.autopatch("trl")
during = held()
wraps = during[("trl.trainer.grpo_trainer", "GRPOTrainer", "compute_loss")].__wrapped__.__code__.co_filename
mstxkit.unpatch()
after = held()
print(json.dumps({
    "states": {state.path: [state.state, state.reason] for state in report.targets},
    "changed": len([key for key in before if during[key] is not before[key]]),
    "left": [str(key) for key in after if key not in before or after[key] is not before[key]],
    "wraps": wraps,
}))
"""
BEFORE_IMPORT = IDENTITY.replace("load()\nbefore = held()", "mstxkit.autopatch('trl')\nload()\nbefore = held()")


@pytest.fixture(scope="module")
def probed() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run([sys.executable, "-c", IDENTITY]).splitlines()[-1])
    return found


@each_alone
def test_what_is_absent_from_this_trl_is_all_that_is_not_applied(probed: dict[str, Any]) -> None:
    left = {path.partition(":")[2]: reason for path, (state, reason) in probed["states"].items() if state != "applied"}

    assert left == {
        "RLOOTrainer._tool_call_loop": "absent in this version",
        "GRPOTrainer._move_model_to_vllm": "absent in this version",
        "RLOOTrainer._move_model_to_vllm": "absent in this version",
        "VLLMClient.generate": "absent in this version",
        "unwrap_model_for_generation": "superseded by another target in this version",
        # 1.16.0 has no PPO. Online DPO is not where it was up to 0.28; at its new place it is applied.
        **{
            path.partition(":")[2]: "absent in this version"
            for path in probed["states"]
            if path.startswith(("trl.trainer.online_dpo", "trl.trainer.ppo", "trl.experimental.ppo"))
        },
    }


@each_alone
def test_unpatching_puts_back_what_was_there(probed: dict[str, Any]) -> None:
    assert probed["changed"] >= len(CALLS)
    assert probed["left"] == []


@each_alone
def test_the_metrics_of_trl_itself_stay(probed: dict[str, Any]) -> None:
    """Its decorator reports times to wandb and others, and is wrapped, not replaced."""
    assert Path(probed["wraps"]).parts[-3:] == ("trl", "extras", "profiling.py")


@each_alone
def test_patching_before_the_import_comes_to_the_same(probed: dict[str, Any]) -> None:
    first = json.loads(run([sys.executable, "-c", BEFORE_IMPORT]).splitlines()[-1])

    assert first["states"] == probed["states"]


SUPERVISED = """
import importlib.util, sys, tempfile
import datasets, transformers, trl
import mstxkit

spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
kind = sys.argv[2]
rows = {
    "SFT": {"text": ["one two three"] * 8},
    "DPO": {"prompt": ["one"] * 8, "chosen": ["one one"] * 8, "rejected": ["two"] * 8},
    "Reward": {"chosen": ["one one"] * 8, "rejected": ["one two"] * 8},
}[kind]
tokenizer = example.make_tokenizer()
with tempfile.TemporaryDirectory() as folder:
    example.write_model(f"{folder}/model", tokenizer)
    config = getattr(trl, f"{kind}Config")(
        output_dir=folder, max_steps=2, per_device_train_batch_size=2, save_steps=2, report_to=[], bf16=False,
        use_cpu=True, disable_tqdm=True, gradient_checkpointing=False,
    )
    getattr(trl, f"{kind}Trainer")(
        model=f"{folder}/model", args=config, processing_class=tokenizer, train_dataset=datasets.Dataset.from_dict(rows)
    ).train()
"""


@each_alone
@pytest.mark.parametrize("kind", soak.sample(["SFT", "DPO", "Reward"], 1))
def test_what_is_no_reinforcement_learning_has_names_and_steps_and_no_stage(kind: str, tmp_path: Path) -> None:
    recorder = [sys.executable, "-m", "mstxkit", "run", "--run", str(tmp_path / "run"), "--"]
    run([*recorder, sys.executable, "-c", SUPERVISED, str(EXAMPLE), kind], MSTXKIT_AUTOPATCH="trl")

    rows = mstxkit.open_run(tmp_path / "run").ranges().to_dicts()
    assert {row["stage"] for row in rows} == {None}
    for name in (f"{kind}Trainer.training_step", f"{kind}Trainer.compute_loss", *UPDATES):
        assert sorted(row["step"] for row in rows if row["name"] == name) == [0, 1], name


ONLINE_DPO = """
import importlib.util, sys, tempfile
import datasets
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
tokenizer = example.make_tokenizer()
with tempfile.TemporaryDirectory() as folder:
    example.write_model(f"{folder}/model", tokenizer)
    config = OnlineDPOConfig(
        output_dir=folder, max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2, save_steps=3,
        max_new_tokens=4, max_length=16, report_to=[], bf16=False, use_cpu=True, disable_tqdm=True,
        gradient_checkpointing=False,
    )
    model, reference = (
        example.transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/model") for _ in range(2)
    )
    OnlineDPOTrainer(
        model=model, ref_model=reference, reward_funcs=example.repeats_the_word, args=config,
        processing_class=tokenizer, train_dataset=datasets.Dataset.from_dict({"prompt": list(example.WORDS) * 4}),
    ).train()
"""
# In each step: two micro-batches, one update.
PARTS_OF_ONLINE_DPO = {
    ("OnlineDPOTrainer.training_step", "train_step"): 2,
    ("OnlineDPOTrainer._generate", "actor_generate"): 2,
    ("OnlineDPOTrainer._calculate_rewards_from_functions", "reward"): 2,
    ("log_probabilities", "actor_update"): 2,
    ("log_probabilities", "reference_compute_log_prob"): 2,
    ("backward", "actor_update"): 2,
    ("clip_grad_norm", "actor_update"): 1,
    ("optimizer_step", "actor_update"): 1,
}


@pytest.mark.skipif(not soak.is_soaking(), reason="ten seconds, nearly all of them imports")
def test_online_dpo_has_the_stages_of_its_steps(tmp_path: Path) -> None:
    recorder = [sys.executable, "-m", "mstxkit", "run", "--run", str(tmp_path / "run"), "--"]
    run([*recorder, sys.executable, "-c", ONLINE_DPO, str(EXAMPLE)], MSTXKIT_AUTOPATCH="trl")

    rows = mstxkit.open_run(tmp_path / "run").ranges().to_dicts()
    counts = Counter((row["name"], row["stage"], row["step"]) for row in rows)
    for (name, stage), count in PARTS_OF_ONLINE_DPO.items():
        assert {step: counts[name, stage, step] for step in range(STEPS)} == dict.fromkeys(range(STEPS), count), name
    assert [row["stage"] for row in rows if row["name"] == "OnlineDPOTrainer._save_checkpoint"] == ["save_checkpoint"]
    assert not [row for row in rows if row["error"] or row["open"]]


ALONE = """
import accelerate, torch
import mstxkit
accelerator = accelerate.Accelerator(cpu=True)
report = mstxkit.autopatch("trl")
with mstxkit.testing.captured() as seen:
    accelerator.backward(torch.ones(1, requires_grad=True).sum())
print(len(seen.ranges), sorted(s.state for s in report.targets if s.path.startswith("accelerate.")))
print(sorted({s.state for s in mstxkit.patch_report().targets}))
"""


@each_alone
def test_accelerate_without_trl_is_left_alone() -> None:
    without = "import sys; sys.modules['trl'] = None\n"

    assert run([sys.executable, "-c", "import mstxkit.testing\n" + ALONE]).splitlines() == [
        "0 ['waiting', 'waiting', 'waiting']", "['skipped', 'waiting']",
    ]  # fmt: skip
    assert run([sys.executable, "-c", without + "import mstxkit.testing\n" + ALONE]).splitlines() == [
        "0 ['skipped', 'skipped', 'skipped']", "['skipped']",
    ]  # fmt: skip
