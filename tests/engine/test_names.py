"""Names of any kind: rule 7 of docs/internals/engine.md, on both engines."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from builders.written_banks import Written

ROOT = Path(__file__).parents[2]


class Named(str):
    """A str that does all it can to be in the way."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError


class Unhashable:
    __hash__ = None  # type: ignore[assignment]


NAMES = {
    "empty": ("", ""),
    "NUL": ("a\0b", "a\0b"),
    "newlines": ("a\nb\r\n", "a\nb\r\n"),
    "lone surrogates": ("\ud800x\udfff", "\\ud800x\\udfff"),
    "emoji": ("🚀", "🚀"),
    "not ASCII": ("é" * 100, "é" * 100),
    "escape": ("\x1b[31mred", "\x1b[31mred"),
    "str subclass": (Named("mine"), "mine"),
    "int": (3, "<int>"),
    "none": (None, "<NoneType>"),
    "bytes": (b"x", "<bytes>"),
    "float": (1.5, "<float>"),
    "class": (object, "<type>"),
    "list": (["x"], "<list>"),
    "unhashable": (Unhashable(), "<Unhashable>"),
}


@pytest.mark.parametrize("case", NAMES)
@pytest.mark.parametrize("is_heard", [False, True])
@pytest.mark.parametrize("is_on", [False, True])
def test_a_name_of_any_kind_is_taken(engine: Any, recorded: Written, case: str, is_on: bool, is_heard: bool) -> None:
    """For ranges, marks, domains and driven bodies, also where a tool is told of them."""
    name, written = NAMES[case]
    if is_heard:
        engine.set_sink(0, lambda message, domain: message, lambda token, domain: None)
    engine.set_recording(is_on)
    for _ in range(3):
        with engine.mstx_range(name), engine.mstx_range(name, domain=name):
            engine.mark(name)
        list(engine.driven(engine.intern(name), iter([1])))

    assert recorded.names == [written] * 9 * is_on
    domain = "default" if name is None else written
    assert [found.domain for found in recorded.ranges] == [domain, "default", "default"] * 3 * is_on
    assert [found.name for found in recorded.marks] == [written] * 3 * is_on
    assert engine.counters()["faults"] == 0


@pytest.mark.parametrize("case", [case for case in NAMES if case != "none"])
def test_a_stage_of_any_kind_is_taken(engine: Any, recorded: Written, case: str) -> None:
    name, written = NAMES[case]
    with engine.stage(name), engine.mstx_range("x"):
        current = engine.current_stage()

    assert current == recorded.one("x").stage == written
    assert recorded.ranges[1].own_stage == written
    assert engine.counters()["faults"] == 0


def test_a_name_of_10_mb_is_cut_and_counted(engine: Any, recorded: Written) -> None:
    name = f"{engine.NATIVE} " + "x" * 10_000_000
    for _ in range(3):
        with engine.mstx_range(name):
            pass

    (written,) = {found.name for found in recorded.ranges}
    assert len(written) == 4096
    assert f"[{len(name)} bytes, " in written
    assert engine.counters()["texts_cut"] == 1


def test_sites_are_one_per_name_domain_and_stage(engine: Any) -> None:
    before = engine.counters()["sites"]
    sites = [
        engine.intern("a site"), engine.intern("a site", None, "default"), engine.intern("a site", domain="d"),
        engine.intern("a site", "s"), engine.intern("a site", stage="s"), engine.intern("another site"),
    ]  # fmt: skip

    assert sites[0] is sites[1]
    assert sites[3] is sites[4]
    assert len({site.id for site in sites}) == 4
    assert engine.counters()["sites"] - before in (0, 4)
    assert (sites[3].name, sites[3].stage, sites[3].domain) == ("a site", "s", "default")
    assert repr(sites[3]) == "Site('a site', stage='s', domain='default')"


def test_a_site_travels_as_a_call_of_ranges_site(engine: Any) -> None:
    from mstxkit.engine.choose import engine as chosen
    from mstxkit.marking import ranges

    site = engine.intern("travels", "s", "d")
    arrived = pickle.loads(pickle.dumps(site))

    assert site.__reduce__() == (ranges.site, ("travels", "s", "d"))
    assert arrived is chosen.intern("travels", "s", "d")
