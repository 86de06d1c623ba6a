"""Several patches with the same targets: applied, failed and undone in any order, they leave what they found."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from builders import soak
from builders.contracts import surface
from builders.contracts.installed import Installed
from builders.contracts.installing import Install
from builders.contracts.versions import every_version

from mstxkit import Patch
from mstxkit.marking import signatures
from mstxkit.patching import registry
from mstxkit.patching.reach import function_in
from mstxkit.patching.replacements import Replacement
from mstxkit.pieces import boundaries

pytestmark = pytest.mark.days("even")

ORDERS = list(itertools.permutations(range(3)))
RUNS = [(applied, undone, fails) for applied in ORDERS for undone in ORDERS for fails in (None, 0, 1, 2)]


def owners(installed: Installed) -> list[Patch]:
    """The framework's own patch, another that has the very same objects, and one with equal ones, last first."""
    own = registry.load_patch(installed.surface.framework)
    equal = Patch("equal", "any", tuple(reversed(own.targets)), own.seam)
    return [own, Patch("same", "any", own.targets, own.seam), equal]


def layers(installed: Installed) -> int:
    """The most ranges that one function of the package has around it."""
    most = 0
    for value in installed.holdings().values():
        function, count = function_in(value), 0
        while (held := signatures.held_by(function)) is not None:
            function, count = held["function"], count + 1
        most = max(most, count)
    return most


def fail_after(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """From so many replacements on each second one raises."""
    make, counted = Replacement.make, itertools.count()

    def failing(change: Replacement) -> None:
        number = next(counted)
        if number >= calls and number % 2:
            raise RuntimeError("in the midst")
        make(change)

    monkeypatch.setattr(Replacement, "make", failing)


@every_version
def test_owners_of_the_same_targets_leave_what_they_found_in_any_order(
    version: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = install(surface.recorded(version))
    installed.load()
    patches = owners(installed)
    before = installed.holdings()
    registry.install_patches([(patches[0], True)])
    alone: Any = boundaries.list_kinds()
    registry.remove_patches()

    for applied, undone, fails in random.Random(soak.seed()).sample(RUNS, soak.rounds(24, 4)):
        for owner in applied:
            with monkeypatch.context() as patching:
                if owner == fails:
                    fail_after(patching, 3)
                registry.install_patches([(patches[owner], True)])
        assert layers(installed) == 1
        for number, owner in enumerate(undone):
            if fails is None:
                assert boundaries.list_kinds() == alone, (applied, undone, number)
            registry.remove_patches([patches[owner].framework])

        after = installed.holdings()
        assert before.keys() == after.keys()
        assert [key for key in before if before[key] is not after[key]] == [], (applied, undone, fails)
        assert boundaries.list_kinds() == ()
        assert boundaries._forbidden == {}
