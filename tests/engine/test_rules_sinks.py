"""What live tools are told, in Python and by C addresses: rules 3 and 10 of docs/internals/engine.md, both engines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from builders.fresh_engine import run_fresh
from builders.live_tools import Mstx, Sink
from builders.threads import elsewhere
from builders.written_banks import Written

from mstxkit import faults


def test_a_sinks_own_time_is_outside_the_range(engine: Any, recorded: Written) -> None:
    """It is told before the clock is read at the begin, and after it is read at the end."""
    Sink(recorded, 100).on(engine)
    for _ in range(2):
        with engine.mstx_range("x"):
            recorded.tick(7)

    assert [found.duration for found in recorded.ranges] == [7, 7]
    assert recorded.ranges[0].start == 1_000_100


@pytest.mark.parametrize("token", [0, False, "", (), -1])
def test_a_token_that_is_false_is_a_token(engine: Any, token: Any) -> None:
    ended: list[Any] = []
    engine.set_sink(0, lambda message, domain: token, lambda token, domain: ended.append(token))
    with engine.mstx_range("x"):
        pass

    assert ended == [token]


def test_marks_go_to_the_sinks_that_take_them(engine: Any, recorded: Written) -> None:
    taking, not_taking = Sink().on(engine, 0), Sink(has_stream=False).on(engine, 1)
    stream = object()
    engine.mark("plain")
    engine.mark("full", stream=stream, domain="mine", n=1)

    assert taking.told == [("mark", "plain", None, "default"), ("mark", "full", stream, "mine")]
    assert not_taking.told == []
    assert [found.name for found in recorded.marks] == ["plain", "full"]


@pytest.mark.parametrize("failing", ["begin", "end", "mark", "begin_stream"])
def test_a_sink_that_raises_is_cleared_alone_and_counted_once(engine: Any, recorded: Written, failing: str) -> None:
    def fail(*args: Any) -> Any:
        calls.append(args)
        raise ValueError("mine")

    calls: list[Any] = []
    before, after = Sink().on(engine, 0), Sink().on(engine, 2)
    sink = Sink()
    functions = {"begin": sink.begin, "end": sink.end, "mark": sink.mark, "begin_stream": sink.begin_stream}
    functions[failing] = fail
    engine.set_sink(1, *functions.values())
    for _ in range(3):
        with engine.mstx_range("x", stream=7 if failing == "begin_stream" else None):
            recorded.tick(1)
        engine.mark("m")

    assert len(calls) == 1
    assert [found.duration for found in recorded.ranges] == [1, 1, 1]
    assert not any(found.error for found in recorded.ranges)
    assert len(recorded.marks) == 3
    assert len(before.told) == len(after.told) == 9
    assert before.open == after.open == set()
    assert sum(kind.startswith("begin") for kind, *_ in sink.told) <= 1
    assert engine.counters()["faults"] == 1
    assert faults.counts == {"sink.mindspore": 1}


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_exception_of_any_kind_in_a_sink_never_keeps_the_range(engine: Any, recorded: Written, kind: Any) -> None:
    """What a signal handler raises may come out; the range is whole in any case."""

    def fail(token: Any, domain: str) -> None:
        raise kind

    engine.set_sink(0, lambda message, domain: 1, fail)
    try:
        with engine.mstx_range("x"):
            pass
    except (KeyboardInterrupt, SystemExit):
        pass
    engine.clear_sink(0)
    with engine.mstx_range("y"):
        pass

    assert [(found.name, found.depth) for found in recorded.ranges] == [("x", 0), ("y", 0)]
    assert recorded.open == []


def test_a_sink_that_raises_keeps_the_exception_of_the_body(engine: Any, recorded: Written) -> None:
    def fail(token: Any, domain: str) -> None:
        raise ValueError("the sink's")

    raised = KeyError("the body's")
    engine.set_sink(0, lambda message, domain: 1, fail)
    with pytest.raises(KeyError) as caught, engine.mstx_range("x"):
        raise raised

    assert caught.value is raised
    assert recorded.one("x").error


def test_a_fault_hook_that_raises_is_nothing(engine: Any, recorded: Written) -> None:
    from mstxkit.host import names

    def fail(*args: Any) -> Any:
        raise ValueError

    engine.set_hooks(names.describe_site, names.utf8, fail, None)
    engine.set_sink(0, fail, fail)
    engine.step(3)
    engine.step("no step")
    with engine.mstx_range("x"):
        pass

    assert recorded.names == ["x"]


def test_a_describe_hook_that_raises_never_reaches_the_program(engine: Any, recorded: Written) -> None:
    from mstxkit.host import names

    def fail(*args: Any) -> Any:
        raise ValueError("mine")

    engine.set_hooks(fail, names.utf8, faults.note_fault, None)
    passed = []
    with engine.mstx_range("never described before"), engine.mstx_range("nor this", n=1), engine.stage("nor that"):
        passed.append(True)
    engine.mark("nor a mark")

    assert passed == [True]
    assert engine.counters()["faults"] >= 1
    assert recorded.open == []


def test_a_utf8_hook_that_raises_costs_the_text_and_not_the_range(engine: Any, recorded: Written) -> None:
    from mstxkit.host import names

    def fail(text: str) -> bytes:
        raise ValueError("mine")

    engine.set_hooks(names.describe_site, fail, faults.note_fault, None)
    with engine.mstx_range("x", text="never encoded \udcff"):
        pass

    assert recorded.names == ["x"]
    assert engine.counters()["faults"] >= 1
    assert recorded.open == []


def test_a_sink_alone_is_told_while_nothing_records(engine: Any, recorded: Written) -> None:
    engine.set_recording(False)
    sink = Sink().on(engine)
    on = (engine.recording(), engine.is_on(engine.intern("x")))
    with engine.mstx_range("x"):
        engine.set_recording(True)
    engine.clear_sink(0)

    assert on == (True, True)
    assert [kind for kind, *_ in sink.told] == ["begin", "end"]
    assert recorded.ranges == []


def test_recording_switched_while_a_sink_listens_stays_balanced(engine: Any, recorded: Written) -> None:
    sink = Sink().on(engine)
    for number in range(8):
        engine.set_recording(number % 2 == 0)
        with engine.mstx_range("outer"):
            engine.set_recording(number % 3 == 0)
            with engine.mstx_range("inner", n=number):
                engine.set_recording(number % 5 == 0)

    assert sink.open == set()
    assert len(sink.told) == 32
    assert recorded.names == ["inner", "outer", "outer", "inner", "outer", "inner", "outer"]
    assert recorded.open == []


def test_a_sink_that_opens_ranges_of_its_own_does_not_hang(engine: Any, recorded: Written) -> None:
    """A tool whose begin is itself instrumented."""

    def begin(message: str, domain: str) -> Any:
        if message == "x":
            with engine.mstx_range("in the sink"):
                engine.mark("in the sink")
        return message

    engine.set_sink(0, begin, lambda token, domain: None)
    with engine.mstx_range("x"):
        pass

    assert recorded.names == ["in the sink", "x"]
    assert {found.depth for found in recorded.ranges} == {0}


def test_a_sink_may_clear_itself_while_it_is_told(engine: Any, recorded: Written) -> None:
    def begin(message: str, domain: str) -> Any:
        engine.clear_sink(0)
        return 1

    ended: list[Any] = []
    engine.set_sink(0, begin, lambda token, domain: ended.append(token))
    for _ in range(2):
        with engine.mstx_range("x"):
            pass

    assert ended == [1]
    assert recorded.names == ["x", "x"]


def test_driven_bodies_and_spans_are_told_once(engine: Any) -> None:
    async def body() -> int:
        await asyncio.sleep(0)
        return 1

    async def main() -> None:
        await engine.driven(engine.intern("driven"), body(), "stream")
        span = engine.opened(engine.intern("span"))
        await span.drive(body())
        await span.drive(body())
        span.close(False)

    sink = Sink().on(engine)
    asyncio.run(main())
    list(engine.driven(engine.intern("generator"), iter([1, 2])))

    assert sink.told == [
        ("begin_stream", "driven", "stream", "default", 1), ("end", 1, "default"),
        ("begin", "span", "default", 2), ("end", 2, "default"),
        ("begin", "generator", "default", 3), ("end", 3, "default"),
    ]  # fmt: skip


def test_an_inner_entry_is_told_with_its_own_token(engine: Any) -> None:
    sink = Sink().on(engine)
    twice = engine.mstx_range("x", stream=5)
    with twice, twice:
        pass

    assert sink.told == [
        ("begin_stream", "x", 5, "default", 1), ("begin_stream", "x", 5, "default", 2),
        ("end", 2, "default"), ("end", 1, "default"),
    ]  # fmt: skip


def test_a_range_ended_on_another_thread_is_ended_in_the_sink(engine: Any) -> None:
    sink = Sink().on(engine)
    moved = engine.mstx_range("x")
    moved.__enter__()
    elsewhere(moved.__exit__, None, None, None)

    assert sink.open == set()


def test_direct_calls_are_balanced_and_keep_their_ids(engine: Any, recorded: Written) -> None:
    mstx = Mstx(first_id=(1 << 64) - 2)
    engine.set_direct(mstx.addresses)
    with engine.mstx_range("outer"), engine.mstx_range("inner"):
        engine.mark("mark")

    assert mstx.told == [
        ("start", b"outer", None), ("start", b"inner", None), ("mark", b"mark", None),
        ("end", (1 << 64) - 1), ("end", (1 << 64) - 2),
    ]  # fmt: skip
    assert recorded.names == ["inner", "outer"]


def test_another_table_of_functions_makes_its_domains_anew(engine: Any, recorded: Written) -> None:
    """A domain's handle is of the library that made it."""
    first, second = Mstx(), Mstx(first_id=50)
    engine.set_direct(first.addresses)
    with engine.mstx_range("x", domain="of two"):
        engine.set_direct(second.addresses)
        with engine.mstx_range("x", domain="of two"):
            pass

    assert [told[0] for told in first.told] == ["domain", "domain_start", "domain_end"]
    assert [told[0] for told in second.told] == ["domain", "domain_start", "domain_end"]


def test_a_range_without_an_id_is_never_ended(engine: Any, recorded: Written) -> None:
    """mstx gives 0 where nothing listens."""
    mstx = Mstx(first_id=0)
    engine.set_direct(mstx.addresses)
    with engine.mstx_range("unheard"):
        pass
    with engine.mstx_range("heard"):
        pass

    assert mstx.told == [("start", b"unheard", None), ("start", b"heard", None), ("end", 1)]


def test_direct_calls_alone_switch_the_engine_on(engine: Any) -> None:
    mstx = Mstx()
    engine.set_direct(mstx.addresses)
    on = engine.recording()
    with engine.mstx_range("x", n=1):
        pass
    engine.clear_direct()

    assert (on, engine.recording()) == (True, False)
    assert mstx.told == [("start", b"x", None), ("end", 1)]


@pytest.mark.parametrize("missing", [0, 3, 4, 5, 6])
def test_a_function_that_is_missing_is_refused_or_not_called(engine: Any, missing: int) -> None:
    """In a process of its own: calling it would be the end of this one."""
    found = run_fresh(
        engine,
        f"""
        from builders.live_tools import Mstx

        mstx = Mstx()
        addresses = list(mstx.addresses)
        addresses[{missing}] = 0
        written = Written(engine)
        try:
            engine.set_direct(tuple(addresses))
        except ValueError:
            pass
        engine.mark("m")
        with engine.mstx_range("x", domain="mine"):
            engine.mark("m", domain="mine")
        engine.clear_direct()
        result = [written.names, len(written.marks)]
        """,
    )

    assert found == [["x"], 2]


def test_sinks_and_direct_calls_go_together(engine: Any, recorded: Written) -> None:
    mstx, sink = Mstx(), Sink().on(engine)
    engine.set_direct(mstx.addresses)
    with engine.mstx_range("x"):
        pass

    assert len(sink.told) == len(mstx.told) == 2
    assert recorded.names == ["x"]
