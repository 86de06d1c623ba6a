from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from builders.any_config import refusal

from mstxkit.config import sources
from mstxkit.config.adapters import flatten_config, mindspeed_llm, mindspeed_llm_fsdp2
from mstxkit.config.configuring import configure, understand_source, write_flavour
from mstxkit.config.model import Config, Window

KEYS = ", ".join(mindspeed_llm_fsdp2.OPTIONS)
OPTIONS = ", ".join(f"--training.{name}" for name in mindspeed_llm_fsdp2.OPTIONS)


def section(**given: Any) -> Config:
    return configure({"model": {"model_id": "qwen3"}, "training": {"output_dir": "./out", **given}})


def test_profile_alone_records_every_rank_for_the_whole_run_and_says_so() -> None:
    found = understand_source({"training": {"profile": True}})

    assert found.read.config == Config(
        enabled=True, window=Window(first_step=1, steps=None, counted_from="process"), activities=("npu",),
        analysis="sync", data_simplification=False, path="./profile",
    )  # fmt: skip
    assert found.read.notes == (
        "every rank is recorded for the whole run, in one window: that is what profile: true alone means",
    )


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"profile_step_start": 5}, "window.first_step", 6),
        ({"profile_step_start": 5}, "window.warmup", 1),
        ({"profile_step_start": 0}, "window.first_step", 1),
        ({"profile_step_start": 0}, "window.warmup", 0),
        ({"profile_step_start": 5, "profile_step_end": 7}, "window.steps", 2),
        ({"profile_step_start": "5", "profile_step_end": "7"}, "window.steps", 2),
        ({"profile_step_end": -1}, "window.steps", None),
        ({"profile_step_end": None}, "window.steps", None),
        ({"profile_ranks": [0, 2]}, "ranks", (0, 2)),
        ({"profile_ranks": 2}, "ranks", (2,)),
        ({"profile_ranks": [-1]}, "ranks", "all"),
        ({"profile_with_cpu": "yes"}, "activities", ("cpu", "npu")),
        ({"profile_with_cpu": 1, "profile_with_stack": "T"}, "stacks", True),
        ({"profile_with_memory": "No"}, "memory", False),
        ({"profile_level": "level_none"}, "mstx", True),
        ({"profile_level": "level2"}, "aic_metrics", "PipeUtilization"),
        ({"profile_export_type": "db"}, "export", "db"),
        ({"profile_save_path": "/data"}, "path", "/data"),
    ],
)
def test_each_key_is_a_field_with_its_value_parsed_as_the_framework_does(
    given: dict[str, Any], field: str, value: Any
) -> None:
    assert flatten_config(section(profile=True, **given))[field] == value


@pytest.mark.parametrize(
    "words",
    [
        "--training.profile true --training.profile_step_start 5 --training.profile_ranks 0 1",
        "--training.profile --training.profile_step_start=5 --training.profile_ranks 0 1",
        "--training.profile_ranks 0 1 --training.profile_step_start 5 --training.profile=yes",
    ],
)
def test_the_command_line_says_the_same_as_the_section(words: str) -> None:
    found = understand_source(["train.yaml", *words.split()])

    assert found.flavour == "mindspeed_llm_fsdp2"
    assert found.read.config == section(profile=True, profile_step_start=5, profile_ranks=[0, 1])


def test_a_launch_script_is_read_with_its_lines() -> None:
    text = "torchrun train_fsdp2.py ${CONFIG} \\\n  --training.profile true \\\n  --training.profile_level level1\n"

    read = mindspeed_llm_fsdp2.read(sources.from_shell(text, "train.sh"))

    assert {field: place.line for field, place in read.places.items()} == {"enabled": 2, "level": 3}


def test_an_object_of_its_parsed_arguments_is_not_taken_for_those_of_megatron() -> None:
    given = {
        "profile": True, "profile_step_start": 5, "profile_step_end": 6, "profile_ranks": [0],
        "profile_data_simplification": False, "profile_with_stack": False, "gradient_accumulation_steps": 1,
    }  # fmt: skip

    found = understand_source(SimpleNamespace(**given))

    assert (found.flavour, found.read.config.window.first_step) == ("mindspeed_llm_fsdp2", 6)
    del given["gradient_accumulation_steps"]
    assert understand_source(SimpleNamespace(**given)).flavour == mindspeed_llm.FLAVOUR


BAD: list[tuple[dict[str, Any], str]] = [
    ({"profile": "maybe"}, "profile='maybe': not a flag; allowed: true, false"),
    ({"profile_step_start": -1}, "profile_step_start=-1: steps are counted from 0"),
    ({"profile_step_start": 5.0}, "profile_step_start=5.0: not a whole number"),
    ({"profile_step_end": "end"}, "profile_step_end='end': not a whole number"),
    ({"profile_step_start": 5, "profile_step_end": 5},
     "profile_step_end=5: must be above profile_step_start=5, or -1 for the end of the run"),
    ({"profile_step_end": 0}, "profile_step_end=0: must be above profile_step_start=0, or -1 for the end of the run"),
    ({"profile_level": "Level1"},
     "profile_level='Level1': not one of its values; did you mean level1? allowed: level_none, level0, level1, level2"),
    ({"profile_export_type": "both"}, "profile_export_type='both': not one of its values; allowed: text, db"),
    ({"profile_rank": [0]}, f"profile_rank: unknown key; did you mean profile_ranks? allowed: {KEYS}"),
    ({"profile_ranks": []},
     "profile_ranks=[]: whole numbers are needed, as in profile_ranks: [0, 1]; -1 alone for all"),
    ({"profile_ranks": "all"},
     "profile_ranks='all': whole numbers are needed, as in profile_ranks: [0, 1]; -1 alone for all"),
    ({"profile_ranks": [-1, 0]},
     "profile_ranks=[-1, 0]: -1 means all ranks only where it stands alone; beside others it is no rank"),
    ({"profile_record_shapes": True}, "profile_record_shapes=True: needs the activity cpu, which is off"),
    ({"profile_save_path": ["a"]}, "profile_save_path=['a']: not a text"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), BAD)
def test_bad_sections_are_refused(given: dict[str, Any], message: str) -> None:
    assert refusal({"training": {"profile": True, **given}}) == f"<mapping>: training.{message}"


def test_a_refusal_names_file_and_line(tmp_path: Any) -> None:
    text = "model:\n  model_id: qwen3\ntraining:\n  profile: true\n  profile_step_start: -3\n"

    message = "train.yaml:5: training.profile_step_start=-3: steps are counted from 0"
    assert refusal(("train.yaml", text), tmp_path) == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--training.profile", "maybe"], "--training.profile='maybe': not a flag; allowed: true, false"),
        (
            ["--training.profile-level", "level1"],
            f"--training.profile-level: unknown option; did you mean --training.profile_level? allowed: {OPTIONS}",
        ),
    ],
)
def test_bad_words_are_refused(words: list[str], message: str) -> None:
    assert refusal(words) == f"<arguments>: {message}"


def test_switched_off_it_may_hold_any_steps_as_the_framework_allows() -> None:
    assert section(profile=False, profile_step_start=-1, profile_step_end=-7).enabled is False


def test_what_is_written_is_the_section_with_every_default() -> None:
    config = section(profile=True, profile_step_start=5, profile_step_end=7, profile_ranks=[0, 1])

    written = write_flavour(config, "mindspeed_llm_fsdp2")

    assert written.lost == ()
    assert written.text == (
        "# MindSpeed-LLM (FSDP2): these go into its section of this name.\n"
        "training:\n"
        "  profile: true\n"
        "  profile_step_start: 5\n"
        "  profile_step_end: 7\n"
        "  profile_ranks: [0, 1]\n"
        "  profile_level: level0\n"
        "  profile_export_type: text\n"
        "  profile_with_cpu: false\n"
        "  profile_with_stack: false\n"
        "  profile_with_memory: false\n"
        "  profile_record_shapes: false\n"
        "  profile_data_simplification: false\n"
        "  profile_save_path: ./profile\n"
    )


def test_what_it_cannot_say_is_listed_with_the_reason() -> None:
    window = Window(first_step=9, steps=2, warmup=3, repeat=2)
    config = section(profile=True).model_copy(update={"window": window, "sys_io": True})

    lost = {one.field: one.why.partition(";")[0] for one in write_flavour(config, "mindspeed_llm_fsdp2").lost}

    assert lost == {
        "window.counted_from": "steps are counted from this start of the process",
        "window.warmup": "one step of warm-up, none where the first step of all is recorded",
        "window.repeat": "there is one window",
        "sys_io": "mindspeed_llm_fsdp2 cannot say this",
    }
