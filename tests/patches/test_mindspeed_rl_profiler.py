"""MindSpeed-RL's own profiler in a program that is captured: it works as without us, and its calls are ranges.

That sessions of ours give way to it: tests/profiling/test_theirs_matrix.py.
"""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Iterator

import pytest
from builders.mindspeed_rl_utils import package

import mstxkit
from mstxkit import faults
from mstxkit.patches.mindspeed_rl import PATCH
from mstxkit.testing import captured


class Profiler:
    """As torch_npu's `profile`: its schedule says when it records."""

    def __init__(self, skip_first: int, active: int, role: str) -> None:
        self.schedule = SimpleNamespace(skip_first=skip_first, wait=0, warmup=0, active=active, repeat=1)
        self.role, self.done = role, []
        self.is_broken = False

    def start(self) -> None:
        self.done.append("start")

    def step(self) -> None:
        if self.is_broken:
            raise RuntimeError("of the framework's")
        self.done.append("step")


def config(**fields: Any) -> SimpleNamespace:
    given = {"role": "integrated", "profile": True, "stage": "actor_update", "profile_step_start": 1}
    return SimpleNamespace(**{**given, "profile_step_end": 3, **fields})


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that has the framework's functions by name, before they are patched."""
    aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "mindspeed_rl"}
    monkeypatch.syspath_prepend(str(package(tmp_path)))
    module = importlib.import_module("mindspeed_rl.worker")
    sys.modules["mindspeed_rl.utils.utils"].profiler_of = Profiler  # type: ignore[attr-defined]
    mstxkit.autopatch("mindspeed_rl")
    yield module
    mstxkit.unpatch()
    gc.collect()
    for name in [name for name in sys.modules if name.split(".")[0] == "mindspeed_rl"]:
        del sys.modules[name]
    sys.modules.update(aside)


def test_without_a_session_the_frameworks_configuration_works_as_before(worker: ModuleType) -> None:
    profiler = worker.profiler_start(config(), role="actor_update", profiler_iteration=1)
    outside = [
        worker.profiler_start(None, role="actor_update"),
        worker.profiler_start(config(), role="actor_generate", profiler_iteration=1),
        worker.profiler_start(config(), role="actor_update", profiler_iteration=3),
        worker.profiler_start(config(profile=False), role="actor_update", profiler_iteration=1),
    ]
    worker.profiler_step(profiler)

    assert profiler.done == ["start", "step"]
    assert outside == [None] * 4
    assert faults.counts == {}


def test_what_the_framework_raises_is_raised(worker: ModuleType) -> None:
    profiler = worker.profiler_start(config(), role="actor_update", profiler_iteration=1)
    profiler.is_broken = True

    with pytest.raises(RuntimeError, match="of the framework's"):
        worker.profiler_step(profiler)
    with pytest.raises(AttributeError):
        worker.profiler_start(SimpleNamespace(), role="actor_update", profiler_iteration=1)


def test_its_functions_are_ranges_with_what_they_were_called_with(worker: ModuleType) -> None:
    with captured() as seen:
        worker.profiler_step(worker.profiler_start(config(), role="actor_update", profiler_iteration=2))

    assert [(found.name, found.attributes) for found in seen.ranges] == [
        ("get_grpo_profiler", {"role": "actor_update"}),
        ("profiler_start", {"role": "actor_update", "prof_iteration": 2}),
        ("profiler_step", {}),
    ]


def test_unpatched_it_is_the_frameworks_alone(worker: ModuleType) -> None:
    utils = sys.modules["mindspeed_rl.utils.utils"]
    kept = worker.profiler_start
    mstxkit.unpatch()

    assert worker.profiler_start is utils.profiler_start
    assert worker.profiler_start.__code__.co_filename == utils.__file__
    for start in (worker.profiler_start, kept):
        assert start(config(), role="actor_update", profiler_iteration=1).done == ["start"]


def test_a_step_of_it_is_told_to_an_open_session_as_a_tick(worker: ModuleType) -> None:
    from mstxkit.engine.choose import engine

    told: list[str] = []
    engine.set_watch(lambda site, may_move: told.append(site.name), None, None)
    engine.watch(True)
    try:
        worker.profiler_step(None)
    finally:
        engine.watch(False)
        engine.set_watch(None, None, None)

    assert told == ["profiler_step"]


def test_what_its_windows_miss_is_in_stages_of_ours() -> None:
    """Its windows begin after the worker has resharded or loaded what the stage needs, and end before it is put back.

    Source: actor_hybrid_worker.py:407-471, 265-353, 806-867; integrated_worker.py:150-183; critic_worker.py:160, 236.
    """
    stages = {target.qualname: target.stage for target in PATCH.targets if target.stage is not None}
    whole = {
        "ActorHybridWorkerBase.generate_sequences": "actor_generate",
        "ActorHybridWorkerBase.compute_log_prob": "actor_compute_log_prob",
        "ActorHybridWorkerBase.update": "actor_update",
        "IntegratedWorker.compute_ref_log_prob": "reference_compute_log_prob",
        "CriticWorkerBase.compute_values": "critic_compute_values",
        "CriticWorkerBase.update": "critic_update",
        "MegatronShardingManager.enter_infer_mode": "weight_sync",
        "MegatronShardingManager.exit_infer_mode": "weight_sync",
    }

    assert {name: stages.get(name) for name in whole} == whole
