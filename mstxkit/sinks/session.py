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


class Balanced(NamedTuple):
    """The same calls, and what to do at the stop."""

    calls: Calls
    end_all: Callable[[], None]  # end every range that is open, innermost first
    forget_all: Callable[[], None]  # let none of them be ended in the tool any more: for a forked child


def balance_calls(calls: Calls) -> Balanced:
    """Wrap a tool's calls. A token that is None or 0 says that nothing was begun.

    Hot path: closures, no attribute lookups; dict operations that are atomic, no lock.
    """
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

    def end_all() -> None:
        for token, domain in reversed(list(open_ranges.items())):
            end(token, domain)

    return Balanced(calls._replace(begin=begin, end=end, begin_stream=begin_stream), end_all, open_ranges.clear)


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
        self._balanced: Balanced | None = None

    def start(self, calls: Calls) -> None:
        """Send ranges through `calls` from now on."""
        cann.give_way(self._framework)
        self._balanced = balance_calls(calls)
        self.send(*self._balanced.calls)

    def stop(self, *_: object) -> None:
        """End in the tool what is open there, and send nothing more. As a listener it may be given anything."""
        if self._balanced is not None:
            engine.clear_sink(self._index)
            self._balanced.end_all()
            self.silence()
            cann.take_back(self._framework)

    def silence(self) -> None:
        """As of any session; ranges that are open are forgotten."""
        super().silence()
        if self._balanced is not None:
            self._balanced.forget_all()
        self._balanced = None
