"""Our sessions on the real MindSpore, on a CPU: the host side is recorded and nothing parsed, nothing raises.

What came of a session is looked up on disk, not taken from MindSpore, which logs errors and goes on.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import mindspore_programs, recorded_profilers

from mstxkit.profiling import backends, presets
from mstxkit.reading.importers import _importing, _places
from mstxkit.reading.run import open_run

pytestmark = [pytest.mark.mindspore, pytest.mark.timeout(300)]

SESSIONS = """
import json, sys, threading
from pathlib import Path
import numpy, mindspore
from mindspore.profiler.profiler_interface import ProfilerInterface
from mstxkit import faults
from mstxkit.profiling import backends, presets

backend, refused = backends.choose_backend()
told = {"backend": [backend.name, refused], "loaded": backends.load_backend("mindspore") is backend}
ones = mindspore.Tensor(numpy.ones((4, 4), numpy.float32))

def said(outcome):
    return {**outcome._asdict(), "folder": outcome.folder and str(outcome.folder)}

def recorded(name, folder, steps=()):
    session = backend.start(presets.load_preset(name), Path(folder))
    running = ProfilerInterface.is_initialized
    (ones @ ones).sum().asnumpy()
    second = said(backend.start(presets.load_preset(name), Path("second")).stop())
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(said(session.stop(steps))))
    thread.start()
    thread.join()
    outcome = session.stop(steps)
    more = {"running": running, "over": not ProfilerInterface.is_initialized, "again": session.stop(steps) == outcome}
    return {**said(outcome), **more, "second": second["problems"], "elsewhere": elsewhere[0]["problems"]}

for name in sys.argv[1:]:
    told[name] = recorded(name, name, [5])
told["odd folder"] = recorded("full", "lr=1,kl=2")

handler = mindspore.profiler.tensorboard_trace_handler("users", analyse_flag=False)
users = mindspore.profiler.profile(on_trace_ready=handler)
told["while theirs"] = said(backend.start(presets.load_preset("full"), Path("refused")).stop())
told["theirs goes on"] = ProfilerInterface.is_initialized
users.stop()
told["over"] = not ProfilerInterface.is_initialized

session = backend.start(presets.load_preset("full"), Path("lost"))
session._recorder._profiler.action_controller.action_map.clear()
told["lost"] = said(session.stop())
told["lost is closed"] = not ProfilerInterface.is_initialized
print(json.dumps({**told, "faults": faults.counts}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sessions")


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    """What the program said; what it wrote is in `folder`. Presets with the host side come first."""
    names = sorted(presets.list_presets(), key=lambda name: "cpu" not in presets.load_preset(name).activities)
    said: dict[str, Any] = mindspore_programs.run(SESSIONS, folder, *names).said
    return said


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_where_mindspore_is_imported_it_is_the_backend(told: dict[str, Any]) -> None:
    assert told["backend"] == ["mindspore", {"torch_npu": "not imported in this process"}]
    assert told["loaded"] is True


@pytest.mark.parametrize("name", presets.list_presets())
def test_each_preset_is_recorded_raw_and_on_one_thread(told: dict[str, Any], folder: Path, name: str) -> None:
    outcome = told[name]
    written = folder / outcome["folder"]

    assert (outcome["running"], outcome["over"], outcome["again"], outcome["steps"]) == (True, True, True, [5])
    assert written.parent == folder / name
    assert written.name.endswith("_ascend_ms")
    assert outcome["bytes"] == sum((written / file).stat().st_size for file in files(written)) > 0
    assert not (written / "ASCEND_PROFILER_OUTPUT").exists()
    assert outcome["second"] == ["refused: a session of mindspore records in this process already"]
    assert outcome["elsewhere"] == ["not stopped: only the thread that started a session may stop it"]
    assert 0 < outcome["start_ns"] < outcome["end_ns"]


@pytest.mark.parametrize(
    "name", [one for one in presets.list_presets() if "cpu" in presets.load_preset(one).activities]
)
def test_the_operators_of_the_host_are_in_it(told: dict[str, Any], folder: Path, name: str) -> None:
    (operators,) = (folder / told[name]["folder"]).glob("FRAMEWORK/cpu_op_type_info_*.csv")

    assert "MatMul" in operators.read_text()


@pytest.mark.parametrize(
    "name", [one for one in presets.list_presets() if "npu" in presets.load_preset(one).activities]
)
def test_a_device_that_is_not_there_is_said(told: dict[str, Any], name: str) -> None:
    outcome = told[name]

    assert any("NPU" in text for text in (*outcome["problems"], *outcome.get("notes", ())))


def test_a_folder_that_mindspore_does_not_take_is_refused(told: dict[str, Any], folder: Path) -> None:
    """It would record into the folder of the profiler before, or into ./data."""
    outcome = told["odd folder"]

    assert outcome["running"] is False
    assert len(outcome["problems"]) == 1
    assert outcome["problems"][0].startswith("refused: ")
    assert {len(list((folder / name).glob("*_ascend_ms"))) for name in presets.list_presets()} == {1}
    assert not (folder / "data").exists()


def test_a_profiler_of_the_program_is_left_alone(told: dict[str, Any]) -> None:
    assert told["while theirs"]["problems"] == [
        "refused: another profiler of MindSpore is open in this process already"
    ]
    assert (told["theirs goes on"], told["over"], told["faults"]) == (True, True, {})


def test_a_profiler_that_does_not_stop_is_closed(told: dict[str, Any]) -> None:
    assert told["lost"]["problems"] == [
        "mindspore did not stop when told to, and was closed by force: data may be missing"
    ]
    assert told["lost is closed"] is True


@pytest.mark.parametrize("name", presets.list_presets())
def test_options_are_those_that_mindspore_takes_and_none_is_replaced(mindspore: Any, name: str) -> None:
    from mindspore.profiler.common.profiler_parameters import ProfilerParameters

    options, _ = backends.load_backend("mindspore").described(presets.load_preset(name))
    given = made(mindspore.profiler, options)
    parameters = ProfilerParameters(**given)

    assert set(given) <= set(ProfilerParameters.PARAMS)
    assert {key: comparable(getattr(parameters, key)) for key in given} == {
        key: comparable(value) for key, value in given.items()
    }


def made(profiler: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `profile` and of its `_ExperimentalConfig`, as ours are made: their own signatures take them."""
    import inspect

    outside = {key: value for key, value in options.items() if key not in ("experimental_config", "analyse_flag")}
    inside = dict(options["experimental_config"])
    outside["activities"] = [profiler.ProfilerActivity[one] for one in outside["activities"]]
    inside["profiler_level"] = profiler.ProfilerLevel[inside["profiler_level"]]
    inside["aic_metrics"] = profiler.AicoreMetrics[inside["aic_metrics"]]
    inside["export_type"] = [profiler.ExportType[one] for one in inside["export_type"]]
    inspect.signature(profiler.profile).bind(**outside)
    inspect.signature(profiler._ExperimentalConfig).bind(**inside)
    inspect.signature(profiler.tensorboard_trace_handler).bind("x", analyse_flag=options["analyse_flag"])
    return {**outside, **inside}


def comparable(value: Any) -> Any:
    return set(value) if isinstance(value, list) else value


def test_the_records_are_those_of_the_installed_version(mindspore: Any) -> None:
    if mindspore.__version__ != "2.10.0":
        pytest.skip(f"recorded from 2.10.0, installed is {mindspore.__version__}")
    assert recorded_profilers.record(Path(mindspore.__file__).parent) == recorded_profilers.recorded("mindspore 2.10.0")


def test_without_a_profile_it_says_so(mindspore: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mindspore, "profiler", SimpleNamespace())

    assert "no mindspore.profiler.profile" in str(backends.load_backend("mindspore").why_not())
    assert json.dumps(backends.load_backend("mindspore").described(presets.load_preset("full")))


PARSED = """
import numpy, mindspore, mstxkit
from mindspore.profiler import ProfilerActivity, profile, tensorboard_trace_handler
ones = mindspore.Tensor(numpy.ones((64, 64), numpy.float32))
with mstxkit.capture("run"):
    mstxkit.identify(rank=0)
    mstxkit.step(0)
    with mstxkit.stage("actor_update"):
        recorded = profile(activities=[ProfilerActivity.CPU], on_trace_ready=tensorboard_trace_handler("out"))
        recorded.start()
        for _ in range(10):
            (ones @ ones).sum().asnumpy()
        recorded.stop()
"""


def test_what_its_own_parser_writes_of_a_cpu_is_imported(tmp_path: Path) -> None:
    mindspore_programs.run(PARSED, tmp_path)
    (view,) = (tmp_path / "out").rglob("trace_view.json")
    operators = [event for event in json.loads(view.read_text()) if event["ph"] == "X"]  # one after the other

    sources, run = _places.find_files([tmp_path / "out"], []), open_run(tmp_path / "run")
    (made,) = _importing.import_all(run.files, sources, lambda _: None)

    (row,) = made.rows
    assert {event["name"] for event in operators} >= {"MatMul", "ReduceSum"}
    assert (row["rank"], row["stage"], row["communicating_ns"]) == (0, "actor_update", 0)
    assert row["computing_ns"] / 1000 == pytest.approx(sum(float(event["dur"]) for event in operators), abs=0.01)
    assert "operators on the CPU count as computing" in " ".join(made.notes)
