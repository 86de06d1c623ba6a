from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from builders.any_config import refusal

from mstxkit.config import sources
from mstxkit.config.adapters import flatten_config, mindspore, mindspore_env
from mstxkit.config.configuring import configure, understand_source, write_flavour
from mstxkit.config.model import Config, Window

VARIABLE = mindspore_env.VARIABLE
KEYS = ", ".join(mindspore_env.KEYS)
METRICS = ", ".join(mindspore.METRIC_NAMES)
WHOLE_RUN = Window(first_step=1, steps=None, counted_from="process")


def of(**given: Any) -> Config:
    return configure({VARIABLE: json.dumps({"start": True, **given})})


def test_start_alone_records_the_whole_run_and_parses_it_at_the_end() -> None:
    assert of() == Config(enabled=True, window=WHOLE_RUN, analysis="sync", path="./data")


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"start": False}, "enabled", False),
        ({"output_path": "/data"}, "path", "/data"),
        ({"profiler_level": "Level2"}, "level", "level2"),
        ({"profiler_level": "LevelNone", "mstx": True}, "mstx", True),
        ({"activities": ["CPU"]}, "activities", ("cpu",)),
        ({"export_type": ["db"]}, "export", "db"),
        ({"profiler_level": "Level1", "aic_metrics": "L2Cache"}, "aic_metrics", "L2Cache"),
        ({"with_stack": True}, "stacks", True),
        ({"record_shapes": True}, "shapes", True),
        ({"profile_memory": True}, "memory", True),
        ({"host_sys": ["disk"]}, "host_sys", ("disk",)),
        ({"hbm_ddr": True, "sync_enable": False}, "extras", {"mindspore_env": {"hbm_ddr": True, "sync_enable": False}}),
    ],
)
def test_each_key_is_a_field(given: dict[str, Any], field: str, value: Any) -> None:
    assert flatten_config(of(**given))[field] == value


@pytest.mark.parametrize("text", ["", '{"profiler_level": "Level1"}'])
def test_without_start_nothing_is_recorded(text: str) -> None:
    assert configure({VARIABLE: text}).enabled is False


def test_a_script_is_read_with_the_lines_inside_its_quotes() -> None:
    text = f'export OMP=1\nexport {VARIABLE}=\'\n{{"start": true,\n"with_stack": true}}\'\npython train.py\n'

    found = sources.from_shell(text, "train.sh")

    assert mindspore_env.detect(found)
    assert mindspore_env.read(found).places["stacks"] == ("train.sh", 4, f"{VARIABLE}.with_stack")


def test_the_environment_of_a_process_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv(VARIABLE, '{"start": true, "l2_cache": true}')

    found = understand_source(os.environ)

    assert (found.flavour, found.read.config) == ("mindspore_env", of(l2_cache=True))
    assert found.read.places["l2_cache"] == ("<environment>", None, f"{VARIABLE}.l2_cache")


def test_start_profile_false_does_not_stop_it() -> None:
    found = understand_source({VARIABLE: '{"start": true, "start_profile": false}'})

    assert found.read.config.enabled is True
    assert "start_profile: false does nothing here: MindSpore starts the profiler all the same" in found.read.notes


BAD: list[tuple[str, str]] = [
    ("{}", "='{}': MindSpore calls an empty object a decode error and profiles nothing"),
    ("[1]", "='[1]': a list makes the import of mindspore itself fail; an object is needed"),
    ('{"start": "no"}', ".start='no': not a flag: MindSpore takes it for true; allowed: true, false"),
    ('{"start": 0}', ".start=0: not a flag: MindSpore takes it for false; allowed: true, false"),
    ('{"profiler_level": 1}',
     ".profiler_level=1: not one of its values; allowed: LevelNone, Level0, Level1, Level2"),
    ('{"profiler_level": "LevelNone"}',
     ".profiler_level='LevelNone': MindSpore takes Level0, which is heavier, where mstx is not true"),
    ('{"activities": "CPU"}', ".activities='CPU': a list is needed; allowed: CPU, NPU"),
    ('{"aic_metrics": 0}', f".aic_metrics=0: not one of its values; allowed: {METRICS}"),
    ('{"export_type": "db"}', ".export_type='db': a list is needed; allowed: text, db"),
    ('{"schedule": {"wait": 1}}', f".schedule: unknown key; allowed: {KEYS}"),
    ('{"outputpath": "x"}', f".outputpath: unknown key; did you mean output_path? allowed: {KEYS}"),
    ('{"output_path": "/data/lr=1"}', f".output_path='/data/lr=1': {mindspore.PATH_RULE}"),
    ('{"output_path": ""}', ".output_path='': an empty text is no folder; ./data stands for the default"),
    ('{"sync_enable": "yes"}', ".sync_enable='yes': not a flag; allowed: true, false"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_options_are_refused(text: str, message: str) -> None:
    assert refusal({VARIABLE: text}) == f"<mapping>: {VARIABLE}{message}"


def test_what_is_no_json_is_refused_with_its_line(tmp_path: Any) -> None:
    text = f"export {VARIABLE}='{{\"start\": true,\n  with_stack: true}}'\n"

    message = f"run.sh:2: not JSON: Expecting property name enclosed in double quotes (in {VARIABLE})"
    assert refusal(("run.sh", text), tmp_path) == message


def test_a_shell_takes_what_is_written(tmp_path: Any) -> None:
    given = {"mstx": True, "mstx_domain_exclude": ["it's $HOME"], "parallel_strategy": True, "pcie": True}
    written = write_flavour(of(**given), "mindspore_env")
    (tmp_path / "env.sh").write_text(written.text)

    shell = ["bash", "-c", f'. "$1/env.sh"; printf %s "${VARIABLE}"', "bash", str(tmp_path)]
    found = json.loads(subprocess.run(shell, check=True, capture_output=True, text=True).stdout)

    assert written.lost == ()
    assert set(found) == set(mindspore_env.KEYS) - {"aicore_metrics"}
    assert {key: found[key] for key in given} == given
    assert (found["start"], found["sync_enable"]) == (True, True)


def test_what_it_cannot_say_is_listed_with_the_reason() -> None:
    window = Window(first_step=5, steps=2, counted_from="process")
    config = Config(enabled=True, window=window, ranks=(0,), analysis="off", flops=True)

    lost = {one.field: one.why.partition(";")[0] for one in write_flavour(config, "mindspore_env").lost}

    assert lost == {
        "window.first_step": "the whole run is recorded, in one window",
        "window.steps": "the whole run is recorded, in one window",
        "ranks": "every rank records",
        "analysis": "the data is parsed when the process ends, always",
        "flops": "mindspore_env cannot say this",
    }
