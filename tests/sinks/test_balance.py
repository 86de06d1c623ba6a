"""Whatever is open when a tool stops is ended then, innermost first, and never again."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

from mstxkit.sinks.session import Calls, MstxSession


class Tool:
    """Counts ids up from 1, as mstx does; gives `nothing` instead while it is deaf."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.nothing: Any = None
        self.deaf = False
        self.last = 0

    def begin(self, message: str, domain: str) -> Any:
        return self.begin_stream(message, None, domain)

    def begin_stream(self, message: str, stream: Any, domain: str) -> Any:
        if self.deaf:
            return self.nothing
        self.last += 1
        self.calls.append(("begin", self.last, message, stream, domain))
        return self.last

    def end(self, token: Any, domain: str) -> None:
        self.calls.append(("end", token, domain))

    def mark(self, message: str, stream: Any, domain: str) -> None:
        self.calls.append(("mark", message, stream, domain))


@pytest.fixture
def tool() -> Tool:
    return Tool()


@pytest.fixture
def session(tool: Tool) -> Iterator[MstxSession]:
    session = MstxSession(0, "a framework")
    session.start(Calls(tool.begin, tool.end, tool.mark, tool.begin_stream))
    yield session
    session.stop()


@pytest.fixture
def calls(session: MstxSession) -> Calls:
    assert session.calls is not None
    return session.calls


def test_calls_arrive_as_they_are(tool: Tool, calls: Calls) -> None:
    outer, inner = calls.begin("a", "d1"), calls.begin_stream("b", "stream", "d2")
    calls.mark("m", None, "d1")
    calls.end(inner, "d2")
    calls.end(outer, "d1")

    assert tool.calls == [
        ("begin", 1, "a", None, "d1"),
        ("begin", 2, "b", "stream", "d2"),
        ("mark", "m", None, "d1"),
        ("end", 2, "d2"),
        ("end", 1, "d1"),
    ]


def test_what_is_open_at_the_stop_is_ended_in_its_domain_innermost_first(
    tool: Tool, session: MstxSession, calls: Calls
) -> None:
    calls.begin("outer", "d1")
    closed = calls.begin("closed", "d1")
    calls.begin_stream("inner", "stream", "d2")
    calls.end(closed, "d1")
    tool.calls.clear()

    session.stop()

    assert tool.calls == [("end", 3, "d2"), ("end", 1, "d1")]


def test_an_end_after_the_stop_goes_nowhere(tool: Tool, session: MstxSession, calls: Calls) -> None:
    token = calls.begin("x", "d")
    session.stop()
    tool.calls.clear()

    calls.end(token, "d")

    assert tool.calls == []


def test_in_a_forked_child_nothing_is_ended(tool: Tool, session: MstxSession, calls: Calls) -> None:
    token = calls.begin("x", "d")
    tool.calls.clear()

    session.silence()
    calls.end(token, "d")
    session.stop()

    assert tool.calls == []


@pytest.mark.parametrize("nothing", [None, 0])
def test_a_tool_that_did_not_listen_at_the_begin_hears_no_end(
    tool: Tool, session: MstxSession, calls: Calls, nothing: Any
) -> None:
    tool.deaf, tool.nothing = True, nothing

    tokens = [calls.begin("x", "d"), calls.begin_stream("x", "stream", "d")]
    session.stop()

    assert tokens == [None, None]
    assert tool.calls == []
