"""Random programs: what is written is what was done, and both engines write the same.

A program is nested blocks; `Model` says what an engine must have written of it, from docs/internals/engine.md alone.
"""

from __future__ import annotations

import asyncio
from typing import Any, Iterator, NamedTuple

import pytest
from builders import soak
from builders.written_banks import FAKE, Written, WrittenRange, read_bank
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_START = 1_000_000
_SETTINGS = settings(max_examples=soak.rounds(1000, 40), deadline=None, suppress_health_check=list(HealthCheck))
STAGES = ["stage a", "stage b", "stage c"]


class Block(NamedTuple):
    """One piece of a program: what it is, its settings, and what happens inside."""

    kind: str
    name: str
    ticks: int
    number: int
    attributes: dict[str, Any]
    more: dict[str, Any]
    inside: tuple[Any, ...] = ()


class Expected(NamedTuple):
    """A range or mark as the rules say that it is written."""

    name: str
    stage: str | None
    step: int | None
    depth: int
    error: bool
    start: int
    duration: int
    busy: int | None
    attributes: dict[str, Any]
    is_mark: bool


class Mine(Exception):
    """What a raising block raises."""


def blocks(inside: Any) -> Any:
    kinds = ["range", "range", "stage", "timed", "mark", "step", "at_step", "driven", "raising", "reentered", "rotate"]
    values = st.one_of(
        st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), st.text(max_size=20),
        st.none(), st.just([1]), st.integers(1 << 63, 1 << 80),
    )  # fmt: skip
    attributes = st.dictionaries(st.sampled_from(["k", "l", "m", "n", "o", "p", "q", "ключ"]), values, max_size=7)
    return st.builds(
        Block,
        kind=st.sampled_from(kinds), name=st.sampled_from(["a", "b", "c", "", "ü", "a\0b", "x" * 300]),
        ticks=st.integers(0, 1 << 20) | st.integers(0, 1 << 42), number=st.integers(0, 5),
        attributes=st.just({}) | attributes, more=st.just({}) | attributes, inside=inside,
    )  # fmt: skip


LEAVES = blocks(st.just(()))
ONCE = st.lists(st.recursive(LEAVES, lambda inner: blocks(st.lists(inner, max_size=3).map(tuple))), max_size=4)
# What comes again at the same place.
PROGRAMS = st.tuples(ONCE, st.integers(1, 3)).map(lambda drawn: drawn[0] * drawn[1])


class Runner:
    """Does what a program says."""

    def __init__(self, engine: Any) -> None:
        engine.detach()
        engine.set_clock(FAKE)
        engine.step(0)
        self.engine, self.written = engine, Written(engine, bank_count=64, bank_bytes=1 << 16)

    def run(self, program: Any) -> Runner:
        for block in program:
            getattr(self, block.kind)(block)
        return self

    def range(self, block: Block) -> None:
        with self.engine.mstx_range(block.name, **block.attributes) as entered:
            self._inside(block, entered)

    def _inside(self, block: Block, entered: Any) -> None:
        self.written.tick(block.ticks)
        self.run(block.inside)
        if block.more:
            entered.set(**block.more)

    def timed(self, block: Block) -> None:
        site = self.engine.intern(block.name, own_stage(block))
        with self.engine.timed(site, None, block.attributes) as entered:
            self._inside(block, entered)

    def stage(self, block: Block) -> None:
        with self.engine.stage(STAGES[block.number % 3], **block.attributes) as entered:
            self._inside(block, entered)

    def raising(self, block: Block) -> None:
        with pytest.raises(Mine), self.engine.mstx_range(block.name, **block.attributes) as entered:
            self._inside(block, entered)
            raise Mine

    def reentered(self, block: Block) -> None:
        with self.engine.mstx_range(block.name, **block.attributes) as entered:
            self.written.tick(1)
            with entered:
                self._inside(block, entered)

    def mark(self, block: Block) -> None:
        self.engine.mark(block.name, **block.attributes)

    def step(self, block: Block) -> None:
        self.engine.step(block.number)

    def at_step(self, block: Block) -> None:
        with self.engine.at_step(block.number + 100):
            self.run(block.inside)

    def driven(self, block: Block) -> None:
        def body() -> Iterator[int]:
            self.written.tick(block.ticks)
            yield 1
            self.run(block.inside)
            yield 2

        site = self.engine.intern(block.name, own_stage(block))
        for _ in self.engine.driven(site, body(), None, block.attributes):
            self.written.tick(7)

    def rotate(self, block: Block) -> None:
        if block.number == 0:
            self.engine.rotate()

    def everything(self) -> list[WrittenRange]:
        """Ranges and marks in the order in which they were written."""
        self.engine.set_recording(False)
        return [found for bank in self.written.banks for found in read_bank(bank)]


def own_stage(block: Block) -> str | None:
    return STAGES[block.number % 3] if block.number > 2 else None


class Model:
    """Says what a program writes."""

    def __init__(self) -> None:
        self.now, self.process_step, self.depth = _START, 0, 0
        self.task_step: int | None = None
        self.inner_stage: str | None = None
        self.found: list[Expected] = []
        self.lost = 0

    def run(self, program: Any) -> Model:
        for block in program:
            getattr(self, block.kind)(block)
        return self

    def range(self, block: Block, error: bool = False) -> None:
        self._range(block, block.name, None, {**block.attributes, **block.more}, error)

    def timed(self, block: Block) -> None:
        self._range(block, block.name, own_stage(block), {**block.attributes, **block.more})

    def raising(self, block: Block) -> None:
        self.range(block, error=True)

    def stage(self, block: Block) -> None:
        key = STAGES[block.number % 3]
        self._range(block, key, key, {**block.attributes, **block.more})

    def reentered(self, block: Block) -> None:
        outer = block._replace(kind="range", ticks=1, more={}, inside=(block._replace(kind="range"),))
        self.range(outer)

    def _range(self, block: Block, name: str, key: str | None, attributes: Any, error: bool = False) -> None:
        start, step, around = self.now, self._step_in_force(), self.inner_stage
        self.inner_stage = key or around
        self.depth += 1
        self.now += block.ticks
        self.run(block.inside)
        self.depth -= 1
        self._write(name, step, start, attributes, error=error)
        self.inner_stage = around

    def driven(self, block: Block) -> None:
        start, step, around = self.now, self._step_in_force(), self.inner_stage
        self.inner_stage = own_stage(block) or around
        self.now += block.ticks + 7
        self.depth += 1
        resumed = self.now
        self.run(block.inside)
        self.depth -= 1
        busy = block.ticks + self.now - resumed
        self.now += 7
        self._write(block.name, step, start, block.attributes, busy=max(busy, 1))
        self.inner_stage = around

    def mark(self, block: Block) -> None:
        self._write(block.name, self._step_in_force(), self.now, block.attributes, is_mark=True)

    def step(self, block: Block) -> None:
        self.process_step = block.number

    def at_step(self, block: Block) -> None:
        before, self.task_step = self.task_step, block.number + 100
        self.run(block.inside)
        self.task_step = before

    def rotate(self, block: Block) -> None: ...

    def _step_in_force(self) -> int:
        return self.process_step if self.task_step is None else self.task_step

    def _write(
        self, name: str, step: int, start: int, attributes: Any, *, error: bool = False, busy: int | None = None,
        is_mark: bool = False,
    ) -> None:  # fmt: skip
        ticks = self.now - start
        duration = ticks if ticks < 1 << 40 else ticks >> 12 << 12
        values = {key: as_written(value) for key, value in attributes.items()}
        self.lost += any(map(is_lost, attributes.values()))
        start = self.now - duration  # where a reader works it out from end and duration
        self.found.append(
            Expected(name, self.inner_stage, step, self.depth, error, start, duration, busy, values, is_mark)
        )


def as_written(value: Any) -> Any:
    """What a reader gets for an attribute's value."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return type(value).__name__ if is_lost(value) else value


def is_lost(value: Any) -> bool:
    """Of such a value a record holds the type's name."""
    if isinstance(value, int):
        return not -(1 << 63) <= value < 1 << 63
    return not isinstance(value, (str, float, type(None)))


def as_expected(found: WrittenRange) -> Expected:
    return Expected(*(getattr(found, field) for field in Expected._fields))


def types_of(found: list[Expected]) -> list[dict[str, type]]:
    return [{key: type(value) for key, value in one.attributes.items()} for one in found]


@given(program=PROGRAMS)
@_SETTINGS
def test_what_is_written_is_what_was_done(engine: Any, program: Any) -> None:
    runner = Runner(engine).run(program)
    open_ranges, found = runner.written.open, [as_expected(one) for one in runner.everything()]
    model = Model().run(program)

    assert found == model.found
    assert types_of(found) == types_of(model.found)
    assert open_ranges == []
    counters = [engine.counters()[key] for key in ("dropped", "faults", "attributes_lost", "open")]
    assert counters == [0, 0, model.lost, 0]
    engine.detach()


TURNS = st.lists(st.integers(0, 3), max_size=24)


@given(program=PROGRAMS)
@_SETTINGS
def test_both_engines_write_the_same_of_any_program(both: list[Any], program: Any) -> None:
    native, twin = (Runner(engine).run(program) for engine in both)

    assert plain(native.everything()) == plain(twin.everything())


@given(programs=st.lists(PROGRAMS, min_size=2, max_size=3), turns=TURNS)
@_SETTINGS
def test_both_engines_write_the_same_of_interleaved_tasks(both: list[Any], programs: Any, turns: list[int]) -> None:
    native, twin = (in_tasks(Runner(engine), programs, turns) for engine in both)

    found = native.everything()
    assert plain(found) == plain(twin.everything())
    assert {one.depth for one in found if one.name.startswith("task")} <= {0}
    assert native.written.open == twin.written.open == []


def in_tasks(runner: Runner, programs: Any, turns: list[int]) -> Runner:
    """Run each program in a task of its own, inside a range and a stage, waiting between its blocks as `turns` says."""

    async def task(number: int, program: Any) -> None:
        with runner.engine.mstx_range(f"task {number}"), runner.engine.stage(STAGES[number]):
            for place, block in enumerate(program):
                for _ in range(turns[(number + place) % len(turns)] if turns else 1):
                    await asyncio.sleep(0)
                runner.run([block])

    async def main() -> None:
        await asyncio.gather(*[task(number, program) for number, program in enumerate(programs)])

    asyncio.run(main())
    return runner


@given(
    operations=st.lists(st.tuples(st.sampled_from(["enter", "exit", "drop", "mark"]), st.integers(0, 4)), max_size=30)
)
@_SETTINGS
def test_both_engines_write_the_same_of_entries_and_exits_in_any_order(both: list[Any], operations: Any) -> None:
    native, twin = (out_of_order(Runner(engine), operations) for engine in both)

    assert plain(native.everything()) == plain(twin.everything())
    assert both[0].counters()["faults"] == both[1].counters()["faults"]
    assert native.written.open == twin.written.open == []


def out_of_order(runner: Runner, operations: Any) -> Runner:
    """Five ranges, two of them stages, entered, left and thrown away in any order."""

    def make(number: int) -> Any:
        own = STAGES[number] if number < 2 else None
        return runner.engine.mstx_range(f"range {number}", stage=own, number=number)

    held = [make(number) for number in range(5)]
    for operation, number in operations:
        runner.written.tick(1)
        if operation == "enter":
            held[number].__enter__()
        elif operation == "exit":
            held[number].__exit__(None, None, None)
        elif operation == "drop":
            held[number] = make(number)
        else:
            runner.engine.mark("mark", current=runner.engine.current_stage())
    for number in range(5):
        held[number] = None
    return runner


def plain(found: list[WrittenRange]) -> list[WrittenRange]:
    """Without what is of the engine: numbers of tracks."""
    return [one._replace(track=0, is_task=False) for one in found]
