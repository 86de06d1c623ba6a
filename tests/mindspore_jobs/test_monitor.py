"""MindSpore's own `DynamicProfilerMonitor` and `MS_PROFILER_OPTIONS`, given what `mstxkit config convert` writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import mindspore_programs, soak
from builders.mindspore_meaning import came_to, meant

from mstxkit.config.configuring import write_flavour
from mstxkit.config.model import Config, Window

pytestmark = [pytest.mark.daily(2), pytest.mark.mindspore, pytest.mark.timeout(300)]

ROOT = mindspore_programs.ROOT


def window(first_step: int, steps: int) -> Window:
    return Window(first_step=first_step, steps=steps, counted_from="process")


DEEP: dict[str, Any] = {
    "enabled": True, "level": "level1", "aic_metrics": "MemoryUB", "mstx": True, "domains_exclude": ("communication",),
    "memory": True, "shapes": True, "stacks": True, "l2_cache": True, "sys_io": True, "export": "both",
    "data_simplification": False, "host_sys": ("cpu", "mem"),
}  # fmt: skip
LIGHT: dict[str, Any] = {
    "enabled": True, "level": "none", "activities": ("npu",), "mstx": True, "domains_include": ("rollout",),
    "sys_interconnection": True, "export": "db",
}  # fmt: skip
HOST: dict[str, Any] = {"enabled": True, "activities": ("cpu",), "shapes": True, "analysis": "sync"}


def convert(config: Config, flavour: str, folder: Path, name: str) -> Path:
    """A file of this flavour, made on the command line from a file of mstxkit's own."""
    own, made = folder / f"{name}-own.yaml", folder / name
    own.write_text(write_flavour(config, "mstxkit").text, encoding="utf-8")
    command = [sys.executable, "-m", "mstxkit", "config", "convert", str(own), "--to", flavour]
    done = subprocess.run(command, env=mindspore_programs.environment(), capture_output=True, check=True)
    made.write_bytes(done.stdout)
    made.chmod(0o640)  # its monitor ends for good over a file that others may write to
    return made


# The shared memory between MindSpore's processes is named by the hour alone, of local time.
OWN_HOUR = f"OWN{os.getpid() % 23 - 11:+d}"
MONITORED = """
import json, os, sys, time
import numpy, mindspore
from mindspore.profiler import DynamicProfilerMonitor
from mindspore.profiler.common.profiler_context import ProfilerContext
from mindspore.profiler.dynamic_profile.dynamic_profiler_config_context import DynamicProfilerConfigContext
from mindspore.profiler.profiler_interface import ProfilerInterface

first, *others = sys.argv[1:]
os.replace(first, "profiler_config.json")
wanted = json.load(open("profiler_config.json", encoding="utf-8"))
monitor = DynamicProfilerMonitor(cfg_path=".", output_path="out", poll_interval=1)

def held():
    try:
        return monitor._get_prof_args()
    except ValueError:
        return {}  # read while it was written

def picked_up():
    deadline = time.monotonic() + 60
    while not wanted.items() <= held().items() and time.monotonic() < deadline:
        time.sleep(0.05)
    return DynamicProfilerConfigContext(held()).to_dict()

told, number, parameters = [], 0, None
while True:
    found = picked_up()
    while number <= wanted["stop_step"]:
        number += 1
        monitor.step()
        if ProfilerInterface.is_initialized:
            parameters = ProfilerContext().original_params
        (mindspore.Tensor(numpy.ones((2, 2), numpy.float32)) + 1).asnumpy()
    told.append([found, parameters])
    if not others:
        break
    os.replace(others.pop(0), "profiler_config.json")
    wanted = json.load(open("profiler_config.json", encoding="utf-8"))
monitor.step()
print(json.dumps(told))
"""


def test_the_monitor_holds_what_we_write_and_records_it(tmp_path: Path) -> None:
    """Three configurations, one after the other in one file, as `escalate` and people do."""
    configs = [
        Config(window=window(2, 2), path=str(tmp_path / "deep of 数据"), **DEEP),
        Config(window=window(6, 1), path=str(tmp_path / "light"), **LIGHT),
        Config(window=window(9, 2), **HOST),
    ]
    files = [convert(config, "mindspore", tmp_path, f"{number}.json") for number, config in enumerate(configs)]
    values = [json.loads(file.read_text(encoding="utf-8")) for file in files]

    ended = mindspore_programs.run(MONITORED, tmp_path, *files, TZ=OWN_HOUR)

    assert ended.complaints == []
    assert [held for held, _ in ended.said] == [{**one, "is_valid": True} for one in values]
    assert [came_to(parameters) for _, parameters in ended.said] == [meant(one) for one in configs]
    assert recorded(tmp_path / "deep of 数据") == ["rank0_start2_stop3"]
    assert recorded(tmp_path / "light") == ["rank0_start6_stop6"]
    assert recorded(tmp_path / "out") == ["rank0_start9_stop10"]
    assert len(list(tmp_path.glob("out/*/*_ascend_ms/ASCEND_PROFILER_OUTPUT"))) == 1


def recorded(folder: Path) -> list[str]:
    """The folders in which a recording is."""
    return sorted({str(found.parent.relative_to(folder)) for found in folder.glob("*/*_ascend_ms")})


REFUSES = """
import json, sys
from mindspore.profiler import DynamicProfilerMonitor

told = []
for folder in sys.argv[1:]:
    monitor = DynamicProfilerMonitor(cfg_path=folder, output_path="out", poll_interval=1)
    monitor._process.join(30)
    told.append([monitor._process.is_alive(), monitor._get_prof_args()])
    monitor._clean_resource()
print(json.dumps(told))
"""
ENDS_IT = {
    "empty": ("", 0o640),
    "half": ('{"start_step": 2,', 0o640),
    "list": ("[1]", 0o640),
    "writable": ("{}", 0o660),
}


def test_what_our_reader_refuses_or_our_writer_avoids_ends_its_monitor(tmp_path: Path) -> None:
    """Half a file, a list, a file that others may write to: each ends it for good, so that no later file is read."""
    for name, (text, mode) in ENDS_IT.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "profiler_config.json").write_text(text)
        (tmp_path / name / "profiler_config.json").chmod(mode)

    ended = mindspore_programs.run(REFUSES, tmp_path, *ENDS_IT, TZ=OWN_HOUR)

    assert ended.said == [[False, {}]] * len(ENDS_IT)
    assert len(ended.complaints) >= len(ENDS_IT)


STARTED = """
import json, os
from pathlib import Path
import numpy, mindspore
from mstxkit.profiling import backends, presets
from mindspore.profiler.common.profiler_context import ProfilerContext
from mindspore.profiler.envprofiler import EnvProfiler
from mindspore.profiler.profiler_interface import ProfilerInterface

(mindspore.Tensor(numpy.ones((2, 2), numpy.float32)) + 1).asnumpy()
session = backends.load_backend("mindspore").start(presets.load_preset("full"), Path("ours"))
told = {"running": ProfilerInterface.is_initialized, "ours": session.is_running, "problems": session.stop().problems}
told["goes on"] = ProfilerInterface.is_initialized
if EnvProfiler.profiler is not None:
    told["parameters"] = ProfilerContext().original_params
    told["path"] = ProfilerContext().on_trace_ready_output_path
print(json.dumps(told))
"""


@pytest.mark.parametrize(("fields", "path"), soak.sample([(DEEP, "deep data"), (LIGHT, ""), (HOST, "./out/数据")], 1))
def test_the_variable_starts_its_profiler_with_the_same_values(
    tmp_path: Path, fields: dict[str, Any], path: str
) -> None:
    """In a shell that sourced the script; a session of ours is refused beside it."""
    config = Config(path=path, **fields)
    script = convert(config, "mindspore_env", tmp_path, "env.sh")

    ended = mindspore_programs.run(STARTED, tmp_path, before=f". {script.name}")

    folder = tmp_path / (path or "data")
    assert came_to(ended.said["parameters"]) == meant(config)
    assert (ended.said["running"], ended.said["ours"], ended.said["goes on"]) == (True, False, True)
    assert len(ended.said["problems"]) == 1
    assert "another profiler" in ended.said["problems"][0]
    assert Path(ended.said["path"]) == folder.resolve()
    assert len(list(folder.glob("*_ascend_ms"))) == 1
    assert not list((tmp_path / "ours").glob("*"))


def test_switched_off_the_variable_starts_nothing(tmp_path: Path) -> None:
    script = convert(Config(enabled=False), "mindspore_env", tmp_path, "env.sh")

    ended = mindspore_programs.run(STARTED, tmp_path, before=f". {script.name}")

    assert (ended.complaints, ended.said["running"], ended.said["ours"]) == ([], True, True)
    assert not (tmp_path / "data").exists()
