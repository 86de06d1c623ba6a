"""The examples of the systems' own guides: read, shown, converted, and held against what the guides say of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.any_config import differing, refusal

from mstxkit.config import adapters, configuring, sources
from mstxkit.config.adapters import flatten_config
from mstxkit.config.configuring import configure, understand_source, write_flavour
from mstxkit.config.model import Config

GUIDES = Path(__file__).parent / "guides"
FLAVOUR_OF = {
    "mindspeed_llm_first_look.sh": "mindspeed_llm",
    "mindspeed_llm_detailed.sh": "mindspeed_llm",
    "mindspeed_rl_options.yaml": "mindspeed_rl",
    "mindspeed_rl_light.yaml": "mindspeed_rl",
    "mindspore_callback.py": "mindspore_python",
    "mindspore_dynamic.json": "mindspore",
    "mindspore_environment.sh": "mindspore_env",
    "mindspore_pynative.py": "mindspore_python",
    "verl_off.yaml": "verl",
    "verl_end_to_end.yaml": "verl",
    "verl_discrete.yaml": "verl",
    "verl_vllm_environment.sh": "verl",
    "verl_article_options.sh": "verl",
    "verl_article_end_to_end.sh": "verl",
    "verl_article_discrete.sh": "verl",
}
# Written to, but with no example in a guide of theirs.
OTHERS = (
    "dyno", "mindspeed_llm_fsdp2", "mstxkit", "torch_npu", "torch_npu_python", "verl_0_5", "vllm",
)  # fmt: skip
FLAVOURS = sorted({*FLAVOUR_OF.values(), *OTHERS})
SUFFIX = {
    "dyno": ".sh", "mindspeed_llm": ".sh", "mindspore": ".json", "mindspore_env": ".sh", "mindspore_python": ".py",
    "torch_npu": ".json", "torch_npu_python": ".py", "vllm": ".sh",
}  # fmt: skip

every_example = pytest.mark.parametrize("name", FLAVOUR_OF)


def example(name: str) -> Config:
    return configure(GUIDES / name)


def test_every_example_is_here_and_says_where_it_is_from() -> None:
    files = {path.name for path in GUIDES.iterdir()} - {"README.md"}

    assert files == set(FLAVOUR_OF)
    for name in files:
        says_itself = (GUIDES / name).read_text(encoding="utf-8").startswith("# From ")
        assert says_itself or name in (GUIDES / "README.md").read_text(encoding="utf-8")


@every_example
def test_every_example_is_read_as_what_it_is(name: str) -> None:
    found = understand_source(GUIDES / name)

    assert found.flavour == FLAVOUR_OF[name]
    assert all(place.file.endswith(name) for place in found.read.places.values())
    assert all(place.line for place in found.read.places.values())


@every_example
def test_every_example_is_shown_with_every_default_made_explicit(name: str) -> None:
    shown = flatten_config(example(name))

    assert set(shown) >= set(Config.model_fields) - {"window"}
    assert Config.model_validate_json(example(name).model_dump_json()) == example(name)


@every_example
def test_every_example_comes_back_from_its_own_flavour_as_it_was(name: str) -> None:
    written = write_flavour(example(name), FLAVOUR_OF[name])

    assert {one.field for one in written.lost} <= {"enabled"}
    assert not written.lost or example(name).enabled is False


@every_example
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_example_becomes_every_flavour_and_what_that_loses_is_listed(
    name: str, flavour: str, tmp_path: Path
) -> None:
    config = example(name)

    written = write_flavour(config, flavour)

    file = tmp_path / f"profiler_config{SUFFIX.get(flavour, '.yaml')}"
    file.write_text(written.text, encoding="utf-8")
    said = configuring.understand_source(file, flavour).read.config
    told = {one.field for one in written.lost}
    assert {field for field in differing(said, config) if field not in ("path", "extras", "stage_names")} <= told
    assert all(one.why for one in written.lost)


def test_all_flavours_are_written_to() -> None:
    assert set(adapters.by_flavour()) == set(FLAVOURS)


# What MindSpeed-LLM's guide says


def test_mindspeed_llms_first_example_records_the_5th_step_of_card_0() -> None:
    """从第5步开始采集, 从第6步结束，不包括第6步, 采集0号卡的数据, 采集CPU数据."""
    assert differing(example("mindspeed_llm_first_look.sh")) == {
        "enabled": True, "window.first_step": 5, "window.warmup": 1, "ranks": (0,), "level": "level1",
        "aic_metrics": "PipeUtilization", "analysis": "sync", "data_simplification": False, "path": "./profile_dir",
    }  # fmt: skip
    assert example("mindspeed_llm_first_look.sh").window.last_step == 5


def test_mindspeed_llms_second_example_adds_stacks_memory_and_shapes() -> None:
    first, second = example("mindspeed_llm_first_look.sh"), example("mindspeed_llm_detailed.sh")

    assert differing(second, first) == {
        "stacks": True, "memory": True, "shapes": True, "path": "./profile_dir_with_stack",
    }  # fmt: skip


# What MindSpeed-RL's guide says


def test_mindspeed_rls_options_record_the_first_step_alone() -> None:
    """profile_step_start从1开始, 实际采集步数为 profile_step_end-profile_step_start; profile: false switches it off."""
    found = example("mindspeed_rl_options.yaml")

    assert (found.enabled, found.window.first_step, found.window.steps) == (False, 1, 2 - 1)
    assert (found.stages, found.ranks, found.level, found.path) == ("all", "all", "level1", "./profiler_data")
    assert (found.activities, found.analysis, found.export, found.mstx) == (("cpu", "npu"), "off", "text", False)


def test_mindspeed_rls_light_mode_is_ranges_of_the_device_alone() -> None:
    found = example("mindspeed_rl_light.yaml")

    assert (found.enabled, found.mstx, found.level, found.activities) == (True, True, "none", ("npu",))


# What MindSpore's guide says


def test_mindspores_dynamic_example_records_steps_2_to_5_and_then_8_to_10() -> None:
    """分别代表采集的step为2-5和8-10: its folders are called rank0_start2_stop5 and rank0_start8_stop10."""
    found = example("mindspore_dynamic.json")
    changed = {**json.loads((GUIDES / "mindspore_dynamic.json").read_text()), "start_step": 8, "stop_step": 10}

    assert (found.window.first_step, found.window.last_step) == (2, 5)
    assert (configure(changed).window.first_step, configure(changed).window.last_step) == (8, 10)
    assert (found.level, found.aic_metrics, found.activities, found.analysis) == (
        "level0",
        "none",
        ("cpu", "npu"),
        "off",
    )
    configure(changed, total_steps=15)  # STEP_NUM = 15


def test_mindspores_dynamic_example_has_a_key_that_2_10_ignores() -> None:
    notes = understand_source(GUIDES / "mindspore_dynamic.json").read.notes

    assert "aicore_metrics is what MindSpore up to 2.5 calls aic_metrics; 2.10 ignores it" in notes


def test_mindspores_variable_records_the_whole_run_where_start_is_true() -> None:
    """该配置中start必须为true，才能达到使能效果; 暂不支持schedule参数方式采集数据."""
    found = example("mindspore_environment.sh")
    text = sources.read_source(GUIDES / "mindspore_environment.sh").variables["MS_PROFILER_OPTIONS"].text

    assert differing(found) == {
        "enabled": True, "window.steps": None, "window.counted_from": "process", "stacks": True, "analysis": "sync",
        "path": "/XXX",
    }  # fmt: skip
    assert configure({"MS_PROFILER_OPTIONS": text.replace("true", "false", 1)}).enabled is False
    assert ".schedule: unknown key" in refusal({"MS_PROFILER_OPTIONS": '{"start": true, "schedule": {}}'})


def test_mindspores_pynative_example_records_its_first_two_steps() -> None:
    """想要采集前两个step的性能数据; Step ID为0,1. MindSpore up to 2.5 spells it so, and gives the handler uncalled."""
    assert differing(example("mindspore_pynative.py")) == {
        "enabled": True, "window.steps": 2, "window.counted_from": "process", "analysis": "sync",
        "path": "./data",
    }  # fmt: skip
    assert example("mindspore_pynative.py").window.first_step == 1


def test_mindspores_callback_records_from_where_to_where_only_its_program_says() -> None:
    """用户可以通过Callback方式来使能Profiler."""
    understood = understand_source(GUIDES / "mindspore_callback.py")

    assert (understood.read.config.window.steps, understood.read.config.path) == (None, "./profiler_data")
    assert "without a schedule it records from start() to stop(), whatever steps these are" in understood.read.notes


# What verl's guide and the article say


def test_verls_steps_are_what_its_list_says_and_null_is_off() -> None:
    """例如 [2, 4]，表示将采集第2步和第4步。如果设置为 null，则不进行采集."""
    assert example("verl_off.yaml").enabled is False
    listed = example("verl_discrete.yaml").window

    assert (listed.first_step, listed.last_step, listed.more_steps) == (1, 2, (5,))


def test_verls_end_to_end_example_is_one_recording_of_every_rank() -> None:
    found = example("verl_end_to_end.yaml")

    assert (found.stages, found.ranks, set(found.activities), found.path) == (
        "all", "all", {"cpu", "npu"}, "./outputs/profile"
    )  # fmt: skip


def test_verls_discrete_example_records_stages_of_rank_0_and_of_replica_0() -> None:
    """全局 Rank 0; 在 Agent Loop 模式下，此处指推理实例的 Replica Rank (例如第 0 个实例)."""
    found = example("verl_discrete.yaml")

    assert {"actor_update", "actor_generate"} <= set(found.stages)
    assert (found.ranks, found.replicas) == ((0,), (0,))


def test_verls_variables_of_vllm_are_kept_beside_the_rollout_of_replica_0() -> None:
    """VLLM_TORCH_PROFILER_DIR is needed; the others are switched with 1; discrete mode is needed."""
    found = example("verl_vllm_environment.sh")

    assert (found.enabled, found.stages, found.replicas) == (True, ("actor_generate",), (0,))
    assert {name: value for name, value in found.extras["verl"].items() if name.startswith("VLLM_")} == {
        "VLLM_TORCH_PROFILER_DIR": "./outputs/vllm_profile", "VLLM_TORCH_PROFILER_WITH_STACK": "1",
        "VLLM_TORCH_PROFILER_RECORD_SHAPES": "1", "VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY": "1",
        "VLLM_TORCH_PROFILER_WITH_FLOPS": "1",
    }  # fmt: skip
    assert "VLLM_TORCH_PROFILER_WITH_STACK='yes': not a flag; allowed: 0, 1" in refusal(
        sources.from_shell("export VLLM_TORCH_PROFILER_WITH_STACK=yes\nmain global_profiler.tool=npu\n", "a.sh")
    )


def test_verls_guide_leaves_out_the_tool_without_which_nothing_is_recorded() -> None:
    for name in ("verl_end_to_end.yaml", "verl_discrete.yaml"):
        assert example(name).enabled is False
        assert any("tool: npu" in note for note in understand_source(GUIDES / name).read.notes)


def test_the_articles_commands_record_step_2_of_rank_0() -> None:
    """只采集step 2的数据, 只采集rank:0 卡的数据, 设置为end-to-end模式; 设置为分离模式, 只开启训练阶段数据采集."""
    whole, discrete = example("verl_article_end_to_end.sh"), example("verl_article_discrete.sh")

    for found in (whole, discrete):
        assert (found.enabled, found.window.first_step, found.window.last_step) == (True, 2, 2)
        assert (found.ranks, found.path, found.analysis) == ((0,), "outputs/profile", "sync")
    assert (whole.stages, whole.level) == ("all", "level1")
    assert ("actor_update" in discrete.stages, "actor_generate" in discrete.stages) == (True, False)
    assert discrete.level == "level0"
