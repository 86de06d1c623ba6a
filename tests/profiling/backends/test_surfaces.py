"""The backends against the recorded signatures of torch_npu 2.7.1 and 2.13.0 and of MindSpore 2.10.0."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mstxkit.profiling import backends, presets
from mstxkit.profiling.backends import mindspore, torch_npu
from mstxkit.profiling.declare import Preset

ON_TORCH_NPU = ["torch_npu 2.7.1", "torch_npu 2.13.0"]
every_preset = pytest.mark.parametrize("name", presets.list_presets())


@pytest.fixture(autouse=True)
def _nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has imported no framework."""
    for name in [one for one in sys.modules if one.split(".")[0] in ("torch", "torch_npu", "mindspore")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("PROFILER_SAMPLECONFIG", "PROFILING_MODE"):
        monkeypatch.delenv(name, raising=False)


def put(monkeypatch: pytest.MonkeyPatch, made: tuple[Any, dict[str, ModuleType]]) -> Any:
    for name, module in made[1].items():
        monkeypatch.setitem(sys.modules, name, module)
    return made[0]


def without(recorded: ModuleType, part: str, *names: str) -> dict[str, Any]:
    found = recorded.recorded("torch_npu 2.7.1")[part]
    return {part: {name: value for name, value in found.items() if name not in names}}


@every_preset
@pytest.mark.parametrize("version", ON_TORCH_NPU)
def test_torch_npu_takes_every_option_of_every_preset(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, name: str
) -> None:
    made = put(monkeypatch, recorded.torch_npu(version))
    preset = presets.load_preset(name)

    outcome = torch_npu.BACKEND.start(preset, tmp_path).stop()

    assert outcome.problems == ()
    config = made.given("_ExperimentalConfig")
    assert (config["mstx"], config["msprof_tx"]) == (True, "False")
    assert config["mstx_domain_exclude"] == list(preset.domains_exclude)
    assert config["export_type"] == "db"
    given = made.given("profile")
    assert given["activities"] == [one.upper() for one in preset.activities]
    assert given["record_shapes"] is preset.shapes
    assert given["with_stack"] is preset.stacks
    assert given["profile_memory"] is preset.memory
    assert given["schedule"](0) == "RECORD_AND_SAVE"
    assert [given["schedule"](step) for step in (1, 2)] == ["NONE", "NONE"]
    assert made.given("handler") == {
        "dir_name": str(tmp_path), "worker_name": "None", "analyse_flag": False, "async_mode": "False",
    }  # fmt: skip


def test_the_handler_is_made_right_before_the_start(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = put(monkeypatch, recorded.torch_npu())
    torch_npu.BACKEND.start(presets.load_preset("light"), tmp_path).stop()

    called = [name for name, _ in made.calls]
    begun = ["start", "init_trace", "start_trace"]
    assert called == ["_ExperimentalConfig", "handler", "profile", *begun, "step", "stop"]


def test_what_a_version_does_to_metrics_is_read_from_its_default(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = {}
    for version in ON_TORCH_NPU:
        put(monkeypatch, recorded.torch_npu(version))
        notes[version] = {
            name: torch_npu.BACKEND.described(presets.load_preset(name))[1] for name in presets.list_presets()
        }

    replaced = "aic_metrics none becomes PipeUtilization at this level in this version"
    assert notes["torch_npu 2.7.1"].pop("comm") == (replaced,)
    assert not any(notes["torch_npu 2.7.1"].values())
    assert not any(notes["torch_npu 2.13.0"].values())


def test_an_older_torch_npu_gets_msprof_tx(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """torch_npu before CANN 7.2 has no other name for it."""
    older = without(recorded, "config", "mstx", "mstx_domain_exclude")
    made = put(monkeypatch, recorded.torch_npu(**older))

    outcome = torch_npu.BACKEND.start(presets.load_preset("full"), tmp_path).stop()

    assert outcome.problems == ()
    assert made.given("_ExperimentalConfig")["msprof_tx"] is True
    assert torch_npu.BACKEND.described(presets.load_preset("full"))[1] == (
        "mstx_domain_exclude=['communication'] is left out: this version has no such option",
    )
    assert torch_npu.BACKEND.described(presets.load_preset("light"))[1] == ()


@pytest.mark.parametrize(
    ("part", "lacks", "why"),
    [
        ("levels", ["Level_none"], "no level Level_none, and would record more than light asks for"),
        ("config", ["mstx", "msprof_tx"], "cannot record mstx ranges, and level none records nothing else"),
        ("handler", ["analyse_flag"], "always parses what it recorded, in the training process"),
    ],
)
def test_light_is_refused_where_it_would_become_something_heavier(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str, lacks: list[str], why: str
) -> None:
    made = put(monkeypatch, recorded.torch_npu(**without(recorded, part, *lacks)))

    (problem,) = torch_npu.BACKEND.start(presets.load_preset("light"), tmp_path).stop().problems

    assert problem.startswith("refused: ")
    assert why in problem
    assert problem in torch_npu.BACKEND.described(presets.load_preset("light"))[1]
    assert made.calls == []


def noted(monkeypatch: pytest.MonkeyPatch, made: Any, tmp_path: Path, limit_bytes: int | None) -> tuple[str, ...]:
    """What a session with this limit notes; `made.calls` has the moment at which CANN's limit is set."""

    def set_limit(bytes: int) -> str:
        made.calls.append(("limit", {"bytes": bytes}))
        return "set"

    monkeypatch.setattr(torch_npu, "_set_storage_limit", set_limit)
    return torch_npu.BACKEND.start(presets.load_preset("full"), tmp_path, limit_bytes).stop().notes


@pytest.mark.parametrize("version", ON_TORCH_NPU)
def test_canns_limit_is_set_after_its_init_and_before_its_start(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    made = put(monkeypatch, recorded.torch_npu(version))

    assert noted(monkeypatch, made, tmp_path, 1000) == ("set",)
    assert [name for name, _ in made.calls][-6:] == ["start", "init_trace", "limit", "start_trace", "step", "stop"]
    assert made.given("limit") == {"bytes": 1000}


def test_without_a_limit_nothing_is_put_between(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = put(monkeypatch, recorded.torch_npu())

    assert noted(monkeypatch, made, tmp_path, None) == ()
    assert "limit" not in [name for name, _ in made.calls]


@pytest.mark.parametrize("begins", [[], ["init_trace"], ["init_trace", "warmup_trace", "start_trace"]])
def test_a_torch_npu_that_starts_in_another_way_is_left_as_it_is(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begins: list[str]
) -> None:
    made = put(monkeypatch, recorded.torch_npu(begins=begins))

    assert noted(monkeypatch, made, tmp_path, 1000) == (
        "CANN's own storage limit is not set: this torch_npu starts in another way",
    )
    assert "limit" not in [name for name, _ in made.calls]


def test_without_canns_library_its_limit_is_noted_as_not_set() -> None:
    note = torch_npu._set_storage_limit(1000)

    assert note.startswith("CANN's own storage limit is not set: libascendcl.so: ")


def test_metrics_that_a_version_has_not_are_refused(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = put(monkeypatch, recorded.torch_npu())
    preset = Preset("mine", "level1", ("npu",), aic_metrics="Nothing")

    (problem,) = torch_npu.BACKEND.start(preset, tmp_path).stop().problems
    assert problem.startswith("refused: this version has no aic_metrics 'Nothing'; it has AiCoreNone, ")
    assert made.calls == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("torch_npu", "another profiler, of torch or torch_npu, records on this thread already"),
        ("mindspore", "another profiler of MindSpore is open in this process already"),
    ],
)
def test_a_backend_is_refused_while_another_profiler_records(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, why: str
) -> None:
    made = put(monkeypatch, getattr(recorded, name)())
    made.is_on = True

    (problem,) = backends.load_backend(name).start(presets.load_preset("full"), tmp_path).stop().problems

    assert problem == f"refused: {why}"
    assert made.calls == []


def test_a_session_without_device_data_is_a_problem(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = put(monkeypatch, recorded.torch_npu())
    made.writes = "FRAMEWORK"

    (problem,) = torch_npu.BACKEND.start(presets.load_preset("light"), tmp_path).stop().problems

    assert "holds no PROF_* folder" in problem


@pytest.mark.parametrize("name", ["torch_npu", "mindspore"])
def test_a_session_that_recorded_nothing_is_a_problem_whatever_the_profiler_says(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """All folders are there, and the files that say that others are done."""
    made = put(monkeypatch, recorded.torch_npu() if name == "torch_npu" else recorded.mindspore("Ascend"))
    made.bytes = 0
    backend = torch_npu.BACKEND if name == "torch_npu" else mindspore.BACKEND

    outcome = backend.start(presets.load_preset("light"), tmp_path).stop()

    (problem,) = outcome.problems
    assert problem.startswith("nothing was recorded: ")
    assert not outcome.is_whole


@pytest.mark.parametrize(
    ("name", "value"), [("PROFILER_SAMPLECONFIG", "x"), ("PROFILING_MODE", "dynamic"), ("PROFILING_MODE", "")]
)
@pytest.mark.parametrize("backend", ["torch_npu", "mindspore"])
def test_a_profiler_under_msprof_is_not_asked(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str, name: str, value: str
) -> None:
    made = put(monkeypatch, getattr(recorded, backend)())
    monkeypatch.setenv(name, value)

    found = backends.load_backend(backend)
    assert found.why_not() == f"msprof has the profiler: {name} is set"
    assert found.start(presets.load_preset("light"), tmp_path).stop().problems == (f"refused: {found.why_not()}",)
    assert made.calls == []


@every_preset
def test_mindspore_takes_every_option_of_every_preset(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    made = put(monkeypatch, recorded.mindspore())
    preset = presets.load_preset(name)

    outcome = mindspore.BACKEND.start(preset, tmp_path).stop([4])

    assert (outcome.problems, outcome.steps) == ((), (4,))
    config, given = made.given("_ExperimentalConfig"), made.given("profile")
    assert (config["mstx"], config["export_type"]) == (True, ["Db"])
    assert config["profiler_level"] == {"none": "LevelNone"}.get(preset.level, preset.level.capitalize())
    assert given["start_profile"] is False
    assert given["record_shapes"] is preset.shapes
    assert given["with_stack"] is preset.stacks
    assert made.given("handler")["analyse_flag"] is False
    assert [call for call, _ in made.calls][-3:] == ["profile", "start", "stop"]


def test_mindspore_records_metrics_where_torch_npu_does_not(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, recorded.mindspore())
    notes = {name: mindspore.BACKEND.described(presets.load_preset(name))[1] for name in presets.list_presets()}

    assert notes.pop("comm") == ("aic_metrics none becomes PipeUtilization at this level",)
    assert not any(notes.values())


def test_mindspore_has_no_stacks_by_module(recorded: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, recorded.mindspore())
    options, notes = mindspore.BACKEND.described(Preset("mine", "level1", ("cpu",), modules=True, aic_metrics="Memory"))

    assert "with_modules" not in options
    assert options["experimental_config"]["aic_metrics"] == "Memory"
    assert notes == ("with_modules=True is left out: MindSpore has no such option",)


@pytest.mark.parametrize(
    ("export", "on_torch_npu", "on_mindspore"), [("text", "text", ["Text"]), ("both", ["text", "db"], ["Text", "Db"])]
)
def test_exports_have_each_profilers_own_form(export: Any, on_torch_npu: Any, on_mindspore: Any) -> None:
    preset = Preset("mine", "level1", ("npu",), export=export)

    described = [
        backends.load_backend(name).described(preset)[0]["experimental_config"] for name in ("torch_npu", "mindspore")
    ]
    assert [one["export_type"] for one in described] == [on_torch_npu, on_mindspore]


def test_device_data_are_asked_of_mindspore_on_an_npu_alone(
    recorded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    problems = []
    for target in ("Ascend", "CPU"):
        made = put(monkeypatch, recorded.mindspore(target))
        made.writes = "FRAMEWORK"
        problems.append(mindspore.BACKEND.start(presets.load_preset("full"), tmp_path / target).stop().problems)

    assert "holds no PROF_* folder" in problems[0][0]
    assert problems[1] == ()


@pytest.mark.parametrize("name", backends.list_backends())
def test_a_backend_whose_framework_is_not_imported_describes_and_does_not_start(tmp_path: Path, name: str) -> None:
    backend = backends.load_backend(name)

    assert backend.name == name
    assert backend.why_not() == "not imported in this process"
    assert backend.described(presets.load_preset("full"))[0]["record_shapes"] is True
    session = backend.start(presets.load_preset("full"), tmp_path)
    assert (session.is_running, session.stop().problems) == (False, ("refused: not imported in this process",))
    assert not {"torch", "torch_npu", "mindspore"} & sys.modules.keys()


def test_a_framework_that_is_still_being_imported_has_no_profiler_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in backends.list_backends():
        monkeypatch.setitem(sys.modules, name, ModuleType(name))

    reasons = [backends.load_backend(name).why_not() or "" for name in backends.list_backends()]

    assert all("still being imported" in reason for reason in reasons), reasons


def test_the_device_goes_before_the_host(recorded: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backends.list_backends() == ["torch_npu", "mindspore", "torch"]
    assert backends.choose_backend() == (None, dict.fromkeys(backends.list_backends(), "not imported in this process"))

    put(monkeypatch, recorded.mindspore())
    found, refused = backends.choose_backend()
    assert (found, list(refused)) == (mindspore.BACKEND, ["torch_npu"])

    put(monkeypatch, recorded.torch_npu())
    assert backends.choose_backend() == (torch_npu.BACKEND, {})


def test_torch_records_a_gpu_where_the_device_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = ModuleType("torch")
    torch.cuda = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", torch)
    of_host = Preset("mine", "level0", ("cpu",))

    options, notes = backends.load_backend("torch").described(presets.load_preset("light"))
    assert options["activities"] == ["CPU", "CUDA"]
    assert "activities: there is no NPU, the GPU is recorded" in notes
    assert backends.load_backend("torch").described(of_host)[0]["activities"] == ["CPU"]


def test_torch_does_not_step_in_where_msprof_has_the_npu(recorded: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.profiler sees no NPU: a profile of the host would pass for the one that was asked for."""
    put(monkeypatch, recorded.torch_npu())
    monkeypatch.setattr(sys.modules["torch"], "profiler", object(), raising=False)
    monkeypatch.setenv("PROFILER_SAMPLECONFIG", "x")

    found, refused = backends.choose_backend()

    assert found is None
    assert refused["torch"] == "this process has an NPU, which torch.profiler does not see"
    monkeypatch.setattr(sys.modules["torch_npu"].npu, "is_available", lambda: False)
    assert backends.load_backend("torch_npu").why_not() == "torch_npu sees no NPU"
    assert backends.load_backend("torch").why_not() is None
