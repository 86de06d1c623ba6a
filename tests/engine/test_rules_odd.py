"""Bad values, odd calls, code that runs where nobody expects it: none of it reaches the program, on both engines."""

from __future__ import annotations

import gc
import math
import sys
import threading
import weakref
from typing import Any

import pytest
from builders import soak
from builders.fresh_engine import run_fresh
from builders.written_banks import Written

from mstxkit import faults
from mstxkit.host import names
from mstxkit.store import livefile, records


class Faceless:
    """Asking for its class raises."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("mine")


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("mine")


class Unnamed(metaclass=Nameless):
    pass


class LyingText(str):
    """A str whose hash and comparison raise once it is told to."""

    __slots__ = ("is_hostile",)

    def __hash__(self) -> int:
        if getattr(self, "is_hostile", False):
            raise RuntimeError("mine")
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        if getattr(self, "is_hostile", False):
            raise RuntimeError("mine")
        return str.__eq__(self, other)


def test_a_value_that_hides_its_class_is_its_types_name(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("x", value=Faceless()) as entered:
        entered.set(more=Faceless())
    engine.mark("m", value=Faceless())

    assert recorded.one("x").attributes == {"value": "Faceless", "more": "Faceless"}
    assert recorded.marks[0].attributes == {"value": "Faceless"}
    assert recorded.open == []


def test_a_value_whose_type_hides_its_name_is_named_all_the_same(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("x", value=Unnamed()):
        pass

    assert recorded.one("x").attributes == {"value": "Unnamed"}


@pytest.mark.parametrize("name", ["with.dot", "Ünï", "x" * 5000])
def test_a_types_name_is_taken_as_it_is(engine: Any, recorded: Written, name: str) -> None:
    with engine.mstx_range("x", value=type(name, (), {})()):
        pass

    written = recorded.one("x").attributes["value"]
    assert written == name if len(name) < 100 else written.startswith("xxx")


def test_a_key_that_turns_hostile_costs_itself_at_most(engine: Any, recorded: Written) -> None:
    key = LyingText("key")
    for count in (0, 5):
        key.is_hostile = False
        more = {f"k{number}": number for number in range(count)}
        with engine.mstx_range(f"x{count}", **{key: 1, **more}) as entered:
            entered.set(other=2)
            key.is_hostile = True
        assert recorded.one(f"x{count}").attributes["other"] == 2
        assert recorded.one(f"x{count}").attributes.items() >= more.items()

    assert recorded.open == []


@pytest.mark.parametrize("at_start", [0, 3, 4, 5, 30, 64])
def test_64_attributes_fit_whichever_way_they_come(engine: Any, recorded: Written, at_start: int) -> None:
    keys = [f"k{number}" for number in range(64)]
    with engine.mstx_range("x", **dict.fromkeys(keys[:at_start], "start")) as entered:
        entered.set(**dict.fromkeys(keys[at_start:], "set"))
        entered.set(**dict.fromkeys(keys[:3], "again"))

    attributes = recorded.one("x").attributes
    assert set(attributes) == set(keys)
    assert [attributes[key] for key in keys[:3]] == ["again"] * 3
    assert engine.counters()["attributes_lost"] == 0


def test_ranges_that_lose_attributes_are_counted_once_each(engine: Any, recorded: Written) -> None:
    for _ in range(3):
        with engine.mstx_range("x") as entered:
            entered.set(**{f"k{number}": number for number in range(100)})
    engine.mark("m", **{f"k{number}": number for number in range(100)})

    assert [len(found.attributes) for found in recorded.ranges + recorded.marks] == [64] * 4
    assert engine.counters()["attributes_lost"] == 4


def test_a_key_that_is_no_text_costs_itself_alone(engine: Any, recorded: Written) -> None:
    """A wrapper's callable may give any dict."""
    with engine.timed(engine.intern("timed"), None, {1: "lost", "a": 2, None: 3, "b": 4}):
        pass

    assert recorded.one("timed").attributes == {"a": 2, "b": 4}
    assert engine.counters()["attributes_lost"] == 1


def test_an_attribute_may_have_any_name(engine: Any, recorded: Written) -> None:
    """Also those of the parameters that are given by position."""
    with engine.mstx_range("x", name=1, self=2, key=3, message=4, n=5) as entered:
        entered.set(self=6, attributes=7, stage=8, domain=9)
    with engine.stage("s", key=1, self=2, name=3, stage=4, message=5):
        pass
    engine.mark("m", message=1, name=2, self=3, stage=4, key=5)

    assert recorded.one("x").attributes == {
        "name": 1, "self": 6, "key": 3, "message": 4, "n": 5, "attributes": 7, "stage": 8, "domain": 9
    }  # fmt: skip
    assert recorded.one("s").attributes == {"key": 1, "self": 2, "name": 3, "stage": 4, "message": 5}
    assert recorded.marks[0].attributes == {"message": 1, "name": 2, "self": 3, "stage": 4, "key": 5}


def test_set_outside_of_a_range_is_nothing(engine: Any, recorded: Written) -> None:
    unused = engine.mstx_range("x")
    unused.set(before=1)
    with unused:
        pass
    unused.set(after=1)
    with unused:
        unused.set()

    assert [found.attributes for found in recorded.ranges] == [{}, {}]
    assert engine.counters()["faults"] == 0


def test_none_for_an_option_is_its_default(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("x", stage=None, domain=None, stream=None):
        pass
    engine.mark("m", domain=None, stream=None)

    assert [(found.domain, found.stage) for found in recorded.ranges + recorded.marks] == [("default", None)] * 2


def test_values_are_let_go_of_after_the_range(engine: Any, recorded: Written) -> None:
    class Held: ...

    held = [Held() for _ in range(4)]
    alive = [weakref.ref(one) for one in held]
    with engine.mstx_range("x", a=held[0]) as entered:
        entered.set(b=held[1])
    engine.mark("m", a=held[2], stream=held[3])
    with engine.stage("s", a=held[0], stream=held[1]):
        pass
    del entered, held
    gc.collect()

    assert [one() for one in alive] == [None] * 4


def test_references_of_shared_objects_stay_as_they_are(engine: Any, recorded: Written) -> None:
    def use() -> None:
        with engine.mstx_range(name, stage=stage, domain=domain, stream=stream, a=value) as entered:
            entered.set(b=value)
            with entered:
                pass
        engine.mark(name, domain=domain, stream=stream, a=value)
        list(engine.driven(site, iter_once(), stream, attributes))

    def iter_once() -> Any:
        yield 1

    def counts() -> list[int]:
        return [sys.getrefcount(thing) for thing in things]

    name, stage, domain = "-".join(["counted", "name"]), "-".join(["cou", "nted"]), "-".join(["my", "domain"])
    stream, value, attributes = object(), object(), {"a": 1}
    site = engine.intern("counted site")
    things = (name, stage, domain, stream, value, attributes, site)
    use()
    gc.collect()
    before = counts()
    for _ in range(500):
        use()
    gc.collect()

    assert counts() == before


def test_ranges_in_a_destructor_that_runs_inside_the_engine(engine: Any, recorded: Written) -> None:
    class Talkative:
        def __del__(self) -> None:
            with engine.mstx_range("destructor", n=1):
                engine.mark("destructor")

    for _ in range(3):
        with engine.mstx_range("x", value=Talkative()) as entered:
            entered.set(value=1, other=Talkative())
            entered.set(other=2)
        del entered
    gc.collect()

    assert recorded.names.count("destructor") == 6
    assert recorded.names.count("x") == 3
    assert len(recorded.marks) == 6
    assert recorded.open == []


@pytest.mark.parametrize("where", ["sink", "text", "destructor"])
def test_one_object_entered_again_by_what_its_end_lets_run_is_two_ranges(
    engine: Any, recorded: Written, where: str
) -> None:
    """As another thread may, while the tool or the text of the end lets it run."""

    class Dying:
        def __del__(self) -> None:
            enter_again("destructor")

    def enter_again(here: str) -> None:
        if here == where and not again:
            again.append(shared.__enter__())
            shared.set(number=2)

    def cut(text: str) -> bytes:
        if len(text) > 4096:
            enter_again("text")
        return names.utf8(text)

    def told_end(token: int, domain: str) -> None:
        told.remove(token)
        enter_again("sink")

    def told_begin(message: str, domain: str) -> int:
        told.append(len(told) + 1)
        return told[-1]

    again: list[Any] = []
    told: list[int] = []
    engine.set_hooks(names.describe_site, cut, faults.note_fault, None)
    engine.set_sink(0, told_begin, told_end)
    shared = engine.mstx_range("x")
    with engine.mstx_range("outer"):
        with shared:
            shared.set(number=1, long="x" * 5000, dying=Dying())
        assert (len(told), len(recorded.open), again) == (2, 2, [shared])
        recorded.tick(3)
        shared.__exit__(None, None, None)

    found = [(found.name, found.depth, found.duration, found.attributes.get("number")) for found in recorded.ranges]
    depth = 2 if where == "text" else 1  # the first one is still being written
    assert found == [("x", 1, 0, 1), ("x", depth, 3, 2), ("outer", 0, 3, None)]
    assert (told, recorded.open, engine.counters()["open"]) == ([], [], 0)


def test_a_range_that_ends_in_a_garbage_collection_inside_another(engine: Any, recorded: Written) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.open = engine.mstx_range("in a cycle")
            self.open.__enter__()

    gc.disable()
    try:
        Cycle()
        with engine.mstx_range("x"):
            gc.collect()
            with engine.mstx_range("y"):
                pass
    finally:
        gc.enable()

    assert {(found.name, found.error) for found in recorded.ranges} == {
        ("in a cycle", True), ("y", False), ("x", False)
    }  # fmt: skip
    assert recorded.open == []


def test_ranges_thrown_away_while_open_leave_the_others_of_their_track(engine: Any, recorded: Written) -> None:
    outer, middle, inner = (engine.mstx_range(name) for name in ("outer", "middle", "inner"))
    for entered in (outer, middle, inner):
        entered.__enter__()
    del middle, entered
    gc.collect()
    with engine.mstx_range("x"):
        pass
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)

    assert [(found.name, found.error) for found in recorded.ranges] == [
        ("middle", True), ("x", False), ("inner", False), ("outer", False)
    ]  # fmt: skip
    assert recorded.open == []


def test_a_range_thrown_away_in_several_entries_ends_them_all(engine: Any, recorded: Written) -> None:
    lost = engine.mstx_range("lost", n=1)
    for _ in range(3):
        lost.__enter__()
    del lost
    gc.collect()

    assert [(found.error, found.depth) for found in recorded.ranges] == [(True, 2), (True, 1), (True, 0)]
    assert recorded.open == []


def test_others_may_record_while_a_wrong_step_is_told(engine: Any, recorded: Written) -> None:
    """Whoever logs it may wait for one that is inside of a range of its own."""
    ended: list[bool] = []

    def tell(where: str, exc: BaseException) -> None:
        other = threading.Thread(target=engine.mark, args=("m",), daemon=True)
        other.start()
        other.join(5)
        ended.append(not other.is_alive())

    engine.set_hooks(names.describe_site, names.utf8, tell, None)
    engine.step("wrong")

    assert ended == [True]


def test_what_stops_a_thread_inside_of_a_tool_stops_that_thread(engine: Any) -> None:
    """As those do that limit the time of a thread's work: by an exception in it, `PyThreadState_SetAsyncExc`."""

    class Stop(BaseException):
        pass

    def begin(message: str, domain: str) -> int:
        raise Stop

    def work() -> None:
        try:
            with engine.mstx_range("x"):
                for _ in range(1000):
                    pass
        except Stop:
            stopped.append(threading.current_thread())

    stopped: list[threading.Thread] = []
    engine.set_sink(0, begin, lambda token, domain: None)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert stopped == [thread]


def test_too_many_arguments_are_a_type_error(engine: Any, recorded: Written) -> None:
    for wrong in (
        lambda: engine.mstx_range(), lambda: engine.mstx_range("x", "y"), lambda: engine.stage(),
        lambda: engine.stage("x", "y"), lambda: engine.mark(), lambda: engine.mark("x", "y"),
        lambda: engine.step(1, 2), lambda: engine.at_step(),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            wrong()

    assert recorded.ranges == recorded.marks == []


def test_a_name_of_10_mb_costs_its_digest(engine: Any, recorded: Written) -> None:
    first, second = "x" * (10 << 20), "x" * (10 << 20) + "y"
    for name in (first, second):
        with engine.mstx_range(name, text=name, domain=name):
            engine.mark(name)

    names = [found.name for found in recorded.ranges]
    assert len({*names}) == 2
    assert all(len(name.encode()) <= 4096 and "bytes" in name[-40:] for name in names)
    assert [found.name for found in recorded.marks] == names
    assert [found.domain for found in recorded.ranges] == names
    assert engine.counters()["texts_cut"] >= 4


def test_too_many_names_displace_neither_names_nor_stages(engine: Any) -> None:
    """Names beyond the limit, 100,000 in soak: counted and told once. Names that were known stay known; stages that
    come later are recorded under their keys.
    """
    count = soak.rounds(100_000, records.SITE_LIMIT + 500)
    program = """
        import logging

        class Kept(logging.Handler):
            def emit(self, record):
                lines.append(record.getMessage())

        lines = []
        logging.getLogger("mstxkit").addHandler(Kept())
        written = Written(engine, bank_count=2, bank_bytes=1 << 25)
        before = engine.counters()["sites"]
        makes = {"__name__": "careless.rollout", "engine": engine}
        exec("def use(name):\\n  with engine.mstx_range(name): pass", makes)
        for number in range(COUNT):
            makes["use"](f"name {number}")
        new, old = f"name {COUNT - 1}", "name 17"
        for name in (new, old):
            with engine.mstx_range(name):
                pass
        for name in ("known by nobody", "nor this one"):
            with engine.mstx_range(name, domain="d", n=1):
                pass
        engine.mark(new)
        late, current = len(written.names), []
        for _ in range(2):
            with engine.stage("evaluate"), engine.mstx_range("x"):
                current.append(engine.current_stage())
        for name, stage in (("reward of 5", "reward"), ("reward of 6", "reward"), ("evaluate", "evaluate")):
            with engine.timed(engine.intern(name, stage, "d" if stage == "reward" else "default")):
                current.append(engine.current_stage())
        counters, names = engine.counters(), written.names
        room = records.SITE_LIMIT - before
        result = {
            "own": names[:room] == [f"name {number}" for number in range(room)],
            "others": sorted(set(names[room:COUNT])),
            "last": names[COUNT:late],
            "marks": [found.name for found in written.marks[-1:]],
            "staged": names[late:], "current": current, "times": sorted(engine.stage_times()),
            "capped": counters["names_capped"] - (COUNT - room),
            "sites": counters["sites"] - records.SITE_LIMIT,
            "dropped": counters["dropped"], "faults": counters["faults"],
            "lines": ["made by careless.rollout" in line and "attributes" in line for line in lines],
            "told": [found.attributes.get("module") for found in written.marks[:-1]],
        }
        """
    found = run_fresh(engine, program.replace("COUNT", str(count)))

    many = "(too many names)"
    assert found == {
        "own": True, "others": [many], "last": [many, "name 17", many, many], "marks": [many],
        "staged": [many, "evaluate"] * 2 + ["reward", "reward", "evaluate"],
        "current": ["evaluate", "evaluate", "reward", "reward", "evaluate"], "times": ["evaluate", "reward"],
        "capped": 8, "sites": 2, "dropped": 0, "faults": 0, "lines": [True], "told": ["careless.rollout"],
    }  # fmt: skip


def test_records_come_through_banks_of_one_page_and_are_sealed_as_written(engine: Any) -> None:
    """Every record in exactly one bank, sealed one by one; what is open is named in each."""
    found = run_fresh(
        engine,
        """
        from mstxkit.store import segment
        from builders.written_banks import read_bank

        written = Written(engine, slot_count=8, bank_count=2, bank_bytes=4096)
        engine.step(0)
        sealed, faithful, named = [], [], []

        def seal():
            while engine.full_bank() >= 0:
                index = engine.full_bank()
                bank = livefile.read_bank(written.view, written.layout, index)
                faithful.append(engine.encode_bank(index) == tuple(segment.encode_bank(bank.raw, bank.text, bank.salt)))
                sealed.extend(read_bank(bank))
                engine.release_bank(index)
                named.append([found.name for found in written.open])

        with engine.mstx_range("root"), engine.stage("s"):
            for number in range(1000):
                if number % 3:
                    with engine.mstx_range("x", number=number, text=f"text {number}"):
                        pass
                else:
                    with engine.mstx_range("p"):
                        pass
                seal()
        engine.rotate()
        seal()
        numbers = [found.attributes["number"] for found in sealed if found.name == "x"]
        texts = [found.attributes["text"] for found in sealed if found.name == "x"]
        result = {
            "numbers": numbers == [number for number in range(1000) if number % 3],
            "texts": texts == [f"text {number}" for number in numbers],
            "plain": sum(found.name == "p" for found in sealed),
            "stages": sorted({str(found.stage) for found in sealed}),
            "last": [found.name for found in sealed[-2:]],
            "faithful": all(faithful) and len(faithful) > 10,
            "named": sorted({tuple(names) for names in named}),
            "lost": [engine.counters()[key] for key in ("dropped", "attributes_lost", "slots_overflowed", "faults")],
        }
        """,
    )

    assert found == {
        "numbers": True, "texts": True, "plain": 334, "stages": ["None", "s"], "last": ["s", "root"], "faithful": True,
        "named": [[], ["root", "s"]], "lost": [0, 0, 0, 0],
    }  # fmt: skip


def test_a_bank_too_small_for_all_stages_loses_and_counts_but_never_raises(engine: Any) -> None:
    """Each bank names all stages; with many long keys that is more than one page."""
    found = run_fresh(
        engine,
        """
        written = Written(engine, slot_count=8, bank_count=2, bank_bytes=4096)
        passed = 0
        for number in range(300):
            with engine.stage(f"stage with a long name {number}"):
                passed += 1
            while engine.full_bank() >= 0:
                engine.release_bank(engine.full_bank())
        result = [passed, engine.counters()["open"], engine.counters()["faults"]]
        """,
    )

    assert found == [300, 0, 0]


def test_a_file_without_slots_records_all_the_same(engine: Any) -> None:
    engine.set_clock(4)
    written = Written(engine, slot_count=0)
    for _ in range(2):
        with engine.mstx_range("x"), engine.mstx_range("y", n=1):
            pass
    engine.set_recording(False)

    assert written.names == ["y", "x"] * 2
    assert engine.counters()["slots_overflowed"] == 4
    engine.detach()


def test_not_a_number_of_any_sign_and_payload_keeps_its_bits(engine: Any, recorded: Written) -> None:
    import struct

    (odd,) = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_1234))
    with engine.mstx_range("x", nan=odd, inf=-math.inf):
        pass

    (bank,) = recorded.banks
    words = [w for w in records.WORDS.iter_unpack(bank.raw) if records.kind_of(w[2]) == records.ATTRIBUTE]
    assert words[0][0] == 0xFFF8_0000_0000_1234
    assert recorded.one("x").attributes["inf"] == -math.inf


def test_the_fake_clock_refuses_what_is_no_tick(engine: Any) -> None:
    for bad in (-1, 1 << 64, "3", None):
        with pytest.raises((OverflowError, TypeError, ValueError)):
            engine.set_fake_ticks(bad)


def test_anchors_go_round_and_the_first_one_stays(engine: Any, recorded: Written) -> None:
    for number in range(70):
        recorded.tick(1)
        if number == 0:
            engine.anchor()
            first = livefile.read_anchors(recorded.view)[0]
        else:
            engine.anchor()

    anchors = livefile.read_anchors(recorded.view)
    assert anchors[0] == first
    assert len(anchors) == livefile.ANCHOR_ENTRIES
    assert anchors[-1].ticks == 1_000_070


def test_attached_twice_each_file_has_its_own(engine: Any, recorded: Written) -> None:
    with engine.mstx_range("first"), engine.stage("s"):
        pass
    before = bytes(recorded.view)
    second = Written(engine)
    with engine.mstx_range("first"), engine.stage("s"):
        engine.mark("m", text="first")
    engine.attach(second.view, 5)
    recording = engine.recording()
    engine.set_recording(True)
    with engine.mstx_range("again"):
        pass

    assert bytes(recorded.view) == before
    assert recording is False
    assert second.names[-1] == "again"
