"""MindSpeed-LLM's targets against what its recorded versions, and the Megatron-LM under them, hold."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any, Iterator

import pytest
from builders.contracts.installed import instance
from builders.contracts.installing import Install, install, written  # noqa: F401
from builders.recorded_surfaces import call, functions, holders, surface, versions
from builders.watched_pieces import watched

import mstxkit
from mstxkit.patches.mindspeed_llm import PATCH
from mstxkit.patching.declare import EXTRA, Target
from mstxkit.testing import CapturedRange, captured

LLM = "mindspeed_llm"
WITH_FSDP2 = ("26.1.0", "master-c77308a1")

each_version = pytest.mark.parametrize("version", versions(LLM))


def held(version: str) -> list[Target]:
    return [target for target in PATCH.targets if target.path in functions(LLM, version)]


@each_version
def test_every_version_has_train_steps_evaluation_and_checkpoints(version: str) -> None:
    assert {target.stage for target in held(version)} >= {"train_step", "evaluate", "save_checkpoint"}


@each_version
def test_the_megatron_loop_tells_the_step_before_the_first_train_step_and_after_each(version: str) -> None:
    told = {target.qualname for target in held(version) if target.step_after == "iteration"}

    assert told >= {"on_train_start", "training_log", "evaluate_and_print_results", "save_checkpoint_and_time"}


def test_a_megatron_stage_that_knows_the_step_keeps_it_for_the_one_after_it() -> None:
    """A plain `step` would take the place of what `training_log` said the next train step belongs to."""
    loop = [target for target in PATCH.targets if target.module.startswith(("megatron.", "mindspeed_llm.training."))]

    assert [target.path for target in loop if target.step is not None] == []


@pytest.mark.parametrize("version", WITH_FSDP2)
def test_the_fsdp2_loop_reads_its_step_where_an_update_begins(version: str) -> None:
    """Fetching comes first: its step must be that of the update that it is for."""
    begins = {one.qualname: one.step for one in held(version) if one.qualname.startswith("Trainer.") and one.step}

    assert begins["Trainer._get_batch_samples"] == begins["Trainer.training_step"] == "self.global_step"


@each_version
def test_no_two_functions_of_a_version_share_a_name(version: str) -> None:
    """But for those that are in each other's place: LLM's copies of Megatron's, and the schedules' of each version."""
    names = Counter(target.name or target.qualname for target in held(version))

    shared = {name for name, count in names.items() if count > 1}

    assert shared <= {"train", "train_step", "training_log", "save_checkpoint_and_time"}


def test_what_is_called_for_each_micro_batch_is_limited_and_but_for_the_schedule_off_by_default() -> None:
    """And but for the FSDP2 loop's training_step: nothing else there is the train step."""
    small = [one for one in PATCH.targets if one.boundary == "micro_batch" and one.stage is None]

    assert {target.max_per_s for target in small} == {200}
    assert [target.qualname for target in small if target.tier != EXTRA] == ["forward_step"]


def test_coroutines_and_async_generators_are_ranges_of_their_own() -> None:
    driven = {target.qualname: function.kind for _, target, function in holders(PATCH.targets, LLM)}

    assert {name: kind for name, kind in driven.items() if kind != "def"} == {
        "HuggingfaceEngine.chat": "async",
        "HuggingfaceEngine.stream_chat": "asyncgen",
    }


@pytest.fixture
def loaded(request: pytest.FixtureRequest, install: Install) -> Iterator[dict[str, Any]]:  # noqa: F811
    """A stand-in of MindSpeed-LLM and of the Megatron-LM under it, patched: its modules by name."""
    package = install(surface(LLM, request.param))
    package.load()
    mstxkit.autopatch(LLM)
    yield sys.modules
    for name in [name for name in sys.modules if name.split(".")[0] == "megatron"]:
        del sys.modules[name]


def steps(ranges: list[CapturedRange]) -> list[tuple[str, int | None]]:
    return [(one.name, one.step) for one in ranges]


@pytest.mark.parametrize("loaded", ["2.1.0", "master-c77308a1"], indirect=True)
def test_a_resumed_megatron_loop_has_the_steps_of_its_log_from_the_first_one_on(loaded: dict[str, Any]) -> None:
    llm, megatron = loaded["mindspeed_llm.training.training"], loaded["megatron.training.training"]

    with captured() as seen:
        call(loaded["megatron.training.one_logger_utils"].on_train_start, iteration=4)
        call(megatron.train_step)
        call(llm.training_log, iteration=5)
        call(megatron.evaluate_and_print_results, iteration=5)
        call(megatron.save_checkpoint_and_time, iteration=5)
        call(megatron.train_step)
        call(llm.training_log, iteration=6)
        call(megatron.train_step)

    assert steps(seen.ranges) == [
        ("on_train_start", 4),
        ("train_step", 5),
        ("training_log", 5),
        ("evaluate_and_print_results", 5),
        ("save_checkpoint_and_time", 5),
        ("train_step", 6),
        ("training_log", 6),
        ("train_step", 7),
    ]


@pytest.mark.parametrize("loaded", WITH_FSDP2, indirect=True)
def test_an_fsdp2_update_is_one_step_from_its_fetch_to_its_checkpoint(loaded: dict[str, Any]) -> None:
    trainer = instance(loaded["mindspeed_llm.fsdp2.train.trainer"].Trainer)
    save = loaded["mindspeed_llm.fsdp2.checkpoint.checkpoint_manager"].CheckpointManager.save

    with captured() as seen:
        for trainer.global_step in (3, 4):
            call(trainer._get_batch_samples, num_batches=2)
            call(trainer.training_step)
            call(trainer.training_step)
            trainer.global_step += 1
            call(save, global_steps=trainer.global_step)

    update = ["Trainer._get_batch_samples", "Trainer.training_step", "Trainer.training_step", "CheckpointManager.save"]
    assert steps(seen.ranges) == [(name, 3) for name in update] + [(name, 4) for name in update]
    assert seen.ranges[0].attributes == {"micro_batches": 2}


ASKS = {
    "mindspeed_llm": lambda loaded: loaded["mindspeed_llm.training.training"].is_profile_enabled,
    "mindspeed_llm_fsdp2": lambda loaded: (
        instance(loaded["mindspeed_llm.fsdp2.utils.profiler"].ProfilerConfig).is_profiling_rank
    ),
}


@pytest.mark.parametrize("loaded", WITH_FSDP2, indirect=True)
@pytest.mark.parametrize("flavour", ASKS)
def test_its_own_profiler_is_asked_for_unless_mstxkit_takes_that_over(
    flavour: str, loaded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with captured() as seen:
        upstream = ASKS[flavour](loaded)()
        monkeypatch.setenv("MSTXKIT_TAKES_OVER", f"verl,{flavour}")
        taken_over = ASKS[flavour](loaded)()
        monkeypatch.setenv("MSTXKIT_TAKES_OVER", "verl")
        others = ASKS[flavour](loaded)()

    assert upstream == others != False  # noqa: E712
    assert taken_over is False
    assert seen.ranges == []


@pytest.mark.parametrize("loaded", WITH_FSDP2, indirect=True)
def test_an_fsdp2_train_step_lasts_from_its_first_micro_batch_to_the_end_of_the_optimizer(
    loaded: dict[str, Any],
) -> None:
    """As in MCore, whose train_step is one call: one stage a step, to be covered by one session."""
    trainer = instance(loaded["mindspeed_llm.fsdp2.train.trainer"].Trainer)
    optimizer = instance(loaded["mindspeed_llm.fsdp2.optim.optimizer"].MultiOptimizer)

    with watched() as seen:
        for trainer.global_step in (3, 4):
            call(trainer._get_batch_samples, num_batches=2)
            call(trainer.training_step)
            call(trainer.training_step)
            call(optimizer.step)
            seen.append("logs")

    assert seen == ["+train_step", *["+micro_batch", "-micro_batch"] * 2, "-train_step", "logs"] * 2
