"""What happens at the entry of a patched call while recording: the step is set, role and attributes are read.

A wrapper holds an `Entry` as its `attributes`, so that a call costs nothing here while nothing records. It is plain
data and expressions: it travels with a wrapper that is pickled by value.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, NamedTuple, Union

from .. import faults, stages
from ..host import identity
from ..marking import ranges
from ..pieces import boundaries, edges
from .conditions import Condition
from .conditions import compiled as condition
from .declare import WAITS_FOR, WORKERS, Step, Target
from .expressions import Expression, ExpressionError, Unreadable, compiled

# An expression that fails this often in a row is not asked any more.
_GIVE_UP_AFTER = 100
INHERIT_ROLE = "stage"


class _Progress:
    """Steps of this process that a framework tells only at their end."""

    next_step: int | None = None


_progress = _Progress()


def _forget() -> None:
    _progress.next_step = None


os.register_at_fork(after_in_child=_forget)  # the step that is next is its parent's


def stage_begins() -> None:
    """A stage is entered: it belongs to the step after the one of which a framework has told the end."""
    if _progress.next_step is not None:
        step_begins(_progress.next_step)


def step_begins(number: int) -> None:
    """A framework has told which step begins."""
    ranges.step(number)
    _progress.next_step = None


def step_to_come() -> int | None:
    """The step that the next stage is to begin; None where no step has ended since the last one began."""
    return _progress.next_step


class AskedStep(NamedTuple):
    """In the place of an expression: a callable of the call's own arguments."""

    ask: Callable[..., Any]

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What it returns."""
        return self.ask(*args, **kwargs)


Readable = Union[Expression, Condition, AskedStep]


class Entry:
    """The entry of one target. Called with the call's own arguments; gives the range's attributes.

    Args:
        target: What was declared.
        signature: Of the function that it names.

    Attributes:
        problems: What cannot be read of this function: an expression is malformed, or names a parameter that it lacks.

    Cost: about a microsecond for two attributes; only while recording.
    """

    def __init__(self, target: Target, signature: Any) -> None:
        self.path, self.stage = target.path, target.stage
        self.role, self.process_role = target.role, target.process_role
        self.waits_for = WORKERS if target.waits else None
        self.ask = target.attributes if callable(target.attributes) else None
        texts = {} if callable(target.attributes) else dict(target.attributes)
        self.problems: list[str] = []
        read = {name: self._compiled(name, text, signature) for name, text in texts.items()}
        self.expressions = {name: expression for name, expression in read.items() if expression is not None}
        self.step, self.step_after = self._stepped(target.step, signature), self._stepped(target.step_after, signature)
        self.dummy = None if target.dummy is None else self._compiled("dummy", target.dummy, signature, condition)
        mixes_if = target.sampling.mixes_if
        self.mixes_if = None if mixes_if is None else self._compiled("mixes_if", mixes_if, signature, condition)
        self.mixes = dict(target.sampling.mixes)
        self.site: Any = None  # known once the function is decorated
        self._failed: dict[str, int] = {}

    def _compiled(self, name: str, text: str, signature: Any, compile: Callable[..., Any] = compiled) -> Any:
        try:
            return compile(text, signature)
        except ExpressionError as exc:
            self.problems.append(f"{name} is left out: {exc}")
            faults.warn_once(f"attribute {name} of {self.path}", f"{self.path}: {self.problems[-1]}")
            return None

    def _stepped(self, step: Step, signature: Any) -> Readable | None:
        if step is None or isinstance(step, str):
            return None if step is None else self._compiled("step", step, signature)
        return AskedStep(step)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_failed": {}}

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Set the step, then read the attributes of this call. What cannot be read is counted and left out."""
        self._tell_step(args, kwargs)
        self._tell_sampling(args, kwargs)
        if self.process_role is not None and not identity.has_role():
            identity.identify(role=self.process_role)
        values = dict(self.ask(*args, **kwargs)) if self.ask is not None else {}
        for name, expression in self.expressions.items():
            value = self._read(name, expression, args, kwargs)
            if value is not None:
                values[name] = value
        role = stages.role_of(self.stage or ranges.current_stage()) if self.role == INHERIT_ROLE else self.role
        if role is not None:
            values["role"] = role
        if self.waits_for is not None:
            values[WAITS_FOR] = self.waits_for
        return values

    def _tell_step(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self.step_after is not None:
            ended = self._step(self.step_after, args, kwargs)
            if ended is not None:
                ranges.step(ended)
                _progress.next_step = ended + 1
        elif self.step is not None:
            now = self._step(self.step, args, kwargs)
            if now is not None:
                step_begins(now)
        elif self.stage is not None:
            stage_begins()

    def _tell_sampling(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """What the call is among the pieces of its stage, as only its arguments say."""
        if self.dummy is None and self.mixes_if is None:
            return
        is_dummy = self.dummy is not None and bool(self._read("dummy", self.dummy, args, kwargs))
        mixes = self.mixes_if is not None and bool(self._read("mixes_if", self.mixes_if, args, kwargs))
        edges.next_call(self.site, is_dummy, tuple(self.mixes) if mixes else ())
        if self.mixes_if is not None:
            stage = self.stage or stages.canonical(ranges.current_stage() or "")
            for per, why in self.mixes.items():
                boundaries.note_mixed(self.site, stage or None, per, why if mixes else None)

    def _step(self, expression: Readable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
        """None where it cannot be read or is no step: frameworks pass -1 or None before the first one."""
        value = self._read("step", expression, args, kwargs)
        return value if type(value) is int and value >= 0 else None

    def _read(self, name: str, expression: Readable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
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
