"""What sinks do between their profiler's start and stop; with mstx, ranges that are open then are ended there.

A tool that has stopped drops the end of a range, and with it the range (torch_npu keeps its id for ever, too). So
every token is remembered while its range is open, which costs about 0.1 us a range; an end that comes after the stop
goes nowhere.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from ..engine.choose import engine
from . import cann

Begin = Callable[[str, str], Any]
End = Callable[[Any, str], object]


class Calls(NamedTuple):
    """A tool's calls, in the order of the engine's `set_sink`."""

    begin: Begin
    end: End
    mark: Callable[[str, Any, str], object]
    begin_stream: Callable[[str, Any, str], Any]


class SinkSession:
    """Sends ranges to a tool, at its `index` in the engine, while it runs. `what`: that it runs, in words."""

    def __init__(self, index: int, what: str) -> None:
        self._index, self._what = index, what
        self.is_on = False

    def send(self, *calls: Any) -> None:
        """Send ranges through these calls, those of the engine's `set_sink`, from now on."""
        engine.set_sink(self._index, *calls)
        self.is_on = True

    def silence(self) -> None:
        """Send nothing until the next session starts, no ends either."""
        engine.clear_sink(self._index)
        self.is_on = False

    def state(self) -> str:
        """What this sink does now, in words."""
        return f"{'on: a' if self.is_on else 'ready: no'} {self._what}"


class MstxSession(SinkSession):
    """One of a framework's own profiler with mstx: ranges are balanced, and sent only once."""

    def __init__(self, index: int, framework: str) -> None:
        super().__init__(index, "profiler session with mstx records")
        self._framework = framework
        self.calls: Calls | None = None
        self._open_ranges: dict[Any, str] = {}

    def start(self, calls: Calls) -> None:
        """Send ranges through `calls` from now on, and remember those that are open in the tool, token to domain: what
        is not among these is not ended. A token that is None or 0 says that nothing was begun.

        Hot path: closures, no attribute lookups; dict operations that are atomic, no lock.
        """
        cann.give_way(self._framework)
        tool_begin, tool_end, _, tool_begin_stream = calls
        open_ranges: dict[Any, str] = {}
        take = open_ranges.pop

        def begin(message: str, domain: str) -> Any:
            token = tool_begin(message, domain)
            if token:
                open_ranges[token] = domain
            return token or None

        def begin_stream(message: str, stream: Any, domain: str) -> Any:
            token = tool_begin_stream(message, stream, domain)
            if token:
                open_ranges[token] = domain
            return token or None

        def end(token: Any, domain: str) -> None:
            if take(token, None) is not None:
                tool_end(token, domain)

        self._open_ranges = open_ranges
        self.calls = calls._replace(begin=begin, end=end, begin_stream=begin_stream)
        self.send(*self.calls)

    def stop(self, *_: object) -> None:
        """End in the tool what is open there, innermost first, and send nothing more. As a listener it may be given
        anything.
        """
        calls = self.calls
        if calls is not None:
            engine.clear_sink(self._index)
            for token, domain in reversed(list(self._open_ranges.items())):
                calls.end(token, domain)
            self.silence()
            cann.take_back(self._framework)

    def silence(self) -> None:
        """As of any session; ranges that are open are forgotten, and not ended in the tool any more."""
        super().silence()
        self._open_ranges.clear()
        self.calls = None
