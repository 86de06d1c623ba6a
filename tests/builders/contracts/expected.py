"""What should become of each declared target in a version, worked out from its recorded surface alone."""

from __future__ import annotations

from typing import NamedTuple

from builders.contracts.surface import Surface, Symbol

from mstxkit.patching.declare import EXTRA, Patch, Target


class Expected(NamedTuple):
    """One target: is it applied, and to what?

    Args:
        target: As declared.
        is_applied: Is it?
        may_have_range: Another target names the same function, and may have been first.
        symbols: What it names.
    """

    target: Target
    is_applied: bool
    may_have_range: bool
    symbols: list[Symbol]


def expected(surface: Surface, patch: Patch, has_extra: bool) -> list[Expected]:
    """In the order declared."""
    found = []
    taken: dict[str, int] = {}
    for target in patch.targets:
        symbols = surface.symbols(target) if _is_wanted(surface, target, has_extra) else []
        symbols = [symbol for symbol in symbols if symbol.is_function or symbol.is_property]
        for symbol in symbols:
            taken[symbol.key] = taken.get(symbol.key, 0) + 1
        found.append((target, symbols))
    return [Expected(target, bool(some), any(taken[one.key] > 1 for one in some), some) for target, some in found]


def _is_wanted(surface: Surface, target: Target, has_extra: bool) -> bool:
    is_superseded = target.unless is not None and surface.has(target.unless)
    return (target.tier != EXTRA or has_extra) and not is_superseded
