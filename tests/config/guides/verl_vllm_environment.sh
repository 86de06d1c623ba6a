# From verl's guide to profiling on Ascend (ascend_profiling_zh.rst, 12/20/2025), Agent Loop 场景说明: vLLM's variables with
# the values it names, and the rollout of its discrete example as arguments. The folder is that of its vLLM patch.
export VLLM_TORCH_PROFILER_DIR=./outputs/vllm_profile
export VLLM_TORCH_PROFILER_WITH_STACK=1
export VLLM_TORCH_PROFILER_RECORD_SHAPES=1
export VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY=1
export VLLM_TORCH_PROFILER_WITH_FLOPS=1
python3 -m verl.trainer.main_ppo \
global_profiler.tool=npu \
global_profiler.steps=[1,2,5] \
actor_rollout_ref.rollout.profiler.enable=True \
actor_rollout_ref.rollout.profiler.all_ranks=False \
actor_rollout_ref.rollout.profiler.ranks=[0] \
actor_rollout_ref.rollout.profiler.tool_config.npu.discrete=True
