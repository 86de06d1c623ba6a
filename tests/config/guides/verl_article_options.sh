# From the article VeRL 强化学习场景下NPU环境profiling使用指南 (verl 0.6), 1.1 to 1.3: its single options,
# here as the arguments of one command.
python3 -m verl.trainer.main_ppo \
global_profiler.tool=npu \
actor_rollout_ref.actor.profiler.enable=True \
actor_rollout_ref.actor.profiler.tool_config.npu.level='level1'
