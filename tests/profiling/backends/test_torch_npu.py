"""The torch_npu backend on the real torch_npu, on stand-in CANN libraries: which aclprof calls it leads to.

Each script costs an import of torch_npu, so that several claims share the run of one.
"""

from __future__ import annotations

import importlib.util
import json
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mstxkit.profiling import presets
from mstxkit.testing import CannCall, CannRun, run_under_cann

pytestmark = [
    pytest.mark.daily(5),
    pytest.mark.npu,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu"),
]

# Level_none 0, Level0 0x801, Level1 0x27, Level2 0x12f (torch_npu `csrc/profiler/profiler_mgr.h`), mstx 0x80,
# memory 0x1000.
TYPES = {"light": 0x80, "kernels": 0x881, "comm": 0xA7, "memory": 0x1881, "full": 0xA7, "deep": 0x1AF}
SESSION = ["aclprofInit", "aclprofCreateConfig", "aclprofStart", "aclprofStop", "aclprofFinalize"]
START = ("aclprofStart",)

HEAD = """
import json, os, sys, threading, time
from pathlib import Path
from mstxkit import faults, mstx_range, sinks, stage
from mstxkit.profiling import backends, presets
sinks.install_all()
import torch, torch_npu
import torch_npu.profiler as P
backend, refused = backends.choose_backend()
def begun(name, folder=None): return backend.start(presets.load_preset(name), Path(folder or name))
def said(outcome):
    return {**outcome._asdict(), "folder": outcome.folder and str(outcome.folder.resolve())}
told = {}
"""
TAIL = "\nprint('told', json.dumps({**told, 'faults': faults.counts}))\n"


class Ran(NamedTuple):
    """What CANN was asked for, and what the script told."""

    run: CannRun
    told: dict[str, Any]
    folder: Path

    @property
    def aclprof(self) -> list[CannCall]:
        return self.run.named(*SESSION, "aclprofDestroyConfig")


def ran(body: str, folder: Path, **settings: Any) -> Ran:
    run = run_under_cann(HEAD + textwrap.dedent(body) + TAIL, cwd=folder, start_bytes=4096, **settings)
    assert run.returncode == 0, run.stderr
    return Ran(run, json.loads(run.stdout.split("told ", 1)[1].splitlines()[0]), folder)


EVERY_PRESET = """
told["backend"] = [backend.name, refused]
told["thread"] = threading.get_native_id()
for name in presets.list_presets():
    session = begun(name)
    with stage("actor_update"), mstx_range("inner"): torch.ones(3).add(1)
    while not session.bytes_so_far(): time.sleep(0.001)  # the stand-in writes on a thread of its own
    size = session.bytes_so_far()
    told[name] = {**said(session.stop([5])), "size": size}
told["still"] = torch._C._autograd._profiler_enabled()
"""


@pytest.fixture(scope="module")
def every_preset(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(EVERY_PRESET, tmp_path_factory.mktemp("presets"))


def test_torch_npu_is_chosen_where_there_is_an_npu(every_preset: Ran) -> None:
    assert every_preset.told["backend"] == ["torch_npu", {}]
    assert every_preset.told["faults"] == {}


def test_each_preset_asks_cann_for_its_data_types_and_no_others(every_preset: Ran) -> None:
    starts = every_preset.run.named(*START)

    assert {name: hex(start.types or 0) for name, start in zip(presets.list_presets(), starts)} == {
        name: hex(types) for name, types in TYPES.items()
    }
    assert len(starts) == len(TYPES)


def test_each_session_is_begun_and_ended_in_order_on_the_calling_thread(every_preset: Ran) -> None:
    assert [call.call for call in every_preset.aclprof] == SESSION * len(TYPES)
    assert {call.tid for call in every_preset.aclprof} == {every_preset.told["thread"]}
    assert {call.code for call in every_preset.aclprof} == {0}
    assert every_preset.told["still"] is False


def test_each_session_holds_the_stage_exactly_once_and_nothing_of_torch_npus_own_steps(every_preset: Ran) -> None:
    assert [found.message for found in every_preset.run.ranges()] == ["actor_update", "inner"] * len(TYPES)
    assert every_preset.run.unbalanced() == []


@pytest.mark.parametrize("name", sorted(TYPES))
def test_an_outcome_names_what_is_on_disk(every_preset: Ran, name: str) -> None:
    told = every_preset.told[name]
    folder = Path(told["folder"])

    assert (told["problems"], told["steps"]) == ([], [5])
    assert folder.parent == every_preset.folder / name
    assert folder.name.endswith("_ascend_pt")
    assert len(list(folder.glob("PROF_*"))) == 1
    assert (folder / "FRAMEWORK").exists() is ("cpu" in presets.load_preset(name).activities)
    assert told["bytes"] == sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
    assert told["bytes"] >= 4096
    assert 0 < told["size"] <= told["bytes"]


@pytest.mark.parametrize("name", sorted(TYPES))
def test_nothing_is_parsed_in_the_training_process(every_preset: Ran, name: str) -> None:
    folder = Path(every_preset.told[name]["folder"])

    assert not (folder / "ASCEND_PROFILER_OUTPUT").exists()


@pytest.mark.parametrize("name", sorted(TYPES))
def test_torch_npu_took_the_options_as_they_were_meant(every_preset: Ran, name: str) -> None:
    """It replaces what it does not like by something else, and prints a line at most."""
    preset = presets.load_preset(name)
    info = json.loads((Path(every_preset.told[name]["folder"]) / "profiler_info.json").read_text())
    common, config = info["config"]["common_config"], info["config"]["experimental_config"]

    assert config["_profiler_level"] == {"none": "Level_none"}.get(preset.level, preset.level.capitalize())
    assert (config["_mstx"], config["_msprof_tx"], config["_export_type"]) == (True, False, ["db"])
    assert config["_mstx_domain_exclude"] == list(preset.domains_exclude)
    assert config["_aic_metrics"] == (
        "ACL_AICORE_NONE" if preset.aic_metrics == "none" else "ACL_AICORE_PIPE_UTILIZATION"
    )
    assert len(common["activities"]) == len(preset.activities)
    assert (common["record_shapes"], common["profile_memory"]) == (preset.shapes, preset.memory)
    assert (common["with_stack"], common["with_modules"]) == (preset.stacks, preset.modules)


def test_torch_npu_has_nothing_to_warn_of(every_preset: Ran) -> None:
    printed = every_preset.run.stdout.split("told ")[0]

    assert "[WARNING]" not in printed, printed
    assert "[ERROR]" not in printed, printed


CONFLICTS = """
users = P.profile(activities=[P.ProfilerActivity.NPU],
                  on_trace_ready=P.tensorboard_trace_handler("users", analyse_flag=False),
                  experimental_config=P._ExperimentalConfig(aic_metrics=P.AiCMetrics.AiCoreNone))
users.start()
told["while theirs"] = said(begun("full", "refused").stop())
told["theirs goes on"] = torch._C._autograd._profiler_enabled()
users.stop()

light = begun("light")
told["while ours"] = said(begun("full", "refused").stop())
elsewhere = []
thread = threading.Thread(target=lambda: elsewhere.append(light.stop())); thread.start(); thread.join()
told["elsewhere"] = said(elsewhere[0])
pid = os.fork()
if pid == 0:
    os._exit(len(light.stop().problems))
told["forked"] = os.WEXITSTATUS(os.waitpid(pid, 0)[1])
told["ours goes on"] = torch._C._autograd._profiler_enabled()
told["light"] = said(light.stop())

light = begun("light")
def lost(*_): raise RuntimeError("device lost")
synchronize, torch.npu.synchronize = torch.npu.synchronize, lost
record = torch.npu.Event.record
told["lost"] = said(light.stop())
told["events"] = [hasattr(record, "origin_func"), hasattr(torch.npu.Event.record, "origin_func")]
torch.npu.synchronize = synchronize
told["after"] = said(begun("light").stop())
"""


@pytest.fixture(scope="module")
def conflicts(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(CONFLICTS, tmp_path_factory.mktemp("conflicts"))


def test_somebody_elses_session_is_left_alone(conflicts: Ran) -> None:
    assert conflicts.told["while theirs"]["problems"] == [
        "refused: another profiler, of torch or torch_npu, records on this thread already"
    ]
    assert conflicts.told["theirs goes on"] is True
    assert [call.call for call in conflicts.aclprof[:5]] == SESSION


def test_our_own_session_is_ended_by_nobody_but_its_thread(conflicts: Ran) -> None:
    told = conflicts.told

    assert told["while ours"]["problems"] == ["refused: a session of torch_npu records in this process already"]
    assert "only the thread that started" in told["elsewhere"]["problems"][0]
    assert told["forked"] == 1
    assert told["ours goes on"] is True
    assert told["light"]["problems"] == []
    assert [call.call for call in conflicts.aclprof[5:10]] == SESSION


def test_a_refused_session_leaves_nothing_behind(conflicts: Ran) -> None:
    assert list((conflicts.folder).glob("refused/*")) == []


def test_a_session_that_cannot_wait_for_its_device_is_closed_all_the_same(conflicts: Ran) -> None:
    told = conflicts.told

    assert told["lost"]["problems"] == [
        "torch_npu did not stop when told to, and was closed by force: data may be missing"
    ]
    assert (Path(told["lost"]["folder"]) / "profiler_info.json").exists()
    assert told["events"] == [True, False]
    assert told["after"]["problems"] == []
    assert [call.call for call in conflicts.aclprof[10:]] == SESSION * 2
    assert told["faults"] == {}


def test_under_msprof_nothing_is_started(tmp_path: Path) -> None:
    done = ran("told['why'] = [backend, refused]", tmp_path, env={"PROFILER_SAMPLECONFIG": "x"})

    assert done.told["why"] == [
        None,
        {
            "torch_npu": "msprof has the profiler: PROFILER_SAMPLECONFIG is set",
            "mindspore": "not imported in this process",
            "torch": "this process has an NPU, which torch.profiler does not see",
        },
    ]
    assert done.aclprof == []
