"""Records with attributes, the quick way: one function for each number of attributes, made from a template.

A loop over the attributes would cost as much again as all else that a range does. So each function has its values one
by one in its own variables: what an attribute is in this bank is looked up, its check bits come from one expression,
and one `pack_into` writes the record, then its attributes, at places that follow each other.

The templates are filled with numbers from 0 to `LIMIT` only, never with anything of the program's.
"""

from __future__ import annotations

import struct
import textwrap
from typing import Any, Callable

from ...store import records
from . import banks, encoding, quick
from .tracks import Node

# A range with more attributes goes the general way.
LIMIT = quick.TYPED_LIMIT

_ATTRIBUTE = records.ATTRIBUTE << records.KIND_SHIFT
_TAILS = [(i + 1) << records.CHECK_SHIFT | _ATTRIBUTE for i in range(records.CHECK_PRIME)]
_SCOPE: dict[str, Any] = {
    "TAILS": _TAILS, "LOW": -(1 << 63), "HIGH": 1 << 63, "U64": records.U64,
    "double": struct.Struct("<d").pack, "bits_of": struct.Struct("<Q").unpack, "BUSY": records.BUSY << 32,
    "none": type(None), "quick": quick,
}  # fmt: skip

# `bank.kinds[type][key]` is an attribute's second word and what goes into its check bits with its value and place.
# Whatever is not known yet is a KeyError, before a place is taken. A type is known by its identity: its metaclass may
# bring a `__hash__`. No name here may be one of those of the function around it: what has failed there goes on.
_VALUE = """
value_type = type(v{i})
if value_type is int:
 if v{i} < 0:
  if v{i} < LOW: {otherwise}
  v{i} &= U64
 elif v{i} >= HIGH: {otherwise}
elif value_type is str: v{i} = bank.texts[v{i}]
elif value_type is float: v{i}, = bits_of(double(v{i}))
elif value_type is bool: v{i} = 1 if v{i} else 0
elif value_type is none: v{i} = 0
else: {otherwise}
k{i}, c{i} = kinds[value_type][k{i}]
"""
_PLACES = """
place = {place}
if place + {count} > bank.capacity:
 bank.lose(place)
 {otherwise}
"""
_RECORD = """
first, duration = end - ended.base, end - start
pack(bank.view, bank.first + 24 * place,
 first, ended.w1, ended.tails[(duration ^ place ^ first ^ ended.check) % 4093] + duration{words})
if quick.is_alone or words[bank.count_at] < place + {count}: words[bank.count_at] = place + {count}
"""
_WORDS = ", v{i}, k{i}, TAILS[(v{i} ^ c{i} ^ place + {after}) % 4093]"
_BUSY_WORDS = ", busy, BUSY, TAILS[(busy ^ bank.busy_check ^ place + {after}) % 4093]"


def record(count: int, is_busy: bool, otherwise: str) -> str:
    """Code that writes a record with so many attributes, and one more for `busy`.

    It has the position `ended`, its `bank` and `words`, `start`, `end` and `values`, a dict. Where a value is not
    plain, or the bank has too little room, it does `otherwise`, before anything is written.
    """
    numbers = range(count)
    unpacked = ""
    if count:
        keys, values = ("".join(f"{letter}{i}, " for i in numbers) for letter in "kv")
        unpacked = f"kinds = bank.kinds\n{keys} = values\n{values} = values.values()\n"
    words = [_WORDS.format(i=i, after=i + 1) for i in numbers]
    words += [_BUSY_WORDS.format(after=count + 1)] * is_busy
    written = 1 + len(words)
    place = f"bank.groups[{written}]()[0]" if written > 1 else "bank.take()"
    places = _PLACES.format(place=place, count=written, otherwise=otherwise)
    taken = [unpacked, *(_VALUE.format(i=i, otherwise=otherwise) for i in numbers), places]
    return "".join(taken) + _RECORD.format(words="".join(words), count=written)


def made(template: str, codes: dict[str, str], **scope: Any) -> Callable[..., Any]:
    """The function `made` of a template, in which each `{name}` alone on an indented line becomes that code."""
    for name, code in codes.items():
        before = template[: template.index(f"{{{name}}}")]
        indent = before[before.rindex("\n") + 1 :]
        template = template.replace(f"{indent}{{{name}}}", textwrap.indent(code, indent))
    packed = struct.Struct(f"<{3 + 3 * template.count('TAILS[')}Q").pack_into
    names = {**_SCOPE, "pack": packed, **scope}
    exec(template, names)
    function: Callable[..., Any] = names["made"]
    return function


_WRITE = """
def made(ended, start, end, values, busy):
 bank, words = ended.bank, ended.words
 {record}
 return True
"""
# The record of a body without attributes. A body calls it itself: one call less.
write_plain_body = made(_WRITE, {"record": record(0, True, "return False")})
NOTHING: dict[str, Any] = {}
# By number of attributes; made when first needed, as that takes a millisecond.
_writes: list[Any] = [None] * (LIMIT + 1)


def write_body(node: Node, start: int, end: int, values: dict[str, Any], busy: int) -> Any:
    """The record of a body that has ended, with its attributes and busy ticks. False: the general way does that."""
    count = len(values)
    if count > LIMIT:
        return False
    write = _writes[count]
    if write is None:
        write = _writes[count] = made(_WRITE, {"record": record(count, True, "return False")})
    try:
        return write(node, start, end, values, busy)
    except KeyError:
        return defined(node, values) and write(node, start, end, values, busy)


def defined(node: Node, values: dict[Any, Any]) -> bool:
    """Give the node's bank the texts of these attributes. False where one is not plain, or there is no room."""
    with banks.lock:
        bank = node.bank
        if node.live is None or bank is not node.live.bank:
            return False
        return all(encoding.define(bank, key, value) for key, value in tuple(values.items()))
