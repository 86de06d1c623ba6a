"""MindSpeed-RL's own profiler and mstxkit's sessions: never both, and each keeps working without the other.

The framework's three functions are written here as in MindSpeed-RL 2.0.0 to master 05a90d7, utils/utils.py:518-638.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Iterator

import pytest

import mstxkit
from mstxkit import faults
from mstxkit.patches import _mindspeed_rl_profiler as seam
from mstxkit.patches.mindspeed_rl import PATCH
from mstxkit.profiling import guard, others
from mstxkit.testing import captured, run_under_cann

UTILS = """
made = []
profiler_of = None


def get_grpo_profiler(profiler_config, role=None):
    if not profiler_config or not profiler_config.profile:
        return None
    first, last = profiler_config.profile_step_start, profiler_config.profile_step_end
    skip, active = (first - 1, last - first) if profiler_config.stage == "all" else (0, 1)
    made.append(role)
    return profiler_of(skip, active, role)


def profiler_start(profiler_config, role="profiler_data", profiler_iteration=None):
    if not profiler_config:
        return None
    if profiler_iteration is not None and not (
        profiler_config.profile_step_start <= profiler_iteration < profiler_config.profile_step_end
    ):
        return None
    if role != (profiler_config.role if profiler_config.stage == "all" else profiler_config.stage):
        return None
    profiler = get_grpo_profiler(profiler_config, role)
    if not profiler:
        return None
    profiler.start()
    return profiler


def profiler_step(profiler):
    if profiler:
        profiler.step()
"""
WORKER = "from mindspeed_rl.utils.utils import profiler_start, profiler_step\n"


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


def package(folder: Path) -> Path:
    where = folder / "mindspeed_rl"
    (where / "utils").mkdir(parents=True)
    for name, text in (("__init__", ""), ("utils/__init__", ""), ("utils/utils", UTILS), ("worker", WORKER)):
        (where / f"{name}.py").write_text(text)
    return folder


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


@pytest.fixture
def session() -> Iterator[guard.Claim]:
    """A session of mstxkit is open in this process."""
    claim = guard.take(None, run="run", stage="actor_update")
    assert isinstance(claim, guard.Claim), claim
    yield claim
    claim.release()


def announced() -> list[str]:
    return [other.sentence for other in others.others({}) if other.who == "MindSpeed-RL"]


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


def test_while_a_session_is_open_none_is_made_and_that_is_said_once(
    worker: ModuleType, session: guard.Claim, caplog: pytest.LogCaptureFixture
) -> None:
    """Making one would redirect the open session's output: torch_npu's trace handler sets a path of the process."""
    given = [worker.profiler_start(config(), role="actor_update", profiler_iteration=1) for _ in range(2)]
    for one in given:
        worker.profiler_step(one)

    assert given == [None, None]
    assert sys.modules["mindspeed_rl.utils.utils"].made == []
    assert [record.message for record in caplog.records if "own profiler" in record.message] == [
        "mstxkit: MindSpeed-RL's own profiler (profiler_config) is not started while mstxkit records here: "
        + str(session.owner)
    ]


def test_after_a_session_it_starts_again(worker: ModuleType, session: guard.Claim) -> None:
    during = worker.profiler_start(config(), role="actor_update", profiler_iteration=1)
    session.release()

    assert during is None
    assert worker.profiler_start(config(), role="actor_update", profiler_iteration=1).done == ["start"]


def test_one_of_a_single_stage_refuses_sessions_until_its_step(worker: ModuleType) -> None:
    profiler = worker.profiler_start(config(), role="actor_update", profiler_iteration=1)
    while_on = guard.take(None)
    worker.profiler_step(profiler)
    after = guard.take(None)

    assert isinstance(while_on, guard.Refusal)
    assert "MindSpeed-RL's own profiler" in while_on.sentence
    assert "profile: false" in while_on.sentence
    assert isinstance(after, guard.Claim)
    after.release()


def test_one_of_all_stages_refuses_sessions_from_its_start_to_the_end_of_its_window(worker: ModuleType) -> None:
    """profile_step_start 3 and profile_step_end 5: two steps are waited for, two are recorded."""
    setting = config(stage="all", profile_step_start=3, profile_step_end=5)
    profiler = worker.profiler_start(setting, "integrated")
    seen = [announced()]
    for _ in range(4):
        worker.profiler_step(profiler)
        seen.append(announced())

    assert [len(told) for told in seen] == [1, 1, 1, 1, 0]
    assert "after 4 more of its profiler_step" in seen[0][0]
    assert profiler.done == ["start", *["step"] * 4]


def test_steps_after_its_window_do_nothing_else(worker: ModuleType) -> None:
    profiler = worker.profiler_start(config(stage="all"), "integrated")
    for _ in range(10):
        worker.profiler_step(profiler)

    assert profiler.done.count("step") == 10
    assert announced() == []


def test_one_that_an_exception_has_left_behind_is_announced_no_longer_than_it_lives(worker: ModuleType) -> None:
    profiler = worker.profiler_start(config(), role="actor_update", profiler_iteration=1)
    before = len(announced())
    del profiler
    gc.collect()

    assert (before, announced()) == (1, [])


def test_one_whose_schedule_is_unknown_is_announced_as_long_as_it_lives(worker: ModuleType) -> None:
    sys.modules["mindspeed_rl.utils.utils"].profiler_of = lambda *args: Odd()  # type: ignore[attr-defined]
    profiler = worker.profiler_start(config(), role="actor_update", profiler_iteration=1)
    worker.profiler_step(profiler)
    while_alive = announced()
    del profiler
    gc.collect()

    assert "when its worker is gone" in while_alive[0]
    assert announced() == []


class Odd:
    def start(self) -> None:
        pass

    def step(self) -> None:
        pass


def test_what_cannot_be_followed_is_counted_and_started_all_the_same(worker: ModuleType) -> None:
    class Slotted:
        __slots__ = ()

        def start(self) -> None:
            pass

    sys.modules["mindspeed_rl.utils.utils"].profiler_of = lambda *args: Slotted()  # type: ignore[attr-defined]
    profiler = worker.profiler_start(config(), role="actor_update", profiler_iteration=1)

    assert isinstance(profiler, Slotted)
    assert faults.counts == {"mindspeed_rl.profiler": 1}
    assert announced() == []


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


def test_unpatched_it_is_the_frameworks_alone(worker: ModuleType, session: guard.Claim) -> None:
    utils = sys.modules["mindspeed_rl.utils.utils"]
    kept = worker.profiler_start
    mstxkit.unpatch()

    assert worker.profiler_start is utils.profiler_start
    assert worker.profiler_start.__code__.co_filename == utils.__file__
    for start in (worker.profiler_start, kept):
        assert start(config(), role="actor_update", profiler_iteration=1).done == ["start"]
    assert announced() == []


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


REAL = """
import importlib, json, sys
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, PACKAGE)
import mstxkit
from mstxkit import faults
from mstxkit.profiling import backends, presets
from mstxkit.profiling import guard
import torch, torch_npu
import torch_npu.profiler as P
worker = importlib.import_module("mindspeed_rl.worker")

def made(skip, active, role):
    return P.profile(
        activities=[P.ProfilerActivity.NPU],
        schedule=P.schedule(wait=0, warmup=0, active=active, repeat=1, skip_first=skip),
        on_trace_ready=P.tensorboard_trace_handler("theirs", analyse_flag=False),
        experimental_config=P._ExperimentalConfig(profiler_level=P.ProfilerLevel.Level_none, mstx=True),
    )
sys.modules["mindspeed_rl.utils.utils"].profiler_of = made
mstxkit.autopatch("mindspeed_rl")
setting = SimpleNamespace(
    role="integrated", profile=True, stage="all", profile_step_start=2, profile_step_end=3
)
stage = SimpleNamespace(**{**vars(setting), "stage": "actor_update"})
backend, _ = backends.chosen()
told = {}

def asked():
    claim = guard.take(None)
    if isinstance(claim, guard.Claim):
        claim.release()
        return "free"
    return str(claim)

theirs = worker.profiler_start(setting, "integrated")
told["scheduled"] = asked()
worker.profiler_step(theirs)
told["records"] = asked()
worker.profiler_step(theirs)
told["over"] = asked()

claim = guard.take(None)
ours = backend.start(presets.load("light"), Path("ours"))
told["while ours"] = worker.profiler_start(stage, role="actor_update", profiler_iteration=2)
worker.profiler_step(None)
told["ours"] = [str(ours.stop([1]).folder), list(ours.stop([1]).problems)]
claim.release()

single = worker.profiler_start(stage, role="actor_update", profiler_iteration=2)
told["single"] = asked()
worker.profiler_step(single)
told["done"] = asked()
told["faults"] = list(faults.counts)
print("told", json.dumps(told))
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Any, Path]:
    folder = tmp_path_factory.mktemp("real")
    script = REAL.replace("PACKAGE", repr(str(package(folder / "framework"))))
    run = run_under_cann(textwrap.dedent(script), cwd=folder, start_bytes=4096)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.split("told ", 1)[1].splitlines()[0]), run, folder


needs_torch_npu = pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu")


@pytest.mark.npu
@needs_torch_npu
def test_the_real_torch_npu_never_has_both(real: tuple[dict[str, Any], Any, Path]) -> None:
    told, run, _ = real

    assert "MindSpeed-RL's own profiler" in told["scheduled"]
    assert "MindSpeed-RL" in told["records"]
    assert told["over"] == "free"
    assert told["while ours"] is None
    assert "MindSpeed-RL" in told["single"]
    assert told["done"] == "free"
    started = [call.call for call in run.named("aclprofStart", "aclprofStop") if call.code == 0]
    assert started == ["aclprofStart", "aclprofStop"] * 3
    assert told["faults"] == ["mindspeed_rl.profiler"]


@pytest.mark.npu
@needs_torch_npu
def test_the_real_torch_npu_writes_each_where_it_belongs(real: tuple[dict[str, Any], Any, Path]) -> None:
    told, _, folder = real
    written = {
        where: len([one for one in (folder / where).iterdir() if one.name.endswith("_ascend_pt")])
        for where in ("theirs", "ours")
    }

    assert written == {"theirs": 2, "ours": 1}
    assert Path(told["ours"][0]).parent.name == "ours"


def test_the_seam_follows_nothing_that_is_over() -> None:
    assert seam._followed == {}
