"""Calls of the real verl, patched, in a process of its own; what they record, as JSON.

Usage: python verl_calls.py NAME...     functions of this module; the version of verl is the one on the path
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from contextlib import contextmanager, nullcontext, suppress
from types import ModuleType, SimpleNamespace
from typing import Any, Iterator

from mstxkit import mstx_range
from mstxkit.patches import _verl_marks
from mstxkit.patches.verl import PATCH
from mstxkit.patching import registry, trainer_settings
from mstxkit.testing import captured

# The step at which the drivers here resume.
STEP = 41


def blocks() -> dict[str, Any]:
    """A trainer's step as `fit` has it in every version: profiling may start, and then one block inside the other."""
    from verl.trainer.ppo import ray_trainer

    trainer = object.__new__(ray_trainer.RayPPOTrainer)
    trainer.global_steps = STEP
    timing: dict[str, float] = {}
    with captured() as seen:
        with ray_trainer.marked_timer("start_profile", timing):
            trainer._start_profiling(False)
        with ray_trainer.marked_timer("step", timing, color="red"):
            with ray_trainer.marked_timer("gen", timing):
                pass
            with suppress(KeyError), ray_trainer.marked_timer("adv", timing):
                raise KeyError
    return {"ranges": rows(seen), "timing": sorted(timing), "waits": waits(seen)}


def settings() -> dict[str, Any]:
    """A trainer that looks for a checkpoint, configured as verl does it, with what must not be kept."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo import ray_trainer

    trainer = object.__new__(ray_trainer.RayPPOTrainer)
    trainer.actor_rollout_wg, trainer.use_critic = SimpleNamespace(load_checkpoint=lambda *_: None), False  # 0.6.1
    trainer.config = OmegaConf.create({
        "trainer": {"resume_mode": "disable", "total_epochs": 3, "device": "npu", "wandb_key": 7},
        "data": {"train_batch_size": 1024, "val_batch_size": "${data.train_batch_size}", "missing": "???"},
        "actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6}, "use_kl_loss": True}},
    })  # fmt: skip
    with captured() as seen:
        trainer._load_checkpoint()
    return {"ranges": rows(seen), "settings": trainer_settings.current}


def trainer_v1() -> dict[str, Any]:
    """One step of verl's newest trainer."""
    from verl.trainer.ppo.v1 import trainer_base
    from verl.utils.skip.skip_manager import SkipManager

    class Trainer(trainer_base.PPOTrainer):  # type: ignore[misc]
        use_reference_policy, use_critic, global_steps = True, True, STEP
        config = SimpleNamespace(
            actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(temperature=1.0)),
            trainer=SimpleNamespace(critic_warmup=0),
        )
        reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=None)
        replay_buffer = SimpleNamespace(sample=lambda **_: (SimpleNamespace(extra_info={}), {}))

        def __init__(self) -> None:
            """No workers."""

        def on_step_end(self) -> None:
            """Abstract in verl."""

        on_sample_end = on_step_end

        def _same(self, batch: Any, metrics: Any) -> Any:
            return batch

        _compute_reward_colocate = _balance_batch = _compute_old_log_prob = _compute_ref_log_prob = _same
        _compute_values = _compute_advantage = _update_critic = _update_actor = _same

    timing: dict[str, float] = {}
    with captured() as seen:
        SkipManager.set_step(STEP)
        with trainer_base.marked_timer("step", timing):
            Trainer()._step_once({}, timing, 4)
    return {"ranges": rows(seen), "timing": sorted(timing), "waits": waits(seen)}


class Loop:
    """An agent loop that waits for others."""

    def __init__(self, **_: Any) -> None:
        pass

    async def run(self, sampling_params: dict[str, Any], **_: Any) -> None:
        """Three turns."""
        for _turn in range(3):
            await asyncio.sleep(0)


def agent_loops() -> dict[str, Any]:
    """Three samples of one batch in an agent loop worker, interleaved."""
    import numpy as np
    from verl import DataProto
    from verl.experimental.agent_loop import agent_loop

    class Worker(agent_loop.AgentLoopWorker):  # type: ignore[misc]
        llm_client = tokenizer = processor = hf_model_type = dataset_cls = tools = None
        config = SimpleNamespace(data=None)
        rollout_config = SimpleNamespace(
            temperature=1.0, top_p=1.0, top_k=-1, calculate_log_probs=False,
            agent=SimpleNamespace(default_agent_loop="tiny"),
        )  # fmt: skip

        def __init__(self) -> None:
            """No servers."""

        async def _agent_loop_postprocess(self, output: Any, *_: Any, **__: Any) -> Any:
            return output

        def _postprocess(self, outputs: Any, **_: Any) -> Any:
            return outputs

    agent_loop._agent_loop_registry["tiny"] = {"_target_": f"{__name__}.Loop"}
    batch = DataProto.from_single_dict({"index": np.arange(3)}, meta_info={"global_steps": STEP})
    with captured() as seen:
        asyncio.run(Worker().generate_sequences(batch))
    return {"ranges": rows(seen)}


def server() -> dict[str, Any]:
    """A rollout server is told the step whose weights it has got; a request that fails comes next."""
    from verl.workers.rollout.trtllm_rollout.trtllm_async_server import TRTLLMHttpServer

    one = object.__new__(TRTLLMHttpServer.__ray_metadata__.modified_class.__ray_actor_class__)

    async def serve() -> None:
        await one.set_global_steps(STEP)
        with suppress(ImportError):  # there is no TensorRT here
            await one.generate(prompt_ids=[1], sampling_params={}, request_id="request 1")

    with captured() as seen:
        asyncio.run(serve())
    return {"ranges": rows(seen)}


def lora() -> dict[str, Any]:
    """The passes of an actor and of its reference, which is the actor without its adapter; nothing is computed."""
    import torch
    from verl.utils import tensordict_utils as tu
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
    from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

    class Engine(FSDPEngineWithLMHead):  # type: ignore[misc]
        module = SimpleNamespace(disable_adapter=lambda: left_out("adapter off"))

        def __init__(self) -> None:
            """No model."""

        def eval_mode(self, **_: Any) -> Any:
            """Nothing to switch."""
            return nullcontext()

        def infer_batch(self, *_: Any, **__: Any) -> None:
            with mstx_range("engine"):
                said.append("pass")

        def is_mp_src_rank_with_outputs(self) -> bool:
            """Nobody has any."""
            return False

    class Config(dict[str, Any]):
        use_remove_padding = False  # 0.7.1 asks for an attribute

    @contextmanager
    def left_out(what: str) -> Iterator[None]:
        said.append(what)
        yield
        said.append("adapter on")

    said: list[str] = []
    actor, worker = object.__new__(TrainingWorker), object.__new__(ActorRolloutRefWorker)
    fields = ("use_dynamic_bsz", "infer_max_token_len_per_gpu", "infer_micro_batch_size_per_gpu", "use_fused_kernels")
    actor.engine, actor.loss_fn, actor.model_config = Engine(), None, Config()
    actor.engine_config = SimpleNamespace(**dict.fromkeys(fields, 1))
    worker.actor, worker.enable_routing_replay = actor, False
    with captured() as seen:
        for meta in ({}, {"no_lora_adapter": True}):
            worker.compute_log_prob(tu.get_tensordict({"x": torch.ones(1, 1)}, {"compute_loss": False, **meta}))
    return {"ranges": rows(seen), "said": said}


def legacy_generate() -> dict[str, Any]:
    """A hybrid worker of 0.6.1 to 0.7.1 that generates itself; there is no model here, so the body fails."""
    from verl import DataProto
    from verl.workers.fsdp_workers import ActorRolloutRefWorker

    worker = object.__new__(ActorRolloutRefWorker)
    with captured() as seen, suppress(AttributeError):
        worker.generate_sequences(DataProto(meta_info={"global_steps": STEP}))
    return {"ranges": rows(seen)}


def marks() -> dict[str, Any]:
    """verl's own mstx marks in a profiled step on an NPU, patched and put back; torch_npu is a stand-in."""
    calls = _stand_in_torch_npu()
    from verl.utils.profiler import DistProfiler, ProfilerConfig, mstx_profile
    from verl.utils.profiler.config import NPUToolConfig
    from verl.workers.engine_workers import ActorRolloutRefWorker

    config = ProfilerConfig(tool="npu", enable=True, all_ranks=True, save_path="", tool_config=NPUToolConfig())
    worker = object.__new__(ActorRolloutRefWorker)
    worker.profiler = DistProfiler(rank=0, config=config, tool_config=NPUToolConfig())
    worker.profiler._this_step, worker.enable_routing_replay = True, False
    worker.actor = SimpleNamespace(train_mini_batch=lambda data: calls.append("work"))
    with captured() as seen:
        worker.update_actor(None)
        mstx_profile.mark_end_range(mstx_profile.mark_start_range("my own"))
    patched = calls[:]
    calls.clear()
    ours = _verl_marks.start_mark, _verl_marks.end_mark
    registry.remove_patches()
    worker.update_actor(None)
    return {
        "ranges": rows(seen),
        "patched": patched,
        "put back": calls,
        "ours": ours == (_verl_marks.start_mark, _verl_marks.end_mark),
        "theirs": [mstx_profile.mark_start_range.__module__, mstx_profile.mark_end_range.__module__],
    }


def _stand_in_torch_npu() -> list[str]:
    """What reaches mstx. In place only once all that looks for an NPU has been imported."""
    import verl.workers.engine_workers  # noqa: F401

    calls: list[str] = []
    mstx = SimpleNamespace(
        range_start=lambda message: calls.append(f"+{message}") or len(calls),
        range_end=lambda number: calls.append("-"),
    )
    root, npu = ModuleType("torch_npu"), ModuleType("torch_npu.npu")
    vars(npu).update(mstx=mstx)
    vars(root).update(npu=npu)
    sys.modules.update({"torch_npu": root, "torch_npu.npu": npu})
    return calls


def waits(seen: Any) -> list[str]:
    """Names of the ranges in which the driver waits for its workers."""
    return sorted(one.name for one in seen.ranges if "waits_for" in one.attributes)


def rows(seen: Any) -> list[list[Any]]:
    """Name, stage, step, role, failed?, driven? of each range, by its begin."""
    return [
        [one.name, one.stage, one.step, one.attributes.get("role"), one.error, one.busy_ns is not None]
        for one in sorted(seen.ranges, key=lambda one: one.start_ns)
    ]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.modules["verl_calls"] = sys.modules["__main__"]
    registry.install_patches([(PATCH, False)])
    found = {name: globals()[name]() for name in sys.argv[1:]}
    sys.stdout.write("CALLS " + json.dumps(found) + "\n")
