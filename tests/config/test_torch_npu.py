from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.any_config import configs, refusal
from hypothesis import given, settings

from mstxkit.config.adapters import flatten_config, torch_npu
from mstxkit.config.configuring import configure, write_flavour
from mstxkit.config.model import Config, Window
from mstxkit.testing import run_under_cann

pytestmark = pytest.mark.days("even")

KEYS = ", ".join((*torch_npu.KEYS, "is_valid"))
DEEP_KEYS = ", ".join(torch_npu.DEEP_KEYS)
LEVELS = ", ".join(torch_npu.LEVELS)
METRICS = ", ".join(torch_npu.METRICS)


def of(**given: Any) -> Config:
    return configure({"active": 1, "start_step": 5, **given})


def deep(**given: Any) -> Config:
    return of(experimental_config=given)


def test_a_step_alone_is_a_whole_configuration() -> None:
    assert of() == Config(enabled=True, window=Window(first_step=6, counted_from="process"), path="./")


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"start_step": 5, "warmup": 2}, "window.first_step", 8),
        ({"active": 3}, "window.steps", 3),
        ({"active": 1_000_000}, "window.steps", None),
        ({"warmup": 2}, "window.warmup", 2),
        ({"activities": ["NPU"]}, "activities", ("npu",)),
        ({"prof_dir": "/data"}, "path", "/data"),
        ({"analyse": True}, "analysis", "sync"),
        ({"record_shapes": True}, "shapes", True),
        ({"profile_memory": True}, "memory", True),
        ({"with_stack": True}, "stacks", True),
        ({"with_flops": True}, "flops", True),
        ({"with_modules": True}, "modules", True),
        ({"is_rank": True, "rank_list": [0, 3]}, "ranks", (0, 3)),
        ({"metadata": {"tp": 8}}, "extras", {"torch_npu": {"metadata": {"tp": 8}}}),
        ({"experimental_config": None}, "level", "level0"),
        ({"is_valid": True}, "extras", {}),
    ],
)
def test_each_key_is_a_field(given: dict[str, Any], field: str, value: Any) -> None:
    assert flatten_config(of(**given))[field] == value


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"profiler_level": "Level2"}, "level", "level2"),
        ({"profiler_level": "Level1", "aic_metrics": "MemoryUB"}, "aic_metrics", "MemoryUB"),
        ({"profiler_level": "Level1", "aic_metrics": "ACL_AICORE_L2_CACHE"}, "aic_metrics", "L2Cache"),
        ({"export_type": "db"}, "export", "db"),
        ({"export_type": ["text", "db"]}, "export", "both"),
        ({"mstx": True}, "mstx", True),
        ({"msprof_tx": True}, "mstx", True),
        ({"mstx": True, "mstx_domain_include": ["rollout"]}, "domains_include", ("rollout",)),
        ({"mstx_domain_exclude": None}, "domains_exclude", ()),
        ({"gc_detect_threshold": 5}, "gc_detect_threshold_ms", 5.0),
        ({"gc_detect_threshold": None}, "gc_detect_threshold_ms", None),
        ({"l2_cache": True}, "l2_cache", True),
        ({"op_attr": True, "export_type": ["db"]}, "op_attr", True),
        ({"record_op_args": True}, "record_op_args", True),
        ({"host_sys": ["numa"]}, "host_sys", ("numa",)),
        ({"sys_io": True}, "sys_io", True),
        ({"sys_interconnection": True}, "sys_interconnection", True),
        ({"data_simplification": False}, "data_simplification", False),
    ],
)
def test_each_key_of_experimental_config_is_a_field(given: dict[str, Any], field: str, value: Any) -> None:
    assert flatten_config(deep(**given))[field] == value


BAD: list[tuple[dict[str, Any], str]] = [
    ({"active": 0}, "2: active=0: must be 1 or more"),
    ({"active": "2"}, "2: active='2': not a whole number"),
    ({"warmup": -1}, "4: warmup=-1: must be 0 or more"),
    ({"start_step": -2}, "3: start_step=-2: must be -1 or more"),
    ({"start_step": 1.5}, "3: start_step=1.5: not a whole number"),
    ({"is_rank": True}, "4: is_rank=True: records nowhere without the ranks of a rank_list"),
    ({"is_rank": True, "rank_list": []}, "5: rank_list=[]: is_rank: true with no rank records nowhere"),
    ({"is_rank": True, "rank_list": ["0"]},
     "5: rank_list=['0']: a list of ranks is needed, whole numbers from 0"),
    ({"is_rank": True, "rank_list": [-1]},
     "5: rank_list=[-1]: a list of ranks is needed, whole numbers from 0"),
    ({"activities": "CPU"}, "4: activities='CPU': a list is needed; allowed: CPU, NPU"),
    ({"activities": ["GPU"]}, "4: activities='GPU': not one of its values; did you mean NPU? allowed: CPU, NPU"),
    ({"metadata": []}, "4: metadata=[]: a mapping is needed"),
    ({"with_stack": "true"}, "4: with_stack='true': not a flag; allowed: true, false"),
    ({"with_modules": True, "activities": ["NPU"]}, "4: with_modules=True: needs the activity cpu, which is off"),
    ({"profiler_level": "Level1"}, "4: profiler_level: torch_npu looks for it in experimental_config"),
    ({"with_stacks": True}, f"4: with_stacks: unknown key; did you mean with_stack? allowed: {KEYS}"),
    ({"experimental_config": []}, "4: experimental_config=[]: a mapping is needed"),
]  # fmt: skip
DEEPLY_BAD: list[tuple[dict[str, Any], str]] = [
    ({"profiler_level": "level1"},
     f"profiler_level='level1': not one of its values; did you mean Level1? allowed: {LEVELS}"),
    ({"aic_metrics": "Pipe"}, f"aic_metrics='Pipe': not one of its values; allowed: {METRICS}"),
    ({"aic_metrics": "PipeUtilization"},
     "aic_metrics='PipeUtilization': AI Core metrics are recorded at level1 and level2, not at level0"),
    ({"gc_detect_threshold": -1}, "gc_detect_threshold=-1: milliseconds are needed, 0 or more, or null"),
    ({"export_type": "sqlite"}, "export_type='sqlite': not one of its values; allowed: text, db"),
    ({"export_type": []}, "export_type=[]: an empty list says nothing; allowed: text, db"),
    ({"op_attr": True}, "op_attr=True: needs export: db"),
    ({"host_sys": ["gpu"]},
     "host_sys='gpu': not one of its values; did you mean cpu? allowed: cpu, mem, disk, network, osrt, numa"),
    ({"mstx_domain_include": ["a"]}, "mstx_domain_include=('a',): needs mstx: true"),
    ({"mstx": 1}, "mstx=1: not a flag; allowed: true, false"),
    ({"domain_include": ["a"]},
     f"domain_include: unknown key; did you mean mstx_domain_include? allowed: {DEEP_KEYS}"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), BAD)
def test_bad_files_are_refused(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    text = json.dumps({"active": 1, "start_step": 5, **given}, indent=1)

    assert refusal(("profiler_config.json", text), tmp_path) == f"profiler_config.json:{message}"


@pytest.mark.parametrize(("given", "message"), DEEPLY_BAD)
def test_bad_sections_are_refused(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    text = json.dumps({"active": 1, "start_step": 5, "experimental_config": given}, indent=1)

    expected = f"profiler_config.json:5: experimental_config.{message}"
    assert refusal(("profiler_config.json", text), tmp_path) == expected


def test_what_is_written_has_every_key_of_the_template_and_loses_nothing_that_was_read() -> None:
    written = write_flavour(of(metadata={"tp": 8}, experimental_config={"msprof_tx": True}), "torch_npu")

    found = json.loads(written.text)
    assert written.lost == ()
    assert set(found) == set(torch_npu.KEYS)
    assert set(found["experimental_config"]) == set(torch_npu.DEEP_KEYS) - {"msprof_tx"}
    assert (found["start_step"], found["metadata"], found["experimental_config"]["mstx"]) == (5, {"tp": 8}, True)


def test_the_first_step_cannot_be_recorded() -> None:
    written = write_flavour(Config(enabled=True, window=Window(counted_from="process")), "torch_npu")

    (lost,) = written.lost
    assert json.loads(written.text)["start_step"] == 1
    assert (lost.field, lost.value) == ("window.first_step", 1)


def test_what_it_cannot_say_is_listed_with_the_reason() -> None:
    window = Window(first_step=9, steps=2, counted_from="process", wait=2, repeat=3)
    config = Config(enabled=True, window=window, stages=("actor_update",), ranks=(0,), analysis="sync")

    lost = {one.field: one.why.partition(";")[0] for one in write_flavour(config, "torch_npu").lost}

    assert lost == {
        "window.wait": "there is one window",
        "window.repeat": "there is one window",
        "stages": "there are no stages: whole steps are recorded",
        "analysis": "with a list of ranks, data is parsed in async mode only",
    }


DEEP = {
    "profiler_level": "Level2", "aic_metrics": "MemoryUB", "l2_cache": True, "op_attr": True, "record_op_args": True,
    "export_type": ["db"], "mstx": True, "mstx_domain_include": ["rollout"], "host_sys": ["cpu", "numa"],
    "sys_io": True, "sys_interconnection": True, "gc_detect_threshold": 2.5, "data_simplification": False,
}  # fmt: skip
GIVEN = {
    "start_step": 3, "warmup": 1, "active": 2, "activities": ["CPU", "NPU"], "prof_dir": "/data", "analyse": True,
    "async_mode": True, "profile_memory": True, "with_flops": True, "is_rank": True, "rank_list": [1, 5],
    "metadata": {"tp": 8},
}  # fmt: skip
TAKEN = """
import contextlib, io, json, sys, warnings
warnings.simplefilter("error")
import torch_npu
from torch_npu.profiler._dynamic_profiler._dynamic_profiler_config_context import ConfigContext
from torch_npu.profiler._dynamic_profiler._dynamic_profiler_utils import DynamicProfilerUtils

def taken(c, e):
    return dict(
        start=c.start_step(), warmup=c.warmup(), active=c.active(), path=c.prof_path, ranks=sorted(c._rank_set),
        activities=sorted(one.name.lower() for one in c.activities()), analysis=[c.analyse(), c.async_mode()],
        memory=c.profile_memory, flops=c.with_flops, stacks=c.with_stack, shapes=c.record_shapes,
        modules=c.with_modules, metadata=c.meta_data(), level=e._profiler_level, metrics=e._aic_metrics,
        include=sorted(e._mstx_domain_include), exclude=sorted(e._mstx_domain_exclude), host=sorted(e._host_sys),
        mstx=e._mstx, gc=e.gc_detect_threshold, export=sorted(e.export_type), op_attr=e._op_attr,
        simple=e._data_simplification, cache=e._l2_cache, args=e.record_op_args, io=e._sys_io,
        connection=e._sys_interconnection,
    )

said = io.StringIO()
DynamicProfilerUtils.out_log = lambda text, *args, **kwargs: said.write(f"{text}\\n")
with contextlib.redirect_stdout(said):
    contexts = [ConfigContext(one) for one in json.load(open(sys.argv[1]))]
    found = [taken(one, one.experimental_config) for one in contexts]
print(json.dumps([found, said.getvalue()]))
"""
LEVEL_OF = {canonical: own for own, canonical in torch_npu.LEVELS.items()}


def expected(config: Config) -> dict[str, Any]:
    """What torch_npu is to make of a configuration that came from its file."""
    extras = config.extras.get("torch_npu", {})
    ranks = [] if config.ranks == "all" else sorted(config.ranks)
    return {
        "start": config.window.first_step - 1 - config.window.warmup, "warmup": config.window.warmup,
        "active": config.window.steps or 1_000_000, "path": config.path, "ranks": ranks,
        "activities": sorted(config.activities),
        "analysis": [config.analysis != "off", config.analysis == "async"], "memory": config.memory,
        "flops": config.flops, "stacks": config.stacks, "shapes": config.shapes, "modules": config.modules,
        "metadata": extras.get("metadata", {}), "level": LEVEL_OF[config.level],
        "metrics": ACL.get(config.aic_metrics), "include": sorted(config.domains_include),
        "exclude": sorted(config.domains_exclude), "host": sorted(config.host_sys), "mstx": config.mstx,
        "gc": config.gc_detect_threshold_ms, "export": ["db", "text"] if config.export == "both" else [config.export],
        "op_attr": config.op_attr, "simple": config.data_simplification, "cache": config.l2_cache,
        "args": config.record_op_args, "io": config.sys_io, "connection": config.sys_interconnection,
    }  # fmt: skip


ACL = {
    "none": "ACL_AICORE_NONE",
    "PipeUtilization": "ACL_AICORE_PIPE_UTILIZATION",
    "MemoryUB": "ACL_AICORE_MEMORY_UB",
}


@pytest.mark.npu
def test_torch_npu_itself_takes_every_value_that_is_written_and_resets_none(tmp_path: Path) -> None:
    found = [configure({**GIVEN, "experimental_config": DEEP})]

    @settings(max_examples=soak.rounds(400, 20), deadline=None, database=None)
    @given(config=configs())
    def collect(config: Config) -> None:
        found.append(configure(json.loads(write_flavour(config, "torch_npu").text)))

    collect()
    texts = [json.loads(write_flavour(config, "torch_npu").text) for config in found]
    (tmp_path / "files.json").write_text(json.dumps(texts))
    (tmp_path / "taken.py").write_text(TAKEN)

    run = run_under_cann([sys.executable, str(tmp_path / "taken.py"), str(tmp_path / "files.json")])

    taken, said = json.loads(run.stdout.splitlines()[-1])
    assert taken == [expected(config) for config in found]
    resets = [line for line in said.splitlines() if "will be set to" not in line and "collect all gc" not in line]
    assert set(resets) == {"Set is_rank success!"}


STEPS = """
import json, sys
import torch_npu
from torch_npu.profiler import dynamic_profile as dynamic
from torch_npu.profiler._dynamic_profiler._dynamic_profiler_config_context import ConfigContext

class Profile:  # instead of a recording: what its schedule makes of each step
    def __init__(self, schedule, **given):
        self.schedule, self.number = schedule, 0
    def start(self): pass
    def stop(self): self.number = None
    def step(self): self.number += 1
    def add_metadata_json(self, key, value): pass
    def _set_step_num_offset_for_dynamic_prof(self, number): pass

class Monitor:
    contexts = [ConfigContext(json.load(open(sys.argv[1])))]
    def shm_to_prof_conf_context(self): return self.contexts.pop() if self.contexts else None
    def __getattr__(self, name): return lambda *args: None

dynamic.profile, dynamic.tensorboard_trace_handler = Profile, lambda *args, **kwargs: None
one = dynamic._DynamicProfile()
one._dynamic_monitor = Monitor()
recorded = []
for step in range(1, 20):
    if one.prof is not None and one.prof.schedule(one.prof.number).name.startswith("RECORD"):
        recorded.append(step)
    one.step()
print(json.dumps(recorded))
"""


WINDOWS = [
    Window(first_step=2, counted_from="process"),
    Window(first_step=6, steps=3, counted_from="process"),
    Window(first_step=6, steps=2, warmup=2, counted_from="process"),
    Window(first_step=3, steps=2, warmup=1, counted_from="process"),
]


@pytest.mark.npu
@pytest.mark.parametrize("window", soak.sample(WINDOWS, 2))
def test_torch_npus_own_steps_are_those_of_the_window(window: Window, tmp_path: Path) -> None:
    written = write_flavour(Config(enabled=True, window=window), "torch_npu")
    (tmp_path / "profiler_config.json").write_text(written.text)
    (tmp_path / "steps.py").write_text(STEPS)

    run = run_under_cann([sys.executable, str(tmp_path / "steps.py"), str(tmp_path / "profiler_config.json")])

    assert written.lost == ()
    assert window.last_step is not None
    assert json.loads(run.stdout.splitlines()[-1]) == list(range(window.first_step, window.last_step + 1))
