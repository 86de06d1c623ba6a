"""What one system takes otherwise than another, or otherwise than its own documents: a test each.

Source: MindSpeed-LLM c77308a1, MindSpeed-RL 05a90d7, verl 0.9.1, MindSpore 2.10.0, torch_npu 2.13.0.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.any_config import refusal

from mstxkit.config.configuring import configure, understand_source, write_flavour
from mstxkit.config.model import Config, Window
from mstxkit.testing import run_under_cann

LEVELS = ("none", "level0", "level1", "level2")


def rl(**given: Any) -> Config:
    return configure({"profiler_config": {"integrated": {"profile": True, **given}}})


def mcore(words: str) -> Config:
    return configure(["--profile", *words.split()])


def fsdp2(**given: Any) -> Config:
    return configure({"training": {"profile": True, **given}})


def verl(**npu: Any) -> Config:
    profiler = {"enable": True, "all_ranks": True, "tool_config": {"npu": {"contents": ["npu", "cpu"], **npu}}}
    return configure(
        {"global_profiler": {"tool": "npu", "steps": [5]}, "actor_rollout_ref": {"actor": {"profiler": profiler}}}
    )


def mindspore(**given: Any) -> Config:
    return configure({"start_step": 5, "stop_step": 5, **given})


def mindspore_env(**given: Any) -> Config:
    return configure({"MS_PROFILER_OPTIONS": json.dumps({"start": True, **given})})


def torch_npu(start_step: int = 5, experimental_config: Any = None, **given: Any) -> Config:
    return configure({"active": 1, "start_step": start_step, "experimental_config": experimental_config, **given})


# Ranks


def test_a_list_of_ranks_does_nothing_in_torch_npu_without_its_switch() -> None:
    found = understand_source({"active": 1, "start_step": 5, "rank_list": [0]})

    assert found.read.config.ranks == "all"
    assert "rank_list does nothing without is_rank: true; every rank records" in found.read.notes


# Steps


def test_start_step_minus_one_is_off_in_mindspore_and_the_next_step_in_torch_npu() -> None:
    off = configure({"start_step": -1, "stop_step": -1})
    at_once = torch_npu(start_step=-1, warmup=1)

    assert off.enabled is False
    assert (at_once.enabled, at_once.window.first_step) == (True, 3)
    assert json.loads(write_flavour(at_once, "torch_npu").text)["start_step"] == -1
    assert json.loads(write_flavour(at_once, "mindspore").text)["start_step"] == 3


def test_start_step_0_is_refused_in_mindspore_and_records_nothing_in_torch_npu() -> None:
    assert "steps are counted from 1" in refusal({"start_step": 0, "stop_step": 4})
    assert torch_npu(start_step=0).enabled is False


def test_mindspores_step_at_the_end_of_a_loop_records_a_step_later_and_this_is_said() -> None:
    (note,) = understand_source({"start_step": 2, "stop_step": 5}).read.notes

    assert "records one step later" in note


# Windows that cannot finish (MindSpore and torch_npu: skip_first + repeat * (wait + warmup + active) <= steps)


@pytest.mark.parametrize(
    ("source", "key", "needed"),
    [
        (["--profile", "--profile-step-start", "5", "--profile-step-end", "7"], "--profile-step-start", 6),
        (
            {"training": {"profile": True, "profile_step_start": 5, "profile_step_end": 7}},
            "training.profile_step_start",
            7,
        ),
        ({"start_step": 5, "stop_step": 6}, "start_step", 6),
        ({"active": 2, "warmup": 1, "start_step": 5}, "start_step", 8),
        ({"mstxkit": {"enabled": True, "window": {"first_step": 5, "steps": 2}}}, "mstxkit.window.first_step=5", 6),
    ],
)
def test_a_window_that_can_never_finish_is_refused_in_every_flavour(source: Any, key: str, needed: int) -> None:
    why = f"{key}: a window that can never finish: it goes to step {needed}, the run has {needed - 1} steps"

    assert configure(source, total_steps=needed).window.last_step == needed
    assert refusal(source, total_steps=needed - 1).endswith(f">: {why}")


@pytest.mark.parametrize(
    "window",
    [{"warmup": -1}, {"wait": -1}, {"repeat": -1}, {"steps": 0}, {"first_step": 0}, {"warmup": True}, {"steps": 2.0},
     {"wait": "1"}, {"first_step": 2, "warmup": 1, "wait": 1}],
)  # fmt: skip
def test_a_schedule_that_libraries_would_reset_is_refused(window: dict[str, Any]) -> None:
    refusal({"mstxkit": {"enabled": True, "window": window}})


# Levels and what follows from them


def test_each_level_is_spelled_in_its_systems_own_way() -> None:
    spelled = {
        "mindspeed_rl": ("level_none", "level0", "level1", "level2"),
        "mindspeed_llm": ("level_none", "level0", "level1", "level2"),
        "mindspeed_llm_fsdp2": ("level_none", "level0", "level1", "level2"),
        "verl": ("level_none", "level0", "level1", "level2"),
        "mindspore": ("LevelNone", "Level0", "Level1", "Level2"),
        "mindspore_env": ("LevelNone", "Level0", "Level1", "Level2"),
        "torch_npu": ("Level_none", "Level0", "Level1", "Level2"),
    }
    for flavour, names in spelled.items():
        for level, name in zip(LEVELS, names):
            text = write_flavour(Config(enabled=True, level=level, mstx=True, stages="all"), flavour).text
            assert name in text.replace('"', " ").replace("'", " ").split(), (flavour, level)


@pytest.mark.parametrize("wrong", ["Level_none", "level_none", "level0", "LEVEL1", "none"])
def test_another_systems_spelling_is_refused_by_mindspore_which_would_take_the_heavier_level0(wrong: str) -> None:
    refusal({"start_step": 2, "stop_step": 5, "profiler_level": wrong, "mstx": True})
    refusal({"MS_PROFILER_OPTIONS": json.dumps({"start": True, "profiler_level": wrong, "mstx": True})})


def test_level_numbers_are_taken_by_mindspores_file_and_refused_by_its_variable() -> None:
    levels = [mindspore(profiler_level=number, mstx=True).level for number in (-1, 0, 1, 2)]

    assert levels == list(LEVELS)
    for number in (-1, 0, 1, 2):
        refusal({"MS_PROFILER_OPTIONS": json.dumps({"start": True, "profiler_level": number, "mstx": True})})


def test_level_none_is_no_profile_switched_off() -> None:
    """Documents of MindSpeed-LLM and verl call it disabled: it records mstx ranges."""
    found = mcore("--profile-level level_none")

    assert (found.enabled, found.level, found.mstx) == (True, "none", True)


def test_level_none_turns_mstx_on_in_torch_npu_and_into_level0_in_mindspore_where_it_is_not() -> None:
    assert torch_npu(experimental_config={"profiler_level": "Level_none"}).mstx is True
    assert "takes Level0" in refusal({"start_step": 2, "stop_step": 5, "profiler_level": "LevelNone"})


def test_metrics_that_are_not_named_are_other_ones_in_each_system() -> None:
    assert mcore("--profile-level level1").aic_metrics == "PipeUtilization"
    assert mindspore(profiler_level="Level1").aic_metrics == "PipeUtilization"
    assert mindspore(profiler_level="Level1", aic_metrics="AiCoreNone").aic_metrics == "PipeUtilization"
    assert torch_npu(experimental_config={"profiler_level": "Level1"}).aic_metrics == "none"
    assert {one.aic_metrics for one in (mcore(""), mindspore(), torch_npu(), rl())} == {"none"}


def test_metric_numbers_and_the_older_key_are_those_of_mindspore() -> None:
    names = [mindspore(profiler_level="Level1", aic_metrics=number).aic_metrics for number in range(8)]

    assert names == [
        "PipeUtilization", "ArithmeticUtilization", "Memory", "MemoryL0", "MemoryUB", "ResourceConflictRatio",
        "L2Cache", "MemoryAccess",
    ]  # fmt: skip
    assert mindspore(profiler_level="Level1", aicore_metrics=6).aic_metrics == "L2Cache"
    assert mindspore(profiler_level=0, aicore_metrics=-1).aic_metrics == "none"
    refusal({"start_step": 2, "stop_step": 5, "profiler_level": "Level1", "aic_metrics": -1})


def test_no_metrics_at_all_has_another_name_in_the_variable() -> None:
    assert mindspore_env(aic_metrics="None").aic_metrics == "none"
    assert mindspore(aic_metrics="AiCoreNone").aic_metrics == "none"
    for name in ("AiCoreNone", "AicoreNone"):
        refusal({"MS_PROFILER_OPTIONS": json.dumps({"start": True, "aic_metrics": name})})


# Activities


def test_an_empty_list_of_activities_means_four_different_things() -> None:
    """torch_npu: all; MindSpore: nothing, so it is refused; verl 0.9.1: the host alone, before that both. MindSpeed-RL
    comes to an empty list with both flags off, and is refused.
    """
    assert torch_npu(activities=[]).activities == ("cpu", "npu")
    assert "records nothing at all" in refusal({"start_step": 2, "stop_step": 5, "activities": []})
    assert "records nothing at all" in refusal({"MS_PROFILER_OPTIONS": '{"start": true, "activities": []}'})
    assert verl(contents=[]).activities == ("cpu",)
    neither = {"profile": True, "profile_with_cpu": False, "profile_with_npu": False}
    assert "torch_npu takes for both on" in refusal({"profiler_config": {"integrated": neither}})


def test_an_empty_list_of_activities_is_never_written() -> None:
    for activities in (("cpu", "npu"), ("cpu",), ("npu",)):
        for flavour in ("mindspore", "torch_npu"):
            found = json.loads(write_flavour(Config(enabled=True, activities=activities), flavour).text)
            assert found["activities"] == [one.upper() for one in activities]


def test_activity_numbers_are_taken_by_mindspores_file_alone() -> None:
    found = [mindspore(activities=number).activities for number in (0, 1, 2)]

    assert found == [("cpu", "npu"), ("cpu",), ("npu",)]
    refusal({"MS_PROFILER_OPTIONS": '{"start": true, "activities": 0}'})
    refusal({"active": 1, "start_step": 5, "activities": 0})


# Export, analysis, paths


def test_export_is_a_word_a_list_or_a_number() -> None:
    assert mcore("--profile-export-type db").export == "db"
    assert [mindspore(export_type=number).export for number in (0, 1, 2)] == ["text", "db", "both"]
    assert mindspore(export_type=["db", "text"]).export == "both"
    assert torch_npu(experimental_config={"export_type": "db"}).export == "db"
    assert "a list is needed" in refusal({"start_step": 2, "stop_step": 5, "export_type": "db"})


@pytest.mark.parametrize(
    ("codes", "analysis"),
    [
        ({"analyse": False}, "off"),
        ({"analyse": False, "analyse_mode": 1}, "off"),
        ({"analyse_mode": 0}, "off"),
        ({"analyse": True}, "sync"),
        ({"analyse": True, "analyse_mode": -1}, "sync"),
        ({"analyse": True, "analyse_mode": 0}, "sync"),
        ({"analyse": True, "analyse_mode": 1}, "async"),
    ],
)
def test_mindspores_two_codes_of_an_analysis(codes: dict[str, Any], analysis: str) -> None:
    assert mindspore(**codes).analysis == analysis


def test_torch_npus_two_flags_of_an_analysis() -> None:
    assert [torch_npu(analyse=one, async_mode=two).analysis for one, two in ((False, False), (False, True))] == [
        "off"
    ] * 2
    assert [torch_npu(analyse=True, async_mode=one).analysis for one in (False, True)] == ["sync", "async"]


def test_torch_npu_drops_a_blocking_analysis_where_ranks_are_chosen() -> None:
    chosen = {"is_rank": True, "rank_list": [0], "analyse": True}

    assert (torch_npu(**chosen).analysis, torch_npu(**chosen, async_mode=True).analysis) == ("off", "async")


def test_a_dot_is_mindspores_word_for_the_folder_that_the_program_gives() -> None:
    assert (mindspore(prof_path="./").path, torch_npu(prof_dir="./").path) == ("", "./")


# Two files of one name, and words that travel


def test_two_files_named_profiler_config_are_told_apart_by_their_keys(tmp_path: Path) -> None:
    for flavour in ("mindspore", "torch_npu"):
        (tmp_path / flavour).mkdir()
        written = write_flavour(Config(enabled=True, window=Window(first_step=9, counted_from="process")), flavour)
        (tmp_path / flavour / "profiler_config.json").write_text(written.text)

        assert understand_source(tmp_path / flavour).flavour == flavour


def test_keys_of_both_files_in_one_are_refused() -> None:
    message = refusal({"start_step": 2, "stop_step": 5, "active": 1})

    assert (
        message
        == "<mapping>: active: a key of torch_npu's file of the same name, beside stop_step, which is MindSpore's"
    )


def test_keys_that_both_files_have_do_not_tell_whose_file_it_is() -> None:
    assert "no configuration is known in it" in refusal({"start_step": 2, "activities": ["CPU"]})


def test_older_and_misspelled_keys_of_mindspore_are_told_where_it_ignores_them() -> None:
    for key, near in (("record_shape", "record_shapes"), ("mstx_domains_include", "mstx_domain_include")):
        assert f"{key}: unknown key; did you mean {near}?" in refusal({"start_step": 2, "stop_step": 5, key: True})


def test_numbers_are_no_flags() -> None:
    for source in (
        {"start_step": 2, "stop_step": 5, "mstx": 1},
        {"active": 1, "start_step": 5, "record_shapes": 1},
        {"MS_PROFILER_OPTIONS": '{"start": 1}'},
        ["--profile", "1"],
    ):
        refusal(source)


def test_what_mindspeed_rls_dpo_hands_on_is_refused_where_the_strict_parser_would() -> None:
    """It passes each key with "profile" in it as a flag: "all" becomes -1, a list one word, others unknown."""
    assert mcore("--profile-ranks -1 --profile-level level1").ranks == "all"
    assert "whole numbers are needed" in refusal(["--profile", "--profile-ranks", "[0, 1]"])
    for key in ("--profile-with-npu", "--profile-analysis", "--profile-with-module"):
        assert f"{key}: unknown option" in refusal(["--profile", key])


def test_domains_say_nothing_without_mstx_and_only_one_list_counts() -> None:
    section = {"mstx_domain_include": ["a"]}
    for flags, why in (({}, "needs mstx: true"), ({"mstx": True, "mstx_domain_exclude": ["b"]}, "not both")):
        assert why in refusal({"start_step": 2, "stop_step": 5, **section, **flags})
        assert why in refusal({"active": 1, "start_step": 5, "experimental_config": {**section, **flags}})


def test_the_light_preset_of_mindspeed_rls_guide_is_one_configuration_in_every_system() -> None:
    light = [
        rl(mstx=True, profile_level="level_none", profile_with_cpu=False, profile_step_start=5, profile_step_end=6),
        mcore("--profile-level level_none"),
        mindspore(profiler_level="LevelNone", mstx=True, activities=["NPU"]),
        torch_npu(activities=["NPU"], experimental_config={"profiler_level": "Level_none", "mstx": True}),
    ]

    assert {(one.level, one.mstx, one.activities) for one in light} == {("none", True, ("npu",))}


SCHEDULE = """
import contextlib, io, json, sys
import torch_npu
from torch_npu.profiler.scheduler import Schedule
with contextlib.redirect_stdout(io.StringIO()):
    schedules = [Schedule(**one) for one in json.loads(sys.argv[1])]
print(json.dumps([[step + 1 for step in range(90) if "RECORD" in one(step).name] for one in schedules]))
"""


@pytest.mark.npu
def test_torch_npus_own_schedule_records_the_steps_of_each_window(tmp_path: Path) -> None:
    """The schedules that MindSpeed-LLM's two backends build, those that guides have in source code (verl's says "30 to
    70" of the last one, an article "30 to 60"), and the first steps of one that repeats.
    """
    (tmp_path / "schedule.py").write_text(SCHEDULE)
    windows = [
        mcore("--profile-step-start 5 --profile-step-end 7").window,
        mcore("--profile-step-start 1 --profile-step-end 3").window,
        fsdp2(profile_step_start=5, profile_step_end=7).window,
        fsdp2(profile_step_start=0, profile_step_end=1).window,
        Window(first_step=1),
        Window(first_step=3, steps=3, wait=1, warmup=1),
        Window(first_step=31, steps=30, wait=29, warmup=1),
        Window(first_step=9, steps=2, wait=3, warmup=1, repeat=3),
    ]
    given = [
        {
            "wait": one.wait,
            "warmup": one.warmup,
            "active": one.steps,
            "repeat": one.repeat,
            "skip_first": one.skip_first,
        }
        for one in windows
    ]

    run = run_under_cann([sys.executable, str(tmp_path / "schedule.py"), json.dumps(given)])

    assert [window.skip_first for window in windows[4:7]] == [0, 0, 0]
    assert json.loads(run.stdout.splitlines()[-1]) == [
        [5, 6], [1, 2], [6, 7], [1], [1], [3, 4, 5], [*range(31, 61)], [9, 10, 15, 16, 21, 22],
    ]  # fmt: skip
