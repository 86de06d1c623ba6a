"""Idioms that are measured as something else than meant: told once each, with what to write instead."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from .. import faults

_GENERATOR = 0x20
_BEGINS = ("BEFORE_WITH", "BEFORE_ASYNC_WITH") if sys.version_info >= (3, 11) else ("SETUP_WITH", "SETUP_ASYNC_WITH")
_WRAPPERS = ("ASYNC_GEN_WRAP", "CALL_INTRINSIC_1")


def look_at_stage(stage: str, frame: Any) -> None:
    """A stage of a generator is new: is it left open while the generator's caller goes on?
    `stage`: its key. `frame`: the generator's, which makes or enters the stage just now.
    """
    caller = frame.f_back
    if caller is not None and caller.f_globals.get("__name__") == "contextlib":
        return  # a generator that is a context is meant to be left open
    if _is_left_open(frame.f_code, frame.f_lasti):
        faults.say_once(
            f"{frame.f_code.co_filename}:{frame.f_lineno}: stage {stage[:80]!r} is open over a yield, and what the "
            "caller does meanwhile counts as its time: end it before the yield, or decorate the generator with "
            f"@mstx_timer(stage={stage[:80]!r}), whose busy_ns is what runs inside of it"
        )


def _is_left_open(code: CodeType, at: int) -> bool:
    """Does the `with` that begins at this instruction, or right after it, have a yield in its body?"""
    import dis

    every = list(dis.get_instructions(code))
    near = [instruction for instruction in every if instruction.offset > at - 2][:6]
    begin = next((instruction for instruction in near if instruction.opname in _BEGINS), None)
    if begin is None:
        return False
    after = {instruction.offset: following.opname for instruction, following in zip(every, every[1:])}
    end = _body_ends(code, begin, after)
    inside = [instruction.opname for instruction in every if begin.offset <= instruction.offset < end]
    if code.co_flags & _GENERATOR:
        return "YIELD_VALUE" in inside or "YIELD_FROM" in inside
    # An async generator's `await` is a yield too, of what is not wrapped.
    return any(
        name == "YIELD_VALUE" and (before in _WRAPPERS or sys.version_info < (3, 11))
        for before, name in zip(inside, inside[1:])
    )


def _body_ends(code: CodeType, begin: Any, after: dict[int, str]) -> int:
    """Where the body of a `with` ends: there neither its handler of exceptions holds nor one of those inside of it.
    `after`: of each instruction the next one.
    """
    import dis

    if begin.opname.startswith("SETUP"):
        return int(begin.argval)
    table: Any = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    end = depth = 0
    for entry in table:
        if not end and entry.start > begin.offset and after.get(entry.target) == "WITH_EXCEPT_START":
            end, depth = entry.end, entry.depth
        elif end and entry.start <= end + 2 and entry.depth >= depth:  # between them may be a NOP
            end = entry.end
    return int(end)
