"""Ranges for verl: PPO's stages in trainer, workers, engines, agent loops and rollout servers, 0.6.1 to 0.9.1.

Read from the wheels 0.6.1, 0.7.0, 0.7.1, 0.8.0, 0.9.0 and 0.9.1; versions and lines are given with each group of
targets. What is deliberately not a target:

- Anything under `@auto_await` (`utils/ray_utils.py`, since 0.7.1: `CheckpointEngineManager.*`,
  `AgentLoopManager.generate_sequences`, `LLMServerManager.*`): it looks whether the frame that calls it is that of a
  coroutine (`f_back`). With a wrapper around it, it is the wrapper's, and async trainers would await a plain result.
- Async functions under `@torch.no_grad()` (`ServerAdapter.update_weights` of vLLM, `HCCLCheckpointEngine.*`): torch
  makes plain functions of them that return a coroutine, and the range would end before the work begins.
- `RayPPOTrainer._update_actor` and the like: the `marked_timer` blocks around them exist in every version.
"""

from ..patching.declare import Patch
from ._verl_engines import ENGINES
from ._verl_rollout import ROLLOUT
from ._verl_trainers import TRAINERS
from ._verl_workers import WORKERS

# Ray actor classes by the job of their processes. A worker (`WorkerDict` holds several) tells it by its first stage.
ROLES = {
    "WorkerDict": None, "TaskRunner": "trainer", "TaskRunnerV1": "trainer", "FullyAsyncTaskRunner": "trainer",
    "FullyAsyncTrainer": "trainer", "OneStepTaskRunner": "trainer", "FullyAsyncRollouter": "rollouter",
    "AgentLoopWorker": "agent_loop", "AgentLoopWorkerTQ": "agent_loop", "vLLMHttpServer": "rollout",
    "SGLangHttpServer": "rollout", "TRTLLMHttpServer": "rollout", "CheckpointEngineWorker": "rollout",
    "RewardLoopWorker": "reward", "RewardManagerWorker": "reward",
}  # fmt: skip

PATCH = Patch(
    framework="verl",
    versions=">=0.6.1,<=0.9.1",
    targets=(*TRAINERS, *WORKERS, *ENGINES, *ROLLOUT),
    roles=ROLES,
    notes=(
        "verl >= 0.9.0 loads mstxkit in each of its processes by the entry point verl.plugins; before it, export "
        "VERL_USE_EXTERNAL_MODULES, or let autopatch() set Ray's worker_process_setup_hook",
        "verl tells its workers the step by update_weights(global_steps), since 0.7.1. Without a step are the records "
        "of workers in 0.6.1 and 0.7.0 (except FSDP with rollout.mode=sync, told by generate_sequences) and in "
        "main_ppo_sync of 0.8.0; those of the trainer and the agent loops have it",
        "in fully_async_policy the step of workers and servers is the version of the parameters, plus one; "
        "its rollouter and agent loops are told none. In one_step_off_policy an agent loop has the step in which it "
        "generates, a server the one it generates for; a worker has its steps if recorded from the first weights on",
        "RewardLoopWorker and RewardManagerWorker are told no step: their ranges have none",
        "what runs inside vLLM's and SGLang's own processes is patched by vllm_ascend and sglang",
    ),
)
