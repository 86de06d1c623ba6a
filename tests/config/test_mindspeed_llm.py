from __future__ import annotations

import argparse
from typing import Any

import pytest
from builders.any_config import refusal

from mstxkit.config import sources
from mstxkit.config.adapters import flatten_config, mindspeed_llm
from mstxkit.config.configuring import configure, understand_source, write_flavour
from mstxkit.config.model import Config, Window

ON = "--profile"
LEVELS = ", ".join(mindspeed_llm.LEVELS)
KNOWN = ", ".join(f"--{name.replace('_', '-')}" for name in mindspeed_llm.OPTIONS)


def of(*words: str) -> Config:
    return configure(list(words))


def test_a_bare_profile_has_the_defaults_of_the_code_and_not_those_of_its_guide() -> None:
    assert of(ON) == Config(
        enabled=True, window=Window(first_step=10, steps=2, warmup=1), ranks=(0,), activities=("npu",),
        analysis="sync", data_simplification=False, path="./profile_dir",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--profile-with-cpu"], "activities", ("cpu", "npu")),
        (["--profile-with-cpu", "--profile-with-stack"], "stacks", True),
        (["--profile-with-memory"], "memory", True),
        (["--profile-with-cpu", "--profile-record-shapes"], "shapes", True),
        (["--profile-data-simplification"], "data_simplification", True),
        (["--profile-export-type", "db"], "export", "db"),
        (["--profile-level", "level2"], "level", "level2"),
        (["--profile-level=level2"], "level", "level2"),
        (["--profile-level", "level1"], "aic_metrics", "PipeUtilization"),
        (["--profile-level", "level_none"], "mstx", True),
        (["--profile-ranks", "0", "3"], "ranks", (0, 3)),
        (["--profile-ranks", "-1"], "ranks", "all"),
        (["--profile-step-start", "3"], "window.first_step", 3),
        (["--profile-step-start", "1"], "window.warmup", 0),
        (["--profile-step-start", "5", "--profile-step-end", "9"], "window.steps", 4),
        (["--profile-step-start", "5", "--profile-step-end", "6", "--profile-step-end", "7"], "window.steps", 2),
        (["--profile-save-path", "/a"], "path", "/a"),
    ],
)
def test_each_option_is_a_field(words: list[str], field: str, value: Any) -> None:
    assert flatten_config(of(ON, *words))[field] == value


SCRIPT = """#!/bin/bash
# --profile-level level2 in a comment says nothing
GPT_ARGS="
    --use-mcore-models \\
    --profile-ranks 0 4
"
LEVEL=level1
torchrun pretrain_gpt.py $GPT_ARGS \\
    --profile \\
    --profile-level ${LEVEL} \\
    --profile-with-cpu 2>&1 | tee logs/train.log
"""


def test_a_launch_script_is_read_with_its_variables_and_lines(tmp_path: Any) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT)

    found = understand_source(script)

    assert found.flavour == "mindspeed_llm"
    assert (found.read.config.ranks, found.read.config.level) == ((0, 4), "level1")
    lines = {field: place.line for field, place in found.read.places.items()}
    assert lines == {"ranks": 5, "enabled": 9, "level": 10, "activities": 11}


def test_arguments_that_a_script_only_prepares_are_found_too() -> None:
    found = sources.from_shell('export COMMON="--bf16"\nPROFILE_ARGS="\n  --profile\n  --profile-ranks 1\n"\n', "a.sh")

    read = mindspeed_llm.read(found)

    assert mindspeed_llm.detect(found)
    assert (read.config.enabled, read.config.ranks, read.places["ranks"].line) == (True, (1,), 4)


def test_arguments_in_an_array_are_found() -> None:
    text = 'ARGS=(\n  --profile\n  --profile-ranks 0 1  # two\n  --bf16\n)\ntorchrun x.py "${ARGS[@]}"\n'

    read = mindspeed_llm.read(sources.from_shell(text, "a.sh"))

    assert (read.config.enabled, read.config.ranks, read.places["ranks"].line) == (True, (0, 1), 3)


@pytest.mark.parametrize("end", ["2>&1 | tee log.txt", "> log.txt", "&", "; wait", "&& echo 7", "\nsleep 3"])
def test_ranks_end_where_their_command_ends(end: str) -> None:
    found = sources.from_shell(f"python train.py --profile --profile-ranks 0 {end}\n", "a.sh")

    assert mindspeed_llm.read(found).config.ranks == (0,)


def test_an_object_of_parsed_arguments_is_read_as_its_words_are() -> None:
    words = [ON, "--profile-step-start", "5", "--profile-step-end", "6", "--profile-ranks", "2", "--profile-with-cpu"]
    parsed = argparse.Namespace(
        profile=True, profile_step_start=5, profile_step_end=6, profile_ranks=[2], profile_level="level0",
        profile_export_type="text", profile_with_cpu=True, profile_with_stack=False, profile_with_memory=False,
        profile_record_shapes=False, profile_data_simplification=False, profile_save_path="./profile_dir",
        micro_batch_size=1,
    )  # fmt: skip

    assert configure(parsed) == of(*words)


def test_other_commands_arguments_are_not_mistaken_for_a_profile() -> None:
    found = sources.read_source(["--use-pytorch-profiler", "--profiler", "x", "--training.profile", "true"])

    assert not mindspeed_llm.detect(found)


BAD: list[tuple[list[str], str]] = [
    ([ON, "true"], "--profile='true': takes no value: leave it out for off"),
    ([ON, "--profile-ranks", "-1", "0"],
     "--profile-ranks=['-1', '0']: -1 means all ranks only where it stands alone; beside others it is no rank"),
    ([ON, "--profile-ranks", "-2"],
     "--profile-ranks='-2': whole numbers are needed, as in --profile-ranks 0 1; -1 alone for all"),
    ([ON, "--profile-ranks"],
     "--profile-ranks=[]: whole numbers are needed, as in --profile-ranks 0 1; -1 alone for all"),
    ([ON, "--profile_ranks", "0"], f"--profile_ranks: unknown option; did you mean --profile-ranks? allowed: {KNOWN}"),
    ([ON, "--profile-step", "3"], f"--profile-step: unknown option; did you mean --profile-step-end? allowed: {KNOWN}"),
    (["--profile-step-start", "0"],
     "--profile-step-start=0: steps are counted from 1, and this is checked even without --profile"),
    ([ON, "--profile-step-start", "five"], "--profile-step-start='five': not a whole number"),
    ([ON, "--profile-step-start", "5.0"], "--profile-step-start='5.0': not a whole number"),
    ([ON, "--profile-step-end", "-1"],
     "--profile-step-end=-1: -1 is not the end of the run here: one step would be recorded"),
    ([ON, "--profile-step-start", "5", "--profile-step-end", "5"],
     "--profile-step-end=5: the first step that is not recorded must be above profile_step_start=5; one would be all "
     "the same"),
    ([ON, "--profile-level", "Level1"],
     f"--profile-level='Level1': not one of its values; did you mean level1? allowed: {LEVELS}"),
    ([ON, "--profile-export-type", "both"], "--profile-export-type='both': not one of its values; allowed: text, db"),
    ([ON, "--profile-step-start"], "--profile-step-start: not a whole number"),
    ([ON, "--profile-save-path", "a", "b"], "--profile-save-path=['a', 'b']: not a text"),
    ([ON, "--profile-with-stack"], "--profile-with-stack=True: needs the activity cpu, which is off"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_arguments_are_refused(words: list[str], message: str) -> None:
    assert refusal(words) == f"<arguments>: {message}"


def test_everything_wrong_in_a_script_is_told_at_once_line_by_line(tmp_path: Any) -> None:
    text = (
        "torchrun x.py \\\n --profile \\\n --profile-level 1 \\\n --profile-ranks $RANKS \\\n --profile-step-start 0\n"
    )

    assert refusal(("train.sh", text), tmp_path).splitlines() == [
        "train.sh:3: --profile-level='1': not one of its values; allowed: level_none, level0, level1, level2",
        "train.sh:4: $RANKS: this variable is set neither in the file nor in this environment: "
        "set it for mstxkit, as in `RANKS=… mstxkit config show …`, or write its value into the file",
        "train.sh:5: --profile-step-start=0: steps are counted from 1, and this is checked even without --profile",
    ]


def test_switched_off_it_may_hold_any_end() -> None:
    assert of("--profile-step-start", "5", "--profile-step-end", "-1").enabled is False


def test_what_is_written_is_a_part_of_a_script() -> None:
    config = Config(
        enabled=True, window=Window(first_step=5, steps=2, warmup=1), ranks=(0, 3), level="level1",
        aic_metrics="PipeUtilization", analysis="sync", path="./a folder",
    )  # fmt: skip

    written = write_flavour(config, "mindspeed_llm")

    assert written.lost == ()
    assert written.text.splitlines() == [
        "# Arguments of MindSpeed-LLM (Megatron-Core), for its training script.",
        "--profile \\",
        "--profile-step-start 5 \\",
        "--profile-step-end 7 \\",
        "--profile-ranks 0 3 \\",
        "--profile-level level1 \\",
        "--profile-export-type text \\",
        "--profile-with-cpu \\",
        "--profile-data-simplification \\",
        "--profile-save-path './a folder'",
    ]


def test_a_window_to_the_end_of_the_run_is_written_as_a_window_longer_than_any_run() -> None:
    written = write_flavour(
        of(ON).model_copy(update={"window": Window(first_step=5, steps=None, warmup=1)}), "mindspeed_llm"
    )

    assert written.lost == ()
    assert "--profile-step-end 1000005" in written.text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"mstx": True}, "mstx ranges are recorded at level_none, and at no other level"),
        ({"activities": ("cpu",)}, "the NPU is always recorded"),
        ({"analysis": "async"}, "each rank parses its data right after recording"),
        ({"stages": ("actor_update",)}, "there are no stages: whole steps are recorded"),
        ({"export": "both"}, "one form only"),
        ({"l2_cache": True}, "mindspeed_llm cannot say this"),
    ],
)
def test_what_it_cannot_say_is_listed_with_the_reason(change: dict[str, Any], why: str) -> None:
    config = of(ON, "--profile-with-cpu").model_copy(update=change)

    (lost,) = write_flavour(config, "mindspeed_llm").lost
    assert ({lost.field: lost.value}, lost.why.partition(";")[0]) == (change, why)
