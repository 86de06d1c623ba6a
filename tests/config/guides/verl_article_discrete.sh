# From the article VeRL 强化学习场景下NPU环境profiling使用指南 (verl 0.6), 2.2, discrete模式采集.
python3 -m verl.trainer.main_ppo \
global_profiler.tool=npu \
global_profiler.steps=[2] \
global_profiler.save_path="outputs/profile" \
actor_rollout_ref.actor.profiler.enable=True \ #只开启训练阶段数据采集
actor_rollout_ref.rollout.profiler.enable=False \
actor_rollout_ref.actor.profiler.ranks=[0] \
actor_rollout_ref.ref.profiler.enable=False \
actor_rollout_ref.ref.profiler.ranks=[0] \
actor_rollout_ref.actor.profiler.tool_config.npu.level="level0" \
actor_rollout_ref.actor.profiler.tool_config.npu.discrete=True \ #设置为分离模式
actor_rollout_ref.actor.profiler.tool_config.npu.contents=['npu'] \
actor_rollout_ref.actor.profiler.tool_config.npu.analysis=True
