"""Samples on the recorded surfaces: what begins and ends, in order, in the loops that the frameworks run.

The functions are the stand-ins', patched as in any process; the loops are written here as the cited source has them.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Callable, Iterator

import pytest
from builders import recorded_surfaces
from builders.contracts import surface
from builders.contracts.installed import instance
from builders.contracts.installing import Install
from builders.contracts.surface import Surface
from builders.recorded_surfaces import call
from builders.watched_pieces import watched

import mstxkit
from mstxkit import stage
from mstxkit.patches import _megatron
from mstxkit.pieces import boundaries
from mstxkit.testing import captured

FSDP = {"actor": "verl.workers.actor.dp_actor", "critic": "verl.workers.critic.dp_critic"}
MICRO, TOKEN = ["+micro_batch", "-micro_batch"], ["+decode_step", "-decode_step"]
# A mini-batch of two micro-batches, with what runs in none of the patched functions.
TRAINED = ["+mini_batch", "+micro_batch", "backward", "-micro_batch", "+micro_batch", "backward", "-micro_batch"]

legacy = pytest.mark.parametrize("version", ["0.6.1", "0.7.0", "0.7.1"])


def inside(what: str, seen: list[str]) -> list[str]:
    """What was told in a stage."""
    assert (seen[0], seen[-1]) == (f"+{what}", f"-{what}"), seen
    return seen[1:-1]


class Loops:
    """verl's FSDP loops: dp_actor.py 0.7.1:475 (compute_log_prob), 550-675 (update_policy); dp_critic.py alike."""

    def __init__(self, model: Any) -> None:
        self.model, self.told, self.fails_at = model, [], -1
        self.count = 0

    def forward(self) -> None:
        self.count += 1
        call(self.model._forward_micro_batch)
        if self.count == self.fails_at:
            raise MemoryError("in the backward pass")

    def update(self, minis: int, micros: int) -> None:
        for _ in range(minis):
            for _ in range(micros):
                self.forward()
                self.told.append("backward")
            call(self.model._optimizer_step)
            self.told.append("step over")

    def compute(self, micros: int) -> None:
        for _ in range(micros):
            self.forward()


@pytest.fixture(params=["actor", "critic"])
def fsdp(request: pytest.FixtureRequest, version: str, install: Install) -> Loops:
    install(surface.recorded(f"verl-{version}"))
    mstxkit.autopatch("verl")
    module = importlib.import_module(FSDP[request.param])
    model = module.DataParallelPPOActor if request.param == "actor" else module.DataParallelPPOCritic
    return Loops(instance(model))


@legacy
def test_fsdp_micro_batches_hold_their_backward_pass_and_mini_batches_the_optimizer_step(fsdp: Loops) -> None:
    with watched("micro_batch") as fsdp.told, stage("actor_update"):
        fsdp.update(minis=2, micros=2)

    assert inside("actor_update", fsdp.told) == [*TRAINED, "-mini_batch", "step over"] * 2


@legacy
def test_fsdp_passes_without_training_are_micro_batches_of_one_mini_batch(fsdp: Loops) -> None:
    with watched("micro_batch") as seen, stage("actor_compute_log_prob"):
        fsdp.compute(micros=3)

    assert inside("actor_compute_log_prob", seen) == ["+mini_batch", *MICRO * 3, "-mini_batch"]


@legacy
def test_an_exception_in_a_micro_batch_ends_what_is_open_and_the_next_stage_begins_anew(fsdp: Loops) -> None:
    fsdp.fails_at = 3
    with watched("micro_batch") as fsdp.told:
        with pytest.raises(MemoryError), stage("actor_update"):
            fsdp.update(minis=2, micros=2)
        with stage("actor_update"):
            fsdp.update(minis=1, micros=2)

    failed = [*TRAINED, "-mini_batch", "step over", "+mini_batch", "+micro_batch", "-micro_batch", "-mini_batch"]
    assert fsdp.told == [
        "+actor_update", *failed, "-actor_update", "+actor_update", *TRAINED, "-mini_batch", "step over",
        "-actor_update",
    ]  # fmt: skip


@legacy
def test_micro_batches_beyond_their_limit_of_records_are_told_all_the_same(fsdp: Loops) -> None:
    with captured(), watched("micro_batch") as seen, stage("actor_compute_log_prob"):
        fsdp.compute(micros=300)

    assert inside("actor_compute_log_prob", seen) == ["+mini_batch", *MICRO * 300, "-mini_batch"]


@pytest.fixture
def megatron(install: Install) -> Callable[..., Any]:
    """Megatron's schedules, and a framework that uses them; gives the module of the schedules."""

    def load(framework: str, version: str) -> Any:
        install(with_megatron(framework, version))
        mstxkit.autopatch(framework)
        return importlib.import_module(_megatron.SCHEDULES)

    return load


def with_megatron(framework: str, version: str) -> Surface:
    recorded = surface.recorded(f"{framework}-{version}")
    schedules = recorded_surfaces.modules("mindspeed_llm", "2.3.0")[_megatron.SCHEDULES]
    return Surface(framework, version, {**recorded.modules, _megatron.SCHEDULES: schedules})


@contextmanager
def body_of(patched: Any, body: Callable[[], object]) -> Iterator[None]:
    """A patched function whose own body is this one, instead of the stand-in's single line."""
    held = patched.__globals__
    inner = next(name for name, value in held.items() if value is patched.__wrapped__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(held, inner, lambda *args, **kwargs: body())
        yield


def schedule(module: Any, told: list[str], name: str, micros: int, forward_only: bool = False) -> None:
    """A schedule around its passes: schedules.py core_v0.12.1:434 (`forward_backward_no_pipelining`)."""

    def passes() -> None:
        for _ in range(micros):
            call(module.forward_step)
            if not forward_only:
                told.append("backward")

    with body_of(getattr(module, name), passes):
        call(getattr(module, name), forward_only=forward_only)


FRAMEWORKS = pytest.mark.parametrize(
    ("framework", "version"),
    [("mindspeed_llm", "2.3.0"), ("mindspeed_rl", "master-05a90d7"), ("verl", "0.7.1")],
)


@FRAMEWORKS
def test_megatron_without_a_pipeline_has_micro_batches_one_after_the_other(
    megatron: Callable[..., Any], framework: str, version: str
) -> None:
    module = megatron(framework, version)

    with captured(), watched("micro_batch") as seen, stage("train_step"):
        schedule(module, seen, "forward_backward_no_pipelining", 2)
    refusal = boundaries.explain_refusal("train_step", "micro_batch")

    one = ["+micro_batch", "backward", "-micro_batch"]
    assert inside("train_step", seen) == one * 2
    assert refusal is None


@FRAMEWORKS
@pytest.mark.parametrize("how", ["with_interleaving", "without_interleaving"])
def test_a_training_pipeline_refuses_micro_batches_with_the_reason(
    megatron: Callable[..., Any], framework: str, version: str, how: str
) -> None:
    module = megatron(framework, version)

    with captured(), watched("micro_batch") as seen, stage("train_step"):
        schedule(module, seen, f"forward_backward_pipelining_{how}", 2)
    refusal = boundaries.explain_refusal("train_step", "micro_batch")

    assert inside("train_step", seen) == ["backward"] * 2
    assert "1F1B" in str(refusal)
    assert "sample by mini_batch" in str(refusal)


@FRAMEWORKS
def test_forward_passes_alone_are_micro_batches_on_a_pipeline_too(
    megatron: Callable[..., Any], framework: str, version: str
) -> None:
    module = megatron(framework, version)

    with captured(), watched("micro_batch") as seen, stage("evaluate"):
        schedule(module, seen, "forward_backward_pipelining_without_interleaving", 2, forward_only=True)
    refusal = boundaries.explain_refusal("evaluate", "micro_batch")

    assert inside("evaluate", seen) == MICRO * 2
    assert refusal is None


@pytest.fixture
def vllm(install: Install, version: str) -> Any:
    """A worker of vLLM, on Ascend or not: one engine step is `step(worker, tokens)`."""
    install(surface.recorded(version))
    framework = version.partition("-")[0]
    mstxkit.autopatch(framework)
    if framework == "vllm":
        return instance(importlib.import_module("vllm.v1.worker.cpu_worker").CPUWorker)
    name = "worker_v1" if version == "vllm_ascend-0.11.0" else "worker"
    return instance(importlib.import_module(f"vllm_ascend.worker.{name}").NPUWorker)


def step(worker: Any, tokens: int = 1) -> None:
    """Source: vllm-ascend worker.py: `execute_model`, and `sample_tokens` after it since 0.12."""
    call(
        worker.execute_model,
        SimpleNamespace(
            total_num_scheduled_tokens=tokens, num_scheduled_tokens={}, scheduled_new_reqs=[],
            scheduled_cached_reqs=None,
        ),
    )  # fmt: skip
    if hasattr(worker, "sample_tokens"):
        call(worker.sample_tokens)


every_vllm = pytest.mark.parametrize(
    "version", ["vllm-0.32.0", *(f"vllm_ascend-{one}" for one in ("0.11.0", "0.13.0", "0.18.0", "0.23.0"))]
)


@every_vllm
def test_decode_steps_of_a_worker_of_its_own_are_counted_in_rounds(vllm: Any) -> None:
    with captured(), watched("decode_step") as seen:
        for _ in range(2):
            call(vllm.wake_up)
            for _ in range(3):
                step(vllm)
            call(vllm.sleep)

    assert seen == ["+actor_generate", *TOKEN * 3, "-actor_generate"] * 2


@every_vllm
def test_decode_steps_inside_a_training_worker_are_pieces_of_its_stage(vllm: Any) -> None:
    with captured(), watched("decode_step") as seen, stage("actor_generate"):
        for _ in range(3):
            step(vllm)

    assert inside("actor_generate", seen) == TOKEN * 3


@every_vllm
def test_steps_without_tokens_and_dummy_batches_are_not_counted(vllm: Any) -> None:
    with captured(), watched("decode_step") as seen, stage("actor_generate"):
        step(vllm)
        step(vllm, tokens=0)
        call(vllm.execute_dummy_batch)
        step(vllm)

    assert inside("actor_generate", seen) == TOKEN * 2


@pytest.fixture
def sglang(install: Install, version: str) -> Any:
    """A model runner of SGLang."""
    install(surface.recorded(f"sglang-{version}"))
    mstxkit.autopatch("sglang")
    runner = instance(importlib.import_module("sglang.srt.model_executor.model_runner").ModelRunner)
    runner.is_draft_worker = False
    return runner


@pytest.mark.parametrize("version", ["0.5.4.post1", "0.5.9", "0.5.11", "0.5.23"])
def test_idle_batches_and_draft_passes_of_sglang_are_not_counted(sglang: Any) -> None:
    def forward(mode: str) -> None:
        batch = SimpleNamespace(forward_mode=SimpleNamespace(_name_=mode), batch_size=1)
        call(sglang.forward, batch)

    with captured(), watched("decode_step") as seen, stage("actor_generate"):
        for mode in ("EXTEND", "IDLE", "DECODE", "IDLE"):
            forward(mode)
        sglang.is_draft_worker = True
        forward("DECODE")

    assert inside("actor_generate", seen) == TOKEN * 2


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_batches_of_a_scheduler_are_counted_across_until_its_memory_is_released(sglang: Any) -> None:
    managers = "sglang.srt.managers"
    scheduler = instance(importlib.import_module(f"{managers}.scheduler").Scheduler)
    forward = SimpleNamespace(forward_mode=SimpleNamespace(_name_="DECODE"), batch_size=1)

    with captured(), watched("decode_step") as seen:
        for _ in range(2):
            for _ in range(3):
                with body_of(type(scheduler).run_batch, lambda: call(sglang.forward, forward)):
                    call(scheduler.run_batch, SimpleNamespace(reqs=[]))
            seen.append("released")
            _release(managers, scheduler)

    assert seen == ["+actor_generate", *TOKEN * 3, "released", "-actor_generate"] * 2


def _release(managers: str, scheduler: Any) -> None:
    """What the recorded versions hold of it: the manager of weights in 0.5.23, the scheduler's pause since 0.5.9."""
    try:
        updater = importlib.import_module(f"{managers}.scheduler_components.weight_updater")
    except ImportError:
        call(scheduler.pause_generation)
    else:
        call(instance(updater.SchedulerWeightUpdaterManager).release_memory_occupation)


# verl's engines: transformer_impl.py 0.9.0:825 (`forward_backward_batch` of Megatron, whose schedule calls the engine's
# own `forward_step`), base.py:113 (`train_batch`: zero_grad, forward_backward_batch, optimizer_step).
ENGINE = "verl.workers.engine.megatron.transformer_impl"


@pytest.fixture
def engine_of(install: Install) -> Callable[[int], Any]:
    def made(pipeline: int) -> Any:
        install(surface.recorded("verl-0.9.0"))
        mstxkit.autopatch("verl")
        engine = instance(importlib.import_module(ENGINE).MegatronEngineWithLMHead)
        engine.engine_config = SimpleNamespace(pipeline_model_parallel_size=pipeline)
        return engine

    return made


def run_batch(engine: Any, told: list[str], forward_only: bool) -> None:
    def passes() -> None:
        for _ in range(2):
            call(engine.forward_step)
            told.append("pass")

    with body_of(type(engine).forward_backward_batch, passes):
        call(engine.forward_backward_batch, forward_only=forward_only)


@pytest.mark.parametrize(
    ("pipeline", "forward_only", "is_told"), [(1, False, True), (4, True, True), (4, False, False)]
)
def test_micro_batches_of_verls_megatron_engine_are_told_where_no_pipeline_mixes_them(
    engine_of: Callable[[int], Any], pipeline: int, forward_only: bool, is_told: bool
) -> None:
    engine = engine_of(pipeline)

    with captured(), watched("micro_batch") as seen, stage("actor_update"):
        run_batch(engine, seen, forward_only)
    refusal = boundaries.explain_refusal("actor_update", "micro_batch")

    told = ["+micro_batch", "pass", "-micro_batch"] * 2
    if not is_told:
        assert inside("actor_update", seen) == ["+mini_batch", "pass", "pass", "-mini_batch"]
        assert "1F1B" in str(refusal)
        return
    assert inside("actor_update", seen) == ["+mini_batch", *told, "-mini_batch"]
    assert refusal is None
