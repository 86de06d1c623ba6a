"""Chrome trace JSON holds every range and mark, nests where viewers need it, and is written in pieces."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from builders.run_files import BankFiles, ProcessFiles

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.errors import MstxkitError
from mstxkit.reading.exporters import Exporter, list_formats, load_exporter
from mstxkit.reading.run import open_run


def exported(run: Path) -> list[dict[str, Any]]:
    out = io.StringIO()
    count = load_exporter("chrome").write(open_run(run), out)
    events: list[dict[str, Any]] = json.loads(out.getvalue())["traceEvents"]
    assert len([event for event in events if event["ph"] != "M"]) == count
    return events


def of_kind(events: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] in kinds]


def test_every_exporter_is_found_by_listing_and_declares_itself() -> None:
    assert "chrome" in list_formats()
    assert all(isinstance(load_exporter(name), Exporter) for name in list_formats())


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(MstxkitError, match="chrome"):
        load_exporter("vhs")


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

    events = sorted(of_kind(exported(run), "B", "i"), key=lambda e: e["ts"])

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

    begun, ended = ({e["name"]: e for e in of_kind(events, kind)} for kind in "be")

    assert [e["name"] for e in of_kind(events, "X")] == ["out of order"]
    assert {name: e["ts"] for name, e in begun.items()} == {"plain": 0.0, "driven": 4.0}
    assert {name: e["ts"] for name, e in ended.items()} == {"plain": 2.0, "driven": 9.0}
    assert all(begun[name]["id2"] == ended[name]["id2"] for name in begun)
    assert begun["plain"]["id2"]["local"] != begun["driven"]["id2"]["local"]
    assert begun["driven"]["args"]["busy_us"] == 1.5


def test_what_ran_inside_of_a_coroutine_is_on_its_line(run: Path) -> None:
    """With the domain of the line, by which Perfetto tells lines apart too, and its own beside it."""
    bank = BankFiles().range("child", 2_000, 3_000, depth=1, domain="other").range("driven", 1_000, 9_000, busy=1)
    ProcessFiles(run).seal(bank)

    events = of_kind(exported(run), "b", "e")

    assert len({(e["id2"]["local"], e["cat"], e["pid"]) for e in events}) == 1
    assert [(e["ph"], e["name"]) for e in sorted(events, key=lambda e: e["ts"])] == [
        ("b", "driven"), ("b", "child"), ("e", "child"), ("e", "driven"),
    ]  # fmt: skip
    assert {e["name"]: e["args"].get("domain") for e in events if e["ph"] == "b"} == {"driven": None, "child": "other"}


def test_coalesced_calls_are_apart_from_what_they_overlap(run: Path) -> None:
    bank = BankFiles().range("step", 1_000, 5_000, busy=9)
    bank.range("many", 0, 4_000, depth=1, busy=10, coalesced=3, total_ns=10, max_ns=5)
    ProcessFiles(run).seal(bank)

    ids = {e["name"]: e["id2"]["local"] for e in of_kind(exported(run), "b")}

    assert ids["step"] != ids["many"]


def test_a_track_with_the_number_of_its_process_gets_another(run: Path) -> None:
    """Viewers take the thread with that number for the main one, which has number 0 here."""
    ProcessFiles(run, 2).seal(BankFiles().track(2, 99).range("r", 0, 1, track=2))

    events = exported(run)

    assert {e["tid"] for e in of_kind(events, "X")} == {65_538}
    assert [e["tid"] for e in of_kind(events, "M") if e["name"] == "thread_name"] == [65_538]


def test_threads_are_named_and_the_main_one_comes_first(run: Path) -> None:
    bank = BankFiles()
    for track, thread, is_task, name in (
        (0, 99, False, "loader"),
        (1, 42, False, "MainThread"),
        (2, 99, True, "loader"),
    ):
        bank.track(track, thread, is_task, name)
    ProcessFiles(run, 42).seal(bank)

    events = of_kind(exported(run), "M")

    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(order, key=order.__getitem__) == [1, 0, 2]
    assert names == {0: "loader", 1: "MainThread", 2: "task on loader"}


def test_names_are_json_whatever_they_hold(run: Path) -> None:
    evil = 'a"b\\\n\x1b</script>\u2028'
    ProcessFiles(run, role=evil).seal(BankFiles().range(evil, 0, 1, stage=evil, domain=evil).mark(evil, 1))

    assert {e["name"] for e in of_kind(exported(run), "X", "i")} == {evil}


def test_an_empty_run_is_an_empty_trace(run: Path) -> None:
    assert exported(run) == []


def test_a_large_run_is_written_in_pieces(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = ProcessFiles(run)
    process.seal(*(BankFiles(seq).range("r", seq, seq + 1) for seq in range(1, 40)))
    heights: list[int] = []
    opened = open_run(run)
    coded = opened.files.coded
    monkeypatch.setattr(
        opened.files, "coded", lambda need, _=0, *how: (heights.append(p.height) or p for p in coded(need, 4, *how))
    )

    load_exporter("chrome").write(opened, io.StringIO())

    assert sum(heights) == 2 * 39
    assert max(heights) <= 4


def test_no_name_of_a_run_is_escaped_for_being_of_another_script(run: Path, tmp_path: Path) -> None:
    """Perfetto shows escapes as they stand: names, stages, domains, threads, roles and attributes."""
    bank = BankFiles().track(0, 7, name="线程").range("前向", 0, 9, stage="阶段", own=True, domain="域", 键="值")
    ProcessFiles(run, 42, role="角色").seal(bank.mark("標記", 3))

    load_exporter("chrome").write_to(open_run(run), tmp_path / "out.json")

    written = (tmp_path / "out.json").read_bytes().decode()
    assert [text for text in ("线程", "前向", "阶段", "域", "键", "值", "角色", "標記") if text not in written] == []
    assert "\\u" not in written
