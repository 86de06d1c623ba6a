"""What the mindspore sink uses of MindSpore, as recorded from a real wheel, and a stand-in made from that record.

Recorded with `python tests/builders/recorded_mindspore.py` in an environment that has mindspore (2.10.0 with numpy < 2,
x86-64, no NPU). On a CPU `Mstx.NPU_PROFILER` is None, so its signatures are those that pybind11 writes into the
docstrings of its class.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

RECORD = Path(__file__).with_name("mindspore.json")
NATIVE = ("mstx_mark", "mstx_range_start", "mstx_range_end")
PUBLIC = ("mark", "range_start", "range_end")
MODULE = "mindspore.profiler.platform.npu_profiler"


def record() -> dict[str, Any]:
    """Names and parameters (with defaults) of the installed MindSpore."""
    import mindspore
    from mindspore import _c_expression
    from mindspore.profiler.platform import npu_profiler

    def parameters(function: Any) -> list[str]:
        return [f"{p.name}={p.default!r}" if p.default is not p.empty else p.name for p in _signature(function)]

    return {
        "version": mindspore.__version__,
        "native": {name: _pybind_parameters(getattr(_c_expression.Profiler, name).__doc__) for name in NATIVE},
        "public": {name: parameters(getattr(npu_profiler.Mstx, name)) for name in PUBLIC},
        "profiler": {name: parameters(getattr(npu_profiler.NpuProfiler, name)) for name in ("start", "stop")},
    }


def _signature(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _pybind_parameters(doc: str) -> list[str]:
    """`f(self: X, message: str, domain: str = 'default') -> int` gives ["message", "domain='default'"]."""
    inside = doc.splitlines()[0].split("(", 1)[1].rsplit(")", 1)[0]
    return [part.split(":")[0] + ("=" + part.split(" = ")[1] if " = " in part else "") for part in inside.split(", ")][
        1:
    ]


def _made(name: str, parameters: list[str], calls: list[tuple[Any, ...]], result: Any = None) -> Any:
    """A function with these parameters that notes (name, their values in order) and returns `result()`."""
    namespace: dict[str, Any] = {"calls": calls, "result": result or (lambda: None)}
    values = ", ".join(p.split("=")[0] for p in parameters)
    exec(f"def {name}({', '.join(parameters)}):\n calls.append(({name!r}, {values}))\n return result()", namespace)
    return namespace[name]


def stand_in(
    calls: list[tuple[Any, ...]], ids: Any, *, native: bool = True, domains: bool = True
) -> dict[str, ModuleType]:
    """Modules to put into `sys.modules`: a MindSpore on an NPU whose calls end up in `calls`.

    Args:
        ids: A function that gives the next range id.
        native: Has it the C object under the public calls?
        domains: Do the public calls take a domain?
    """
    recorded = json.loads(RECORD.read_text())
    public = {n: [p for p in ps if domains or not p.startswith("domain")] for n, ps in recorded["public"].items()}
    gives = {"mstx_range_start": ids, "range_start": ids}
    c_object = type(
        "Profiler", (), {n: staticmethod(_made(n, ps, calls, gives.get(n))) for n, ps in recorded["native"].items()}
    )
    members: dict[str, Any] = {n: staticmethod(_made(n, ps, calls, gives.get(n))) for n, ps in public.items()}
    mstx = type("Mstx", (), {**members, "NPU_PROFILER": c_object() if native else object(), "enable": False})
    module: Any = ModuleType(MODULE)
    module.Mstx, module.NpuProfiler = mstx, _profiler(mstx)
    parents = ("mindspore", "mindspore.profiler", "mindspore.profiler.platform")
    return {**{name: ModuleType(name) for name in parents}, MODULE: module}


def _profiler(mstx: Any) -> type:
    """As `NpuProfiler`: its start sets `Mstx.enable` to what was configured, its stop to False."""

    class NpuProfiler:
        def __init__(self, wants_mstx: bool) -> None:
            self.wants_mstx = wants_mstx

        def start(self) -> None:
            mstx.enable = self.wants_mstx

        def stop(self) -> None:
            mstx.enable = False

    return NpuProfiler


if __name__ == "__main__":
    RECORD.write_text(json.dumps(record(), indent=1) + "\n")
    sys.stdout.write(RECORD.read_text())
