# From MindSpore's guide Ascend性能调优 (model_train/optimize/profiler.md, master of early 2025), 环境变量使能.
export MS_PROFILER_OPTIONS='
{"start": true,
"output_path": "/XXX",
"activities": ["CPU", "NPU"],
"with_stack": true,
"aicore_metrics": "AicoreNone",
"l2_cache": false,
"profiler_level": "Level0"}'
