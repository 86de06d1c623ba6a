"""Live outputs: rules 3 and 10 of docs/internals/engine.md, on both engines."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from builders.written_banks import Written

from mstxkit import faults


class Tool:
    """A tool that writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._next = 0

    def begin(self, message: str, domain: str) -> int:
        return self._begin("begin", message, domain)

    def begin_stream(self, message: str, stream: Any, domain: str) -> int:
        return self._begin("begin_stream", message, stream, domain)

    def _begin(self, *call: Any) -> int:
        self._next += 1
        self.calls.append((*call, self._next))
        return self._next

    def end(self, token: int, domain: str) -> None:
        self.calls.append(("end", token, domain))

    def mark(self, message: str, stream: Any, domain: str) -> None:
        self.calls.append(("mark", message, stream, domain))

    def listen(self, engine: Any, index: int = 0) -> None:
        engine.set_sink(index, self.begin, self.end, self.mark, self.begin_stream)


@pytest.fixture
def tool(engine: Any) -> Tool:
    tool = Tool()
    tool.listen(engine)
    return tool


def test_a_sink_is_told_of_begin_end_and_marks(engine: Any, tool: Tool) -> None:
    with engine.mstx_range("outer"), engine.mstx_range("inner", domain="mine", size=3):
        engine.mark("here")

    assert tool.calls == [
        ("begin", "outer", "default", 1), ("begin", "inner", "mine", 2), ("mark", "here", None, "default"),
        ("end", 2, "mine"), ("end", 1, "default"),
    ]  # fmt: skip


def test_a_stream_reaches_the_sink(engine: Any, tool: Tool) -> None:
    stream = object()
    with engine.mstx_range("x", stream=stream):
        engine.mark("m", stream=stream)
    with engine.timed(engine.intern("timed"), stream):
        pass

    assert tool.calls == [
        ("begin_stream", "x", stream, "default", 1), ("mark", "m", stream, "default"), ("end", 1, "default"),
        ("begin_stream", "timed", stream, "default", 2), ("end", 2, "default"),
    ]  # fmt: skip


def test_a_sink_without_streams_and_marks_gets_plain_ranges(engine: Any) -> None:
    tool = Tool()
    engine.set_sink(1, tool.begin, tool.end, None, None)
    with engine.mstx_range("x", stream=3):
        engine.mark("m")

    assert tool.calls == [("begin", "x", "default", 1), ("end", 1, "default")]


def test_names_reach_a_sink_in_the_form_that_mstx_takes(engine: Any, tool: Tool) -> None:
    with engine.mstx_range("=x\n" + "y" * 200, domain="default/mine"):
        pass

    _, message, domain, _ = tool.calls[0]
    assert message.startswith("r:=x_")
    assert len(message) == 150
    assert domain == "d_default_mine"


def test_a_range_without_a_token_is_not_ended(engine: Any) -> None:
    tool = Tool()
    engine.set_sink(0, lambda message, domain: None, tool.end)
    with engine.mstx_range("x"):
        pass

    assert tool.calls == []


def test_something_is_on_while_a_sink_listens(engine: Any, tool: Tool) -> None:
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
    first, second = Tool(), Tool()
    for _ in range(3):
        with engine.mstx_range("warm"):
            pass
    with engine.mstx_range("before"):
        first.listen(engine)
        with engine.mstx_range("during"):
            second.listen(engine)
            with engine.mstx_range("of the second"):
                engine.clear_sink(0)
                with engine.mstx_range("after"):
                    pass

    assert first.calls == [("begin", "during", "default", 1), ("end", 1, "default")]
    assert second.calls == [("begin", "of the second", "default", 1), ("end", 1, "default")]
    assert recorded.names[3:] == ["after", "of the second", "during", "before"]


def test_recording_goes_on_and_off_under_a_sink(engine: Any, recorded: Written) -> None:
    tool = Tool()
    tool.listen(engine)
    with engine.mstx_range("recorded"):
        engine.set_recording(False)
        with engine.mstx_range("told only"):
            engine.set_recording(True)
        with engine.mstx_range("recorded too"):
            pass

    assert recorded.names == ["recorded too", "recorded"]
    assert [call[1] for call in tool.calls if call[0] == "begin"] == ["recorded", "told only", "recorded too"]
    assert sum(call[0] == "end" for call in tool.calls) == 3


def test_a_stage_is_current_also_where_only_a_sink_listens(engine: Any, tool: Tool) -> None:
    with engine.stage("s"):
        inside = engine.current_stage()

    assert (inside, engine.current_stage()) == ("s", None)


def test_a_body_that_raises_is_ended_in_the_sink(engine: Any, tool: Tool) -> None:
    with pytest.raises(KeyError), engine.mstx_range("x"):
        raise KeyError

    assert tool.calls[-1] == ("end", 1, "default")


def test_driven_bodies_are_told_of_once(engine: Any, tool: Tool) -> None:
    def body() -> Any:
        yield 1
        yield 2

    results = list(engine.driven(engine.intern("driven"), body()))

    assert results == [1, 2]
    assert tool.calls == [("begin", "driven", "default", 1), ("end", 1, "default")]


def test_sinks_are_outside_of_the_range(engine: Any, recorded: Written) -> None:
    engine.set_sink(0, lambda message, domain: recorded.tick(100) or 1, lambda token, domain: recorded.tick(100))
    with engine.mstx_range("x"):
        recorded.tick(5)

    assert recorded.one("x").duration == 5


def failing(*arguments: Any) -> Any:
    raise OSError("the tool failed")


@pytest.mark.parametrize("which", ["begin", "end", "mark", "begin_stream"])
def test_a_sink_that_fails_is_cleared_and_the_range_goes_on(engine: Any, recorded: Written, which: str) -> None:
    tool = Tool()
    calls = {name: getattr(tool, name) for name in ("begin", "end", "mark", "begin_stream")}
    calls[which] = failing
    engine.set_sink(2, *calls.values())
    with engine.mstx_range("first", stream=1), engine.mstx_range("second"):
        engine.mark("m")
    with engine.mstx_range("third"):
        pass

    assert faults.counts == {"sink.torch": engine.counters()["faults"]}
    assert faults.counts["sink.torch"] >= 1
    assert "third" not in [call[1] for call in tool.calls]
    assert recorded.names == ["second", "first", "third"]
    assert len(recorded.marks) == 1


def test_a_hook_that_fails_does_not_reach_the_program(engine: Any, recorded: Written) -> None:
    from mstxkit.host import names

    engine.set_hooks(failing, failing, failing, failing)
    with engine.mstx_range("a name never seen before this test", key="text"), engine.stage("nor this stage"):
        engine.mark("nor this mark")
    engine.set_hooks(names.describe, names.utf8, faults.note, failing)
    with engine.mstx_range("afterwards"):
        pass

    assert recorded.names[-1] == "afterwards"


class Functions:
    """mstx as C functions that write down how they are called."""

    def __init__(self, has_domains: bool = True, first_id: int = 1) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.id = first_id
        text, handle, number = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64
        kinds = [
            (None, text, handle), (number, text, handle), (None, number), (handle, text),
            (None, handle, text, handle), (number, handle, text, handle), (None, handle, number),
        ]  # fmt: skip
        doers = [
            self._mark, self._start, self._end, self._domain, self._domain_mark, self._domain_start, self._domain_end
        ]  # fmt: skip
        self._kept = [ctypes.CFUNCTYPE(*kind)(doer) for kind, doer in zip(kinds, doers)]
        addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self._kept]
        self.addresses = tuple(addresses if has_domains else [*addresses[:3], 0, 0, 0, 0])

    def _mark(self, message: bytes, stream: Any) -> None:
        self.calls.append(("mark", message, stream))

    def _start(self, message: bytes, stream: Any) -> int:
        self.calls.append(("start", message, stream))
        return self._new_id()

    def _end(self, token: int) -> None:
        self.calls.append(("end", token))

    def _domain(self, name: bytes) -> int:
        self.calls.append(("domain", name))
        return 0x1000

    def _domain_mark(self, domain: int, message: bytes, stream: Any) -> None:
        self.calls.append(("domain mark", domain, message))

    def _domain_start(self, domain: int, message: bytes, stream: Any) -> int:
        self.calls.append(("domain start", domain, message))
        return self._new_id()

    def _domain_end(self, domain: int, token: int) -> None:
        self.calls.append(("domain end", domain, token))

    def _new_id(self) -> int:
        self.id += 1 if self.id else 0
        return self.id - 1 if self.id else 0


def test_mstx_is_called_by_its_addresses(engine: Any) -> None:
    functions = Functions()
    engine.set_direct(functions.addresses)
    with engine.mstx_range("plain"):
        for _ in range(2):
            with engine.mstx_range("in a domain", domain="of this test"):
                engine.mark("m", domain="of this test")
        engine.mark("m")
    engine.clear_direct()
    with engine.mstx_range("afterwards"):
        pass

    assert functions.calls == [
        ("start", b"plain", None),
        ("domain", b"of_this_test"), ("domain start", 0x1000, b"in a domain"), ("domain mark", 0x1000, b"m"),
        ("domain end", 0x1000, 2),
        ("domain start", 0x1000, b"in a domain"), ("domain mark", 0x1000, b"m"), ("domain end", 0x1000, 3),
        ("mark", b"m", None), ("end", 1),
    ]  # fmt: skip


def test_without_domain_functions_all_is_in_the_default_domain(engine: Any) -> None:
    functions = Functions(has_domains=False)
    engine.set_direct(functions.addresses)
    with engine.mstx_range("x", domain="one that no other test has"):
        engine.mark("m", domain="one that no other test has")

    assert functions.calls == [("start", b"x", None), ("mark", b"m", None), ("end", 1)]


def test_a_range_that_mstx_gave_no_id_is_not_ended(engine: Any) -> None:
    functions = Functions(first_id=0)
    engine.set_direct(functions.addresses)
    with engine.mstx_range("x"):
        pass

    assert functions.calls == [("start", b"x", None)]


def test_a_range_begun_in_mstx_is_ended_there_after_it_was_cleared(engine: Any) -> None:
    first, second = Functions(), Functions(first_id=100)
    engine.set_direct(first.addresses)
    with engine.mstx_range("x"):
        engine.set_direct(second.addresses)
        with engine.mstx_range("y"):
            engine.clear_direct()

    assert first.calls == [("start", b"x", None), ("end", 1)]
    assert second.calls == [("start", b"y", None), ("end", 100)]


@pytest.mark.parametrize("missing", [1, 2])
def test_mstx_without_ranges_is_refused(engine: Any, missing: int) -> None:
    addresses = list(Functions().addresses)
    addresses[missing] = 0

    with pytest.raises(ValueError):
        engine.set_direct(tuple(addresses))
    assert not engine.recording()
