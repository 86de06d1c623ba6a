"""Chrome trace JSON holds every range and mark, nests where viewers need it, and is written in pieces."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from builders.run_files import BankFiles, ProcessFiles, new_run
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.errors import MstxkitError
from mstxkit.reading.exporters import Exporter, formats, load
from mstxkit.reading.exporters.chrome import Lanes
from mstxkit.reading.run import open_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return new_run(tmp_path / "run")


def exported(run: Path) -> list[dict[str, Any]]:
    out = io.StringIO()
    count = load("chrome").write(open_run(run), out)
    events: list[dict[str, Any]] = json.loads(out.getvalue())["traceEvents"]
    assert len(events) == count
    return events


def of_kind(events: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] in kinds]


def test_every_exporter_is_found_by_listing_and_declares_itself() -> None:
    assert "chrome" in formats()
    assert all(isinstance(load(name), Exporter) for name in formats())


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(MstxkitError, match="chrome"):
        load("vhs")


def test_a_range_is_a_complete_event_in_microseconds_from_the_start_of_the_run(run: Path) -> None:
    bank = BankFiles().range("r", 1_001, 3_003, stage="s", step=4, track=2, domain="d", error=True, tokens=5)
    ProcessFiles(run, 42).seal(bank)

    (event,) = of_kind(exported(run), "X")

    assert event == {
        "ph": "X", "name": "r", "cat": "d", "pid": 42, "tid": 2, "ts": 1.001, "dur": 2.002,
        "args": {"step": 4, "stage": "s", "error": True, "attributes": {"tokens": 5}},
    }  # fmt: skip


def test_open_ranges_begin_and_marks_are_instants(run: Path) -> None:
    inside = [{"name": "fatal", "domain": "d", "start": 5_000}]
    ProcessFiles(run).seal(BankFiles().mark("m", 2_000, step=1), inside=inside, ended="killed")

    events = of_kind(exported(run), "B", "i")

    assert [(e["ph"], e["name"], e["ts"]) for e in events] == [("i", "m", 2.0), ("B", "fatal", 5.0)]


def test_processes_and_tracks_have_names(run: Path) -> None:
    ProcessFiles(run, 42, rank=3, role="actor", host="h").seal(BankFiles().track(0, 99).track(1, 99, is_task=True))

    named = {(e["name"], e["tid"]): next(iter(e["args"].values())) for e in of_kind(exported(run), "M")}

    assert named["process_name", 0] == "rank 3 actor"
    assert named["process_labels", 0] == "h:42 ended"
    assert named["thread_name", 0] == "thread 99"
    assert named["thread_name", 1] == "task on thread 99"


def test_equal_pids_of_two_hosts_stay_apart(run: Path) -> None:
    for rank, host in enumerate("ab"):
        ProcessFiles(run, 7, rank=rank, host=host).seal(BankFiles().range("r", 0, 1))

    assert {event["pid"] for event in of_kind(exported(run), "X")} == {7, 8}


def test_ranges_that_do_not_nest_become_async_events(run: Path) -> None:
    bank = (
        BankFiles()
        .range("plain", 0, 2_000)
        .range("out of order", 1_000, 3_000)
        .range("driven", 4_000, 9_000, busy=1_500)
    )
    ProcessFiles(run).seal(bank)
    events = exported(run)

    begun, ended = of_kind(events, "b"), of_kind(events, "e")

    assert [e["name"] for e in of_kind(events, "X")] == ["plain"]
    assert [(e["name"], e["ts"]) for e in begun] == [("out of order", 1.0), ("driven", 4.0)]
    assert [(e["id"], e["ts"]) for e in ended] == [(begun[0]["id"], 3.0), (begun[1]["id"], 9.0)]
    assert begun[1]["args"]["busy_us"] == 1.5


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=20))
def test_what_lanes_let_through_nests(intervals: list[tuple[int, int]]) -> None:
    lanes = Lanes()
    ordered = sorted(((min(i), max(i)) for i in intervals), key=lambda i: i[1])

    kept = [(a, b) for a, b in ordered if lanes.nests(0, 0, a, b)]

    for i, (a, b) in enumerate(kept):
        for c, d in kept[i + 1 :]:
            assert b <= c or d <= a or (c <= a and b <= d) or (a <= c and d <= b)


def test_names_are_json_whatever_they_hold(run: Path) -> None:
    evil = 'a"b\\\n\x1b</script>\u2028'
    ProcessFiles(run, role=evil).seal(BankFiles().range(evil, 0, 1, stage=evil, domain=evil).mark(evil, 1))

    assert {e["name"] for e in of_kind(exported(run), "X", "i")} == {evil}


def test_an_empty_run_is_an_empty_trace(run: Path) -> None:
    assert exported(run) == []


def test_a_large_run_is_written_in_pieces(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = ProcessFiles(run)
    process.seal(*(BankFiles(seq).range("r", seq, seq + 1) for seq in range(1, 40)))
    heights = []
    opened = open_run(run)
    batches = opened.batches
    monkeypatch.setattr(opened, "batches", lambda: (heights.append(b[0].height) or b for b in batches(rows=4)))

    load("chrome").write(opened, io.StringIO())

    assert sum(heights) == 39
    assert max(heights) <= 4
