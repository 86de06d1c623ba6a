"""Live outputs: rules 3 and 10 of docs/internals/engine.md, on both engines."""

from __future__ import annotations

from typing import Any

import pytest
from builders.live_tools import Mstx, Sink
from builders.written_banks import Written


@pytest.fixture
def tool(engine: Any) -> Sink:
    return Sink().on(engine)


def test_a_sink_is_told_of_begin_end_and_marks(engine: Any, tool: Sink) -> None:
    with engine.mstx_range("outer"), engine.mstx_range("inner", domain="mine", size=3):
        engine.mark("here")

    assert tool.told == [
        ("begin", "outer", "default", 1), ("begin", "inner", "mine", 2), ("mark", "here", None, "default"),
        ("end", 2, "mine"), ("end", 1, "default"),
    ]  # fmt: skip


def test_a_stream_reaches_the_sink(engine: Any, tool: Sink) -> None:
    stream = object()
    with engine.mstx_range("x", stream=stream):
        engine.mark("m", stream=stream)
    with engine.timed(engine.intern("timed"), stream):
        pass

    assert tool.told == [
        ("begin_stream", "x", stream, "default", 1), ("mark", "m", stream, "default"), ("end", 1, "default"),
        ("begin_stream", "timed", stream, "default", 2), ("end", 2, "default"),
    ]  # fmt: skip


def test_a_sink_without_streams_and_marks_gets_plain_ranges(engine: Any) -> None:
    tool = Sink()
    engine.set_sink(1, tool.begin, tool.end, None, None)
    with engine.mstx_range("x", stream=3):
        engine.mark("m")

    assert tool.told == [("begin", "x", "default", 1), ("end", 1, "default")]


def test_names_reach_a_sink_in_the_form_that_mstx_takes(engine: Any, tool: Sink) -> None:
    with engine.mstx_range("=x\n" + "y" * 200, domain="default/mine"):
        pass

    _, message, domain, _ = tool.told[0]
    assert message.startswith("r:=x_")
    assert len(message) == 150
    assert domain == "d_default_mine"


def test_a_range_without_a_token_is_not_ended(engine: Any) -> None:
    tool = Sink()
    engine.set_sink(0, lambda message, domain: None, tool.end)
    with engine.mstx_range("x"):
        pass

    assert tool.told == []


def test_something_is_on_while_a_sink_listens(engine: Any, tool: Sink) -> None:
    listening = engine.recording(), engine.is_on(engine.intern("x"))
    engine.clear_sink(0)

    assert listening == (True, True)
    assert (engine.recording(), engine.is_on(engine.intern("x"))) == (False, False)


def test_three_sinks_are_told_in_order_and_end_in_reverse(engine: Any) -> None:
    told: list[str] = []

    def begin_of(index: int) -> Any:
        return lambda message, domain: told.append(f"begin {index}") or index

    def end_of(index: int) -> Any:
        return lambda token, domain: told.append(f"end {token}")

    for index in (2, 0, 1):
        engine.set_sink(index, begin_of(index), end_of(index))
    with engine.mstx_range("x"):
        pass

    assert told == ["begin 0", "begin 1", "begin 2", "end 2", "end 1", "end 0"]


@pytest.mark.parametrize("index", [-1, 3])
def test_there_are_three_sinks(engine: Any, index: int) -> None:
    with pytest.raises(ValueError):
        engine.set_sink(index, None, None)
    with pytest.raises(ValueError):
        engine.clear_sink(index)


def test_ranges_that_cross_a_switch_stay_balanced(engine: Any, recorded: Written) -> None:
    """Begun before: never told. Begun while it listened: ended, also after it was cleared, by the one that began it."""
    first, second = Sink(), Sink()
    for _ in range(3):
        with engine.mstx_range("warm"):
            pass
    with engine.mstx_range("before"):
        first.on(engine)
        with engine.mstx_range("during"):
            second.on(engine)
            with engine.mstx_range("of the second"):
                engine.clear_sink(0)
                with engine.mstx_range("after"):
                    pass

    assert first.told == [("begin", "during", "default", 1), ("end", 1, "default")]
    assert second.told == [("begin", "of the second", "default", 1), ("end", 1, "default")]
    assert recorded.names[3:] == ["after", "of the second", "during", "before"]


def test_a_stage_is_current_also_where_only_a_sink_listens(engine: Any, tool: Sink) -> None:
    with engine.stage("s"):
        inside = engine.current_stage()

    assert (inside, engine.current_stage()) == ("s", None)


def test_a_body_that_raises_is_ended_in_the_sink(engine: Any, tool: Sink) -> None:
    with pytest.raises(KeyError), engine.mstx_range("x"):
        raise KeyError

    assert tool.told[-1] == ("end", 1, "default")


def test_mstx_is_called_by_its_addresses(engine: Any) -> None:
    functions = Mstx()
    engine.set_direct(functions.addresses)
    with engine.mstx_range("plain"):
        for _ in range(2):
            with engine.mstx_range("in a domain", domain="of this test"):
                engine.mark("m", domain="of this test")
        engine.mark("m")
    engine.clear_direct()
    with engine.mstx_range("afterwards"):
        pass

    assert functions.told == [
        ("start", b"plain", None),
        ("domain", b"of_this_test"),
        ("domain_start", 0x1002, b"in a domain", None), ("domain_mark", 0x1002, b"m", None), ("domain_end", 0x1002, 2),
        ("domain_start", 0x1002, b"in a domain", None), ("domain_mark", 0x1002, b"m", None), ("domain_end", 0x1002, 3),
        ("mark", b"m", None), ("end", 1),
    ]  # fmt: skip


def test_without_domain_functions_all_is_in_the_default_domain(engine: Any) -> None:
    functions = Mstx()
    engine.set_direct((*functions.addresses[:3], 0, 0, 0, 0))
    with engine.mstx_range("x", domain="one that no other test has"):
        engine.mark("m", domain="one that no other test has")

    assert functions.told == [("start", b"x", None), ("mark", b"m", None), ("end", 1)]


def test_a_range_begun_in_mstx_is_ended_there_after_it_was_cleared(engine: Any) -> None:
    first, second = Mstx(), Mstx(first_id=100)
    engine.set_direct(first.addresses)
    with engine.mstx_range("x"):
        engine.set_direct(second.addresses)
        with engine.mstx_range("y"):
            engine.clear_direct()

    assert first.told == [("start", b"x", None), ("end", 1)]
    assert second.told == [("start", b"y", None), ("end", 100)]


@pytest.mark.parametrize("missing", [1, 2])
def test_mstx_without_ranges_is_refused(engine: Any, missing: int) -> None:
    addresses = list(Mstx().addresses)
    addresses[missing] = 0

    with pytest.raises(ValueError):
        engine.set_direct(tuple(addresses))
    assert not engine.recording()
