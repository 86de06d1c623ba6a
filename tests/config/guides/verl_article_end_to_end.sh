# From the article VeRL 强化学习场景下NPU环境profiling使用指南 (verl 0.6), 2.1, E2E模式采集.
python3 -m verl.trainer.main_ppo \
global_profiler.tool=npu \
global_profiler.steps=[2] \ # 只采集step 2的数据
global_profiler.save_path="outputs/profile" \
actor_rollout_ref.actor.profiler.enable=True \
actor_rollout_ref.actor.profiler.ranks=[0] \ # 只采集rank:0 卡的数据
actor_rollout_ref.actor.profiler.tool_config.npu.level="level1" \
actor_rollout_ref.actor.profiler.tool_config.npu.discrete=False \ # 设置为end-to-end模式,将所有阶段的数据都采集到一个文件夹下
actor_rollout_ref.actor.profiler.tool_config.npu.contents=['npu'] \
actor_rollout_ref.actor.profiler.tool_config.npu.analysis=True
