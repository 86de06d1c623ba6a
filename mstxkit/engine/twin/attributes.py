"""The attributes of a range as its record holds them: exact texts as keys, plain values."""

from __future__ import annotations

from typing import Any

from ...store import records
from ..plain_values import settle

_HALF = 1 << 63


def collect(opened: Any) -> tuple[dict[str, Any], bool]:
    """All attributes of a range in order, within the limit, of plain values; and is any of them lost?

    A later value of a key replaces the earlier one. What is neither plain nor can be made so stays what it is.
    """
    together: dict[str, Any] = {}
    is_lost, is_plain = False, True
    for attributes in (opened.made_with, opened.added):
        for key, value in tuple(attributes.items()) if attributes else ():
            kind = type(value)
            if not (kind is str or kind is float or kind is bool or value is None):
                is_plain = is_plain and kind is int and -_HALF <= value < _HALF
            if issubclass(type(key), str):
                together[str.__str__(key)] = value
            else:
                is_lost = True  # a wrapper's callable may give any dict
    if len(together) > records.ATTRIBUTE_LIMIT:
        together, is_lost = dict(list(together.items())[: records.ATTRIBUTE_LIMIT]), True
    if is_plain:
        return together, is_lost
    settled, is_lost = settle(together.items(), is_lost)
    return dict(settled), is_lost
