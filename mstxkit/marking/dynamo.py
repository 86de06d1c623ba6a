"""torch.compile sees through ranges: a range in a compiled region is left out of the graph instead of breaking it.

What is compiled is not marked, recording or not, so switching recording on or off compiles nothing anew. Eager code
calls the engine as before. A frame that breaks the graph inside a `with` over a range runs eagerly as a whole, as
with any context manager that is a Python class; a break inside a decorated function costs nothing more.

Source: torch 2.13.0, `torch/_dynamo/decorators.py` (`substitute_in_graph`, `disable`) and `trace_rules.py` (`add`,
`SKIP_DIRS`).
"""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Callable

from . import signatures

# Modules of which nothing is traced or compiled.
_NEVER_TRACED = (
    "mstxkit.engine",
    "mstxkit.recorder",
    "mstxkit.sinks",
    "mstxkit.marking.calls",
    "mstxkit.faults",
    "mstxkit.host.names",
)
# A program may act on what they answer, so they are not left out: they run as in eager code, and break the graph.
_RUN_EAGERLY = ("step", "current_step", "current_stage")


class _TracedRange:
    """Stands for a range while torch.compile traces. Plain Python, because it is traced itself."""

    def __enter__(self) -> _TracedRange:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def set(self, **attributes: object) -> None:
        """Nothing."""


def _make_range(name: Any, **options: Any) -> Any:
    return _TracedRange()


def register_functions(dynamo: ModuleType, engine: Any) -> None:
    """Tell `torch._dynamo` about the engine's functions, once per process; a torch that is too old is left alone."""
    inlining = getattr(getattr(dynamo, "symbolic_convert", None), "InliningInstructionTranslator", None)
    of_globals = getattr(inlining, "get_globals_source_and_value", None)
    if of_globals is None or signatures.OF_NO_MODULE not in of_globals.__code__.co_consts:
        signatures.name_no_modules()
    _load_what_code_holds(dynamo)
    if not hasattr(dynamo, "substitute_in_graph"):
        return
    _leave_out(dynamo.trace_rules)
    substitutions: dict[Callable[..., Any], Callable[..., Any]] = {
        engine.mstx_range: _make_range, engine.stage: _make_range, engine.mark: lambda message, **options: None,
        engine.at_step: lambda n: contextlib.nullcontext(), engine.is_on: lambda site: False,
    }  # fmt: skip
    for name in _RUN_EAGERLY:
        substitutions[getattr(engine, name)] = _break_graph(dynamo, getattr(engine, name))
    for original, traced in substitutions.items():
        # The twin's at_step is a class.
        options = {"is_embedded_type": True} if isinstance(original, type) else {}
        dynamo.substitute_in_graph(original, skip_signature_check=True, **options)(traced)


def _load_what_code_holds(dynamo: ModuleType) -> None:
    """torch takes each constant of code for a literal; what the code of a wrapper holds is as good as a global."""
    translator: Any = getattr(getattr(dynamo, "symbolic_convert", None), "InstructionTranslatorBase", None)
    load = getattr(translator, "_load_const", None)
    if load is None:
        return

    def _load_const(self: Any, instruction: Any) -> Any:
        held = instruction.argval
        if type(held) is not signatures.Held:
            return load(self, instruction)
        source = dynamo.source.GlobalSource(self.output.install_global_by_id("mstxkit", held))
        return dynamo.variables.builder.VariableBuilder(self, source)(held)

    translator._load_const = _load_const


def _leave_out(trace_rules: Any) -> None:
    """Each `add` compiles one expression of all places anew, 2 ms: those before the last are put where it looks."""
    *others, last = _NEVER_TRACED
    places = getattr(trace_rules, "SKIP_DIRS", None)
    for name in others:
        spec = find_spec(name)
        if isinstance(places, list) and spec is not None and spec.origin:
            places.append(spec.origin.removesuffix("__init__.py"))
        else:
            trace_rules.add(name)
    trace_rules.add(last)


def _break_graph(dynamo: ModuleType, function: Callable[..., Any]) -> Callable[..., Any]:
    """A substitute that breaks the graph; without one torch.compile does so too, but warns about every C function."""

    @dynamo.disable  # type: ignore[untyped-decorator, unused-ignore]
    def eagerly(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def traced(*args: Any, **kwargs: Any) -> Any:
        return eagerly(*args, **kwargs)

    return traced
