"""The governor: which sites are coalesced so that mstxkit's own cost stays within its budget.

It decides from numbers alone: a time, and what the engine says that each site has cost so far. The sealer asks it once
a second, and does what it says.

The cost of a site is what the engine has measured in its calls of begin and end, tools that listen included, what
the attributes of decorated functions took, and for each call a constant for the Python around it (`outside_ns`).
"""

from __future__ import annotations

import time
from typing import Any, Callable, Sequence

_CALM_NS = 10_000_000_000
# A record of coalesced calls is written each second at least: with fewer calls than this there is little to save, and
# what a program is inside of is worth more. A program's first calls are dear ones, too: names are written down.
_STORM_PER_S = 100
# What a coalesced call is taken to cost until that is seen: at most this, and a quarter of what it cost before.
_COALESCED_NS = 200
_ROUNDS = 200

Throttling = tuple[Any, bool]  # a site, and whether all of its calls are coalesced from now on, or no more


class _Account:
    """One site: what it had cost at the last look, what a call costs while recorded, and since when it is calm."""

    def __init__(self, site: Any) -> None:
        self.site = site
        self.calls, self.cost_ns = 0, 0
        self.full_ns = 0.0
        self.new_calls, self.spent_ns = 0, 0.0
        self.is_held = self.is_storm = False
        self.calm_since_ns: int | None = None

    def look(self, calls: int, cost_ns: int, outside_ns: float) -> None:
        """What has come since the last look."""
        self.new_calls = max(calls - self.calls, 0)
        self.spent_ns = max(cost_ns - self.cost_ns, 0) + self.new_calls * outside_ns
        self.calls, self.cost_ns = calls, cost_ns
        if self.new_calls and not self.is_held:
            self.full_ns = self.spent_ns / self.new_calls

    @property
    def if_recorded_ns(self) -> float:
        """What its calls would have cost recorded."""
        return self.new_calls * self.full_ns

    @property
    def is_fixed(self) -> bool:
        """Can nothing be saved here? Stages and rare calls are always recorded, and what is coalesced is so already."""
        return self.is_held or not self.is_storm or self.site.stage is not None


class Governor:
    """Keeps account of every site. `budget_ratio`: own cost over wall time that is allowed; 0 measures only.
    `outside_ns`: added to each call.
    """

    def __init__(self, budget_ratio: float, outside_ns: float = 0.0) -> None:
        self.budget_ratio, self._outside_ns = budget_ratio, outside_ns
        self._accounts: dict[Any, _Account] = {}
        # The sites that are coalesced now; replaced as a whole, as others ask for it. The accounts are ours alone.
        self.held: tuple[Any, ...] = ()
        self._at_ns: int | None = None
        self.cost_ratio = 0.0
        self.spent_ns = 0

    def decide(self, now_ns: int, costs: Sequence[tuple[Any, int, int, int]]) -> list[Throttling]:
        """What is to change. The first call only takes down what there is. `now_ns`: CLOCK_MONOTONIC. `costs`: the
        engine's `site_costs()`: calls, their cost and how many were coalesced, since the process began.
        """
        for site, calls, cost_ns, _ in costs:
            self._accounts.setdefault(site, _Account(site)).look(calls, cost_ns, self._outside_ns)
        elapsed_ns = 0 if self._at_ns is None else now_ns - self._at_ns
        self._at_ns = now_ns
        if elapsed_ns <= 0:
            return []
        for account in self._accounts.values():
            account.is_storm = account.new_calls * 1_000_000_000 >= _STORM_PER_S * elapsed_ns
        total_ns = sum(account.spent_ns for account in self._accounts.values())
        self.spent_ns, self.cost_ratio = int(total_ns), total_ns / elapsed_ns
        if not self.budget_ratio:
            return []
        budget_ns = self.budget_ratio * elapsed_ns
        changes = self._hold(budget_ns) or self._let_go(budget_ns, now_ns)
        if changes:
            self.held = tuple(account.site for account in self._accounts.values() if account.is_held)
        return changes

    def _hold(self, budget_ns: float) -> list[Throttling]:
        """Coalesce the costliest until the rest fits."""
        free, fixed_ns, recorded_ns = self._sorted_out()
        changes = []
        for account in sorted(free, key=lambda account: -account.spent_ns):
            if recorded_ns <= _room_in(budget_ns, fixed_ns):
                break
            recorded_ns -= account.spent_ns
            fixed_ns += account.new_calls * min(account.full_ns / 4, _COALESCED_NS)
            account.is_held, account.calm_since_ns = True, None
            changes.append((account.site, True))
        return changes

    def _let_go(self, budget_ns: float, now_ns: int) -> list[Throttling]:
        """Record again what would have fitted for ten seconds, the cheapest first."""
        _, fixed_ns, recorded_ns = self._sorted_out()
        held = [account for account in self._accounts.values() if account.is_held]
        changes = []
        for account in sorted(held, key=lambda account: account.if_recorded_ns):
            if recorded_ns + account.if_recorded_ns > _room_in(budget_ns, fixed_ns - account.spent_ns):
                account.calm_since_ns = None
                continue
            recorded_ns, fixed_ns = recorded_ns + account.if_recorded_ns, fixed_ns - account.spent_ns
            account.calm_since_ns = now_ns if account.calm_since_ns is None else account.calm_since_ns
            if now_ns - account.calm_since_ns >= _CALM_NS:
                account.is_held = False
                changes.append((account.site, False))
        return changes

    def _sorted_out(self) -> tuple[list[_Account], float, float]:
        """The sites where something can be saved; ns that all others have spent; ns that these have."""
        free = [account for account in self._accounts.values() if not account.is_fixed]
        fixed_ns = sum(account.spent_ns for account in self._accounts.values() if account.is_fixed)
        return free, fixed_ns, sum(account.spent_ns for account in free)

    def release(self) -> list[Throttling]:
        """Everything is recorded again."""
        changes = [(site, False) for site in self.held]
        for site in self.held:
            self._accounts[site].is_held = False
        self.held = ()
        return changes


def _room_in(budget_ns: float, fixed_ns: float) -> float:
    """What the others may cost: half of the budget at least. They do not pay for a storm dear even when coalesced."""
    return max(budget_ns - fixed_ns, budget_ns / 2)


def outside_ns(clock: Callable[[], int] = time.perf_counter_ns) -> float:
    """What one more Python function in a call costs that asks whether anything is on: the wrapper's own part."""
    return max(_time_fastest(_wrap_value, clock) - _time_fastest(_call_value, clock), 0.0)


def _call_value(value: object) -> object:
    return value


def _wrap_value(value: object) -> object:
    if callable(value):
        return _call_value(value)
    return _call_value(value)


def _time_fastest(function: Callable[[object], object], clock: Callable[[], int]) -> float:
    times_ns = []
    for _ in range(5):
        before = clock()
        for _ in range(_ROUNDS):
            function(None)
        times_ns.append(clock() - before)
    return min(times_ns) / _ROUNDS
