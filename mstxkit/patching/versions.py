"""Is a framework newer or older than its patch knows? By what is installed here; nothing is imported for it."""

from __future__ import annotations

import re
import sys

from .. import faults
from ..host import identity
from .declare import Patch
from .symbols import HELD, find_symbols

_BOUND = re.compile(r"(>=|<=|<|)\s*(\d+(?:\.\d+)*)")


def describe_unknown(patch: Patch) -> str:
    """`9.9.9 is newer than autopatch knows (0.20.0 to 1.16.0)`; "" for a version that it knows, or none."""
    name, bounds = patch.framework, _BOUND.findall(patch.versions)
    try:
        import importlib.metadata

        version = importlib.metadata.version(name)
    except (ImportError, OSError, KeyError, TypeError, AttributeError):  # none, a damaged one, or one half imported
        own: object = vars(sys.modules[name]).get("__version__") if name in sys.modules else ""
        version = own if type(own) is str else ""
    here = _read_numbers(version)
    if not here or not bounds:
        return ""
    (_, low), (sign, high) = bounds[0], bounds[-1]
    is_open = sign == ">=" and len(bounds) == 1
    top = _read_numbers(high)
    is_newer = not is_open and (here >= top if sign == "<" else here[: len(top)] > top)
    word = "newer" if is_newer else "older" if bounds[0][0] not in ("<", "<=") and here < _read_numbers(low) else ""
    range_of = low if low == high else f"{low} to {high}"
    return f"{version} is {word} than autopatch knows ({range_of})" if word else ""


def warn_of_version(patch: Patch, words: str) -> None:
    """Say it once, with how many of its targets are there; of many ranks the first says it for all.

    Cost: the framework's source is read, some tenths of a second; only for a version that is not known.
    """
    if words and identity.read_current()["rank"] in (None, 0):
        states = [state.state for state in find_symbols().states(patch)]
        there = f"{states.count(HELD)} of {len(states)} targets are in its source"
        faults.warn_once(f"version of {patch.framework}", f"{patch.framework} {words}: {there}")


def _read_numbers(version: str) -> tuple[int, ...]:
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, numbers.group().split("."))) if numbers else ()
