"""verl's patch against the recorded surfaces of its versions: what is declared is there, fits, and may be wrapped."""

from __future__ import annotations

import ast
import json
import sys
from types import ModuleType
from typing import Any, Iterator

import pytest
from builders import lives
from builders.contracts.where import SURFACES
from builders.recorded_surfaces import expressions

from mstxkit import mstx_range, stages
from mstxkit.patches import _verl_marks as marks
from mstxkit.patches import _verl_steps
from mstxkit.patches.verl import PATCH
from mstxkit.patching.declare import CONTEXT, VALUE, Target
from mstxkit.testing import captured

VERSIONS = ("0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.0", "0.9.1")
# What the surfaces leave out. tests/frameworks/ has these from the wheels.
UNRECORDED = {
    "megatron.core.pipeline_parallel.schedules",
    "verl.experimental.fully_async_policy.fully_async_rollouter",
    "verl.experimental.reward.reward_manager",
    "verl.experimental.reward_loop.reward_loop",
    "verl.utils.skip.skip_manager",
}
# What lets no parameter of the method through (verl 0.6.1 to 0.7.1, utils/profiler/performance.py).
HIDES_PARAMETERS = "GPUMemoryLogger"


class Surface:
    """What one version of verl holds."""

    def __init__(self, version: str) -> None:
        self.modules = json.loads((SURFACES / f"verl-{version}.json").read_text())["modules"]

    def find(self, target: Target) -> dict[str, Any] | None:
        """The function of a target, which its class may inherit; None where there is none."""
        owner, _, name = target.qualname.rpartition(".")
        recorded = self.modules.get(target.module, {})
        if not owner:
            found: dict[str, Any] | None = recorded.get("functions", {}).get(name)
            return found
        return self._method(target.module, owner, name) if owner in recorded.get("classes", {}) else None

    def _method(self, module: str, owner: str, name: str) -> dict[str, Any] | None:
        recorded = self.modules[module]["classes"].get(owner)
        if (
            recorded is None
        ):  # imported, perhaps relatively, which the surfaces leave out: `from ..base import BaseEngine`
            homes = [home for home, other in self.modules.items() if owner in other.get("classes", {})]
            return self._method(homes[0], owner, name) if homes else None
        own: dict[str, Any] | None = recorded["methods"].get(name)
        inherited = (self._method(module, base, name) for base in recorded["bases"] if base != owner)
        return own or next(filter(None, inherited), None)

    def held(self) -> Iterator[tuple[Target, dict[str, Any]]]:
        """Targets that it holds, each with its function."""
        for target in PATCH.targets:
            found = self.find(target)
            if found is not None:
                yield target, found


SURFACE = {version: Surface(version) for version in VERSIONS}


@pytest.fixture(params=VERSIONS)
def surface(request: pytest.FixtureRequest) -> Surface:
    return SURFACE[request.param]


def test_every_target_exists_in_some_version() -> None:
    found = {target.path for surface in SURFACE.values() for target, _ in surface.held()}
    missing = {target.path for target in PATCH.targets if target.module not in UNRECORDED} - found

    assert not missing


# A critic's stages in the engines' workers, which serve the actor as well: the call decides.
_BY_CALL = {
    "mstxkit.patches._verl_critic:inferred": "critic_compute_values",
    "mstxkit.patches._verl_critic:trained": "critic_update",
}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.6.1", {"rollout_mode", "_optimizer_step", "agent_loop", "vllm_generate"}),
        ("0.7.0", {"rollout_mode", "_optimizer_step", "agent_loop", "train_batch"}),
        ("0.7.1", {"update_weights", "_optimizer_step", "agent_loop", "train_batch"}),
        ("0.8.0", {"update_weights", "run_prompt", "agent_loop", "train_batch"}),
        ("0.9.0", {"update_weights", "run_prompt", "agent_loop", "train_batch", "forward_backward"}),
        ("0.9.1", {"update_weights", "run_prompt", "agent_loop", "train_batch", "forward_backward"}),
    ],
)
def test_each_version_has_the_stages_of_ppo_and_what_it_alone_has(version: str, expected: set[str]) -> None:
    held = [target for target, _ in SURFACE[version].held()]

    assert {
        "actor_generate", "actor_compute_log_prob", "reference_compute_log_prob", "critic_compute_values",
        "actor_update", "critic_update", "compute_kl", "weight_sync", "evaluate", "save_checkpoint",
    } <= {target.stage for target in held} | {_BY_CALL.get(str(target.value)) for target in held}  # fmt: skip
    assert expected <= {target.name for target in held}


def test_a_trainer_has_its_blocks_in_each_version(surface: Surface) -> None:
    blocks = [target for target, _ in surface.held() if target.kind == CONTEXT]

    assert "verl.utils.profiler.performance:marked_timer" in {target.path for target in blocks}


def test_of_a_trainers_blocks_those_wait_in_which_it_only_calls_workers(surface: Surface) -> None:
    """What it computes itself is work: advantages, a reward function; and a step is all of it."""
    waiting = {target.waits for target, _ in surface.held() if target.path.endswith(":marked_timer")}

    ((*names,),) = waiting
    assert {"gen", "old_log_prob", "ref", "values", "update_actor", "update_critic", "update_weights"} <= set(names)
    assert {"switch_wait", "switch_to_trainer", "switch_to_rollout"} <= set(names)
    assert not {"step", "adv", "reward", "dump_rollout_generations"} & set(names)


def test_what_a_worker_does_is_no_wait() -> None:
    waiting = {target.path.rpartition(":")[0] for target in PATCH.targets if target.waits}

    assert all(module.startswith(("verl.trainer.", "verl.utils.profiler.")) for module in waiting)


@pytest.mark.parametrize(
    ("block", "stage"),
    [
        ("step", "train_step"), ("gen", "actor_generate"), ("gen_max", "actor_generate"), ("reward", "reward"),
        ("old_log_prob", "actor_compute_log_prob"), ("ref", "reference_compute_log_prob"),
        ("values", "critic_compute_values"), ("adv", "compute_advantage"), ("update_critic", "critic_update"),
        ("update_actor", "actor_update"), ("update_weights", "weight_sync"), ("sync_rollout_weights", "weight_sync"),
        ("timing_s/param_sync", "weight_sync"), ("testing", "evaluate"), ("rollouter/validate_time", "evaluate"),
        ("save_checkpoint", "save_checkpoint"), ("generate_async", "actor_generate"),
    ],
)  # fmt: skip
def test_the_name_of_a_trainers_block_is_a_stage(block: str, stage: str) -> None:
    """All names of 0.6.1 to 0.9.1, but those of the profiler's start and stop, of waiting, switching and dumping."""
    assert stages.canonical_key(block) == stage


def test_nothing_that_looks_at_its_callers_frame_is_wrapped(surface: Surface) -> None:
    """`auto_await` returns a coroutine or a result, by what kind of frame has called it."""
    assert not [target.path for target, found in surface.held() if "auto_await" in found.get("decorators", ())]


def test_nothing_async_is_wrapped_outside_of_a_decorator_that_hides_it(surface: Surface) -> None:
    hidden = [
        target.path
        for target, found in surface.held()
        if found["kind"] == "async" and any("no_grad" in decorator for decorator in found.get("decorators", ()))
    ]

    assert not hidden


def test_expressions_name_parameters_that_the_function_has(surface: Surface) -> None:
    wrong = {}
    for target, found in surface.held():
        hidden = any(HIDES_PARAMETERS in decorator for decorator in found.get("decorators", ()))
        parameters = set() if hidden else {name.strip("*=") for name in found.get("params", ())}
        strange = {name for text in expressions(target) for name in _names(text)} - parameters
        if strange and target.kind != VALUE:
            wrong[target.path] = strange

    assert not wrong


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}


def test_whoever_gives_its_weights_to_a_rollout_is_an_actor() -> None:
    """It does so before anything else: where nobody asks it for old log-probabilities, it is a reference next."""
    giving = [target for target in PATCH.targets if target.stage == "weight_sync" and target.role == "actor"]

    assert len(giving) == 6
    assert {target.process_role for target in giving} == {"actor"}


class RayPPOTrainer:
    def __init__(self, global_steps: int) -> None:
        self.global_steps = global_steps


class FullyAsyncRollouter(RayPPOTrainer):
    """verl's counts in `global_steps` the samples that it has handed out (0.8.0:842, 0.9.1:886)."""


class Batch:
    def __init__(self, **meta_info: object) -> None:
        self.meta_info = meta_info


def step_of(path: str, *call: object) -> object:
    """What the target of this path reads as the step of a call."""
    (asked,) = {target.step for target in PATCH.targets if target.path == f"verl.{path}"}
    assert callable(asked)
    return asked(*call)


@pytest.mark.parametrize("sampled", [FullyAsyncRollouter, type("FullyAsyncRollouter", (FullyAsyncRollouter,), {})])
def test_the_number_of_samples_of_a_rollouter_is_the_step_of_no_validation(sampled: type[RayPPOTrainer]) -> None:
    """Ray derives a class of that name from it, which arrives by value."""
    validate = "trainer.ppo.ray_trainer:RayPPOTrainer._validate"

    assert step_of(validate, RayPPOTrainer(7)) == 7
    assert step_of(validate, sampled(5121)) is None


@pytest.mark.parametrize("loop", ["AgentLoopWorkerBase", "AgentLoopWorker"])
def test_an_agent_loop_is_told_its_step_by_what_it_trains_with(loop: str) -> None:
    """A rollouter's validation sends the number of its samples along, and its training samples have none."""
    worker = f"experimental.agent_loop.agent_loop:{loop}"
    batch, sample = f"{worker}.generate_sequences", f"{worker}._run_agent_loop"

    assert step_of(batch, None, Batch(global_steps=7)) == step_of(sample, None, {}, {"step": 7, "validate": False}) == 7
    assert step_of(batch, None, Batch(global_steps=5121, validate=True)) is None
    assert step_of(sample, None, {}, {"step": 5121, "validate": True}) is None
    assert step_of(batch, None, Batch()) is None


def test_loading_it_imports_nothing_but_mstxkit() -> None:
    assert not lives.loads("import mstxkit.patches.verl", of="verl torch ray torch_npu")


@pytest.fixture
def npu_marks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reaches torch_npu's mstx: no NPU, and no torch_npu, is needed to see what verl's marks become."""
    calls: list[str] = []
    mstx = ModuleType("torch_npu.npu.mstx")
    vars(mstx).update(
        range_start=lambda message: calls.append(f"+{message}") or len(calls),
        range_end=lambda number: calls.append(f"-{number}"),
    )
    npu = ModuleType("torch_npu.npu")
    npu.mstx = mstx  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", ModuleType("torch_npu"))
    monkeypatch.setitem(sys.modules, "torch_npu.npu", npu)
    return calls


@pytest.mark.parametrize("message", ["actor_update", "update_actor"])
def test_verls_mark_is_left_out_inside_the_stage_that_it_marks(npu_marks: list[str], message: str) -> None:
    """0.9.1 marks with the role, the versions before with the method's name."""
    with captured(), mstx_range("actor_update", stage="actor_update"):
        marks.end_mark(marks.start_mark(message))

    assert npu_marks == []


def test_verls_mark_of_a_mini_batch_is_left_out_inside_its_range(npu_marks: list[str]) -> None:
    """A critic's is outside of every stage."""
    with captured(), mstx_range("train_batch"):
        marks.end_mark(marks.start_mark("train_batch"))

    assert npu_marks == []


def test_a_mark_of_something_else_is_given_as_before(npu_marks: list[str]) -> None:
    with captured(), mstx_range("actor_update", stage="actor_update"):
        marks.end_mark(marks.start_mark("my own"))

    assert npu_marks == ["+my own", "-1"]


@pytest.mark.parametrize("message", ["update_actor", "train_batch"])
def test_marks_are_given_as_before_while_nothing_records(npu_marks: list[str], message: str) -> None:
    with mstx_range("actor_update", stage="actor_update"):
        marks.end_mark(marks.start_mark(message))

    assert npu_marks == [f"+{message}", "-1"]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        # Sent as the step ends; and in one-step-off, as it begins: twice before anything is computed.
        ([0, None, 1, None, 2, None], [0, 1, 1, 2, 2, 3]),
        ([0, 1, None, 2, None], [0, 1, 1, 2, 2]),
        ([40, 41, None, 42, None], [40, 41, 41, 42, 42]),
    ],
)
def test_an_actors_training_is_of_the_drivers_step_whenever_its_weights_go_out(
    acme: Any, install: Any, monkeypatch: pytest.MonkeyPatch, sent: list[int | None], expected: list[int | None]
) -> None:
    monkeypatch.setattr(_verl_steps, "_weights_begin", False)
    acme.write("worker", "class W:\n def send(self, global_steps=None, mode='auto'): pass\n def update(self): pass")
    worker = acme.load("worker").W()
    install(acme.patch(
        acme.target("ACME.worker:W.send", stage="weight_sync", step_after=_verl_steps.of_weights),
        acme.target("ACME.worker:W.update", stage="actor_update"),
    ))  # fmt: skip

    with captured() as seen:
        for number in sent:
            worker.update() if number is None else worker.send(global_steps=number, mode="nccl")

    assert [one.step for one in seen.ranges] == expected
