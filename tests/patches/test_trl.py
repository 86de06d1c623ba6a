"""trl's declarations; tests/frameworks/test_trl.py has them in a real training."""

from __future__ import annotations

from mstxkit.patches.trl import PATCH

BY_PATH = {target.path: target for target in PATCH.targets}
GRPO, RLOO = "trl.trainer.grpo_trainer:GRPOTrainer", "trl.trainer.rloo_trainer:RLOOTrainer"


def declared(where: str) -> dict[str, tuple[object, ...]]:
    """Method to what is declared of it."""
    return {
        path.rpartition(".")[2]: (target.stage, target.step, target.boundary, target.attributes)
        for path, target in BY_PATH.items()
        if path.startswith(where)
    }


def test_both_trainers_have_the_same_ranges() -> None:
    assert declared(GRPO) == declared(RLOO)


def test_the_step_is_the_trainers_own_and_told_where_an_update_begins() -> None:
    told = {target.qualname.rpartition(".")[2]: target.step for target in PATCH.targets if target.step}

    assert told == {"get_batch_samples": "self.state.global_step", "training_step": "self.state.global_step"}


def test_log_probabilities_are_named_by_the_model_that_gives_them() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model, self.ref_model = object(), object()

    class WithoutReference:
        model = object()

    whose = BY_PATH[f"{GRPO}._get_per_token_logps_and_entropies"].attributes
    assert callable(whose)
    trainer = Trainer()

    assert whose(trainer, trainer.model, "ids", "mask", 8) == {"model": "actor"}
    assert whose(trainer, model=trainer.ref_model, batch_size=2) == {"model": "reference"}
    assert whose(WithoutReference(), WithoutReference.model) == {"model": "actor"}


def test_the_prompts_of_a_rank_are_told_once_and_not_by_what_sends_them_on() -> None:
    """Ranges inside of a stage add up: with a server, the main process sends the prompts of all ranks."""
    telling = {
        target.qualname
        for target in PATCH.targets
        if target.stage == "actor_generate" and not callable(target.attributes) and "prompts" in target.attributes
    }

    assert {name.partition(".")[0] for name in telling} == {"GRPOTrainer", "RLOOTrainer", "OnlineDPOTrainer"}
    assert "trl.generation.vllm_generation:VLLMGeneration.generate" in BY_PATH


def test_a_version_with_a_function_for_generation_needs_no_context() -> None:
    old = BY_PATH["trl.trainer.grpo_trainer:unwrap_model_for_generation"]

    assert old.unless in BY_PATH
    assert old.stage == BY_PATH[str(old.unless)].stage == "actor_generate"


def test_ppo_and_online_dpo_have_the_same_parts_at_their_old_and_new_places() -> None:
    stages = {"ppo": {"actor_generate", "actor_update", "save_checkpoint"}}
    stages["online_dpo"] = {"train_step", "actor_generate", "reward", "weight_sync", "evaluate", "save_checkpoint"}
    for module, expected in stages.items():
        old, new = (
            {target.qualname: target.stage for path, target in BY_PATH.items() if path.startswith(f"{where}.{module}_")}
            for where in ("trl.trainer", f"trl.experimental.{module}")
        )

        assert old == new
        assert {stage for stage in old.values() if stage} == expected


def test_each_trainer_that_has_updates_has_them_whole() -> None:
    """Also of PPO, whose update is one of its micro-batches. Online DPO has no function for its loss alone."""
    rounds = {target.qualname: target.stage for target in PATCH.targets if target.sampling.is_round}
    fetches = {target.qualname.partition(".")[0] for target in PATCH.targets if target.sampling.ends_round}

    trainers = {"GRPOTrainer", "RLOOTrainer", "AsyncGRPOTrainer", "OnlineDPOTrainer"}
    assert {name for name, stage in rounds.items() if stage == "train_step"} == {
        f"{name}.training_step" for name in trainers
    }
    assert {name for name, stage in rounds.items() if stage == "actor_update"} == {
        "PolicyAndValueWrapper.forward", *(f"{name}.compute_loss" for name in trainers - {"OnlineDPOTrainer"})
    }  # fmt: skip
    assert fetches == trainers
