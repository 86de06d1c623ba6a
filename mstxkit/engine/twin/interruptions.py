"""Exceptions of the program's own that come up in the middle of the engine: they pass on, and nothing stays half done.

A signal handler may raise between any two lines of ours, as may `PyThreadState_SetAsyncExc`, the recursion limit and
the lack of memory. In C the program meets such an exception before or after a range begins or ends, never in between.
Here it passes out of `__enter__`, and the range has not begun; or out of `__exit__`, and it has ended all the same.

CPython (from 3.10 on) runs signal handlers and other threads at the start of a function, after a call and at a jump
back. So what must not be torn apart is written in a straight line, and the last thing in it is its only call. What
comes up while a generator is closed is lost: so there are lists where a range begins or ends, and no `any`.
"""

from __future__ import annotations

import struct
import sys
from typing import Any, Callable, TypeVar

from ... import faults

F = TypeVar("F", bound=Callable[..., Any])
_OURS = (
    ArithmeticError, AssertionError, AttributeError, BufferError, LookupError, NameError, TypeError, ValueError,
    struct.error,
)  # fmt: skip
_PACKAGE = __name__.partition(".")[0] + "."
# Every function begins with this instruction, which lets what is pending come up; but not with this argument, which is
# that of a coroutine that goes on after an `await`. Before Python 3.11 there is none, nor a need: nothing comes up
# before a `try`.
_RESUME = (lambda: None).__code__.co_code[0] if sys.version_info >= (3, 11) else None
_IN_SILENCE = 3

on_fault: Callable[[str, BaseException], object] = faults.note_fault


def begins_with_try(function: F) -> F:
    """Let nothing come up before the function's first statement, which is a `try`."""
    code = bytearray(function.__code__.co_code)
    if code[0] == _RESUME and code[1] == 0:
        code[1] = _IN_SILENCE
        function.__code__ = function.__code__.replace(co_code=bytes(code))
    return function


def is_ours(exc: BaseException, hook: Any = None) -> bool:
    """Is it a fault of the engine's, raised by a line of mstxkit, or by the hook itself? Else it is the program's."""
    at = exc.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or str(at.tb_frame.f_globals.get("__name__")).startswith(_PACKAGE):
        return isinstance(exc, _OURS) and bool(exc.args)  # those of SetAsyncExc come without any
    called = hook if hasattr(hook, "__code__") else type(hook).__call__  # a function, or an object
    return at.tb_frame.f_code is getattr(called, "__code__", None)


def ask(where: str, hook: Callable[..., Any], *arguments: object) -> Any:
    """What a hook says; None where it fails, which is a fault."""
    try:
        return hook(*arguments)
    except Exception as exc:
        if not is_ours(exc, hook):
            raise
        note(where, exc)


def note(where: str, exc: BaseException) -> None:
    """Tell the hook of a fault; its own exceptions end here."""
    try:
        on_fault(where, exc)
    except Exception:
        pass
