"""The governor decides from numbers: what is over the budget is coalesced, the costliest first, and comes back calm."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from mstxkit.recorder.governor import Governor, Throttling, outside_ns

SECOND = 1_000_000_000


class Site(NamedTuple):
    """What the governor needs of a site."""

    name: str
    stage: str | None = None


class World:
    """A process whose sites are called at rates that a test sets: calls a second and ns a call."""

    def __init__(self, budget_ratio: float = 0.005, outside: float = 0.0) -> None:
        self.governor = Governor(budget_ratio, outside)
        self.rates: dict[Site, tuple[int, int]] = {}
        self.totals: dict[Site, list[int]] = {}
        self.now_ns = 5 * SECOND
        self.held: set[Site] = set()
        self.governor.decide(self.now_ns, [])

    def pass_by(self, seconds: int = 1) -> list[Throttling]:
        """So many seconds, each with a decision, which is carried out; all changes."""
        changes = []
        for _ in range(seconds):
            self.now_ns += SECOND
            for site, (calls, ns) in self.rates.items():
                total = self.totals.setdefault(site, [0, 0, 0])
                total[0] += calls
                total[1] += calls * (50 if site in self.held else ns)
                total[2] += calls if site in self.held else 0
            decided = self.governor.decide(self.now_ns, [(site, *total) for site, total in self.totals.items()])
            for site, on in decided:
                (self.held.add if on else self.held.discard)(site)
            changes += decided
        return changes


@pytest.fixture
def world() -> World:
    return World()


POLL, SWAP, SLOW, STAGE = Site("poll"), Site("swap"), Site("slow"), Site("stage", "rollout")


def test_within_the_budget_nothing_happens(world: World) -> None:
    world.rates = {POLL: (10_000, 400)}

    assert world.pass_by(30) == []
    assert world.governor.cost_ratio == pytest.approx(0.004)


def test_the_costliest_is_coalesced_and_the_others_are_not(world: World) -> None:
    world.rates = {POLL: (100_000, 500), SWAP: (1000, 500), SLOW: (10, 100_000)}

    assert world.pass_by() == [(POLL, True)]
    assert world.pass_by(5) == []


def test_as_many_are_coalesced_as_it_takes(world: World) -> None:
    world.rates = {POLL: (10_000, 400), SWAP: (9_000, 400), SLOW: (7_000, 400)}

    assert world.pass_by() == [(POLL, True), (SWAP, True)]


def test_rare_calls_are_recorded_however_dear_they_are(world: World) -> None:
    """As the first calls of a program are; and a range that is open when a process is killed has to be seen."""
    world.rates = {SLOW: (99, 1_000_000), POLL: (100, 1_000_000)}

    assert world.pass_by(20) == [(POLL, True)]


def test_a_stage_is_never_coalesced(world: World) -> None:
    world.rates = {STAGE: (1_000_000, 500)}

    assert world.pass_by(5) == []
    assert world.governor.cost_ratio > 0.4


def test_nobody_pays_for_a_storm_that_is_over_the_budget_even_when_coalesced(world: World) -> None:
    world.rates = {POLL: (1_000_000, 500), SWAP: (1000, 500)}

    assert world.pass_by(30) == [(POLL, True)]
    assert world.governor.cost_ratio > 0.04


def test_it_comes_back_after_ten_calm_seconds(world: World) -> None:
    world.rates = {POLL: (100_000, 500)}
    world.pass_by(3)
    world.rates = {POLL: (1000, 500)}

    assert world.pass_by(10) == []
    assert world.pass_by() == [(POLL, False)]


def test_a_storm_in_between_begins_the_ten_seconds_again(world: World) -> None:
    world.rates = {POLL: (100_000, 500)}
    world.pass_by()
    world.rates = {POLL: (1000, 500)}
    world.pass_by(9)
    world.rates = {POLL: (100_000, 500)}
    world.pass_by()
    world.rates = {POLL: (1000, 500)}

    assert world.pass_by(10) == []
    assert world.pass_by() == [(POLL, False)]


def test_a_steady_storm_does_not_come_back_because_it_is_cheap_now(world: World) -> None:
    world.rates = {POLL: (50_000, 500)}

    assert world.pass_by(120) == [(POLL, True)]


def test_a_site_that_is_called_no_more_comes_back(world: World) -> None:
    world.rates = {POLL: (100_000, 500)}
    world.pass_by()
    world.rates = {}

    assert world.pass_by(11) == [(POLL, False)]


def test_two_that_would_fit_alone_but_not_together_do_not_both_come_back(world: World) -> None:
    world.rates = {POLL: (100_000, 500), SWAP: (100_000, 500)}
    world.pass_by()
    world.rates = {POLL: (6_000, 500), SWAP: (7_000, 500)}

    assert world.pass_by(60) == [(POLL, False)]
    assert world.held == {SWAP}


def test_a_budget_of_nothing_measures_only() -> None:
    world = World(budget_ratio=0)
    world.rates = {POLL: (1_000_000, 500)}

    assert world.pass_by(5) == []
    assert (world.governor.cost_ratio, world.governor.spent_ns) == (0.5, 500_000_000)


def test_what_was_before_the_first_look_does_not_count() -> None:
    governor = Governor(0.005)
    governor.decide(SECOND, [(POLL, 1000, 10 * SECOND, 0)])

    assert governor.decide(2 * SECOND, [(POLL, 1000, 10 * SECOND, 0)]) == []
    assert governor.cost_ratio == 0


def test_each_call_costs_what_is_around_it_too() -> None:
    world = World(outside=100.0)
    world.rates = {POLL: (10_000, 300)}
    world.pass_by()

    assert world.governor.cost_ratio == pytest.approx(0.004)


def test_time_that_stands_still_or_totals_that_fall_decide_nothing(world: World) -> None:
    world.rates = {POLL: (1000, 500)}
    world.pass_by()
    falling: list[tuple[Any, int, int, int]] = [(POLL, 0, 0, 0)]

    assert world.governor.decide(world.now_ns, falling) == []
    assert world.governor.decide(world.now_ns + SECOND, falling) == []
    assert world.governor.cost_ratio == 0


def test_released_everything_is_recorded_again_once(world: World) -> None:
    world.rates = {POLL: (100_000, 500)}
    world.pass_by()

    assert world.governor.held == (POLL,)
    assert world.governor.release() == [(POLL, False)]
    assert (world.governor.release(), world.governor.held) == ([], ())


def test_the_python_around_a_call_has_a_price_of_less_than_a_hundredth_of_a_millisecond() -> None:
    ticks = iter(range(0, 10**9, 100))

    assert outside_ns(lambda: next(ticks)) == 0
    assert 0 <= outside_ns() < 10_000


def test_who_asks_for_what_is_held_does_not_walk_what_another_thread_grows(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    """As `status()` does, from any thread: a site that comes in the midst of it is no error of the program's."""
    world.rates = {POLL: (100_000, 500)}
    world.pass_by()
    accounts = world.governor._accounts
    grows = property(lambda _: bool(accounts.setdefault(object(), accounts[POLL])))
    monkeypatch.setattr(type(accounts[POLL]), "is_held", grows, raising=False)

    assert [*world.governor.held] == [POLL]
