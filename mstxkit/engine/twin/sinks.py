"""Live outputs of the Python twin: up to three Python sinks, and mstx by C function addresses through ctypes.

What was begun is ended by the one that began it: a range keeps how to end it, also after the sink is cleared.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from .sites import Site

SINK_COUNT = 3
_NAMES = ("sink.torch_npu", "sink.mindspore", "sink.torch")

on_fault: Callable[[str, BaseException], None] = lambda where, exc: None  # noqa: E731
on_change: Callable[[], None] = lambda: None  # noqa: E731


class Sink(NamedTuple):
    """What a tool takes; see `set_sink`."""

    begin: Callable[[str, str], Any]
    end: Callable[[Any, str], object]
    mark: Callable[[str, Any, str], object] | None
    begin_stream: Callable[[str, Any, str], Any] | None


sinks: list[Sink | None] = [None] * SINK_COUNT
# In a forked child another object: the tools have begun nothing there.
process = object()
direct: Direct | None = None


def is_any() -> bool:
    """Does anything listen?"""
    return direct is not None or any(sinks)


def set_sink(
    index: int,
    begin: Callable[[str, str], Any],
    end: Callable[[Any, str], object],
    mark: Callable[[str, Any, str], object] | None = None,
    begin_stream: Callable[[str, Any, str], Any] | None = None,
) -> None:
    """Tell this tool of every range and mark from now on.

    Raises:
        ValueError: there is no such sink.
    """
    _put(index, Sink(begin, end, mark, begin_stream))


def clear_sink(index: int) -> None:
    """Tell it of nothing more but the ends of what it began.

    Raises:
        ValueError: there is no such sink.
    """
    _put(index, None)


def _put(index: int, sink: Sink | None) -> None:
    if not 0 <= index < SINK_COUNT:
        raise ValueError(f"sink index must be 0 to {SINK_COUNT - 1}")
    sinks[index] = sink
    on_change()


def set_direct(addresses: tuple[int, ...]) -> None:
    """mstx by C function addresses: see docs/internals/engine.md.

    Raises:
        ValueError: one that is needed is missing.
    """
    global direct
    direct = Direct(addresses)
    on_change()


def clear_direct() -> None:
    """No mstx any more."""
    global direct
    direct = None
    on_change()


def _failed(index: int, exc: BaseException) -> None:
    clear_sink(index)
    on_fault(_NAMES[index], exc)


def begin(site: Site, stream: Any) -> list[Callable[[], None]] | None:
    """Tell every sink; how to end what began, in the order of beginning. None: nothing began."""
    ends = []
    for index, sink in enumerate(sinks):
        end = sink and _begin_in(index, sink, site, stream)
        if end:
            ends.append(end)
    end_direct = direct and direct.begin(site)
    if end_direct:
        ends.append(end_direct)
    return ends or None


def _begin_in(index: int, sink: Sink, site: Site, stream: Any) -> Callable[[], None] | None:
    try:
        if stream is not None and sink.begin_stream is not None:
            token = sink.begin_stream(site.message, stream, site.message_domain)
        else:
            token = sink.begin(site.message, site.message_domain)
    except Exception as exc:
        _failed(index, exc)
        return None
    if token is None:
        return None

    def end() -> None:
        try:
            sink.end(token, site.message_domain)
        except Exception as exc:
            _failed(index, exc)

    return end


def after_fork() -> None:
    """A forked child tells the parent's tools nothing."""
    global process, direct
    process, direct = object(), None
    sinks[:] = [None] * SINK_COUNT


def mark(site: Site, stream: Any) -> None:
    """Tell every sink that takes marks."""
    if direct is not None:
        direct.mark(site)
    for index, sink in enumerate(sinks):
        if sink is None or sink.mark is None:
            continue
        try:
            sink.mark(site.message, stream, site.message_domain)
        except Exception as exc:
            _failed(index, exc)


class Direct:
    """mstx by the addresses of its C functions, in the order of the engine's `set_direct`.

    Raises:
        ValueError: mstxRangeStartA or mstxRangeEnd is missing.
    """

    def __init__(self, addresses: tuple[int, ...]) -> None:
        import ctypes

        text, handle, number = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64
        if len(addresses) != 7 or not addresses[1] or not addresses[2]:
            raise ValueError("mstxRangeStartA and mstxRangeEnd are needed")
        types = (
            (None, text, handle), (number, text, handle), (None, number), (handle, text),
            (None, handle, text, handle), (number, handle, text, handle), (None, handle, number),
        )  # fmt: skip
        functions: list[Any] = [
            ctypes.PYFUNCTYPE(result, *arguments)(at) if at else None  # type: ignore[arg-type]
            for (result, *arguments), at in zip(types, addresses)
        ]
        self._mark, self._start, self._end, self._domain = functions[:4]
        self._domain_mark, self._domain_start, self._domain_end = functions[4:]
        self._domains: dict[str, Any] = {}

    def begin(self, site: Site) -> Callable[[], None] | None:
        """Begin a range; how to end it, None where the tool gave it no id."""
        domain = self._domain_of(site) if self._domain_start and self._domain_end else None
        message, end, domain_end = site.message.encode(), self._end, self._domain_end
        if domain:
            token = self._domain_start(domain, message, None)
            return (lambda: domain_end(domain, token)) if token else None
        token = self._start(message, None)
        return (lambda: end(token)) if token else None

    def mark(self, site: Site) -> None:
        """An instant."""
        domain = self._domain_of(site) if self._domain_mark else None
        if domain:
            self._domain_mark(domain, site.message.encode(), None)
        elif self._mark:
            self._mark(site.message.encode(), None)

    def _domain_of(self, site: Site) -> Any:
        """The handle of a site's domain, which mstx wants created once; None for the default domain."""
        name = site.message_domain
        if name == "default" or self._domain is None:
            return None
        if name not in self._domains:
            self._domains[name] = self._domain(name.encode())
        return self._domains[name]
