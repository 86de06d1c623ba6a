"""The hooks of `set_watch` where things go wrong: they raise, threads, forks; and random programs. Both engines."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import Any, Callable, Iterator, NoReturn

import pytest
from builders.forked_child import in_child
from builders.fresh_engine import run_fresh
from builders.watcher import Mine, Watcher, generator, marked, once
from builders.written_banks import FAKE, Written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mstxkit import faults
from mstxkit.engine.twin import hot, tracks

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
_WITHIN_S = 60.0


def fail() -> NoReturn:
    raise OSError("the hook failed")


# ---- hooks that raise ----


def test_a_hook_that_raises_is_a_counted_fault_and_the_range_goes_on(
    engine: Any, recorded: Written, watcher: Watcher
) -> None:
    watcher.at_entry = watcher.at_end = fail
    with engine.stage("first"), engine.stage("second"):
        pass
    once(engine, marked(engine, "with bad hooks"))

    assert faults.counts == {"watch.entered": 3, "watch.left": 3}
    assert engine.counters()["faults"] == 6
    assert recorded.names == ["second", "first", "with bad hooks"]
    assert len(watcher.entries) == len(watcher.ends) == 3


def test_a_step_hook_that_raises_is_a_counted_fault_and_the_step_holds(engine: Any) -> None:
    engine.set_watch(None, None, lambda step: fail())
    steps = [engine.step(3), engine.step()]
    engine.set_watch(None, None, None)

    assert steps == [3, 4]
    assert faults.counts == {"watch.stepped": 2}


def test_a_begin_that_fails_in_the_twin_is_told_of_its_end_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Watcher(hot).set()
    with monkeypatch.context() as patched:
        patched.setattr(tracks, "track_here", lambda: None)
        with hot.stage("s"):
            pass
    watcher.clear()

    assert watcher.told == [("entered", "s", False), ("left", "s", True)]
    assert faults.counts == {"range.begin": 1}


def test_what_is_no_hook_is_a_counted_fault(engine: Any, recorded: Written) -> None:
    engine.set_watch(1, lambda: None, "x")
    engine.watch(True)
    with engine.stage("s"):
        engine.step(1)
    engine.watch(False)
    engine.set_watch(None, None, None)

    assert faults.counts == {"watch.entered": 1, "watch.left": 1, "watch.stepped": 1}
    assert recorded.names == ["s"]


def test_a_body_that_raised_keeps_its_exception_where_the_hook_raises_too(engine: Any, watcher: Watcher) -> None:
    def body() -> Iterator[int]:
        yield 1
        raise Mine

    watcher.at_end = fail
    with pytest.raises(Mine):
        list(engine.driven(engine.intern("both raise", "both"), body()))
    with pytest.raises(Mine), engine.stage("both"):
        raise Mine

    assert watcher.ends == [("both raise", True), ("both", True)]
    assert faults.counts == {"watch.left": 2}


def test_a_range_thrown_away_under_an_exception_leaves_that_as_it_is(engine: Any, watcher: Watcher) -> None:
    """Its last reference goes with the frame that the exception leaves."""

    def body() -> None:
        thrown_away = engine.stage("thrown away")
        thrown_away.__enter__()
        raise Mine

    watcher.at_end = fail
    with pytest.raises(Mine):
        body()

    assert watcher.ends == [("thrown away", True)]


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What is raised while garbage is collected reaches nobody: hypothesis has Python code called by the collector."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_a_signal_handler_raises_inside_the_hook_reaches_the_program_and_is_told_as_a_failure(
    engine: Any, recorded: Written, watcher: Watcher, kind: type[BaseException], ctrl_c: None, no_collection: None
) -> None:
    """C raises it again in the body; in the twin it leaves `__enter__`. Either way the end is told."""

    def interrupted() -> NoReturn:
        raise kind

    watcher.at_entry = interrupted
    with pytest.raises(kind), engine.stage("s"):
        for _ in range(1000):
            time.sleep(0.001)

    assert watcher.told == [("entered", "s", False), ("left", "s", True)]


# ---- threads ----


def in_thread(work: Callable[[], object]) -> None:
    """Do it on another thread, and raise here what it raises there."""
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join(_WITHIN_S)
    assert not thread.is_alive()
    if raised:
        raise raised[0]


def test_each_thread_is_told_of_its_own(engine: Any, recorded: Written) -> None:
    told: list[tuple[str, int]] = []

    def note(site: Any, flag: bool) -> None:
        told.append((site.name, threading.get_ident()))

    engine.set_watch(note, note, None)
    engine.watch(True)
    here = threading.get_ident()
    moved = engine.stage("moved")
    moved.__enter__()
    other: list[int] = []

    def there() -> None:
        other.append(threading.get_ident())
        moved.__exit__(None, None, None)
        with engine.stage("of the other"):
            pass

    in_thread(there)
    engine.watch(False)
    engine.set_watch(None, None, None)

    assert told == [("moved", here), ("moved", other[0]), ("of the other", other[0]), ("of the other", other[0])]


@pytest.mark.parametrize("is_open", [False, True], ids=["fresh", "open"])
@pytest.mark.parametrize("leaves", [0, 1, 2])
def test_an_object_that_another_thread_uses_while_the_hook_runs_stays_balanced(
    engine: Any, recorded: Written, watcher: Watcher, is_open: bool, leaves: int
) -> None:
    """The other thread enters it twice, and leaves it none, one or two times, all within the hook of this thread."""
    shared = engine.stage("shared")
    here = threading.get_ident()

    def other() -> None:
        shared.__enter__()
        shared.__enter__()
        for _ in range(leaves):
            shared.__exit__(None, None, None)

    if is_open:
        shared.__enter__()
    watcher.at_entry = lambda: in_thread(other) if threading.get_ident() == here else None
    shared.__enter__()
    entered = len(watcher.entries)
    for _ in range(entered - leaves):
        shared.__exit__(None, None, None)

    assert entered == 3 + is_open
    assert len(watcher.ends) == entered
    assert recorded.names == ["shared"] * entered
    assert engine.counters()["open"] == 0
    assert faults.counts == {}


def test_an_open_object_that_is_left_while_the_hook_runs_stays_balanced(
    engine: Any, recorded: Written, watcher: Watcher
) -> None:
    shared = engine.stage("shared")
    shared.__enter__()
    watcher.at_entry = lambda: in_thread(lambda: shared.__exit__(None, None, None))
    shared.__enter__()
    shared.__exit__(None, None, None)

    assert len(watcher.entries) == len(watcher.ends) == 2
    assert recorded.names == ["shared"] * 2
    assert engine.counters()["open"] == 0
    assert engine.current_stage() is None


def test_a_span_that_is_closed_while_the_hook_runs_stays_balanced(
    engine: Any, recorded: Written, watcher: Watcher
) -> None:
    span = engine.opened(engine.intern("closed inside", "closed inside"))

    async def nothing() -> None:
        pass

    watcher.at_entry = lambda: in_thread(lambda: span.close(False))
    driven = span.drive(nothing())
    with pytest.raises(StopIteration):
        driven.send(None)

    assert len(watcher.entries) == len(watcher.ends) == 1
    assert recorded.names == ["closed inside"]
    assert engine.counters()["open"] == 0


def test_many_threads_under_changing_hooks_stay_balanced(engine: Any) -> None:
    """Each hook says the end to the hook in force, so only all together are balanced."""
    written = Written(engine, slot_count=64, bank_count=64, bank_bytes=1 << 17)
    lock = threading.Lock()
    counts = {"entered": 0, "left": 0}

    def count(key: str) -> Callable[[Any, bool], None]:
        def hook(site: Any, flag: bool) -> None:
            with lock:
                counts[key] += 1

        return hook

    def work() -> None:
        site = engine.intern("of many threads")
        for _ in range(200):
            with engine.stage("of many threads"), engine.timed(site):
                list(engine.driven(site, generator()))

    marked(engine, "of many threads")
    engine.set_watch(count("entered"), count("left"), None)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        engine.set_watch(count("entered"), count("left"), None)
        engine.watch(True)
        engine.watch(False)
    for thread in threads:
        thread.join(_WITHIN_S)
    engine.set_watch(None, None, None)
    engine.set_recording(False)

    assert counts["entered"] == counts["left"]
    assert len(written.names) == 4 * 200 * 3
    assert engine.counters()["open"] == 0
    assert faults.counts == {}


# ---- forks ----


def test_in_a_forked_child_nobody_watches_and_no_hook_is_told(engine: Any, recorded: Written, watcher: Watcher) -> None:
    """Not of what was open either, even with hooks of its own by then. Those work."""
    inherited, driven = engine.stage("inherited"), engine.driven(engine.intern("i", "inherited"), generator())
    inherited.__enter__()
    next(driven)

    def child() -> bool:
        before = list(watcher.told)
        off = not engine.recording()
        with engine.stage("child, off"):
            engine.step(3)
        engine.watch(True)
        with engine.stage("child, without hooks"):
            engine.step(4)
        own = Watcher(engine).set()
        inherited.__exit__(None, None, None)
        driven.close()
        with engine.stage("of the child"):
            engine.step(5)
        told = [("entered", "of the child", False), 5, ("left", "of the child", False)]
        return off and watcher.told == before and own.told == told

    silent = in_child(child)
    inherited.__exit__(None, None, None)
    driven.close()

    assert silent
    assert watcher.ends == [("inherited", False), ("i", False)]


def test_a_forked_child_has_seen_no_stages(engine: Any, recorded: Written) -> None:
    with engine.stage("of the parent"):

        def child() -> bool:
            before = engine.stages_seen()
            engine.watch(True)
            with engine.stage("of the child"), engine.stage("of the parent"):
                pass
            return not before and engine.stages_seen() == ["of the child", "of the parent"]

        assert in_child(child)

    assert "of the parent" in engine.stages_seen()
    assert "of the child" not in engine.stages_seen()


def test_marked_sites_stay_marked_in_a_child(engine: Any) -> None:
    site = marked(engine, "marked before the fork")

    def child() -> bool:
        own = Watcher(engine).set()
        once(engine, site)
        return len(own.ends) == 1

    assert in_child(child)


def test_a_hook_that_forks_is_told_of_the_end_by_the_parent_only(
    engine: Any, recorded: Written, watcher: Watcher
) -> None:
    children: list[int] = []

    def forks() -> None:
        if not children:
            children.append(os.fork())
            if not children[0]:
                Watcher(engine).set().told = watcher.told

    watcher.at_entry = forks
    with engine.stage("s"):
        pass
    if not children[0]:
        os._exit(0 if watcher.ends == [] else 2)

    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    assert watcher.ends == [("s", False)]


# ---- the life of the process ----


def test_ranges_open_at_the_end_of_the_process_do_no_harm(engine: Any) -> None:
    result = run_fresh(
        engine,
        """
        told = []
        engine.set_watch(lambda *a: told.append(a), lambda *a: told.append(a), told.append)
        engine.watch(True)
        open_range = engine.stage("open")
        open_range.__enter__()

        def body():
            with engine.stage("inside"):
                yield 1

        driven = engine.driven(engine.intern("driven", "d"), body())
        next(driven)
        result = engine.stages_seen(), len(told)
        """,
    )

    assert result == [["open", "d", "inside"], 3]


# ---- random programs ----


ACTIONS = ["enter", "enter", "drive", "leave", "leave", "fail", "watch", "rest", "record", "stop", "storm", "calm"]
PROGRAMS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3)), max_size=40)


class Runner:
    """Does what a program says; `expected` is what the hooks must have been told of it, by the rules alone."""

    def __init__(self, engine: Any) -> None:
        engine.detach()
        engine.set_clock(FAKE)
        self.engine, self.written, self.watcher = engine, Written(engine), Watcher(engine).set(on=False)
        self.site = marked(engine, "a boundary")
        self.is_watching, self.is_recording = False, True
        self.open: list[tuple[Any, str, bool]] = []
        self.expected: list[Any] = []
        self.begun = 0

    def run(self, program: list[tuple[str, int]]) -> Runner:
        for action, number in program:
            getattr(self, action)(number)
        while self.open:
            self.leave(0)
        self.calm(0)
        self.watcher.clear()
        return self

    def enter(self, number: int) -> None:
        made = [self.engine.stage("s"), self.engine.mstx_range("a boundary"), self.engine.timed(self.site)]
        made = made[number] if number < 3 else self.engine.mstx_range("plain")
        made.__enter__()
        self._began(made, ["s", "a boundary", "a boundary", "plain"][number], False)

    def drive(self, number: int) -> None:
        driven = self.engine.driven(self.site if number % 2 else self.engine.intern("x", "s"), generator())
        next(driven)
        self._began(driven, "a boundary" if number % 2 else "x", True)

    def _began(self, made: Any, name: str, may_move: bool) -> None:
        told = self.is_watching and name != "plain"
        self.begun += self.is_recording
        self.open.append((made, name, told))
        if told:
            self.expected.append(("entered", name, may_move))

    def leave(self, number: int, kind: Any = None) -> None:
        if not self.open:
            return
        made, name, told = self.open.pop(-1 if number else len(self.open) // 2)
        if not hasattr(made, "close"):
            made.__exit__(kind, kind and kind(), None)
        elif kind is None:
            made.close()
        else:
            with pytest.raises(kind):
                made.throw(kind())
        if told:
            self.expected.append(("left", name, kind is not None))

    def fail(self, number: int) -> None:
        self.leave(number, Mine)

    def watch(self, number: int) -> None:
        self.engine.watch(True)
        self.is_watching = True

    def rest(self, number: int) -> None:
        self.engine.watch(False)
        self.is_watching = False

    def record(self, number: int) -> None:
        self.engine.set_recording(True)
        self.is_recording = True

    def stop(self, number: int) -> None:
        self.engine.set_recording(False)
        self.is_recording = False

    def storm(self, number: int) -> None:
        self.engine.limit(self.site, coalesce=number == 0, max_depth=number or None)

    def calm(self, number: int) -> None:
        self.engine.limit(self.site)

    def recorded(self) -> int:
        """How many calls are in the file, coalesced ones too."""
        self.engine.flush_coalesced()
        return sum(found.attributes.get("coalesced", 1) for found in self.written.ranges)


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(program=PROGRAMS)
def test_of_any_program_the_hooks_are_told_what_began_and_all_of_it_is_recorded(
    engine: Any, program: list[tuple[str, int]]
) -> None:
    runner = Runner(engine).run(program)

    assert runner.watcher.told == runner.expected
    assert runner.recorded() == runner.begun
    assert engine.counters()["open"] == 0
    engine.detach()
