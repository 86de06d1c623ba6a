"""Random programs under limits: no call is lost or counted twice, and both engines write the same."""

from __future__ import annotations

from collections import Counter
from typing import Any, Iterator, NamedTuple

import pytest
from builders import soak
from builders.written_banks import FAKE, Written, WrittenRange
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_SECOND = 1_000_000_000
_SETTINGS = settings(max_examples=soak.rounds(1000, 30), deadline=None, suppress_health_check=list(HealthCheck))
SITES = [f"site {number}" for number in range(3)]


class Block(NamedTuple):
    """One piece of a program: what it is, of which site, how long, a number, and what happens inside."""

    kind: str
    site: int
    ticks: int
    number: int
    inside: tuple[Any, ...] = ()


class Mine(Exception):
    """What a raising block raises."""


def blocks(inside: Any) -> Any:
    kinds = ["call"] * 6 + ["quick"] * 6 + ["driven", "raising", "reentered", "stage", "plain", "step", "at_step"]
    kinds += ["rotate", "flush", "limit", "throttle", "out_of_order"]
    ticks = st.integers(0, 1000) | st.integers(0, _SECOND) | st.sampled_from([_SECOND - 1, _SECOND, _SECOND + 1])
    return st.builds(
        Block, kind=st.sampled_from(kinds), site=st.integers(0, 2), ticks=ticks, number=st.integers(0, 5), inside=inside
    )


LEAVES = blocks(st.just(()))
PROGRAMS = st.lists(st.recursive(LEAVES, lambda inner: blocks(st.lists(inner, max_size=4).map(tuple))), max_size=8)
LIMITS = st.lists(
    st.fixed_dictionaries(
        {
            "coalesce": st.booleans(),
            "max_depth": st.none() | st.integers(0, 3),
            "max_per_s": st.none() | st.integers(0, 4),
        }
    ),
    min_size=3, max_size=3,
)  # fmt: skip


class Runner:
    """Does what a program says, and counts the calls of each site."""

    def __init__(self, engine: Any, limits: list[dict[str, Any]]) -> None:
        engine.detach()
        engine.set_clock(FAKE)
        engine.step(0)
        self.engine, self.limits = engine, limits
        self.written = Written(engine, bank_count=64, bank_bytes=1 << 16)
        self.sites = [engine.intern(name) for name in SITES]
        self.calls: Counter[str] = Counter()
        for site, given_limits in zip(self.sites, limits):
            engine.limit(site, **given_limits)

    def run(self, program: Any) -> Runner:
        for block in program:
            if block.kind in ("call", "quick", "raising", "driven"):
                self.calls[SITES[block.site]] += 1
            getattr(self, block.kind)(block)
        return self

    def call(self, block: Block) -> None:
        with self.engine.timed(self.sites[block.site], None, {"n": block.number}) as entered:
            self._inside(block)
            entered.set(more=1)

    def quick(self, block: Block) -> None:
        for _ in range(block.number):
            self.calls[SITES[block.site]] += 1
            with self.engine.timed(self.sites[block.site]):
                self.written.tick(block.ticks)
        with self.engine.mstx_range(SITES[block.site]):
            self._inside(block)

    def raising(self, block: Block) -> None:
        with pytest.raises(Mine), self.engine.timed(self.sites[block.site]):
            self._inside(block)
            raise Mine

    def reentered(self, block: Block) -> None:
        self.calls[SITES[block.site]] += 2
        with self.engine.mstx_range(SITES[block.site]) as entered:
            self.written.tick(1)
            with entered:
                self._inside(block)

    def driven(self, block: Block) -> None:
        def body() -> Iterator[int]:
            self.written.tick(block.ticks)
            yield 1
            self.run(block.inside)
            yield 2

        for _ in self.engine.driven(self.sites[block.site], body()):
            self.written.tick(7)
            self._of_another_site(block)

    def _of_another_site(self, block: Block) -> None:
        self.calls[SITES[block.site]] += 1
        with self.engine.timed(self.sites[block.site]):
            self.written.tick(block.number)

    def out_of_order(self, block: Block) -> None:
        self.calls[SITES[block.site]] += 1
        outer, inner = self.engine.timed(self.sites[block.site]), self.engine.mstx_range("inner")
        outer.__enter__()
        inner.__enter__()
        self.written.tick(block.ticks)
        outer.__exit__(None, None, None)
        self.run(block.inside)
        inner.__exit__(None, None, None)

    def stage(self, block: Block) -> None:
        with self.engine.stage(f"stage {block.number % 2}"):
            self._inside(block)

    def plain(self, block: Block) -> None:
        with self.engine.mstx_range("plain"):
            self._inside(block)

    def step(self, block: Block) -> None:
        self.engine.step(block.number)

    def at_step(self, block: Block) -> None:
        with self.engine.at_step(block.number + 100):
            self.run(block.inside)

    def rotate(self, block: Block) -> None:
        self.engine.rotate()

    def flush(self, block: Block) -> None:
        self.engine.flush_coalesced()

    def limit(self, block: Block) -> None:
        self.engine.limit(self.sites[block.site], **self.limits[block.number % 3])

    def throttle(self, block: Block) -> None:
        self.engine.throttle(self.sites[block.site], block.number % 2)

    def _inside(self, block: Block) -> None:
        self.written.tick(block.ticks)
        self.run(block.inside)

    def everything(self) -> list[WrittenRange]:
        """All records, in an order that is not that in which windows are written."""
        self.engine.flush_coalesced()
        self.engine.set_recording(False)
        for site in self.sites:
            self.engine.limit(site)
            self.engine.throttle(site, False)
        return sorted((one._replace(track=0, is_task=False) for one in self.written.ranges), key=repr)


@given(program=PROGRAMS, limits=LIMITS)
@_SETTINGS
def test_no_call_is_lost_or_counted_twice(both: list[Any], program: Any, limits: Any) -> None:
    for engine in both:
        runner = Runner(engine, limits).run(program)

        found: Counter[str] = Counter()
        for one in runner.everything():
            found[one.name] += one.attributes.get("coalesced", 1)
        assert {name: found[name] for name in SITES} == {name: runner.calls[name] for name in SITES}
        coalesced = sum(one.attributes.get("coalesced", 0) for one in runner.everything())
        assert coalesced == engine.counters()["coalesced"]
        assert [engine.counters()[key] for key in ("dropped", "faults", "attributes_lost", "open")] == [0, 0, 0, 0]


@given(program=PROGRAMS, limits=LIMITS)
@_SETTINGS
def test_both_engines_coalesce_the_same(both: list[Any], program: Any, limits: Any) -> None:
    native, twin = (Runner(engine, limits).run(program) for engine in both)

    assert native.everything() == twin.everything()


@given(program=PROGRAMS, limits=LIMITS)
@_SETTINGS
def test_no_record_of_several_calls_is_longer_than_a_second(both: list[Any], program: Any, limits: Any) -> None:
    for engine in both:
        found = Runner(engine, limits).run(program).everything()

        several = [one for one in found if one.attributes.get("coalesced", 0) > 1]
        assert all(one.duration <= _SECOND for one in several)
        assert all(one.attributes["max_ns"] <= one.attributes["total_ns"] for one in several)
