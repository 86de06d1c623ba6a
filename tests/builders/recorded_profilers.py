"""What the backends use of real profilers, recorded from the source of their wheels, and stand-ins made from that.

Record: python tests/builders/recorded_profilers.py NAME=FOLDER …, for each package unpacked into FOLDER. Read as
source, so that neither torch nor CANN is needed: torch_npu 2.7.1 (which MindSpeed-RL ships with) and 2.13.0,
mindspore 2.10.0.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Callable

RECORD = Path(__file__).with_name("profilers.json")
WANTED = {"profile": "profile", "Profile": "profile", "_ExperimentalConfig": "config"}
Calls = list[tuple[str, dict[str, Any]]]


def record(folder: Path) -> dict[str, Any]:
    """Parameters with their defaults as source text, and the names of levels and metrics, of `folder`/profiler."""
    found: dict[str, Any] = {}
    for path in sorted((folder / "profiler").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == "tensorboard_trace_handler":
                found["handler"] = _parameters(node)
            elif isinstance(node, ast.ClassDef) and node.name in WANTED:
                (init,) = (one for one in node.body if getattr(one, "name", "") == "__init__")
                found[WANTED[node.name]] = _parameters(init)
            elif isinstance(node, ast.ClassDef) and node.name in ("ProfilerLevel", "AiCMetrics", "AicoreMetrics"):
                found["levels" if node.name == "ProfilerLevel" else "metrics"] = _values(node)
            elif isinstance(node, ast.ClassDef) and node.name == "ProfActionController":
                found["begins"] = _begins(node)
    return dict(sorted(found.items()))


def _begins(controller: ast.ClassDef) -> list[str]:
    """What torch_npu calls when a recording of one step begins."""
    tables = [node for node in ast.walk(controller) if isinstance(node, ast.Dict)]
    entries = {ast.unparse(key): value for table in tables for key, value in zip(table.keys, table.values) if key}
    calls = entries["(ProfilerAction.NONE, ProfilerAction.RECORD_AND_SAVE)"]
    return [ast.unparse(one).rpartition(".")[2] for one in calls.elts]  # type: ignore[attr-defined]


def _parameters(function: Any) -> dict[str, str | None]:
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + given.defaults + given.kw_defaults
    named = zip([*plain, *given.kwonlyargs], defaults)
    return {one.arg: default and ast.unparse(default) for one, default in named if one.arg != "self"}


def _values(enumeration: ast.ClassDef) -> dict[str, str]:
    assigned = (one for one in enumeration.body if isinstance(one, ast.Assign))
    return {one.targets[0].id: ast.unparse(one.value) for one in assigned}  # type: ignore[attr-defined]


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))[name]
    return found


class StandIn:
    """A `profiler` module with recorded signatures. Calls with all their arguments end up in `calls`.

    Attributes:
        is_on: Does a profile of it record?
        writes: What a recording leaves in its folder.
        bytes: Of data in that.
    """

    def __init__(self, found: dict[str, Any], metrics: str, suffix: str) -> None:
        self.calls: Calls = []
        self.is_on = False
        self.writes = "PROF_000001"
        self.bytes = 1
        self.suffix = suffix
        self.begins: list[str] = found.get("begins", [])
        self.module: Any = ModuleType("profiler")
        self.module.profile = self._function("profile", found["profile"], self._profile)
        self.module._ExperimentalConfig = self._function("_ExperimentalConfig", found["config"], SimpleNamespace)
        self.module.tensorboard_trace_handler = self._function("handler", found["handler"], SimpleNamespace)
        self.module.ProfilerLevel = type("ProfilerLevel", (), {name: name for name in found["levels"]})
        setattr(self.module, metrics, type(metrics, (), found["metrics"]))
        for name, values in (
            ("ProfilerActivity", ("CPU", "NPU")),
            ("ProfilerAction", ("NONE", "RECORD_AND_SAVE")),
            ("ExportType", ("Text", "Db")),
        ):
            setattr(self.module, name, type(name, (), {value: value for value in values}))

    def given(self, call: str) -> dict[str, Any]:
        """The arguments of the one call of this name."""
        (found,) = (arguments for name, arguments in self.calls if name == call)
        return found

    def _function(self, name: str, parameters: dict[str, str | None], result: Callable[..., Any]) -> Any:
        def noted(arguments: dict[str, Any]) -> Any:
            self.calls.append((name, arguments))
            return result()

        written = ", ".join(one if default is None else f"{one}={default!r}" for one, default in parameters.items())
        namespace: dict[str, Any] = {"noted": noted}
        exec(f"def made({written}): return noted(locals())", namespace)
        return namespace["made"]

    def _profile(self) -> Any:
        folder = Path(self.given("handler")["dir_name"]) / f"host_1_2{self.suffix}"

        def named(name: str) -> Callable[[], None]:
            def call() -> None:
                self.calls.append((name, {}))

            call.__name__ = name
            return call

        begin = [named(name) for name in self.begins]

        def start() -> None:
            self.calls.append(("start", {}))
            for call in begin:
                call()
            self.is_on = True
            data = folder / self.writes / ("device_0/data" if self.writes.startswith("PROF") else "")
            data.mkdir(parents=True)
            (data / "a.slice_0").write_text("x" * self.bytes)
            (data / "a.slice_0.done").write_text("filesize:1")

        def stop() -> None:
            self.calls.append(("stop", {}))
            (folder / "profiler_info.json").write_text("{}")
            self.is_on = False

        controller = SimpleNamespace(action_map={("NONE", "RECORD_AND_SAVE"): begin})
        step = named("step")
        return SimpleNamespace(start=start, stop=stop, step=step, action_controller=controller)


def torch_npu(name: str = "torch_npu 2.7.1", **changes: Any) -> tuple[StandIn, dict[str, ModuleType]]:
    """A stand-in torch_npu, and the modules to put into sys.modules. `changes` replace parts of the record."""
    made = StandIn({**recorded(name), **changes}, "AiCMetrics", "_ascend_pt")
    package, torch = ModuleType("torch_npu"), ModuleType("torch")
    package.profiler, package.npu = made.module, SimpleNamespace(is_available=lambda: True)  # type: ignore[attr-defined]
    autograd = SimpleNamespace(_profiler_enabled=lambda: made.is_on)
    torch._C = SimpleNamespace(_autograd=autograd)  # type: ignore[attr-defined]
    return made, {"torch": torch, "torch_npu": package}


def mindspore(target: str = "Ascend") -> tuple[StandIn, dict[str, ModuleType]]:
    """A stand-in MindSpore on a device of this kind, and the modules to put into sys.modules."""
    made = StandIn(recorded("mindspore 2.10.0"), "AicoreMetrics", "_ascend_ms")
    package, interface = ModuleType("mindspore"), ModuleType("profiler_interface")
    package.profiler, package.get_context = made.module, lambda name: target  # type: ignore[attr-defined]
    interface.ProfilerInterface = type("I", (), {"is_initialized": property(lambda _: made.is_on)})()  # type: ignore[attr-defined]
    return made, {"mindspore": package, "mindspore.profiler.profiler_interface": interface}


if __name__ == "__main__":
    packages = dict(argument.split("=", 1) for argument in sys.argv[1:])
    RECORD.write_text(json.dumps({name: record(Path(folder)) for name, folder in packages.items()}, indent=1) + "\n")
