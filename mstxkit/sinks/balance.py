"""Ranges that are open in a tool when it stops: ended there at that moment, so that it shows them up to then.

A tool that has stopped drops the end of a range, and with it the range (torch_npu keeps its id for ever, too). So
every token is remembered while its range is open, which costs about 0.1 us a range; an end that comes after the stop
goes nowhere.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

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


def balanced(calls: Calls) -> Balanced:
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
            return token
        return None

    def begin_stream(message: str, stream: Any, domain: str) -> Any:
        token = tool_begin_stream(message, stream, domain)
        if token:
            open_ranges[token] = domain
            return token
        return None

    def end(token: Any, domain: str) -> None:
        if take(token, None) is not None:
            tool_end(token, domain)

    def end_all() -> None:
        for token, domain in reversed(list(open_ranges.items())):
            end(token, domain)

    return Balanced(calls._replace(begin=begin, end=end, begin_stream=begin_stream), end_all, open_ranges.clear)
