"""Words that name ranks by what they are: `host:node7`, `role:actor`, `dp:3`, `pp:last`, `peers:3`, several by commas.

A request keeps the words, so that the same call from every rank is one request. Whoever asks first says which ranks
they are, once and for all (`escalation/meaning.py`), and every rank takes it from there.
"""

from __future__ import annotations

import re
from typing import NamedTuple

RANKS, HOST, ROLE, PEERS = "ranks", "host", "role", "peers"
# Data, tensor, pipeline, context and expert parallel of Megatron; sequence parallel of Ulysses.
DATA = "dp"
DIMENSIONS = ("tp", "pp", DATA, "cp", "sp", "ep")
FIRST, LAST = "first", "last"
FORMS = ("host:NAME", "role:NAME", "dp:3", "tp:0", "pp:last", "peers:3")
_TEXT_AT_MOST = 500
_SPAN = re.compile(r"(\d{1,9})(?:\s*-\s*(\d{1,9}))?", re.ASCII)
_RANKS_AT_MOST = 1 << 20


class Group(NamedTuple):
    """One of several groups."""

    kind: str  # RANKS, HOST, ROLE, PEERS, or one of DIMENSIONS
    name: str  # of a host or role, or as it was written
    # first, last: numbers: ranks, or the index in a dimension, FIRST being 0 and LAST -1
    first: int = 0
    last: int = 0


def are_groups(ranks: object) -> bool:
    """Does this name ranks by groups, and not by numbers or a word like `all`?"""
    return isinstance(ranks, str) and ":" in ranks


def strip_words(text: str) -> str:
    """The same without spaces around its parts: equal words are one request.
    Raises ValueError: it is none, in words that go on after what was given.
    """
    if len(text) > _TEXT_AT_MOST or not text.isprintable():
        raise ValueError(f"must have at most {_TEXT_AT_MOST} printable characters")
    parts = [":".join(word.strip() for word in part.split(":", 1)) for part in text.split(",")]
    for part in parts:
        _read_group(part)
    return ",".join(parts)


def groups_in(text: str) -> tuple[Group, ...]:
    """Its parts. Raises ValueError: as `strip_words`."""
    return tuple(_read_group(part) for part in strip_words(text).split(","))


def _read_group(part: str) -> Group:
    kind, colon, name = part.partition(":")
    if not colon:
        return _read_span(part, RANKS)
    if kind in (HOST, ROLE) and name:
        return Group(kind, name)
    if kind in DIMENSIONS and name in (FIRST, LAST):
        return Group(kind, name, *((0, 0) if name == FIRST else (-1, -1)))
    if kind in (PEERS, *DIMENSIONS):
        return _read_span(name, kind)
    raise ValueError(f"{part!r} is no group of ranks")


def _read_span(text: str, kind: str) -> Group:
    match = _SPAN.fullmatch(text.strip())
    first, last = (0, -1) if match is None else (int(match[1]), int(match[2] or match[1]))
    if not 0 <= last - first < _RANKS_AT_MOST:
        raise ValueError(f"{text!r} is no number of a rank or group, and no span of them")
    return Group(kind, text, first, last)
