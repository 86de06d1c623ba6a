"""Rules over a configuration, whatever system it came from: refused with the field, or worth a warning."""

from __future__ import annotations

from typing import Any

import pytest

from mstxkit.config import validate
from mstxkit.config.model import Config, ConfigLimits, Sampling, Window
from mstxkit.config.sources import SourcePlace

LEVEL1 = {"level": "level1", "window": Window(first_step=9, warmup=1)}


def problems(**fields: Any) -> list[str]:
    return [str(one) for one in validate.check_config(Config(**fields), name="f").problems]


def warnings(total_steps: int | None = None, **fields: Any) -> tuple[str, ...]:
    found = validate.check_config(Config(enabled=True, **fields), total_steps=total_steps)
    assert not found.problems
    return found.warnings


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"window": Window(first_step=3, wait=2, warmup=1)},
            "f: window.first_step=3: no room before it for 2 steps of wait and 1 of warmup: the earliest is 4",
        ),
        ({"window": Window(more_steps=(5, 4))}, "f: window.more_steps=(5, 4): steps must go up, each once"),
        ({"window": Window(more_steps=(1,))}, "f: window.more_steps=(1,): these steps must come after the window"),
        ({"window": Window(steps=None, more_steps=(5,))}, "these steps must come after the window"),
        ({"window": Window(repeat=2, more_steps=(5,))}, "single steps go with one window only, repeat: 1"),
        ({"window": Window(steps=None, repeat=0)}, "a window that goes to the end of the run cannot be repeated"),
        ({"ranks": (1, 1)}, "f: ranks=(1, 1): given twice"),
        ({"replicas": (0, 0)}, "f: replicas=(0, 0): given twice"),
        (
            {"stages": ("actor_updates",)},
            "unknown stage actor_updates; did you mean actor_update? allowed: all, actor_",
        ),
        ({"stages": ("all", "reward")}, "all stands alone: it is one recording of the whole step, not a stage"),
        ({"level": "none"}, "f: mstx=False: level none records mstx ranges and nothing else: it needs mstx: true"),
        ({"aic_metrics": "L2Cache"}, "AI Core metrics are recorded at level1 and level2, not at level0"),
        ({"shapes": True, "activities": ("npu",)}, "f: shapes=True: needs the activity cpu, which is off"),
        ({"stacks": True, "activities": ("npu",)}, "f: stacks=True: needs the activity cpu, which is off"),
        ({"modules": True, "activities": ("npu",)}, "f: modules=True: needs the activity cpu, which is off"),
        ({"gc_detect_threshold_ms": 0.0, "activities": ("npu",)}, "gc_detect_threshold_ms=0.0: needs the activity cpu"),
        ({"op_attr": True}, "f: op_attr=True: needs export: db"),
        (
            {"mstx": True, "domains_include": ("a",), "domains_exclude": ("b",)},
            "give domains_include or domains_exclude, not both",
        ),
        ({"domains_exclude": ("b",)}, "f: domains_exclude=('b',): needs mstx: true"),
        ({"sampling": Sampling(per="micro_batch")}, "a part of a stage is recorded: name the stages"),
        (
            {"sampling": Sampling(per="decode_step"), "stages": ("actor_update",)},
            "f: sampling.per='decode_step': only the stage actor_generate has decode steps",
        ),
        (
            {"sampling": Sampling(per="mini_batch"), "stages": ("actor_generate",)},
            "the stage actor_generate has decode steps, no batches",
        ),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(fields: dict[str, Any], message: str) -> None:
    (told,) = problems(**fields)

    assert message in told


def test_a_problem_stands_where_its_field_was_given() -> None:
    places = {"window": SourcePlace("f.yaml", 4, "mstxkit.window"), "ranks": SourcePlace("f.yaml", 9, "mstxkit.ranks")}
    config = Config(window=Window(warmup=3), ranks=(2, 2))

    found = validate.check_config(config, places).problems

    assert [(one.line, one.key) for one in found] == [(4, "mstxkit.window"), (9, "mstxkit.ranks")]


def test_what_is_off_is_checked_like_what_is_on() -> None:
    assert problems(enabled=False, level="none") == problems(enabled=True, level="none")


@pytest.mark.parametrize(
    ("window", "total_steps", "is_possible"),
    [
        (Window(first_step=10), 10, True),
        (Window(first_step=10), 9, False),
        (Window(first_step=9, steps=2), 10, True),
        (Window(first_step=9, steps=3), 10, False),
        (Window(first_step=10, steps=None), 10, True),
        (Window(first_step=11, steps=None), 10, False),
    ],
)
def test_a_window_that_can_never_finish_is_an_error(window: Window, total_steps: int, is_possible: bool) -> None:
    found = validate.check_config(Config(window=window), total_steps=total_steps).problems

    assert is_possible is not any("a window that can never finish" in one.why for one in found)


def test_single_steps_after_the_end_of_the_run_are_an_error() -> None:
    (found,) = validate.check_config(Config(window=Window(more_steps=(5, 11))), total_steps=10).problems

    assert (found.key, found.why) == ("window.more_steps", "steps that never come: the run has 10")


def test_windows_that_the_run_is_too_short_for_are_a_warning() -> None:
    """As the schedules count: 2 + 2 * (1 + 1 + 2) is 10 steps."""
    window = Window(first_step=5, steps=2, wait=1, warmup=1, repeat=2)

    assert not [one for one in warnings(10, window=window) if "the run ends" in one]
    assert "the run ends after step 9, before the last of 2 windows does" in warnings(9, window=window)


def test_a_rank_that_does_not_exist_is_refused() -> None:
    (found,) = validate.check_config(Config(ranks=(0, 8)), world_size=8).problems

    assert found.why == "there is no such rank: ranks are 0 to 7"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"window": Window(steps=None)}, "records to the end of the run, in one window"),
        ({"window": Window(repeat=0)}, "repeats its window until the run ends"),
        ({"level": "level1"}, "no warm-up step: the first recorded step holds the profiler's own start"),
        ({"mstx": True, "activities": ("cpu",)}, "mstx ranges are recorded with the activity npu only, which is off"),
        ({"level": "none", "mstx": True, "memory": True}, "memory makes the device record tasks, even at level none"),
        ({"replicas": (1,)}, "replicas choose engines of the stage actor_generate, which is not recorded alone"),
        ({"limits": ConfigLimits(bytes=1)}, "limits.bytes is below 200 MiB, the least that CANN enforces by itself"),
        (
            {**LEVEL1, "window": Window(first_step=2, warmup=1, steps=500)},
            "about 439 GiB of raw data per rank are to be expected",
        ),
    ],
    ids=str,
)
def test_what_is_hardly_meant_is_a_warning(fields: dict[str, Any], message: str) -> None:
    assert any(message in one for one in warnings(**fields))


def test_a_small_window_is_no_reason_to_warn() -> None:
    assert warnings(**LEVEL1) == ()


def test_what_is_off_is_not_warned_about() -> None:
    assert validate.check_config(Config(window=Window(steps=None))).warnings == ()


def test_the_expected_size_grows_with_steps_and_is_unknown_without_an_end() -> None:
    one = validate.expected_bytes(Config())
    ten = validate.expected_bytes(Config(window=Window(steps=4, repeat=2, more_steps=(20, 30))))

    assert one is not None
    assert ten == 10 * one
    assert validate.expected_bytes(Config(window=Window(steps=None))) is None
    assert validate.expected_bytes(Config(window=Window(repeat=0))) is None
