"""Values of attributes as what a record holds: str, bool, int of 64 bits, float or None.

Nothing of the program's runs, and nothing is waited for. A type is known by its identity. What a subclass brings is
read past, or the value is not taken. So nothing is asked of a tensor. Numpy, decimal, pathlib and datetime are looked
for in `sys.modules`, never imported: what is not there has no values yet.
"""

from __future__ import annotations

import enum
import math
import sys
from typing import Any, Callable, Iterable, Iterator, Mapping

from .. import faults
from ..host import names

Convert = Callable[[Any], Any]
Types = Iterator[tuple[type, Convert]]

_own_of: Callable[[enum.Enum], dict[str, Any]] = enum.Enum.__dict__["__dict__"].__get__

_INT_LIMIT = 1 << 63
_NAMED_AT_MOST, _NAME_LIMIT = 200, 100  # attributes; characters
# Of numpy's units: whole seconds of one, or how many make one. Months and years have no length.
_SECONDS = {"W": 604_800, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}


def settle(pairs: Iterable[tuple[str, Any]], is_lost: bool) -> tuple[list[tuple[str, Any]], bool]:
    """(key, plain value) of each attribute, and whether any is lost, or was so already.

    One that is not taken keeps its value, of which the engine records the type's name. It is named in the log once.
    """
    settled: list[tuple[str, Any]] = []
    for key, value in pairs:
        taken = plain(value)
        if taken is NotImplemented:
            is_lost, taken = True, value
            _name_once(key, type(value))
        settled.append((key, taken))
    return settled, is_lost


def plain(value: Any) -> Any:
    """`value` as an exact str, bool, int of 64 bits, float or None; NotImplemented where it is not taken."""
    kind = type(value)  # not `isinstance`, which asks the value itself
    if value is None or kind is bool:
        return value
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, float):
        return float.__pos__(value)
    number = _within_limits(int.__add__(value, 0)) if issubclass(kind, int) else NotImplemented
    if number is not NotImplemented:
        return number
    return _of_member(value) if issubclass(kind, enum.Enum) else _convert_value(value, kind)


def _within_limits(value: Any) -> Any:
    return NotImplemented if type(value) is int and not -_INT_LIMIT <= value < _INT_LIMIT else value


def _of_member(member: enum.Enum) -> Any:
    """The value of an Enum's member; its name where that is not taken."""
    own = _own_of(member)
    value, name = dict.get(own, "_value_", NotImplemented), dict.get(own, "_name_")
    taken = NotImplemented if issubclass(type(value), enum.Enum) else plain(value)
    return name if taken is NotImplemented and type(name) is str else taken


def _convert_value(value: Any, kind: type) -> Any:
    convert = _convert_of(kind)
    if convert is None:
        return NotImplemented
    try:
        return _within_limits(convert(value))
    except (ArithmeticError, TypeError, ValueError, Warning):
        return NotImplemented


def _convert_of(kind: type) -> Convert | None:
    if id(kind) not in _known:
        _look_around()
    entry = _known.get(id(kind))
    return None if entry is None else entry[1]


def _name_once(key: str, kind: type) -> None:
    text, name = str.__str__(key)[:_NAME_LIMIT], names.type_name(kind)[:_NAME_LIMIT]
    where = f"attribute {text!r} of type {name!r}"
    if where not in faults.counts and len(faults.counts) >= _NAMED_AT_MOST:
        where = "attributes of further names"
    faults.warn_once(
        where,
        f"attribute {text!r}: of this value only its type, {name!r}, is recorded; "
        "give a str, bool, int of 64 bits, float or None",
    )


# ---- which types there are ----


def _look_around() -> None:
    """Learn the types of what has been imported since."""
    for name, types_of in list(_not_seen.items()):
        module = sys.modules.get(name)
        if module is None:
            continue
        try:  # not `vars`: it would load a module that is loaded lazily
            types = list(types_of(object.__getattribute__(module, "__dict__")))
        except (AttributeError, KeyError, TypeError):
            continue  # half imported, or a stand-in
        _known.update((id(kind), (kind, convert)) for kind, convert in types)
        _not_seen.pop(name, None)


def _of_datetime(module: Mapping[str, Any]) -> Types:
    yield module["date"], module["date"].isoformat
    yield module["timedelta"], module["timedelta"].total_seconds
    yield module["timezone"], _from_zone
    for name in ("datetime", "time"):
        yield module[name], _from_time


def _of_numpy(module: Mapping[str, Any]) -> Types:
    timedelta, datetime_data = module["timedelta64"], module["datetime_data"]
    converts: dict[type, Convert] = {module["bool_"]: bool, module["integer"]: int, module["floating"]: float}
    converts[module["str_"]] = str.__str__
    for kind in list(module["sctypeDict"].values()):
        if kind is not timedelta:
            yield from ((kind, convert) for base, convert in converts.items() if issubclass(kind, base))
    yield module["datetime64"], str
    yield timedelta, lambda value: _from_ticks(int(value.view("i8")), *datetime_data(value.dtype))
    yield module["ndarray"], _from_array


def _from_time(value: Any) -> Any:
    """ISO 8601; not taken where a time zone of somebody else's would have to be asked."""
    zone = value.tzinfo
    return value.isoformat() if zone is None or _convert_of(type(zone)) is _from_zone else NotImplemented


def _from_zone(zone: Any) -> Any:
    """A time zone itself is not taken."""
    return NotImplemented


def _from_ticks(ticks: int, unit: str, count: int) -> Any:
    """Seconds; NaN for numpy's NaT."""
    if ticks == -_INT_LIMIT:
        return math.nan
    if unit in _SECONDS:
        return float(ticks * count * _SECONDS[unit])
    return ticks * count / _PER_SECOND[unit] if unit in _PER_SECOND else NotImplemented


def _from_array(array: Any) -> Any:
    """The only value of a 0-d array, of a type that is numpy's own."""
    convert = _convert_of(array.dtype.type)
    return NotImplemented if array.ndim or convert is None else convert(array[()])


# By the type's id: its metaclass may bring a `__hash__`. The type is kept, so that its id is nobody else's.
_known: dict[int, tuple[type, Convert]] = {id(str): (str, str.__str__)}  # what a 0-d array of texts may hold
# `_datetime`: others put classes of their own into `datetime`.
_not_seen: dict[str, Callable[[Mapping[str, Any]], Types]] = {
    # A signalling NaN is no float.
    "decimal": lambda module: iter([(module["Decimal"], lambda d: math.nan if d.is_nan() else float(d))]),
    "pathlib": lambda module: ((module[f"{of}Path"], str) for of in ("PurePosix", "PureWindows", "Posix", "Windows")),
    "zoneinfo": lambda module: iter([(module["ZoneInfo"], _from_zone)]),
    "_datetime": _of_datetime,
    "numpy": _of_numpy,
}
