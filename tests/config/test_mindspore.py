from __future__ import annotations

import json
from typing import Any

import pytest
from builders.any_config import refusal

from mstxkit.config.adapters import flatten_config, mindspore
from mstxkit.config.configuring import configure, understand_source, write_flavour
from mstxkit.config.model import Config, Window

WINDOW = {"start_step": 2, "stop_step": 5}
KEYS = ", ".join((*mindspore.KEYS, "is_valid"))
METRICS = ", ".join(str(one) for one in mindspore.METRICS)


def of(**given: Any) -> Config:
    return configure({**WINDOW, **given})


def test_two_steps_alone_are_a_whole_configuration() -> None:
    assert of() == Config(enabled=True, window=Window(first_step=2, steps=4, counted_from="process"))


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"start_step": 1, "stop_step": 1}, "window.first_step", 1),
        ({"start_step": 1, "stop_step": 1}, "window.steps", 1),
        ({"start_step": 3, "stop_step": 1_000_002}, "window.steps", None),
        ({"profiler_level": "Level1"}, "level", "level1"),
        ({"profiler_level": "LevelNone", "mstx": True}, "level", "none"),
        ({"activities": ["NPU"]}, "activities", ("npu",)),
        ({"profiler_level": "Level2", "aic_metrics": "MemoryUB"}, "aic_metrics", "MemoryUB"),
        ({"export_type": ["text", "db"]}, "export", "both"),
        ({"mstx": True, "mstx_domain_exclude": ["communication"]}, "domains_exclude", ("communication",)),
        ({"profile_memory": True}, "memory", True),
        ({"with_stack": True}, "stacks", True),
        ({"record_shapes": True}, "shapes", True),
        ({"l2_cache": True}, "l2_cache", True),
        ({"sys_io": True}, "sys_io", True),
        ({"sys_interconnection": True}, "sys_interconnection", True),
        ({"host_sys": ["cpu", "osrt"]}, "host_sys", ("cpu", "osrt")),
        ({"data_simplification": False}, "data_simplification", False),
        ({"prof_path": "/data"}, "path", "/data"),
        ({"parallel_strategy": True}, "extras", {"mindspore": {"parallel_strategy": True}}),
        ({"is_valid": True}, "extras", {}),
    ],
)
def test_each_key_is_a_field(given: dict[str, Any], field: str, value: Any) -> None:
    assert flatten_config(of(**given))[field] == value


def test_switched_off_it_says_nothing_of_steps() -> None:
    found = configure({"start_step": -1, "stop_step": -1, "profiler_level": "Level1"})

    assert (found.enabled, found.window) == (False, Window(counted_from="process"))


def test_a_folder_stands_for_the_file_in_it(tmp_path: Any) -> None:
    (tmp_path / "profiler_config.json").write_text(json.dumps(WINDOW, indent=2))

    found = understand_source(tmp_path)

    assert (found.flavour, found.read.config) == ("mindspore", of())
    assert found.read.places["window.steps"].line == 3


BAD: list[tuple[dict[str, Any], str]] = [
    ({"start_step": "2"}, "2: start_step='2': not a whole number"),
    ({"start_step": True}, "2: start_step=True: not a whole number"),
    ({"start_step": 0}, "2: start_step=0: steps are counted from 1; -1 switches profiling off"),
    ({"start_step": -2}, "2: start_step=-2: steps are counted from 1; -1 switches profiling off"),
    ({"stop_step": 1}, "3: stop_step=1: the last recorded step is before start_step=2: nothing would be recorded"),
    ({"stop_step": None}, "3: stop_step: not a whole number"),
    ({"stop_step": -1}, "3: stop_step=-1: the last recorded step is before start_step=2: nothing would be recorded"),
    ({"profiler_level": "level0"},
     "4: profiler_level='level0': not one of its values; did you mean Level0? "
     "allowed: LevelNone, Level0, Level1, Level2, -1, 0, 1, 2"),
    ({"profiler_level": 3},
     "4: profiler_level=3: not one of its values; allowed: LevelNone, Level0, Level1, Level2, -1, 0, 1, 2"),
    ({"profiler_level": "LevelNone"},
     "4: profiler_level='LevelNone': MindSpore takes Level0, which is heavier, where mstx is not true"),
    ({"activities": ["CPU", "GPU"]},
     "4: activities='GPU': not one of its values; did you mean NPU? allowed: CPU, NPU"),
    ({"activities": "NPU"}, "4: activities='NPU': a list is needed; allowed: CPU, NPU"),
    ({"activities": 3}, "4: activities=3: not one of its values; allowed: 0, 1, 2"),
    ({"aic_metrics": 8}, f"4: aic_metrics=8: not one of its values; allowed: {METRICS}"),
    ({"aic_metrics": "PipeUtilisation"},
     f"4: aic_metrics='PipeUtilisation': not one of its values; did you mean PipeUtilization? allowed: {METRICS}"),
    ({"aic_metrics": "Memory"},
     "4: aic_metrics='Memory': AI Core metrics are recorded at level1 and level2, not at level0"),
    ({"export_type": "db"}, "4: export_type='db': a list is needed; allowed: text, db"),
    ({"export_type": []}, "4: export_type=[]: an empty list says nothing; allowed: text, db"),
    ({"analyse": 1}, "4: analyse=1: not a flag; allowed: true, false"),
    ({"analyse_mode": 2}, "4: analyse_mode=2: not one of its values; allowed: -1, 0, 1"),
    ({"mstx": "true"}, "4: mstx='true': not a flag; allowed: true, false"),
    ({"record_shape": True}, f"4: record_shape: unknown key; did you mean record_shapes? allowed: {KEYS}"),
    ({"host_sys": ["numa"]}, "4: host_sys='numa': not one of its values; allowed: cpu, mem, disk, network, osrt"),
    ({"mstx_domain_include": ["a"]}, "4: mstx_domain_include=('a',): needs mstx: true"),
    ({"prof_path": 5}, "4: prof_path=5: not a text"),
    ({"prof_path": "/data/lr=1"}, f"4: prof_path='/data/lr=1': {mindspore.PATH_RULE}"),
    ({"prof_path": ""}, "4: prof_path='': an empty text is no folder; ./ stands for the default"),
    ({"record_shapes": True, "activities": ["NPU"]}, "4: record_shapes=True: needs the activity cpu, which is off"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), BAD)
def test_bad_files_are_refused(given: dict[str, Any], message: str, tmp_path: Any) -> None:
    text = json.dumps({**WINDOW, **given}, indent=1)

    assert refusal(("profiler_config.json", text), tmp_path) == f"profiler_config.json:{message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"start_step": 2,\n "stop_step": ', "2: not JSON: Expecting value"),
        ("[2, 5]", "1: a configuration is a mapping of keys to values, not list"),
        ("", "1: not JSON: Expecting value"),
        ('{"stop_step": 2, "stop_step": 5}', "1: not JSON: 'stop_step' is given twice"),
    ],
)
def test_what_ends_the_monitor_for_good_is_refused(text: str, message: str, tmp_path: Any) -> None:
    """MindSpore 2.10's monitor process exits over a file that is half written, empty, or holds a list."""
    assert refusal(("profiler_config.json", text), tmp_path) == f"profiler_config.json:{message}"


def test_what_is_written_has_every_key_and_loses_nothing_that_was_read() -> None:
    given = {"mstx": True, "profiler_level": "Level1", "prof_path": "/a", "parallel_strategy": True, "analyse": True}

    written = write_flavour(of(**given), "mindspore")

    found = json.loads(written.text)
    assert written.lost == ()
    assert set(found) == set(mindspore.KEYS) - {"aicore_metrics"}
    assert {key: found[key] for key in (*given, *WINDOW)} == {**given, **WINDOW}


def test_what_it_cannot_say_is_listed_with_the_reason() -> None:
    window = Window(first_step=9, steps=2, counted_from="process", warmup=1, repeat=3)
    config = Config(enabled=True, window=window, ranks=(0,), modules=True, host_sys=("cpu", "numa"), path="./")

    lost = {one.field: one.why.partition(";")[0] for one in write_flavour(config, "mindspore").lost}

    assert lost == {
        "window.warmup": "the schedule is fixed, without a warm-up",
        "window.repeat": "there is one window",
        "ranks": "every rank records",
        "modules": "mindspore cannot say this",
        "host_sys": "one of cpu, mem, disk, network, osrt",
        "path": "./ stands for the folder that the program gives",
    }


@pytest.mark.parametrize(("first", "told"), [(5, "write 4 and 5"), (1, "step 1 cannot be recorded, 2 is the first")])
def test_writing_says_what_a_loop_that_steps_at_its_end_needs(first: int, told: str) -> None:
    """MindSpore's own examples do: it records one step later than the file says."""
    config = Config(enabled=True, window=Window(first_step=first, steps=2, counted_from="process"))

    (note,) = mindspore.write(config).notes

    assert note.endswith(told)
    assert mindspore.write(config.model_copy(update={"enabled": False})).notes == ()
