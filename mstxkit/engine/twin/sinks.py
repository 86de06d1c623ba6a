"""Live outputs: up to three Python sinks, and mstx by C function addresses through ctypes.

What was begun is ended by the one that began it: a range keeps how to end it, also after the sink is cleared.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from . import interruptions, switches
from .sites import Site

SINK_COUNT = 3
_NAMES = ("sink.torch_npu", "sink.mindspore", "sink.torch")


class Sink(NamedTuple):
    """What a tool takes; see `set_sink`."""

    begin: Callable[[str, str], Any]
    end: Callable[[Any, str], object]
    mark: Callable[[str, Any, str], object] | None = None
    begin_stream: Callable[[str, Any, str], Any] | None = None


_sinks: list[Sink | None] = [None] * SINK_COUNT
_direct: Direct | None = None


def set_sink(index: int, *callables: Any) -> None:
    """Tell this tool of every range and mark from now on: `Sink` says by what."""
    _put(index, Sink(*callables))


def clear_sink(index: int) -> None:
    """Tell it of nothing more but the ends of what it began."""
    _put(index, None)


def _put(index: int, sink: Sink | None) -> None:
    if not 0 <= index < SINK_COUNT:
        raise ValueError(f"sink index must be 0 to {SINK_COUNT - 1}")
    _sinks[index] = sink
    switches.switch(switches.TOOLS, _direct is not None or any(_sinks))


def set_direct(addresses: tuple[int, ...]) -> None:
    """mstx by C function addresses: see docs/internals/engine.md."""
    global _direct
    _direct = Direct(addresses)
    switches.switch(switches.TOOLS, True)


def clear_direct() -> None:
    """No mstx any more."""
    global _direct
    _direct = None
    switches.switch(switches.TOOLS, any(_sinks))


def _failed(index: int, exc: BaseException) -> None:
    clear_sink(index)
    interruptions.note(_NAMES[index], exc)


def begin(opened: Any, stream: Any) -> None:
    """Tell every sink; the range keeps how to end what began."""
    site, opened.ends = opened.site, []
    ends = opened.ends
    for index, sink in enumerate(tuple(_sinks)):
        if sink is not None:
            _begin_in(index, sink, site, stream, ends)
    if _direct is not None:
        _direct.begin(site, ends)


def _begin_in(index: int, sink: Sink, site: Site, stream: Any, ends: list[Callable[[], None]]) -> None:
    process = switches.process
    try:
        if stream is not None and sink.begin_stream is not None:
            token = sink.begin_stream(site.message, stream, site.message_domain)
        else:
            token = sink.begin(site.message, site.message_domain)
    except Exception as exc:
        _failed(index, exc)
        return

    def end() -> None:
        try:
            if switches.process is process:
                sink.end(token, site.message_domain)
        except Exception as exc:
            _failed(index, exc)

    if token is not None:
        ends.append(end)


def mark(site: Site, stream: Any) -> None:
    """Tell every sink that takes marks."""
    if _direct is not None:
        _direct.mark(site)
    for index, sink in enumerate(tuple(_sinks)):
        if sink is None or sink.mark is None:
            continue
        try:
            sink.mark(site.message, stream, site.message_domain)
        except Exception as exc:
            _failed(index, exc)


def after_fork() -> None:
    """A forked child tells the parent's tools nothing."""
    global _direct
    _direct = None
    _sinks[:] = [None] * SINK_COUNT


class Direct:
    """mstx by the addresses of its C functions, in the order of the engine's `set_direct`."""

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

    def begin(self, site: Site, ends: list[Callable[[], None]]) -> None:
        """Begin a range; how to end it is appended, unless the tool gave it no id."""
        domain = self._domain_of(site) if self._domain_start and self._domain_end else None
        message, process = site.message.encode(), switches.process
        token = self._domain_start(domain, message, None) if domain else self._start(message, None)

        def end() -> None:
            if switches.process is process:
                self._domain_end(domain, token) if domain else self._end(token)

        if token:
            ends.append(end)

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
