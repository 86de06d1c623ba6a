"""The file of verdicts: the newest line of each counts, and nothing that somebody writes there makes a reader fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstxkit.store import layout, verdicts
from mstxkit.store.verdicts import Verdict

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
SLOW = Verdict(
    "1", 10, 7, "compute", "actor_update", 3, "actor", 5, 0.2, 0.9, 1.0, 0.99, (0, 1, 2, 3),
    "ranks 0-2 wait for rank 3 in actor_update", {"late_s": 0.2}, "profile it", "0123456789abcdef",
)  # fmt: skip


def written(run: Path, *lines: bytes, name: str = "one") -> Path:
    folder = run / layout.VERDICTS
    folder.mkdir(exist_ok=True)
    with (folder / f"{name}{layout.VERDICTS_SUFFIX}").open("ab") as file:
        file.writelines(lines)
    return run


def test_what_was_said_comes_out_as_it_went_in(tmp_path: Path) -> None:
    assert verdicts.read_verdicts(written(tmp_path, SLOW.line())) == [SLOW]


def test_the_newest_word_of_each_counts_whoever_says_it(tmp_path: Path) -> None:
    later = SLOW._replace(time_ns=20, withdrawn="rank 3 is as fast as the others again")
    other = SLOW._replace(id="2", time_ns=15)
    written(tmp_path, later.line(), name="b")
    written(tmp_path, SLOW.line(), other.line(), name="a")

    assert verdicts.read_verdicts(tmp_path) == [other, later]
    assert not later.is_blaming and other.is_blaming


def test_a_line_that_is_half_written_costs_that_line_alone(tmp_path: Path) -> None:
    written(tmp_path, SLOW.line(), SLOW._replace(id="2").line()[:30])

    assert verdicts.read_verdicts(tmp_path) == [SLOW]


def test_a_run_without_verdicts_has_none(tmp_path: Path) -> None:
    assert verdicts.read_verdicts(tmp_path) == []


@given(st.dictionaries(st.sampled_from([*Verdict._fields, "more"]), JSON))
def test_no_line_makes_a_reader_fail(fields: dict[str, Any]) -> None:
    read = Verdict.read({"id": "1", "kind": "compute", **fields})

    assert read is None or Verdict.read(json.loads(read.line())) == read


@pytest.mark.parametrize("number", [10**400, -(10**400), float("inf"), float("nan")], ids=["long", "low", "inf", "nan"])
def test_numbers_that_no_float_holds_are_none(tmp_path: Path, number: Any) -> None:
    """JSON has them. A judge that takes over goes by such evidence, and a report puts it into words."""
    about = {**SLOW._asdict(), "impact_ratio": number, "evidence": {"usual_s": number, "late_s": 0.2}}
    (read,) = verdicts.read_verdicts(written(tmp_path, json.dumps(about).encode()))

    assert (read.impact_ratio, read.evidence["late_s"]) == (0.0, 0.2)
    assert isinstance(read.evidence["usual_s"], str)


def test_names_that_no_encoder_takes_are_written_as_escapes(tmp_path: Path) -> None:
    (read,) = verdicts.read_verdicts(written(tmp_path, SLOW._replace(id="\ud800", evidence={"\ud800": 1}).line()))

    assert (read.id, dict(read.evidence)) == ("\\ud800", {"\\ud800": 1})


@pytest.mark.parametrize("kind", verdicts.KINDS)
def test_only_missing_evidence_blames_nobody(kind: str) -> None:
    assert SLOW._replace(kind=kind).is_blaming == (kind != "not_enough_evidence")
