"""MindSpore's own readers: of what we write they replace nothing, and what they would replace silently we refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import mindspore_meaning, soak
from builders.any_config import configs
from hypothesis import HealthCheck, given, settings

from mstxkit.config import sources
from mstxkit.config.adapters import mindspore as file_adapter
from mstxkit.config.adapters import mindspore_env as variable_adapter
from mstxkit.config.configuring import configure, write_flavour
from mstxkit.config.model import Config
from mstxkit.errors import ConfigError

pytestmark = pytest.mark.mindspore

WINDOW = {"start_step": 2, "stop_step": 5}
VARIABLE = variable_adapter.VARIABLE
BOTH, NONE = ["CPU", "NPU"], "None"


def in_shell(text: str) -> str:
    """The value of the variable, as a shell script sets it."""
    return sources.from_shell(text, "env.sh").variables[VARIABLE].text


@settings(max_examples=soak.rounds(60, 25), database=None, suppress_health_check=list(HealthCheck))
@given(config=configs())
def test_what_we_write_is_what_mindspore_does(config: Config) -> None:
    file = json.loads(write_flavour(config, "mindspore").text)
    variable = in_shell(write_flavour(config, "mindspore_env").text)

    of_file, of_variable = mindspore_meaning.of_file(file), mindspore_meaning.of_variable(variable)

    came_to = mindspore_meaning.came_to(of_file)
    assert came_to == mindspore_meaning.came_to(of_variable) == mindspore_meaning.meant(config)
    assert {key: of_file[key] for key in ("start_step", "stop_step", "prof_path")} == {
        key: file[key] for key in ("start_step", "stop_step", "prof_path")
    }
    assert (of_file["analyse"], of_file["analyse_mode"]) == {
        "off": (False, None), "sync": (True, "sync"), "async": (True, "async"),
    }[config.analysis]  # fmt: skip
    assert (of_variable["start"], of_variable["output_path"]) == (
        config.enabled, json.loads(variable)["output_path"],
    )  # fmt: skip


# A key, what is wrong with it, and what MindSpore takes instead, with a warning in its log at most.
REPLACED_IN_FILE: list[tuple[str, dict[str, Any], Any]] = [
    ("start_step", {"start_step": "2"}, -1),
    ("start_step", {"start_step": 2.0}, -1),
    ("start_step", {"start_step": True}, -1),
    ("stop_step", {"stop_step": None}, -1),
    ("profiler_level", {"profiler_level": "level1"}, "Level0"),
    ("profiler_level", {"profiler_level": "Level_none", "mstx": True}, "Level0"),
    ("profiler_level", {"profiler_level": 3}, "Level0"),
    ("profiler_level", {"profiler_level": None}, "Level0"),
    ("profiler_level", {"profiler_level": "LevelNone"}, "Level0"),
    ("activities", {"activities": "NPU"}, BOTH),
    ("activities", {"activities": ["npu"]}, BOTH),
    ("activities", {"activities": 3}, BOTH),
    ("activities", {"activities": []}, []),
    ("aic_metrics", {"profiler_level": "Level2", "aic_metrics": "PipeUtilisation"}, "PipeUtilization"),
    ("aic_metrics", {"profiler_level": "Level2", "aic_metrics": 8}, "PipeUtilization"),
    ("aic_metrics", {"aic_metrics": "Memory"}, NONE),
    ("export_type", {"export_type": "db"}, ["text"]),
    ("export_type", {"export_type": ["DB"]}, ["text"]),
    ("export_type", {"export_type": []}, ["text"]),
    ("mstx", {"mstx": "true"}, False),
    ("mstx", {"mstx": 1}, False),
    ("profile_memory", {"profile_memory": 1}, False),
    ("with_stack", {"with_stack": "true"}, False),
    ("record_shapes", {"record_shapes": 1}, False),
    ("record_shapes", {"record_shapes": True, "activities": ["NPU"]}, False),
    ("l2_cache", {"l2_cache": 1}, False),
    ("sys_io", {"sys_io": "on"}, False),
    ("sys_interconnection", {"sys_interconnection": 1}, False),
    ("parallel_strategy", {"parallel_strategy": 1}, False),
    ("data_simplification", {"data_simplification": "false"}, True),
    ("analyse", {"analyse": 1}, False),
    ("analyse_mode", {"analyse": True, "analyse_mode": 2}, None),
    ("host_sys", {"host_sys": ["cpu", "numa"]}, []),
    ("host_sys", {"host_sys": "cpu"}, []),
    ("mstx_domain_include", {"mstx": True, "mstx_domain_include": "rollout"}, []),
    ("mstx_domain_include", {"mstx": True, "mstx_domain_include": ["rollout", ""]}, []),
    ("mstx_domain_include", {"mstx_domain_include": ["rollout"]}, []),
    ("mstx_domain_exclude", {"mstx": True, "mstx_domain_exclude": ["a", 5]}, []),
    ("mstx_domain_exclude", {"mstx": True, "mstx_domain_include": ["a"], "mstx_domain_exclude": ["b"]}, []),
    ("prof_path", {"prof_path": 5}, "./"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "wrong", "instead"), REPLACED_IN_FILE)
def test_what_it_would_replace_in_the_file_is_refused_by_its_key(key: str, wrong: Any, instead: Any) -> None:
    values = {**WINDOW, **wrong}

    taken = mindspore_meaning.of_file(values)[key]

    assert (sorted(taken) if isinstance(taken, list) else taken) == instead
    assert refused(values) == [key]


def test_of_every_key_in_the_file_something_is_refused() -> None:
    assert {key for key, *_ in REPLACED_IN_FILE} == set(file_adapter.KEYS) - {"aicore_metrics"}


def refused(source: Any) -> list[str]:
    """The keys that `configure` finds something wrong with."""
    with pytest.raises(ConfigError) as caught:
        configure(source)
    return [problem.key for problem in caught.value.problems]


@pytest.mark.parametrize("unknown", ["record_shape", "aicore_metrics_", "profile_framework"])
def test_a_key_that_it_silently_ignores_is_refused(unknown: str) -> None:
    """Its own documentation has `record_shape`."""
    values = {**WINDOW, unknown: True}

    assert mindspore_meaning.of_file(values) == mindspore_meaning.of_file(WINDOW)
    assert refused(values) == [unknown]


REPLACED_IN_VARIABLE: list[tuple[str, dict[str, Any], Any]] = [
    ("profiler_level", {"profiler_level": 1}, "Level0"),
    ("profiler_level", {"profiler_level": "LevelNone"}, "Level0"),
    ("activities", {"activities": "CPU"}, BOTH),
    ("aic_metrics", {"profiler_level": "Level1", "aic_metrics": 3}, "PipeUtilization"),
    ("aic_metrics", {"aic_metrics": "AiCoreNone"}, NONE),
    ("export_type", {"export_type": "db"}, ["text"]),
    ("with_stack", {"with_stack": "true"}, False),
    ("profile_memory", {"profile_memory": 1}, False),
    ("record_shapes", {"record_shapes": 1}, False),
    ("data_simplification", {"data_simplification": 0}, True),
    ("l2_cache", {"l2_cache": 1}, False),
    ("mstx", {"mstx": 1}, False),
    ("sys_io", {"sys_io": 1}, False),
    ("sys_interconnection", {"sys_interconnection": 1}, False),
    ("parallel_strategy", {"parallel_strategy": 1}, False),
    ("host_sys", {"host_sys": "cpu"}, []),
    ("mstx_domain_include", {"mstx": True, "mstx_domain_include": "rollout"}, []),
    ("mstx_domain_exclude", {"mstx_domain_exclude": ["a"]}, []),
    ("data_process", {"data_process": 1}, False),
    ("hbm_ddr", {"hbm_ddr": "yes"}, False),
    ("pcie", {"pcie": 1}, False),
    ("sync_enable", {"sync_enable": 0}, True),
    ("start_profile", {"start_profile": 0}, True),
    ("output_path", {"output_path": 5}, "./data"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "wrong", "instead"), REPLACED_IN_VARIABLE)
def test_what_it_would_replace_in_the_variable_is_refused_by_its_key(key: str, wrong: Any, instead: Any) -> None:
    text = json.dumps({"start": True, **wrong})

    taken = mindspore_meaning.of_variable(text)[key]

    assert (sorted(taken) if isinstance(taken, list) else taken) == instead
    assert refused({VARIABLE: text}) == [f"{VARIABLE}.{key}"]


def test_of_every_key_in_the_variable_something_is_refused() -> None:
    """`start` is taken as it is; see `test_a_word_for_no_is_a_yes`."""
    assert {key for key, *_ in REPLACED_IN_VARIABLE} == set(variable_adapter.KEYS) - {"aicore_metrics", "start"}


def test_a_word_for_no_is_a_yes() -> None:
    text = json.dumps({"start": "no"})

    assert mindspore_meaning.of_variable(text)["start"] == "no"
    assert refused({VARIABLE: text}) == [f"{VARIABLE}.start"]


def takes(path: str) -> bool:
    from mindspore.profiler.common.exceptions.exceptions import ProfilerPathErrorException
    from mindspore.profiler.common.path_manager import PathManager

    try:
        PathManager.check_input_directory_path(path)
    except ProfilerPathErrorException:
        return False
    return True


@pytest.mark.parametrize(
    "path",
    ["out", "/data/a run", "~/x", "数据/a-b_c.1", "a\tb", "é", "a+b", "lr=1,kl=2", "it's", "host:/data", "a" * 256],
)
def test_a_folder_is_taken_where_mindspore_takes_it(path: str) -> None:
    assert file_adapter.takes_path(path) is takes(path)
