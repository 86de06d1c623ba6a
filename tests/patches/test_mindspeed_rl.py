"""MindSpeed-RL's targets against what its recorded versions hold."""

from __future__ import annotations

import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from builders.contracts import outside
from builders.contracts.installed import flush, instance, modified_class
from builders.contracts.installing import Install, install, written  # noqa: F401
from builders.recorded_surfaces import actors, call, functions, holders, surface, versions

import mstxkit
from mstxkit.patches.mindspeed_rl import PATCH
from mstxkit.patching.declare import CORE, DELEGATE, RANGE
from mstxkit.testing import captured

RL = "mindspeed_rl"
DECORATOR = PATCH.seam.path.rpartition(":")[2] if PATCH.seam is not None else ""
BY_PATH = {target.path: target for target in PATCH.targets}
# In the recorded versions these, and only these, are called without bound: polled, or once per tensor or log line.
STORMS = {
    "_move_to_device", "swap_tensors_to_host", "swap_tensors_to_device", "all_consumed", "_all_consumed",
    "get_update_ready", "_get_update_ready", "get_partial_rollout_stop_signal", "info",
}  # fmt: skip
UPSTREAM_STAGES = {
    "actor_generate", "actor_compute_log_prob", "reference_compute_log_prob", "actor_update", "critic_compute_values",
    "critic_update", "actor_image_embeds",
}  # fmt: skip

each_version = pytest.mark.parametrize("version", versions(RL))


def decorated(version: str) -> set[str]:
    return {path for path, function in functions(RL, version).items() if DECORATOR in function.decorators}


@each_version
def test_nothing_that_upstream_decorates_is_forgotten(version: str) -> None:
    found = decorated(version)

    assert len(found) == (36 if version in ("2.0.0", "2.1.0") else 47)
    assert found - BY_PATH.keys() == set()


@each_version
def test_what_upstream_decorates_is_on_without_the_extra_tier(version: str) -> None:
    assert {BY_PATH[path].tier for path in decorated(version)} == {CORE}


def test_only_a_layer_that_upstream_decorates_and_that_calls_the_same_method_loses_its_range() -> None:
    layers = {target.path: target for target in PATCH.targets if target.kind == DELEGATE}

    assert layers.keys() <= set().union(*map(decorated, versions(RL)))
    for path in layers:
        method = path.rpartition(".")[2]
        assert any(other.kind == RANGE and other.qualname == f"Actor.{method}" for other in PATCH.targets)


def test_its_stages_hold_all_of_upstreams() -> None:
    assert {target.stage for target in PATCH.targets} >= UPSTREAM_STAGES


@each_version
def test_every_stage_of_a_version_has_its_step_from_the_workers_own_iteration(version: str) -> None:
    """Where the worker knows it: a reference or image worker of its own does not, nor do processes without an NPU."""
    workers = ("ActorHybridWorkerBase", "IntegratedWorker", "CriticWorkerBase")
    entries = [
        target
        for target in PATCH.targets
        if target.path in functions(RL, version)
        and target.stage in UPSTREAM_STAGES
        and target.qualname.startswith(workers)
    ]

    assert {target.step for target in entries} == {"self.iteration"}
    assert {target.stage for target in entries} >= UPSTREAM_STAGES - (
        {"critic_compute_values", "critic_update", "actor_image_embeds"} if version in ("2.0.0", "2.1.0") else set()
    )


@each_version
def test_no_two_functions_of_a_version_share_a_name(version: str) -> None:
    """But for the packing of the dock, which the queue has a copy of."""
    names = Counter(target.name or target.qualname for target in PATCH.targets if target.path in functions(RL, version))

    shared = {name for name, count in names.items() if count > 1}

    assert shared <= {"pack_experience_columns", "unpack_pad_experience"}


def test_what_is_called_without_bound_is_counted_and_nothing_else() -> None:
    counted = {target.qualname.rpartition(".")[2] for target in PATCH.targets if target.coalesce}

    assert counted == STORMS
    recursive = [target for target in PATCH.targets if target.qualname.endswith("_move_to_device")]
    assert {target.max_depth for target in recursive} == {1}


def test_generators_are_ranges_of_their_own() -> None:
    driven = {target.path: target for _, target, function in holders(PATCH.targets, RL) if function.kind != "def"}

    assert [path.rpartition(".")[2] for path in driven] == ["async_generate_sequences"]
    assert all(target.kind == RANGE and not target.coalesce for target in driven.values())


@each_version
def test_every_kind_of_actor_has_a_role(version: str) -> None:
    assert actors(RL, version) - PATCH.roles.keys() == set()


def test_no_role_is_given_to_an_actor_that_no_version_has() -> None:
    assert PATCH.roles.keys() - set().union(*(actors(RL, version) for version in versions(RL))) == set()


def test_the_seam_is_where_every_version_has_it() -> None:
    assert PATCH.seam is not None
    assert all(PATCH.seam.path in functions(RL, version) for version in versions(RL))


@pytest.fixture
def loaded(version: str, install: Install) -> dict[str, Any]:  # noqa: F811
    """A stand-in under a real Ray, patched: its modules by name."""
    package = install(surface(RL, version))
    package.load()
    mstxkit.autopatch(RL)
    return sys.modules


def worker(loaded: dict[str, Any], iteration: int) -> Any:
    """What Ray makes an actor of, in this process and without its `__init__`."""
    made = instance(modified_class(loaded["mindspeed_rl.workers.integrated_worker"].IntegratedWorker) or object)
    made.iteration, made.prof_iteration = iteration, 1
    return made


@pytest.mark.frameworks
@each_version
def test_a_workers_stages_have_its_own_iteration_and_upstreams_number_beside_it(loaded: dict[str, Any]) -> None:
    integrated = worker(loaded, iteration=7)

    with captured() as seen:
        integrated.generate_sequences()
        integrated.compute_ref_log_prob()
        integrated.update(kl_ctrl=None, skip_actor_log_prob=True)
        integrated.iteration += 1
        integrated.generate_sequences()

    assert [(one.name, one.stage, one.step) for one in seen.ranges] == [
        ("ActorHybridWorkerBase.generate_sequences", "actor_generate", 7),
        ("IntegratedWorker.compute_ref_log_prob", "reference_compute_log_prob", 7),
        ("ActorHybridWorkerBase.update", "actor_update", 7),
        ("ActorHybridWorkerBase.generate_sequences", "actor_generate", 8),
    ]
    assert seen.ranges[2].attributes == {"prof_iteration": 1, "skip_actor_log_prob": True}


@pytest.mark.frameworks
@each_version
def test_data_comes_in_as_part_of_the_stage_it_is_for(loaded: dict[str, Any]) -> None:
    integrated = worker(loaded, iteration=7)

    with captured() as seen, mstxkit.stage("reference_compute_log_prob"):
        call(integrated.dispatch_transfer_dock_data, "ref_log_prob", ["input_ids", "responses"], 16, use_vllm=True)

    data = seen.ranges[0]
    assert (data.name, data.stage, data.own_stage) == (
        "BaseWorker.dispatch_transfer_dock_data",
        "reference_compute_log_prob",
        False,
    )
    assert data.attributes == {
        "consumer": "ref_log_prob",
        "count": 16,
        "columns": 2,
        "use_vllm": True,
        "role": "reference",
    }


@pytest.mark.frameworks
@each_version
def test_a_layer_that_only_passes_on_has_no_range_not_even_upstreams(loaded: dict[str, Any]) -> None:
    hybrid = instance(loaded["mindspeed_rl.models.actor_rollout_hybrid"].ActorRolloutHybrid)

    with captured() as seen:
        call(hybrid.compute_log_prob)
        call(hybrid.update_actor)

    assert seen.ranges == []
    assert outside.upstream_ranges == []


@pytest.mark.frameworks
@each_version
def test_polling_is_one_record_with_its_count(loaded: dict[str, Any]) -> None:
    integrated = worker(loaded, iteration=7)

    with captured() as seen:
        for _ in range(50):
            call(integrated.all_consumed)
        flush()

    assert [(one.name, one.attributes["coalesced"]) for one in seen.ranges] == [("BaseWorker.all_consumed", 50)]


@pytest.mark.frameworks
@each_version
def test_the_trainers_step_is_the_iteration_that_it_logged_last(loaded: dict[str, Any]) -> None:
    """It logs after adding one: the iteration to come begins with the next stage."""
    logger = instance(loaded["mindspeed_rl.utils.loggers"].Loggers)
    group = instance(loaded["mindspeed_rl.workers.scheduler.launcher"].RayActorGroup)
    group.actor_handlers = [SimpleNamespace(), SimpleNamespace()]

    with captured() as seen:
        logger.info("finish one", 5, 10)
        logger.info("of something else")
        group.generate_sequences(blocking=True)

    generate = seen.ranges[0]
    assert (generate.name, generate.stage, generate.step) == ("RayActorGroup.generate_sequences", "actor_generate", 5)
    assert generate.attributes == {"workers": 2, "blocking": True, "waits_for": "workers"}


@pytest.mark.frameworks
@each_version
def test_an_iteration_has_one_number_in_the_trainer_and_in_its_workers(
    loaded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed at 4. Its weights are saved with 5, by the group that calls the workers, whose own number is 4."""
    launcher, docks = "mindspeed_rl.workers.scheduler.launcher", loaded["mindspeed_rl.trainer.utils.transfer_dock"]
    monkeypatch.setitem(outside.answers, f"{launcher}:RayActorGroup.get_iteration", 4)
    logger = instance(loaded["mindspeed_rl.utils.loggers"].Loggers)
    trainer = instance(loaded["mindspeed_rl.trainer.grpo_trainer_hybrid"].RayGRPOTrainer)
    strategy = loaded.get("mindspeed_rl.trainer.utils.data_strategy")
    group = instance(loaded[launcher].RayActorGroup)
    group.actor_handlers = [SimpleNamespace()]

    with captured() as seen:
        iteration = group.get_iteration()
        for _ in range(2):
            if hasattr(docks, "put_prompts_experience"):
                call(docks.put_prompts_experience)
            group.generate_sequences(blocking=True)
            iteration += 1
            logger.info("metrics", iteration, 10)
            if strategy is not None:
                instance(strategy.DataStrategy).clear_main()
            trainer.save_checkpoint(iteration)
            group.save_checkpoint(iteration)
        logger.info("after training is done")

    of_an_iteration = ["RayActorGroup.generate_sequences", "RayGRPOTrainer.save_checkpoint"]
    of_an_iteration += ["put_prompts_experience"] if hasattr(docks, "put_prompts_experience") else []
    of_an_iteration += ["DataStrategy.clear_main"] if strategy is not None else []
    for name in (*of_an_iteration, "RayActorGroup.save_checkpoint"):
        assert [one.step for one in seen.ranges if one.name == name] == [4, 5], name
    assert {one.step for one in seen.ranges} <= {None, 4, 5}


def test_all_that_the_trainer_calls_workers_and_tasks_for_is_a_wait_and_nothing_else() -> None:
    """Advantages too: they are a task of Ray."""
    waiting = {target.path for target in PATCH.targets if target.waits}
    callers = ("RayActorGroup.", "RayActorGroupMs.", "RayGRPOTrainer.", "RayPPOTrainer.", "RayDAPOTrainer.")
    staged = {target.path for target in PATCH.targets if target.stage and target.qualname.startswith(callers)}

    assert staged <= waiting
    assert all(path.partition(":")[2].startswith(callers) for path in waiting)
    assert not any(path.endswith(".fit") for path in waiting)
