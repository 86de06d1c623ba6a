"""verl's generation: agent loops, rollout servers, rewards and the weights that arrive. Nearly all of it is async.

A range that is a stage is never limited. Requests to a server are its stage: their union is when it was generating.
What else happens per request or sample is limited in records a second.
"""

from __future__ import annotations

from ..patching.declare import Target, by, method
from . import _verl_steps as steps

LOOP = "verl.experimental.agent_loop.agent_loop"
VLLM = "verl.workers.rollout.vllm_rollout"
SGLANG = "verl.workers.rollout.sglang_rollout.async_sglang_server:SGLangHttpServer"
TRTLLM = "verl.workers.rollout.trtllm_rollout.trtllm_async_server:TRTLLMHttpServer"
REWARD = "verl.experimental.reward_loop.reward_loop:RewardLoopWorker"
REQUESTS_PER_S = 100

# `trajectory` is a dict made by get_trajectory_info: the driver's step, -1 where it gave none.
TRAJECTORY = {"agent": "agent_name", "validate": "trajectory['validate']"}


def _agent_loop(worker: str, unless: str | None = None) -> tuple[Target, ...]:
    return (
        method(
            f"{worker}.generate_sequences", stage="actor_generate", role="rollout", step=steps.of_batch,
            process_role="agent_loop", unless=unless,
        ),
        Target(
            f"{worker}._run_agent_loop", name="agent_loop", role="rollout", step=steps.of_trajectory,
            attributes=TRAJECTORY, process_role="agent_loop", max_per_s=REQUESTS_PER_S, unless=unless,
        ),
        Target(
            f"{worker}._compute_score", name="compute_score", role="reward", max_per_s=REQUESTS_PER_S, unless=unless
        ),
    )  # fmt: skip


AGENT_LOOPS = (
    # experimental/agent_loop/agent_loop.py 0.6.1:311,368 0.7.0:405,484,689: the base of a class under @ray.remote
    *_agent_loop(f"{LOOP}:AgentLoopWorkerBase"),
    # experimental/agent_loop/agent_loop.py 0.7.1:454,535,759 0.8.0:473,567,839 0.9.0:581,675,961 0.9.1:567,661,967
    *_agent_loop(f"{LOOP}:AgentLoopWorker", unless=f"{LOOP}:AgentLoopWorkerBase"),
    # With a TransferQueue the worker only starts its prompts and returns (a class under @ray.remote):
    # trainer/main_ppo_sync.py 0.8.0:352; trainer/ppo/v1/agent_loop_tq.py 0.9.0:107 0.9.1:107
    *(
        Target(
            f"{module}:AgentLoopWorkerTQ._run_prompt", name="run_prompt", stage="actor_generate", role="rollout",
            step="trajectory['step']", attributes={"validate": "trajectory['validate']"}, process_role="agent_loop",
        )
        for module in ("verl.trainer.main_ppo_sync", "verl.trainer.ppo.v1.agent_loop_tq")
    ),
    # A request as its agent loop sees it. experimental/agent_loop/agent_loop.py 0.6.1:90 0.7.0:95 0.7.1:136;
    # workers/rollout/llm_server.py 0.8.0:180 0.9.0:240 0.9.1:99
    *(
        method(path, role="rollout", attributes={"request_id": "request_id"}, max_per_s=REQUESTS_PER_S)
        for path in (
            f"{LOOP}:AsyncLLMServerManager.generate",
            "verl.workers.rollout.llm_server:LLMServerClient.generate",
        )
    ),
    # experimental/agent_loop/tool_agent_loop.py 0.6.1:430 0.7.0:410 0.7.1:421 0.8.0:406 0.9.0:477 0.9.1:443
    Target(
        "verl.experimental.agent_loop.tool_agent_loop:ToolAgentLoop._call_tool", name="tool_calls", role="rollout",
        max_per_s=REQUESTS_PER_S,
    ),
    # experimental/fully_async_policy/fully_async_rollouter.py 0.8.0:933 0.9.0:991 0.9.1:991 (a class under @ray.remote)
    Target(
        "verl.experimental.fully_async_policy.fully_async_rollouter:"
        "FullyAsyncRollouter._process_single_sample_streaming",
        name="process_single_sample", stage="actor_generate", role="rollout", process_role="rollouter",
    ),
)  # fmt: skip


def _target_server(server: str, name: str, unless: str | None = None) -> tuple[Target, ...]:
    """Requests, and the switches between generating and training."""
    return (
        Target(
            f"{server}.generate", name=name, stage="actor_generate", attributes={"request_id": "request_id"},
            unless=unless, **by("rollout"),
        ),
        *(method(f"{server}.{switch}", unless=unless, **by("rollout")) for switch in ("wake_up", "sleep")),
    )  # fmt: skip


# The names of requests are those of verl's RLInsightLogger.
SERVERS = (
    # workers/rollout/vllm_rollout/vllm_async_server.py 0.6.1:373,417,428 0.7.0:460,548,559: the base of a class under
    # @ray.remote
    *_target_server(f"{VLLM}.vllm_async_server:vLLMHttpServerBase", "vllm_generate"),
    # generate, wake_up, sleep, set_global_steps 0.7.1:506,615,629,669 0.8.0:456,604,625,672 0.9.0:511,770,791,845
    # 0.9.1:558,832,853,924
    *_target_server(
        f"{VLLM}.vllm_async_server:vLLMHttpServer", "vllm_generate",
        unless=f"{VLLM}.vllm_async_server:vLLMHttpServerBase",
    ),
    # workers/rollout/sglang_rollout/async_sglang_server.py 0.6.1:224,202,215 0.7.0:260,235,247 (under @ray.remote)
    # 0.7.1:333,296,314,425 0.8.0:508,442,466,681 0.9.0:526,461,484,704 0.9.1:546,480,504,726
    *_target_server(SGLANG, "sglang_generate"),
    # workers/rollout/trtllm_rollout/trtllm_async_server.py 0.8.0:320,391 0.9.0:321,392 0.9.1:318,391 (under
    # @ray.remote)
    *_target_server(TRTLLM, "trtllm_generate"),
    # A server gets the step of its new weights: what it generates next is for the following one.
    *(
        method(f"{server}.set_global_steps", step_after="global_steps", **by("rollout"))
        for server in (f"{VLLM}.vllm_async_server:vLLMHttpServer", SGLANG, TRTLLM)
    ),
)  # fmt: skip

REWARDS = (
    # trainer/ppo/reward.py 0.6.1:192 0.7.0:201: a function under @ray.remote
    Target("verl.trainer.ppo.reward:compute_reward_async", stage="reward", **by("reward")),
    # experimental/reward/reward_manager.py 0.6.1:51 (under @ray.remote)
    method("verl.experimental.reward.reward_manager:RewardManagerWorker.compute_score", stage="reward", **by("reward")),
    # experimental/reward_loop/reward_loop.py 0.7.0:104,111 (under @ray.remote) 0.7.1:133,140 0.8.0 to 0.9.1:138,145
    method(f"{REWARD}.compute_score_batch", stage="reward", **by("reward")),
    method(f"{REWARD}.compute_score", stage="reward", **by("reward")),
)  # fmt: skip

# Weights where they arrive.
WEIGHTS = (
    # checkpoint_engine/base.py 0.7.1:286 0.8.0:323 0.9.0:335 0.9.1:354 (async): a rollout apart from the actor
    method(
        "verl.checkpoint_engine.base:CheckpointEngineWorker.update_weights", stage="weight_sync",
        step_after="global_steps", **by("rollout"),
    ),
    # workers/rollout/vllm_rollout/utils.py 0.7.1:155 0.8.0:197 0.9.0:232 0.9.1:248: in vLLM's worker processes
    method(f"{VLLM}.utils:vLLMColocateWorkerExtension.update_weights_from_ipc", stage="weight_sync", **by("rollout")),
)  # fmt: skip

ROLLOUT = (*AGENT_LOOPS, *SERVERS, *REWARDS, *WEIGHTS)
