"""What is on, and who is told of ranges: profilers by sinks, mstx by its C functions, escalation by hooks.

While nothing is on a range does nothing at all. What was begun in a sink is ended by that sink, also after it is
cleared. A hook may do anything, also start a profiler that sets a sink, or let another thread run: what was known
before it is read again.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

from . import interruptions

Hook = Optional[Callable[..., object]]
RECORD, TOOLS, WATCH, AWAITED = 1, 2, 4, 8  # bits of `on`
_INDEXED, _MSTX = ("sink.torch_npu", "sink.mindspore", "sink.torch"), "sink.mstx"

Sink = tuple[Callable[..., Any], Hook, Hook, Hook]  # what `set_sink` is given
on = 0
process = object()  # another one in a forked child: what was begun before is the parent's
sinks: dict[str, Sink | None] = dict.fromkeys((*_INDEXED, _MSTX))  # in the order in which they are told
# Called with a site and whether the range may move to another thread; with a site and whether the range failed; with
# the step; with nothing.
ENTERED, LEFT, STEPPED, FIRST = "watch.entered", "watch.left", "watch.stepped", "watch.first"
hooks: dict[str, Hook] = dict.fromkeys((ENTERED, LEFT, STEPPED, FIRST))
_last_step: tuple[int, int] | None = None  # the step that was said last, and on which thread


def switch(bit: int, is_on: object) -> None:
    """Switch one of them on or off."""
    global on
    on = on | bit if is_on else on & ~bit


def set_sink(index: int, begin: Any, end: Any, mark: Any = None, begin_stream: Any = None) -> None:
    """Tell this tool of every range and mark from now on."""
    clear_sink(index)
    _put_sink(_INDEXED[index], (begin, end, mark, begin_stream))


def clear_sink(index: int) -> None:
    """Tell it of nothing more but the ends of what it began."""
    if not 0 <= index < len(_INDEXED):
        raise ValueError(f"sink index must be 0 to {len(_INDEXED) - 1}")
    _put_sink(_INDEXED[index], None)


def clear_direct() -> None:
    """No mstx any more."""
    _put_sink(_MSTX, None)


def _put_sink(name: str, sink: Sink | None) -> None:
    sinks[name] = sink
    switch(TOOLS, any(sinks.values()))


def set_direct(addresses: tuple[int, ...]) -> None:
    """mstx, which wants each domain created once, by C function addresses: see docs/internals/engine.md."""
    import ctypes

    text, handle, number = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64
    types: Any = (
        (None, text, handle), (number, text, handle), (None, number), (handle, text),
        (None, handle, text, handle), (number, handle, text, handle), (None, handle, number),
    )  # fmt: skip
    if len(addresses) != len(types) or not addresses[1] or not addresses[2]:
        raise ValueError("mstxRangeStartA and mstxRangeEnd are needed")
    functions: list[Any] = [ctypes.PYFUNCTYPE(*type_)(at) if at else None for type_, at in zip(types, addresses)]
    mark, start, end, create, mark_in, start_in, end_in = functions
    domains: dict[str, Any] = {"default": None}

    def domain_of(name: str) -> tuple[Any, ...]:
        if create and mark_in and start_in and end_in and name not in domains:
            domains[name] = create(name.encode())
        return (domains[name],) if domains.get(name) else ()

    def tell_begin(message: str, name: str) -> Any:
        domain = domain_of(name)
        token = (start_in if domain else start)(*domain, message.encode(), None)
        return (*domain, token) if token else None

    def tell_mark(message: str, stream: Any, name: str) -> None:
        domain = domain_of(name)
        if call := mark_in if domain else mark:
            call(*domain, message.encode(), None)

    _put_sink(_MSTX, (tell_begin, lambda begun, name: (end_in if len(begun) > 1 else end)(*begun), tell_mark, None))


def tell(where: str, hook: Hook, *arguments: Any) -> Any:
    """What it says; None where there is none, and where it fails, which is a fault, and the end of a sink."""
    try:
        return None if hook is None else hook(*arguments)
    except Exception as exc:
        if where in sinks:
            _put_sink(where, None)
        interruptions.note(where, exc)


def begin_in_sinks(opened: Any, stream: Any) -> None:
    """Tell every sink; the range keeps how to end what began."""
    message, domain, opened.ends = opened.site.message, opened.site.message_domain, []
    for name, sink in tuple(sinks.items()):
        if sink is not None:
            begin, end, _, begin_stream = sink
            begun_in, is_plain = process, stream is None or begin_stream is None
            call = (begin, message, domain) if is_plain else (begin_stream, message, stream, domain)
            token = tell(name, *call)
            if token is not None:
                opened.ends.append((name, end, token, begun_in))


def end_in_sinks(opened: Any) -> None:
    """Tell those in which it began, each once."""
    while opened.ends:
        name, end, token, begun_in = opened.ends[-1]
        del opened.ends[-1]
        if begun_in is process:
            tell(name, end, token, opened.site.message_domain)


def mark_in_sinks(site: Any, stream: Any) -> None:
    """Tell every sink that takes marks."""
    for name, sink in tuple(sinks.items()):
        if sink is not None:
            tell(name, sink[2], site.message, stream, site.message_domain)


def set_watch(entered: Hook, left: Hook, stepped: Hook, /) -> None:
    """Whom to tell from now on; None: nobody."""
    global _last_step
    hooks[ENTERED], hooks[LEFT], hooks[STEPPED], _last_step = entered, left, stepped, None


def watch(on: object, /) -> None:
    """Tell of watched ranges that begin from now on; or of no more."""
    switch(WATCH, on)


def await_first(hook: Hook, /) -> None:
    """Call this once the next range or mark begins, and the one after that where it returns True; None: nobody."""
    hooks[FIRST] = hook
    switch(AWAITED, hook is not None)


def tell_first() -> None:
    """The first range or mark is about to begin."""
    asks_again = False
    try:
        asks_again = tell(FIRST, hooks[FIRST]) is True
    finally:
        if not asks_again:
            await_first(None)


def tell_step(step: int) -> None:
    """Somebody has said the step; patched calls do at each call."""
    global _last_step
    told_step = step, threading.get_ident()
    if hooks[STEPPED] is not None and (told_step != _last_step or on & WATCH):
        _last_step = told_step
        tell(STEPPED, hooks[STEPPED], step)
