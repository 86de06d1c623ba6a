"""An exception of the program's that comes up in the middle of the twin reaches the program, and nothing stays open.
What a signal's handler does there with ranges of its own harms nobody's.

CPython lets one come up at the start of a function and after a call of C. Each such place is tried, one after the
other: a profile function raises there, or has ranges, as a signal handler would.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, Callable, Iterator

import pytest
from builders import engines
from builders.threads import elsewhere
from builders.written_banks import Written

from mstxkit import faults
from mstxkit.engine.twin import interruptions, listeners, tracks
from mstxkit.host import names
from mstxkit.marking.wrapping import decorate_target

TWIN = str(interruptions.__file__).rsplit("/", 1)[0]


class OverTime(Exception):
    """The program's own."""


@pytest.fixture
def twin() -> Iterator[Any]:
    """It records on a fake clock; a fault is an error of the test."""
    module = engines.load("twin")
    clock, noted = module.clock_kind(), []
    module.set_clock(4)
    module.set_hooks(names.describe_site, names.utf8, lambda where, exc: noted.append((where, exc)), decorate_target)
    yield module
    module.detach()
    module.set_clock(clock)
    module.set_hooks(names.describe_site, names.utf8, faults.note_fault, decorate_target)
    assert noted == []


def body(twin: Any) -> Iterator[int]:
    with twin.stage("inside"):
        yield 1
        yield 2


def drive(twin: Any) -> None:
    for _ in twin.driven(twin.intern("driven", "of a body"), body(twin), None, {"n": 1}):
        with twin.mstx_range("between"):
            pass


def nest(twin: Any) -> None:
    with twin.stage("outer", tokens=5), twin.mstx_range("x", text="t"), twin.stage("inner"):
        twin.mark("m", n=1)


def in_steps(twin: Any) -> None:
    with twin.at_step(7), twin.stage("s"):
        twin.step()


def tell(twin: Any) -> None:
    twin.set_sink(0, lambda message, domain: 1, lambda token, domain: None)
    twin.set_watch(lambda site, moves: None, lambda site, failed: None, None)
    twin.watch(True)
    with twin.stage("s"):
        pass


def storm(twin: Any) -> None:
    site = twin.intern("storm")
    twin.limit(site, coalesce=True)
    with twin.stage("s"), twin.timed(site):
        pass


PROGRAMS: dict[str, Callable[[Any], None]] = {
    "nested": nest, "driven": drive, "at_step": in_steps, "told": tell, "storm": storm,
}  # fmt: skip


def raise_over_time() -> None:
    raise OverTime


class Places:
    """Counts the places where something may come up in the twin; acts at one of them."""

    def __init__(self, place: int, act: Callable[[], None] = raise_over_time) -> None:
        self.place, self.seen, self.act = place, 0, act

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or not code.co_filename.startswith(TWIN):
            return
        if event == "call" and code.co_code[1] == interruptions._IN_SILENCE:
            return  # nothing comes up there
        if self.seen == self.place:
            sys.setprofile(None)
            self.seen = -1
            self.act()
            return
        self.seen += self.seen >= 0


def interrupted(twin: Any, program: Callable[[Any], None], place: int) -> bool:
    """Did the exception come up there, and reach the program?"""
    try:
        came_up = is_handled(twin, program, Places(place))
    except OverTime:
        return True
    assert not came_up, f"what came up at place {place} did not reach the program"
    return False


def is_handled(twin: Any, program: Callable[[Any], None], places: Places) -> bool:
    """Was that place reached?"""
    sys.setprofile(places)
    try:
        program(twin)
    finally:
        sys.setprofile(None)
        twin.watch(False)
        twin.clear_sink(0)
    return places.seen < 0


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a `try` at the start of a function is not silent to a profiler")
@pytest.mark.parametrize("name", PROGRAMS)
def test_wherever_it_comes_up_it_reaches_the_program_and_nothing_stays(twin: Any, name: str) -> None:
    place = 0
    while True:
        recorded = Written(twin)
        for again in range(2):  # the second time all names are known
            was_raised = interrupted(twin, PROGRAMS[name], place) if again else PROGRAMS[name](twin)
        assert (twin.current_stage(), recorded.open) == (None, []), f"at place {place}"
        with twin.mstx_range("after"):
            pass
        assert (recorded.ranges[-1].name, recorded.ranges[-1].depth) == ("after", 0), f"at place {place}"
        if not was_raised:
            break
        place += 1

    assert place > 50


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a `try` at the start of a function is not silent to a profiler")
@pytest.mark.parametrize("name", ["at_step", "told", "storm", "step by step"])
def test_wherever_a_signals_handler_has_ranges_and_steps_of_its_own_nobodys_are_harmed(twin: Any, name: str) -> None:
    """That any fault came up on the way the fixture would say. Each stage has as many steps as are kept."""

    def next_step() -> None:
        twin.step()
        with twin.stage("s"):
            pass

    place, was_interrupted = 0, True
    while was_interrupted:
        recorded = Written(twin)
        for _ in range(17):
            next_step()
        was_interrupted = is_handled(twin, PROGRAMS.get(name, lambda twin: next_step()), Places(place, next_step))
        assert (twin.current_stage(), recorded.open) == (None, []), f"at place {place}"
        place += 1

    assert place > 50


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a `try` at the start of a function is not silent to a profiler")
@pytest.mark.parametrize("name", PROGRAMS)
def test_wherever_a_signals_handler_stops_capture_no_fault_comes_up_and_nothing_stays(twin: Any, name: str) -> None:
    place, was_interrupted = 0, True
    while was_interrupted:
        Written(twin)
        was_interrupted = is_handled(twin, PROGRAMS[name], Places(place, twin.detach))
        assert twin.current_stage() is None, f"at place {place}"
        place += 1

    assert place > 50


@pytest.mark.parametrize("kind", [RecursionError, MemoryError, TimeoutError, SystemExit])
def test_what_stops_a_thread_from_outside_passes_through_ranges(twin: Any, kind: type[BaseException]) -> None:
    """As `PyThreadState_SetAsyncExc` raises it: by its class alone, and from no line of the program's."""
    Written(twin)
    ended: list[Any] = []

    def work() -> None:
        try:
            with twin.stage("s"):
                raise kind
        except kind:
            ended.append(twin.current_stage())

    elsewhere(work)

    assert ended == [None]


def test_wherever_a_finalizer_has_ranges_and_steps_of_its_own_nobodys_are_harmed(twin: Any) -> None:
    """Up to Python 3.11 the garbage collector comes with any object that is made, also in the midst of a call of C."""

    def next_step() -> None:
        twin.step()
        with twin.stage("s"):
            pass

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            next_step()
            finalized.append(self.place)

    finalized: list[int] = []
    pairs = [(number, 0) for number in range(3000)]  # CPython keeps so many that are thrown away, and makes none then
    recorded, threshold = Written(twin), gc.get_threshold()
    for _ in range(17):
        next_step()
    for place in range(1, 150):
        pairs += [(number, place) for number in range(100)]
        gc.collect(0)
        Cycle.place = place
        try:
            gc.set_threshold(place)
            Cycle()
            next_step()
        finally:
            gc.set_threshold(*threshold)
    in_the_midst = len(finalized)
    gc.collect()

    assert (twin.current_stage(), recorded.open) == (None, [])
    assert in_the_midst > 20


def test_what_a_signals_handler_has_ended_meanwhile_is_ended_once(twin: Any) -> None:
    """An exception has interrupted the end of a range; while the rest of that is done, a handler has a range too."""
    recorded, ended = Written(twin), []
    left = tracks.Opened(twin.intern("left"), None)

    def handle(token: object, domain: str) -> None:
        twin.mark("of the handler")
        ended.append(left)

    left.ends = [(0, handle, 1, listeners.process)]
    tracks.unfinished.append(left)
    with twin.mstx_range("next"):
        pass

    assert ended == [left]
    assert (tracks.unfinished, recorded.open) == ([], [])
    assert [found.name for found in (*recorded.marks, *recorded.ranges)] == ["of the handler", "next"]


def test_a_program_at_the_limit_of_its_recursion_gets_its_error_and_leaves_its_stages(twin: Any) -> None:
    recorded = Written(twin)

    def recurse() -> None:
        with twin.stage("deep"):
            recurse()

    with pytest.raises(RecursionError):
        recurse()

    assert (twin.current_stage(), recorded.open) == (None, [])
    assert {found.error for found in recorded.ranges} == {True}
