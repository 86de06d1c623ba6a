"""One operation of the C engine with each of its allocations failing in turn: `starved.py OPERATION EVERY`, a process.

An operation gives what it does with all prepared, and the records that it leaves. What goes wrong is told, a line each.

CPython's own, which is no defect of ours and is kept out of the way here: `PyContextVar_Set` crashes where there is
memory neither for its token nor for the new value; a `finally` or `with` that is left by an exception while no
allocation at all succeeds goes round for ever (3.11 to 3.13, `ceval.c`: the number that the handler pushes); so the
operations of `ONE_AT_A_TIME` have one failure each. 3.12 crashes where a generator expression in a function behind
`lru_cache` fails, with no C of ours in the process (`decorating`, left out there). `async with` binds `__aenter__`, and
a generator or coroutine is made and ended by `StopIteration`, with memory of CPython's.
"""

from __future__ import annotations

import _testcapi
import decimal
import enum
import gc
import itertools
import pathlib
import pickle
import sys
from typing import Any, Callable, NamedTuple
from unittest.mock import ANY

from builders.written_banks import FAKE, MONOTONIC, NONCE, Written

from mstxkit.engine.native import hot
from mstxkit.marking import ranges
from mstxkit.store import livefile

AT_MOST, CALM, FOREVER = 400, 30, 0  # tries; tries in a row that nothing fails in, at which an operation is through
LONG = "é" * 3000
ONE_AT_A_TIME = {"pieces", "new_site", "stages", "steps_of_tasks", "hooks", "rotating", "asking"}


class Operation(NamedTuple):
    """What is done, what it writes (name to stage and attributes), and what it may raise."""

    act: Callable[[], object]
    writes: dict[str, tuple[str | None, dict[str, Any]]] = {}
    raises: tuple[type[BaseException], ...] = ()
    whole: tuple[str, ...] = ()  # records that are not written without their attributes


ASKS = (MemoryError,)
_numbers = itertools.count()


class Unknown:
    """A value of a type that no record holds."""


class Colour(enum.Enum):
    RED = "red"


UNKNOWN, RED = Unknown(), Colour.RED


def new(prefix: str = "name") -> str:
    """A text that the engine has never seen."""
    return f"{prefix} é {next(_numbers)}"


def new_name() -> Operation:
    name = new()

    def act() -> None:
        with hot.mstx_range(name):
            pass

    return Operation(act, {name: (None, {})})


def new_site() -> Operation:
    name, key = new(), new("stage")

    def act() -> None:
        with hot.mstx_range(name, stage=key, domain=name):
            pass

    return Operation(act, {name: (key, {})})


def attributes() -> Operation:
    text = new("text")

    def act() -> None:
        with hot.mstx_range("attributes", a=text, b=7, c=1.5, d=True, e=None, f=UNKNOWN, g=LONG, h=10**30):
            pass

    given = {"a": text, "b": 7, "c": 1.5, "d": True, "e": None, "f": "Unknown", "h": "int"}
    return Operation(act, {"attributes": (None, given)})


def values_of_python() -> Operation:
    text, number, path = new("text"), decimal.Decimal("2.5"), pathlib.PurePosixPath("/a") / new()
    one = hot.mstx_range("values", a=text, b=number, c=path, d=RED)
    put = one.set

    def act() -> None:
        with one:
            hot.mark("marked", a=number)
            put(e=number, a=None)

    given = {"a": ANY, "b": 2.5, "c": str(path), "d": "red", "e": 2.5}
    return Operation(act, {"values": (None, given), "marked": (None, {"a": 2.5})})


def setting() -> Operation:
    text, one = new("text"), hot.mstx_range("setting", a=1)
    put = one.set

    def act() -> None:
        with one:
            put(b=text)
            put(a=2, c=LONG)

    return Operation(act, {"setting": (None, {"a": ANY, "b": text})})


def again() -> Operation:
    one = hot.mstx_range("again", a=1)

    def act() -> None:
        with one:
            with one:
                pass

    return Operation(act, {"again": (None, {"a": 1})})


def stages() -> Operation:
    key = new("stage")

    def act() -> None:
        with hot.stage(key):
            with hot.mstx_range("inside"):
                pass

    return Operation(act, {key: (key, {}), "inside": (key, {})})


def marks() -> Operation:
    name, text = new(), new("text")
    return Operation(lambda: hot.mark(name, a=text, stage="s"), {name: (None, {"a": text, "stage": "s"})})


def steps() -> Operation:
    number = 1000 + next(_numbers)

    def act() -> None:
        hot.step(number)
        hot.current_step()
        hot.step()
        hot.current_stage()
        with hot.mstx_range("step"):
            pass

    return Operation(act, {"step": (None, {})})


def steps_of_tasks() -> Operation:
    number = 1000 + next(_numbers)

    def act() -> None:
        with hot.at_step(number):
            with hot.mstx_range("step"):
                pass

    return Operation(act, {"step": (None, {})}, ASKS)


def body() -> Any:
    with hot.mstx_range("inner"):
        yield 1
    yield 2


def generators() -> Operation:
    site, made = hot.intern("driven"), body()

    def act() -> None:
        for _ in hot.driven(site, made):
            pass

    return Operation(act, {"driven": (None, {}), "inner": (None, {})})


async def nothing() -> int:
    return 7


def resuming(runs: Any) -> Callable[[], None]:
    """Goes on with a coroutine, once."""

    def act() -> None:
        try:
            runs.send(None)
        except StopIteration:
            pass

    return act


def coroutines() -> Operation:
    site, made, came = hot.intern("driven"), nothing(), []

    async def outer() -> None:
        came.append(await hot.driven(site, made))

    return Operation(resuming(outer()), {"driven": (None, {})}, ASKS)


def pieces() -> Operation:
    site, made = hot.intern("opened"), nothing()

    async def outer() -> None:
        span = hot.opened(site)
        try:
            await span.drive(made)
        finally:
            span.close(False)

    return Operation(resuming(outer()), {"opened": (None, {})}, ASKS)


def async_with() -> Operation:
    async def outer() -> None:
        async with hot.mstx_range("async") as r:
            r.set(a=1)

    return Operation(resuming(outer()), {"async": (None, {"a": 1})}, ASKS)


@ranges.mstx_timer("decorated")
def decorated() -> None:
    """Has a range."""


def decorated_calls() -> Operation:
    return Operation(lambda: decorated(), {"decorated": (None, {})})


def decorating() -> Operation:
    return Operation(lambda: hot.mstx_range(new(), a=1, b=2)(nothing), raises=ASKS)


def sinks() -> Operation:
    hot.set_sink(0, lambda message, domain: 1, lambda token, domain: None, lambda *of_mark: None)

    def act() -> None:
        with hot.mstx_range("sunk"):
            hot.mark("sunk mark")

    return Operation(act, {"sunk": (None, {}), "sunk mark": (None, {})})


def hooks() -> Operation:
    hot.set_watch(lambda site, moves: None, lambda site, failed: None, lambda step: None)
    hot.watch(True)
    number = 1000 + next(_numbers)

    def act() -> None:
        with hot.stage("watched"):
            hot.step(number)

    return Operation(act, {"watched": ("watched", {})})


def storms() -> Operation:
    site = hot.intern(new())
    hot.limit(site, coalesce=True)

    def act() -> None:
        with hot.timed(site):
            pass
        with hot.timed(site):
            pass
        hot.flush_coalesced()

    return Operation(act, {site.name: (None, {"coalesced": ANY})}, whole=(site.name,))


def limits() -> Operation:
    site = hot.intern(new())

    def act() -> None:
        hot.limit(site, max_depth=3, max_per_s=100)
        hot.throttle(site, True)
        hot.throttle(site, False)
        hot.add_cost(site, 1.0)

    return Operation(act, raises=ASKS)


def costs() -> Operation:
    sites = [hot.intern(new()) for _ in range(3)]

    def act() -> None:
        for site in sites:
            with hot.timed(site), hot.timed(site), hot.timed(site), hot.timed(site), hot.timed(site):
                pass
            with hot.timed(site), hot.timed(site), hot.timed(site), hot.timed(site), hot.timed(site):
                pass
        hot.site_costs()

    return Operation(act, {site.name: (None, {}) for site in sites}, ASKS)


def rotating() -> Operation:
    text = new("text")

    def act() -> None:
        with hot.stage("kept open", a=text):
            hot.mark("before")
            hot.rotate()
            hot.mark("after")

    return Operation(
        act, {"kept open": ("kept open", {"a": text}), "before": ("kept open", {}), "after": ("kept open", {})}
    )


def sealing() -> Operation:
    with hot.mstx_range("sealed", a=1):
        pass
    hot.rotate()
    index = hot.full_bank()
    raw, room = b"\0" * 240, bytearray(1 << 20)

    def act() -> None:
        hot.encode_bank(index)
        hot.encode_left(raw, b"", 5)
        hot.encode_into(index, room, 0)
        hot.bank_texts(index)

    return Operation(act, {"sealed": (None, {"a": 1})}, ASKS)


def asking() -> Operation:
    with hot.stage("asked"):
        pass

    def act() -> None:
        hot.stage_times()
        hot.stages_seen()
        hot.counters()
        hot.now()
        hot.full_bank()

    return Operation(act, {"asked": ("asked", {})}, ASKS)


def pickling() -> Operation:
    name = new()

    def act() -> None:
        site = hot.intern(name, name, name)
        repr(site)
        pickle.loads(pickle.dumps(site))

    return Operation(act, raises=(MemoryError, pickle.PicklingError))


def attaching() -> Operation:
    layout = livefile.Layout(16, 2, 1 << 16)
    view = memoryview(bytearray(layout.total_bytes))
    livefile.lay_out(view, layout, NONCE, True)

    def act() -> None:
        hot.attach(view, NONCE)
        hot.set_recording(True)
        with hot.mstx_range("attached"):
            pass
        hot.start_heartbeat(0.5)
        hot.stop_heartbeat()
        hot.detach()
        hot.set_clock(MONOTONIC)

    return Operation(act, raises=(MemoryError, RuntimeError))


def configuring() -> Operation:
    def act() -> None:
        hot.set_sink(1, len, len)
        hot.clear_sink(1)
        hot.set_direct((1, 1, 1, 1, 1, 1, 1))
        hot.clear_direct()
        hot.set_watch(None, None, None)

    return Operation(act, raises=ASKS)


OPERATIONS = (
    new_name, new_site, attributes, values_of_python, setting, again, stages, marks, steps, steps_of_tasks, generators,
    coroutines, pieces, async_with, decorated_calls, decorating, sinks, hooks, storms, limits, costs, rotating, sealing,
    asking, pickling, attaching, configuring,
)  # fmt: skip


def starve(make: Callable[[], Operation], first: int, count: int) -> tuple[bool, list[str]]:
    """Fail `count` allocations (0: all) from number `first` on. Was nothing lost or counted, and what went wrong?"""
    hot.set_clock(FAKE)
    written = Written(hot, 64, 4, 1 << 16)
    operation = make()
    act, raised = operation.act, None
    set_nomemory, remove = _testcapi.set_nomemory, _testcapi.remove_mem_hooks
    set_nomemory(first, first + count if count else 0)
    try:
        act()
    except BaseException as exc:
        remove()
        raised = exc.with_traceback(None)  # no cycle: CPython has sixteen MemoryErrors for when there is no memory
    remove()
    counters = hot.counters()
    problems = [] if make is attaching else judge(operation, raised, written, counters)
    if raised is not None and not isinstance(raised, operation.raises):
        problems.append(f"{raised!r} escaped")
    hot.detach()
    hot.set_clock(MONOTONIC)
    return raised is None and not counters["faults"] and not problems, problems


def judge(operation: Operation, raised: BaseException | None, written: Written, counters: dict[str, int]) -> list[str]:
    """What of the records is not as it was given, or is missing although nothing was said."""
    found = {one.name: one for one in written.ranges + written.marks}
    is_told = raised is not None or counters["faults"] > 0
    problems = [f"{counters[key]} {key}" for key in ("open", "dropped") if counters[key]]
    for name, one in found.items():
        stage, given = operation.writes.get(name, ("no such range", {}))
        if one.stage != stage and not (is_told and one.stage is None):
            problems.append(f"{name} has the stage {one.stage}")
        wrong = {key: value for key, value in one.attributes.items() if key in given and value != given[key]}
        if wrong or (name in operation.whole and set(given) - set(one.attributes)):
            problems.append(f"{name} has the attributes {one.attributes}")
        if set(given) - set(one.attributes) and not is_told:
            problems.append(f"{name} has lost {set(given) - set(one.attributes)}, and nobody is told")
    missing = set(operation.writes) - set(found)
    return problems if is_told or not missing else [*problems, f"{missing} is missing, and nobody is told"]


def main(name: str, every: int) -> int:
    """Print what went wrong; 1 if anything did."""
    make, failed = {one.__name__: one for one in OPERATIONS}[name], 0
    starve(make, 10 * AT_MOST, 1)  # what CPython and the engine make once
    for count in (1,) if name in ONE_AT_A_TIME else (1, 3, FOREVER):
        calm, first = 0, 0
        while first < AT_MOST and calm < CALM:
            was_calm, problems = starve(make, first, count)
            calm = calm + 1 if was_calm else 0
            for problem in problems:
                until = first + count if count else "the end"
                sys.stdout.write(f"{name}: allocations {first} to {until}: {problem}\n")
                failed = 1
            first += every
    gc.collect()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
