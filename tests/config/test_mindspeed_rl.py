"""MindSpeed-RL's `profiler_config.integrated`: what it would do, what it would silently not do, and back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import mstxkit
from mstxkit import stages
from mstxkit.config import configuring, sources
from mstxkit.config.adapters import mindspeed_rl
from mstxkit.config.configuring import Understood
from mstxkit.config.model import Config, Window
from mstxkit.errors import ConfigError


def understood(*lines: str, beside: str = "") -> Understood:
    text = "profiler_config:\n  integrated:\n" + "".join(f"    {line}\n" for line in lines) + beside
    return configuring.understand_source(sources.from_yaml(text, "rl.yaml"))


def read(*lines: str) -> Config:
    return understood(*lines).read.config


def error(*lines: str, beside: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        understood(*lines, beside=beside)
    return str(caught.value)


def test_without_any_key_it_has_the_defaults_of_the_code_not_of_the_documents() -> None:
    """The documents say ./profiler_data and a window is [1, 2)."""
    config = read("profile: false")

    assert config == Config(window=Window(first_step=1, steps=1, counted_from="process"), path="")


def test_a_full_section_is_read_key_by_key() -> None:
    found = understood(
        "profile: true", "mstx: true", "stage: [actor_generate, actor_update]", "profile_save_path: /data",
        "profile_export_type: db", "profile_step_start: 5", "profile_step_end: 8", "profile_level: level2",
        "profile_with_memory: true", "profile_record_shapes: true", "profile_with_cpu: true",
        "profile_with_npu: true", "profile_with_module: true", "profile_analysis: true", "profile_ranks: [0, 3]",
    )  # fmt: skip

    assert found.read.config == Config(
        enabled=True, mstx=True, stages=("actor_generate", "actor_update"), path="/data", export="db",
        window=Window(first_step=5, steps=3, counted_from="process"), level="level2", memory=True, shapes=True,
        modules=True, analysis="sync", ranks=(0, 3), aic_metrics="PipeUtilization",
    )  # fmt: skip
    assert found.read.places["window.steps"] == ("rl.yaml", 9, "profiler_config.integrated.profile_step_end")


def test_the_light_preset_of_its_guide_is_mstx_alone() -> None:
    config = read("profile: true", "mstx: true", "profile_level: level_none", "profile_with_cpu: false")

    assert (config.level, config.mstx, config.activities) == ("none", True, ("npu",))


def test_level_none_turns_mstx_on_and_says_so() -> None:
    found = understood("profile: true", "profile_level: level_none")

    assert found.read.config.mstx
    assert "level_none turns mstx on in torch_npu, whatever mstx says" in found.read.notes


def test_one_stage_needs_no_list_and_keys_may_have_dashes() -> None:
    config = read("profile: true", "stage: critic_update", "profile-level: level1")

    assert (config.stages, config.level) == (("critic_update",), "level1")


def test_what_stage_all_from_step_1_holds_is_told() -> None:
    assert "the models' loading is in it" in understood("profile: true").read.notes[0]
    assert understood("profile: true", "profile_step_start: 2", "profile_step_end: 3").read.notes == ()


def test_hydras_overrides_and_interpolations_are_understood() -> None:
    script = "D=/data\npython cli/train_grpo.py --config-name x \\\n  +profiler_config.integrated.profile=true "
    script += "profiler_config.integrated.stage=[actor_update] profiler_config.integrated.profile_save_path=$D\n"

    found = configuring.understand_source(sources.from_shell(script, "run.sh"))

    assert (found.read.config.stages, found.read.config.path) == (("actor_update",), "/data")
    assert found.read.places["enabled"] == ("run.sh", 3, "profiler_config.integrated.profile")
    assert read("profile_save_path: ${oc.env:MSTXKIT_TEST_NOWHERE,/out}/${.stage}", "stage: actor_update").path == (
        "/out/actor_update"
    )


def test_a_workers_own_object_is_a_configuration() -> None:
    own = SimpleNamespace(
        role="integrated", profile=True, mstx=True, stage=("actor_update",), profile_save_path="", profile_ranks=[1],
        profile_export_type="text", profile_level="level0", profile_with_memory=False, profile_record_shapes=False,
        profile_with_cpu=True, profile_with_npu=True, profile_with_module=False, profile_step_start=2,
        profile_step_end=4, profile_analysis=False,
    )  # fmt: skip

    config = mstxkit.configure(own)

    assert (config.stages, config.ranks, config.window.first_step) == (("actor_update",), (1,), 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("profile: 'false'", "rl.yaml:3: profiler_config.integrated.profile='false': not a flag; allowed: true, false"),
        ("profile: 1", "profile=1: not a flag"),
        ("mstx: no thanks", "mstx='no thanks': not a flag"),
        ("profil: true", "rl.yaml:3: profiler_config.integrated.profil: unknown key; did you mean profile?"),
        ("profile_steps_start: 3", "profile_steps_start: unknown key; did you mean profile_step_start?"),
        ("profile_level: level3", "profile_level='level3': not one of its values; did you mean level"),
        ("profile_level: Level1", "profile_level='Level1': not one of its values; did you mean level1?"),
        ("profile_level: 1", "profile_level=1: not one of its values; allowed: level_none, level0, level1, level2"),
        ("profile_export_type: json", "profile_export_type='json': not one of its values; allowed: text, db"),
        ("profile_export_type: [text, db]", "profile_export_type=['text', 'db']: not one of its values"),
        ("stage: actor_updat", "not one of its stages: nothing would be profiled; did you mean actor_update?"),
        ("stage: update_actor", "stage='update_actor': not one of its stages"),
        ("stage: actor_update,actor_generate", "stage='actor_update,actor_generate': not one of its stages"),
        ("stage: [all]", "stage='all': all stands alone, not in a list"),
        ("stage: []", "stage=[]: all, a stage or a list of stages is needed"),
        ("stage: 3", "stage=3: all, a stage or a list of stages is needed"),
        ("profile_ranks: 3", "profile_ranks=3: all or a list is needed, [0, 1]: MindSpeed-RL would profile rank 0"),
        ("profile_ranks: '3'", "profile_ranks='3': all or a list is needed, [0, 1]"),
        ("profile_ranks: [all]", "profile_ranks=['all']: a list of ranks is needed, whole numbers from 0"),
        ("profile_ranks: [-1]", "profile_ranks=[-1]: a list of ranks is needed, whole numbers from 0"),
        ("profile_ranks: []", "profile_ranks=[]: a list of ranks is needed"),
        ("profile_step_start: 0", "profile_step_start=0: must be 1 or more"),
        ("profile_step_start: '2'", "profile_step_start='2': not a whole number"),
        ("profile_step_start: true", "profile_step_start=True: not a whole number"),
        ("profile_step_start: 2", "profile_step_start=2: the window is empty: it must end after step 2,"),
        ("profile_step_end: 1", "profile_step_end=1: the window is empty: it must end after step 1, where it starts"),
        ("profile_step_end: -1", "profile_step_end=-1: the window is empty"),
        ("profile_save_path: 5", "profile_save_path=5: not a text"),
        ("profile_analysis: async", "profile_analysis='async': not a flag"),
        ("mstxkit: {}", "profiler_config.integrated.mstxkit: unknown key"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_place(line: str, message: str) -> None:
    assert message in error(line)


def test_both_activities_off_is_refused() -> None:
    """torch_npu takes an empty list for everything."""
    told = error("profile_with_cpu: false", "profile_with_npu: false")

    assert "are both off, which torch_npu takes for both on" in told


def test_shapes_without_the_host_side_are_refused_by_the_rules_for_all() -> None:
    told = error("profile_with_cpu: false", "profile_record_shapes: true")

    assert told == (
        "rl.yaml:4: profiler_config.integrated.profile_record_shapes=True: needs the activity cpu, which is off"
    )


def test_ppo_must_name_a_stage() -> None:
    beside = "megatron_training:\n  stage: ray_ppo\n"

    assert "PPO has two workers on each NPU" in error("profile: true", beside=beside)
    assert understood("profile: true", "stage: critic_update", beside=beside).read.config.enabled


def test_everything_that_is_wrong_is_told_at_once_in_the_order_of_lines() -> None:
    told = error("profile: maybe", "stage: nowhere", "profile_level: deep", "profile_ranks: 1")

    assert [line.partition(" ")[0] for line in told.splitlines()] == [f"rl.yaml:{n}:" for n in (3, 4, 5, 6)]


def test_a_stage_that_it_does_not_have_is_lost_and_nothing_heavier_is_written() -> None:
    written = mindspeed_rl.write(Config(enabled=True, stages=("weight_sync",), window=Window(counted_from="process")))

    assert "profile: false" in written.text
    assert {one.field for one in written.lost} == {"enabled", "stages"}


def test_its_stages_are_those_of_the_one_table() -> None:
    assert set(mindspeed_rl.STAGES) <= set(stages.BY_KEY)


def test_a_written_section_says_the_same_again() -> None:
    config = read(
        "profile: true", "stage: actor_update", "profile_level: level1", "profile_ranks: [0]", "role: mine",
        "profile_step_start: 3", "profile_step_end: 9",
    )  # fmt: skip

    written = mindspeed_rl.write(config)

    assert written.lost == ()
    assert mindspeed_rl.read(sources.from_yaml(written.text, "again.yaml")).config == config
