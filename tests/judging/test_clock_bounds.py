"""Clocks that are half a second apart and drift come out right, within a bound that holds."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest
from builders import soak

from mstxkit.judging.clock_bounds import SAME_HOST_ERROR_NS, WALL_ERROR_NS, ClockExchange, HostClocks, PeerClock

S, US = 1_000_000_000, 1000
FIRST_NS = 10**15


class Way(NamedTuple):
    """What a message needs: each way's own, what is added at random, how often it is held up; ns."""

    there: float = 60 * US
    back: float = 60 * US
    jitter: float = 80 * US
    held_up: float = 0.1


class Host:
    """A host whose clock is off, drifts and perhaps wanders, and its exchanges with the reference."""

    def __init__(self, seed: object, way: Way, wander: float = 0.0) -> None:
        self._draw = random.Random(repr(seed))
        self.offset, self.drift = self._draw.uniform(-0.5, 0.5) * S, self._draw.uniform(-50e-6, 50e-6)
        self.way = way._replace(
            there=way.there * self._draw.uniform(0.7, 1.3), back=way.back * self._draw.uniform(0.7, 1.3)
        )
        self.wander, self.now = wander, float(FIRST_NS)
        self.peer, self.errors, self.bounds = PeerClock(), [], []  # type: ignore[var-annotated]

    def true(self, here: float) -> float:
        """The reference's clock less FIRST_NS, when this host's says `here`."""
        age = here - FIRST_NS
        wandered = self.wander / (2 * np.pi / 300) * (1 - np.cos(2 * np.pi * age / S / 300)) * S if self.wander else 0.0
        return float(age + self.offset + self.drift * age + wandered)

    def _delay(self, own: float) -> float:
        held = self._draw.uniform(0, 20e6) if self._draw.random() < self.way.held_up else 0.0
        return own + self._draw.expovariate(1 / self.way.jitter) + held

    def exchange(self) -> ClockExchange:
        sent, there = self.now, self._delay(self.way.there)
        back = sent + there + 20 * US + self._delay(self.way.back)
        reached, answered = self.true(sent + there), self.true(sent + there + 20 * US)
        self.now = back + 100 * US
        return ClockExchange(round(sent), FIRST_NS + round(reached), FIRST_NS + round(answered), round(back))

    def burst(self, count: int = 8) -> None:
        for each in sorted((self.exchange() for _ in range(count)), key=lambda each: each.way_ns)[:2]:
            self.peer.add(each)

    def look(self) -> None:
        """Compare with the truth, for times of the last half minute and of the next."""
        at = np.array([round(self.now + self._draw.uniform(-30, 30) * S) for _ in range(6)], dtype=np.int64)
        times, bounds = self.peer.to_reference(at)
        truth = [FIRST_NS + round(self.true(float(each))) for each in at]
        self.errors += [abs(int(a) - b) for a, b in zip(times, truth)]
        self.bounds += list(bounds)

    def run(self, bursts: int = 14) -> Host:
        for number in range(bursts):
            self.burst()
            if number >= 3:
                self.look()
            self.now += 30 * S
        return self


def hosts(way: Way, count: int, wander: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """(errors, bounds) of so many, ns."""
    seen = [Host((soak.seed(), number), way, wander).run() for number in range(count)]
    return np.concatenate([host.errors for host in seen]), np.concatenate([host.bounds for host in seen])


WAYS = {
    "a LAN": Way(), "one way slower": Way(back=400 * US), "jittery": Way(jitter=2000 * US),
    "mostly held up": Way(held_up=0.8), "a far network": Way(there=5000 * US, back=9000 * US, jitter=3000 * US),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_the_bound_holds_whatever_the_ways_are(way: Way) -> None:
    errors, bounds = hosts(way, soak.rounds(100, 6))

    assert np.mean(errors <= bounds + 1) >= 0.99


def test_it_holds_while_the_drift_wanders() -> None:
    errors, bounds = hosts(Way(), soak.rounds(100, 6), wander=50e-9)

    assert np.mean(errors <= bounds + 1) >= 0.99


def test_on_a_lan_the_error_is_within_fifty_microseconds() -> None:
    errors, bounds = hosts(Way(), soak.rounds(100, 10))

    assert np.percentile(errors, 95) <= 50 * US
    assert np.median(bounds) <= 200 * US


def test_a_host_that_was_asleep_begins_anew() -> None:
    host = Host("asleep", Way())
    host.run(5)
    host.offset += 3600 * S
    for _ in range(4):
        host.burst()
        host.now += 30 * S
    host.errors, host.bounds = [], []
    host.look()

    assert max(host.errors) <= min(host.bounds)


@pytest.mark.parametrize(
    "raw",
    [(0, 0, 0, -1), (0, 5, 4, 10), (0, 0, 20, 10), (0, 1 << 63, 1 << 63, 1), (0.5, 1, 1, 2), (True, 1, 1, 2)],
    ids=str,
)
def test_what_cannot_have_been_is_left_out(raw: tuple[int, int, int, int]) -> None:
    peer = PeerClock()
    peer.add(ClockExchange(*raw))

    assert not peer.is_known


def test_far_from_any_exchange_the_bound_grows() -> None:
    host = Host("far", Way()).run()
    at = np.array([host.now, host.now + 3600 * S], dtype=np.int64)
    near, far = host.peer.to_reference(at)[1]

    assert far > 5 * near


class TestHostClocks:
    """All hosts on the wall clock of who judges."""

    AT = np.array([FIRST_NS, FIRST_NS + 7 * S], dtype=np.int64)

    def test_the_hosts_own_processes_are_exact(self) -> None:
        times, error = HostClocks("here", 42).aligned("here", self.AT)

        assert times.tolist() == (self.AT + 42).tolist()
        assert set(error) == {SAME_HOST_ERROR_NS}

    def test_what_its_own_batches_say_of_the_references_wall_clock_counts_for_all(self) -> None:
        """Its wall clock is 300 off that of the run folder's disk, by which all others go."""
        clocks = HostClocks("here", 342)
        clocks.take("here", (1000, 1042, 7), None)
        clocks.take("there", (0, 0, 1), [["here", FIRST_NS, FIRST_NS, FIRST_NS, FIRST_NS]])

        assert [int(clocks.aligned(boot, self.AT[:1])[0][0]) for boot in ("here", "there")] == [FIRST_NS + 42] * 2

    def test_without_an_exchange_its_wall_clock_counts_with_what_ntp_may_leave(self) -> None:
        clocks = HostClocks("here", 42)
        clocks.take("there", (1000, 5000, 7), None)
        times, error = clocks.aligned("there", self.AT)

        assert times.tolist() == (self.AT + 4000).tolist()
        assert set(error) == {WALL_ERROR_NS + 7}
        assert np.isinf(clocks.aligned("unheard of", self.AT)[1]).all()

    def test_a_wall_clock_that_is_set_counts_at_once_however_quick_the_looks_before_were(self) -> None:
        """As of a host that was asleep; what is within the errors is no news."""
        clocks = HostClocks("here", 42)
        for offset_ns in (4000, 4000 + WALL_ERROR_NS, 4000 + S):
            clocks.take("there", (1000, 1000 + offset_ns, 7 if offset_ns == 4000 else 900), None)
            placed = int(clocks.aligned("there", self.AT[:1])[0][0] - self.AT[0])

            assert placed == (4000 + S if offset_ns > S else 4000)

    def test_an_exchange_counts_where_it_is_narrower(self) -> None:
        clocks = HostClocks("here", 42)
        clocks.take(
            "there", (0, 0, 1), [["here", FIRST_NS, FIRST_NS + 5 * S + 100, FIRST_NS + 5 * S + 200, FIRST_NS + 300]]
        )
        times, error = clocks.aligned("there", self.AT[:1])

        assert abs(int(times[0]) - (FIRST_NS + 5 * S + 42)) <= error[0] < 10 * US

    def test_a_vague_one_over_files_leaves_the_wall_clock_in_force(self) -> None:
        clocks = HostClocks("here", 42)
        clocks.take("there", (0, 9, 1), [["here", FIRST_NS, FIRST_NS + S, FIRST_NS + S, FIRST_NS + 2 * S]])

        assert clocks.aligned("there", self.AT)[0].tolist() == (self.AT + 9).tolist()

    @pytest.mark.parametrize(
        "rows", [None, 3, [3], [[]], [["else", 0, 1, 1, 2]], [["here", 0, 1, 1]], [["here", *"abcd"]]]
    )
    def test_what_is_no_exchange_with_it_is_left_out(self, rows: object) -> None:
        clocks = HostClocks("here", 42)
        clocks.take("there", None, rows)

        assert np.isinf(clocks.aligned("there", self.AT)[1]).all()

    def test_of_several_looks_at_a_wall_clock_the_quickest_counts_until_it_is_old(self) -> None:
        clocks = HostClocks("here", 42)
        for half_ns, offset_ns in ((900, 4000), (20, 5000), (700, 6000)):
            clocks.take("there", (1000, 1000 + offset_ns, half_ns), None)

        assert clocks.aligned("there", self.AT)[0].tolist() == (self.AT + 5000).tolist()
        for _ in range(100):
            clocks.take("there", (1000, 8000, 30), None)
        assert clocks.aligned("there", self.AT)[0].tolist() == (self.AT + 7000).tolist()

    def test_of_many_clocks_those_are_kept_that_were_told_of_last(self) -> None:
        clocks = HostClocks("here", 42, at_most=3)
        for boot in ("a", "b", "c", "a", "d"):
            clocks.take(boot, (1000, 5000, 1), [["here", FIRST_NS, FIRST_NS, FIRST_NS, FIRST_NS + 1]] * 100)

        known = {boot for boot in "abcd" if np.isfinite(clocks.aligned(boot, self.AT)[1]).all()}
        assert known == {"a", "c", "d"}

    def test_a_host_that_sends_a_million_exchanges_costs_no_more_than_one_that_sends_a_few(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken: list[ClockExchange] = []
        monkeypatch.setattr(PeerClock, "add", lambda self, exchange: taken.append(exchange))
        HostClocks("here", 42).take("there", None, [["here", 1, 2, 3, 4]] * 1_000_000)

        assert len(taken) <= 16
