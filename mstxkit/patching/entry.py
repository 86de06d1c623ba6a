"""What happens at the entry of a patched call while recording: the step is set, role and attributes are read.

A wrapper holds an `Entry` as its `attributes`, so that a call costs nothing here while nothing records. Most of it is
code in the wrapper itself (`inlining.py`), which comes back here for what it cannot read, and with what it has read. An
entry is plain data and expressions: it travels with a wrapper that is pickled by value.
"""

from __future__ import annotations

import itertools
import os
from time import thread_time_ns
from typing import Any, Callable, Iterator, Mapping

from .. import faults, stages
from ..engine.plain_paths import Unreadable
from ..host import identity
from ..marking import calls, ranges
from ..marking.signatures import Parameters, Prepared, Prologue
from ..pieces import boundaries, edges
from ..store.summaries import WAITS_FOR, WORKERS
from .declare import Target
from .expressions import Expression, ExpressionError, compile_condition, compile_expression
from .inlining import Inlined

# An expression that fails this often in a row is not asked any more.
_GIVE_UP_AFTER = 100
INHERIT_ROLE = "stage"
# By stage, the attributes of a call in it that has its role and nothing else.
_ROLES = {key: {"role": stage.role} for key, stage in stages.BY_KEY.items()}


class _Progress:
    """Steps of this process that a framework tells only at their end; a class only, so that it travels by name."""

    next_step: int | None = None


# The step that is next is its parent's.
os.register_at_fork(after_in_child=lambda: setattr(_Progress, "next_step", None))


def stage_begins() -> None:
    """A stage is entered: it belongs to the step after the one of which a framework has told the end."""
    if _Progress.next_step is not None:
        step_begins(_Progress.next_step)


def step_begins(number: int) -> None:
    """A framework has told which step begins."""
    ranges.step(number)
    _Progress.next_step = None


def step_to_come(*_: Any, **__: Any) -> int | None:
    """The step that the next stage is to begin; None where no step has ended since the last one began. Also as `step`
    of what a step may begin with besides a stage.
    """
    return _Progress.next_step


def _count_turns() -> Iterator[bool]:
    """True for one call in so many, the cheapest way to count them."""
    return itertools.cycle([False] * (calls.EVERY - 1) + [True])


# Called as an `Expression` is, or a `Condition`.
Readable = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]


class Entry(Prepared):
    """The entry of one target: code for its wrapper, or called with the call's own arguments where that is not enough.
    `problems`: what cannot be read of this function: an expression is malformed, or names a parameter that it lacks.
    `turns`: true for each call whose reading is to be measured.

    Cost: about a quarter of a microsecond for two attributes; only while recording.
    """

    def __init__(self, target: Target, signature: Any) -> None:
        self.path, self.stage = target.path, target.stage
        self.role, self.process_role = target.role, target.process_role
        if self.role == INHERIT_ROLE and self.stage is not None:
            self.role = stages.role_of(self.stage)
        self.ask = target.attributes if callable(target.attributes) else None
        texts = {} if callable(target.attributes) else dict(target.attributes)
        self.problems: list[str] = []
        read = {name: self._compile_text(name, text, signature) for name, text in texts.items()}
        self.expressions = {name: expression for name, expression in read.items() if expression is not None}
        begins, ends = (
            step if callable(step) else self._compile_text("step", step, signature)
            for step in (target.step, target.step_after)
        )
        self.step, self.step_is_over = begins if ends is None else ends, ends is not None
        self.dummy = self._compile_text("dummy", target.dummy, signature, compile_condition)
        self.mixes_if = self._compile_text("mixes_if", target.sampling.mixes_if, signature, compile_condition)
        self.mixes = dict(target.sampling.mixes)
        # Attributes of all calls alike, which go before those that are read.
        self.fixed: dict[str, Any] = {} if self.role in (None, INHERIT_ROLE) else {"role": self.role}
        self.fixed.update({WAITS_FOR: WORKERS} if target.waits else {})
        if self.role == INHERIT_ROLE:
            self.constant = _ROLES if not self.expressions and not self.fixed else None
        elif self.ask is None and all(expression.is_literal for expression in self.expressions.values()):
            self.constant = {**{name: literal((), {}) for name, literal in self.expressions.items()}, **self.fixed}
        self.progress, self.turns = _Progress, _count_turns()
        self.site: Any = None  # known once the function is decorated
        self._failed: dict[str, int] = {}

    def _compile_text(
        self, name: str, text: str | None, signature: Any, compile: Callable[..., Any] = compile_expression
    ) -> Any:
        try:
            return None if text is None else compile(text, signature)
        except ExpressionError as exc:
            self.problems.append(f"{name} is left out: {exc}")
            faults.warn_once(f"attribute {name} of {self.path}", f"{self.path}: {self.problems[-1]}")
            return None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_failed", "turns")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._failed, self.turns = {}, _count_turns()

    def prologue(self, parameters: Parameters, names: Mapping[str, str]) -> Prologue | None:
        """What the wrapper does; None where a callable of the user's is to be asked, or a name is not plain."""
        is_asked = self.ask is not None or not isinstance(self.step, (Expression, type(None)))
        is_twice = self.role == INHERIT_ROLE and "role" in self.expressions
        if is_asked or is_twice or any(type(name) is not str for name in (*self.expressions, *self.fixed.values())):
            return None
        inlined = Inlined(parameters, names)
        lines = []
        if isinstance(self.step, Expression):
            lines += inlined.step(self.step, self.step_is_over)
        elif self.stage is not None:
            lines.append(f"if {inlined.ended} is not None: {inlined.call_entry('stage_begins')}")
        if self.dummy is not None or self.mixes_if is not None:
            lines.append(inlined.call_entry("tell_sampling", inlined.arguments))
        if self.process_role is not None:
            lines.append(inlined.call_entry("tell_process_role"))
        if self.constant is None:
            lines += inlined.attributes(self.expressions, self.fixed, self.role == INHERIT_ROLE)
        elif self.role == INHERIT_ROLE:
            lines.append("{value} = {constant}.get({current_stage}())".format(**names))
        elif lines:
            lines.append("{value} = {constant}".format(**names))
        else:
            return Prologue(values=names["constant"] if self.constant else "")
        return inlined.whole(lines)

    def read_again(self, values: dict[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Read as expressions say it what the code could not read: it goes into `values`, or is left out of them."""
        for name, value in list(values.items()):
            if value is NotImplemented:
                value = values[name] = self._read_value(name, self.expressions[name], args, kwargs)
            if value is None:
                del values[name]

    def read_step(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
        """What is read for the step; None where that is no int."""
        step = self.step
        if step is None:
            return None
        read: Any = step if isinstance(step, Expression) else lambda args, kwargs: step(*args, **kwargs)
        value = self._read_value("step", read, args, kwargs)
        return value if type(value) is int else None

    def step_ends(self, number: int) -> None:
        """The call has told the step that ends with it."""
        ranges.step(number)
        _Progress.next_step = number + 1

    stage_begins = staticmethod(stage_begins)

    def tell_sampling(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """What the call is among the pieces of its stage, as only its arguments say."""
        is_dummy = self.dummy is not None and bool(self._read_value("dummy", self.dummy, args, kwargs))
        mixes = self.mixes_if is not None and bool(self._read_value("mixes_if", self.mixes_if, args, kwargs))
        edges.next_call(self.site, is_dummy, tuple(self.mixes) if mixes else ())
        if self.mixes_if is not None:
            stage = self.stage or stages.canonical_key(ranges.current_stage() or "")
            for per, why in self.mixes.items():
                boundaries.note_mixed(self.site, stage or None, per, why if mixes else None)

    def tell_process_role(self) -> None:
        """What this process is, unless that is known."""
        if self.process_role is not None and not identity.has_role():
            identity.identify(role=self.process_role)

    def role_here(self) -> str | None:
        """The role of the stage that the call is in."""
        return stages.role_of(ranges.current_stage())

    def measure_from(self) -> int:
        """The reading of this call is measured, and stands for those since the last one that was."""
        return thread_time_ns()

    def measured(self, began_ns: int) -> None:
        """What it took is part of the site's own cost."""
        calls.add_sample(self.site, thread_time_ns() - began_ns)

    def failed(self, fault: Exception) -> None:
        """Something of ours raised: counted, and the range goes without attributes."""
        faults.note_fault("entry of a patched call", fault)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Set the step, then read the attributes of this call. What cannot be read is counted and left out."""
        step = self.read_step(args, kwargs)
        if step is not None and step >= 0:  # frameworks pass -1 or None before the first one
            (self.step_ends if self.step_is_over else step_begins)(step)
        elif self.step is None and self.stage is not None:
            stage_begins()
        if self.dummy is not None or self.mixes_if is not None:
            self.tell_sampling(args, kwargs)
        self.tell_process_role()
        values = dict(self.ask(*args, **kwargs)) if self.ask is not None else {}
        for name, expression in self.expressions.items():
            value = self._read_value(name, expression, args, kwargs)
            if value is not None:
                values[name] = value
        role = self.role_here() if self.role == INHERIT_ROLE else None
        return {**values, **({"role": role} if role is not None else {}), **self.fixed}

    def _read_value(self, name: str, expression: Readable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        failed = self._failed.get(name, 0)
        if failed >= _GIVE_UP_AFTER:
            return None
        try:
            value = expression(args, kwargs)
        except Unreadable as exc:
            self._failed[name] = failed + 1
            faults.warn_once(f"attribute {name} of {self.path}", f"{self.path}: {name} is left out: {exc}")
            return None
        if failed:
            self._failed[name] = 0
        return value
