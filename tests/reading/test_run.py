"""A run reads back as tables: sealed, live, killed, exited, learnt late, sealed twice."""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from builders.run_files import MONOTONIC, RUN_ID, WALL_OFFSET_NS, BankFiles, ProcessFiles, alive, anchor, new_run

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.errors import MstxkitError, ReadError  # noqa: E402
from mstxkit.reading import live  # noqa: E402
from mstxkit.reading.processes import Processes  # noqa: E402
from mstxkit.reading.run import OLDEST_POLARS, open_run  # noqa: E402
from mstxkit.store import documents, job_file, layout, livefile, records, segment  # noqa: E402
from mstxkit.store.job_file import JobState  # noqa: E402

RANGES = [
    "rank", "host", "pid", "role", "track", "depth", "step", "domain", "stage", "name", "start_ns", "duration_ns",
    "busy_ns", "open", "error", "attributes", "part",
]  # fmt: skip
MARKS = ["rank", "host", "pid", "track", "step", "domain", "stage", "message", "time_ns", "attributes"]
STAGES = ["step", "stage", "rank", "role", "pid", "count", "total_ns", "start_ns", "end_ns", "part", "waits_for"]
PROCESSES = [
    "rank", "host", "pid", "role", "part", "world_size", "start_ns", "last_seen_ns", "native", "dropped", "coalesced",
    "faults", "clock_error_ns", "own_cost_ratio",
]  # fmt: skip
ESCALATIONS = [
    "request", "stage", "rank", "state", "first_step", "last_step", "start_ns", "end_ns", "preset", "folder", "reason",
]  # fmt: skip


def names(path: Path) -> list[str]:
    return open_run(path).ranges()["name"].cast(pl.String).to_list()


def slot(bank: BankFiles, name: str, start: int, **fields: Any) -> livefile.Slot:
    values = {"track": 0, "step": records.NO_STEP, "stage": 0, "depth": 0, "thread": 1, **fields}
    return livefile.Slot(start=start, site=bank.site(name), **values)


def test_an_ended_range_has_every_column_of_the_contract(run: Path) -> None:
    bank = BankFiles().range(
        "inner", 2_000, 3_500, stage="update", step=7, track=3, depth=2, domain="d", error=True, busy=400, tokens=5
    )
    ProcessFiles(run, 42, rank=1, host="h", role="actor").seal(bank)

    table = open_run(run).ranges()

    assert table.columns == RANGES
    assert table.row(0) == (
        1, "h", 42, "actor", 3, 2, 7, "d", "update", "inner", WALL_OFFSET_NS + 2_000, 1_500, 400, False, True,
        '{"tokens":5}', None,
    )  # fmt: skip


def test_what_was_never_set_is_null(run: Path) -> None:
    ProcessFiles(run, rank=None).seal(BankFiles().range("a", 0, 1))

    row = open_run(run).ranges().row(0, named=True)

    assert [name for name, value in row.items() if value is None] == [
        "rank", "role", "step", "stage", "busy_ns", "attributes", "part",
    ]  # fmt: skip


def test_a_mark_is_no_range(run: Path) -> None:
    ProcessFiles(run, 42, rank=0, host="h").seal(
        BankFiles().range("a", 0, 1).mark("hello", 5, stage="s", step=1, ok=True)
    )
    opened = open_run(run)

    assert opened.marks().columns == MARKS
    assert opened.marks().rows() == [(0, "h", 42, 0, 1, "default", "s", "hello", WALL_OFFSET_NS + 5, '{"ok":true}')]
    assert opened.ranges()["name"].to_list() == ["a"]


def test_attributes_of_every_type_are_json(run: Path) -> None:
    values = {"i": -(2**63), "f": 0.1, "b": False, "s": 'q"\n€', "o": [1], "nan": float("nan"), "inf": float("-inf")}
    values["none"] = None
    ProcessFiles(run).seal(BankFiles().range("a", 0, 1, **values).range("b", 1, 2, n=1).range("c", 2, 3))

    found = open_run(run).ranges()["attributes"].to_list()

    assert [text and json.loads(text) for text in found] == [
        {"i": -(2**63), "f": 0.1, "b": False, "s": 'q"\n€', "o": "list", "nan": "nan", "inf": "-inf", "none": None},
        {"n": 1},
        None,
    ]


def test_a_rank_learnt_late_holds_for_all_ranges_of_the_process(run: Path) -> None:
    process = ProcessFiles(run, rank=None)
    process.seal(BankFiles(1).range("early", 0, 1), ended=None)
    process.identity["rank"] = 5
    process.seal(BankFiles(2).range("late", 2, 3))

    assert open_run(run).ranges()["rank"].to_list() == [5, 5]


def test_two_lives_of_one_pid_are_two_processes(run: Path) -> None:
    ProcessFiles(run, 7, rank=0, start="a").seal(BankFiles().range("x", 0, 1))
    ProcessFiles(run, 7, rank=1, start="b").seal(BankFiles().range("x", 0, 1))

    assert open_run(run).processes().select("rank", "pid").rows() == [(0, 7), (1, 7)]


def test_a_long_duration_is_right_to_its_scale(run: Path) -> None:
    long = (1 << 41) + 5
    ProcessFiles(run, clock=MONOTONIC).seal(BankFiles().range("long", 0, long))

    assert open_run(run).ranges()["duration_ns"].to_list() == [long // 4096 * 4096]


@pytest.mark.parametrize("days", [53, 3_650])
def test_a_range_that_is_longer_than_can_be_said_ends_where_it_did_and_has_the_longest_duration(
    run: Path, days: int
) -> None:
    end = 86_400_000_000_000
    ProcessFiles(run, 42).seal(BankFiles().range("long", end - days * 86_400_000_000_000, end, stage="long", own=True))
    opened = open_run(run)
    (row,), (stage,) = opened.ranges().to_dicts(), opened.stages().to_dicts()

    assert row["duration_ns"] == stage["total_ns"] == (1 << 52) - 4096
    assert row["start_ns"] + row["duration_ns"] == stage["end_ns"] == end + WALL_OFFSET_NS
    assert not opened.damage


@pytest.mark.parametrize("codec", ["zlib", "best"])
def test_blocks_of_each_codec_read_back(run: Path, codec: str) -> None:
    ProcessFiles(run).seal(BankFiles().range("a", 0, 1), codec=codec)

    assert names(run) == ["a"]


def test_a_block_in_an_unknown_codec_is_damage(run: Path) -> None:
    process = ProcessFiles(run)
    meta = {**process.meta(), "bank": 1, "origin": 0, "records": 1, "attributes": 0, "text_bytes": 0, "codec": "brotli"}
    block = segment.pack_block(segment.RECORDS, meta, b"?")
    (run / "sealed" / f"{process.name}.0000.mxs").write_bytes(segment.file_header() + block)
    opened = open_run(run)

    assert opened.ranges().height == 0
    assert "brotli" in opened.damage[0].reason


def test_a_live_process_shows_what_ended_and_what_is_open(run: Path) -> None:
    bank = BankFiles().range("done", 0, 10)
    inside = (slot(bank, "outer", 20), slot(bank, "inner", 30, depth=1, step=4))
    ProcessFiles(run, os.getpid()).live(bank, slots=inside, pointer=alive())
    opened = open_run(run)

    table = opened.ranges().select("name", "open", "duration_ns", "step")

    assert table.rows() == [("done", False, 10, None), ("outer", True, None, None), ("inner", True, None, 4)]
    assert opened.processes()["state"].to_list() == ["running"]
    assert opened.damage == []


def test_a_process_that_is_gone_without_an_end_was_killed(run: Path) -> None:
    bank = BankFiles()
    ProcessFiles(run).live(bank, slots=(slot(bank, "fatal", 5),))
    opened = open_run(run)

    assert opened.processes()["state"].to_list() == ["killed"]
    assert opened.open_ranges()["name"].to_list() == ["fatal"]


def test_a_pid_that_another_process_has_by_now_is_not_alive(run: Path) -> None:
    ProcessFiles(run, os.getpid()).live(BankFiles(), pointer={**alive(), "pid_start": 1})

    assert open_run(run).processes()["state"].to_list() == ["killed"]


def test_a_polars_that_is_too_old_is_told_of_with_what_to_do(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tables ended in errors of its own."""
    (oldest,) = re.findall(r'"polars>=(\d+)\.(\d+)"', (Path(__file__).parents[2] / "pyproject.toml").read_text())
    monkeypatch.setattr(pl, "__version__", "1.27.1")

    with pytest.raises(MstxkitError, match=r"newer polars than 1\.27\.1: pip install -U polars"):
        open_run(run)
    assert tuple(map(int, oldest)) == OLDEST_POLARS


def test_a_live_file_of_another_host_is_not_looked_for(run: Path) -> None:
    process = ProcessFiles(run, host="elsewhere")
    process.seal(BankFiles().range("a", 0, 1), ended=None)
    process.point_to(Path("/dev/shm/nothing.live"), boot="its own")
    opened = open_run(run)

    assert opened.processes()["state"].to_list() == ["lost"]
    assert opened.damage == []


@pytest.mark.parametrize(("start", "state", "records"), [("15eed", "killed", 1), (f"{1 << 62:x}5eed", "lost", 0)])
def test_a_host_that_was_started_anew_is_told_from_another_of_its_name(
    run: Path, start: str, state: str, records: int
) -> None:
    """By when the process began. What is left on a disk is read."""
    ProcessFiles(run, start=start).live(BankFiles().range("a", 0, 1), pointer={"boot": "another"})
    opened = open_run(run)

    assert opened.processes()["state"].to_list() == [state]
    assert opened.ranges().height == records


def test_a_missing_live_file_of_a_killed_process_is_damage(run: Path, tmp_path: Path) -> None:
    ProcessFiles(run).point_to(tmp_path / "gone.live")

    assert "not there" in open_run(run).damage[0].reason


def test_a_bank_that_is_live_and_sealed_counts_once(run: Path) -> None:
    process = ProcessFiles(run)
    process.seal(BankFiles(1).range("first", 0, 1), ended=None)
    process.live(BankFiles(1).range("first", 0, 1), BankFiles(2).range("second", 2, 3))

    assert names(run) == ["first", "second"]


def test_a_bank_that_was_sealed_twice_counts_once(run: Path) -> None:
    process = ProcessFiles(run)
    process.seal(BankFiles(1).range("a", 0, 1), ended=None)
    process.seal(BankFiles(1).range("a", 0, 1), BankFiles(2).range("b", 2, 3), ended="killed")

    assert names(run) == ["a", "b"]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_slot_whose_record_is_there_is_not_open(run: Path, sealed: bool) -> None:
    bank = BankFiles(origin=50).range("ended", 100, 200, step=1)
    process = ProcessFiles(run)
    process.live(bank, slots=(slot(bank, "ended", 100, step=1), slot(bank, "ended", 100, step=2)))
    if sealed:
        process.seal(bank, ended=None)

    assert open_run(run).ranges().select("step", "open").rows() == [(1, False), (2, True)]


def test_after_the_end_block_slots_say_nothing(run: Path) -> None:
    bank = BankFiles().range("a", 0, 1)
    process = ProcessFiles(run)
    process.live(bank, slots=(slot(bank, "stale", 5),))
    process.seal(bank, ended="exit")

    assert names(run) == ["a"]


def test_open_ranges_of_an_adopted_process_come_from_its_block(run: Path) -> None:
    fields = {"name": "fatal", "domain": "d", "stage": "s", "own_stage": True, "step": 3, "track": 1, "depth": 2}
    ProcessFiles(run).seal(inside=[{**fields, "start": 100, "tid": 9}], ended="killed")
    opened = open_run(run)

    row = opened.ranges().select("name", "domain", "stage", "step", "track", "depth", "start_ns", "duration_ns", "open")

    assert row.rows() == [("fatal", "d", "s", 3, 1, 2, WALL_OFFSET_NS + 100, None, True)]
    assert opened.processes()["state"].to_list() == ["killed"]


def test_open_ranges_that_hold_anything_else_are_read_as_far_as_they_go(run: Path) -> None:
    odd: list[Any] = [1, None, {}, {"name": 3, "track": -1, "depth": "x", "start": 1 << 70, "step": True}]
    ProcessFiles(run).seal(inside=odd, ended="killed")

    assert names(run) == ["", "3"]


def test_records_half_written_by_a_running_process_are_skipped(run: Path) -> None:
    bank = BankFiles().range("a", 0, 1)
    bank.raw += bytes(records.RECORD_BYTES)
    bank.range("b", 2, 3)
    ProcessFiles(run, os.getpid()).live(bank, pointer=alive())
    opened = open_run(run)

    assert opened.ranges()["name"].to_list() == ["a", "b"]
    assert opened.damage == []


def test_an_attribute_whose_owner_is_lost_goes_to_nobody(run: Path) -> None:
    bank = BankFiles().range("a", 0, 1).range("lost", 2, 3, n=1).range("c", 4, 5, n=2)
    raw = bytearray(bank.raw)
    raw[records.RECORD_BYTES] ^= 1
    bank.raw = bytes(raw)
    ProcessFiles(run).live(bank)
    opened = open_run(run)

    assert opened.ranges().select("name", "attributes").rows() == [("a", None), ("c", '{"n":2}')]
    assert "1 records" in opened.damage[0].reason


def test_ids_mean_what_their_own_bank_says(run: Path) -> None:
    ProcessFiles(run).seal(BankFiles(1).range("one", 0, 1), BankFiles(2).range("two", 2, 3))

    assert names(run) == ["one", "two"]


def test_a_record_without_its_text_keeps_its_times(run: Path) -> None:
    bank = BankFiles().range("a", 1, 2, stage="s")
    bank.text = b""
    ProcessFiles(run).seal(bank)

    assert open_run(run).ranges().select("name", "stage", "duration_ns").rows() == [("(unknown)", "(unknown)", 1)]


def test_processes_say_what_the_contract_asks(run: Path) -> None:
    process = ProcessFiles(run, 42, rank=1, host="h", anchors=(anchor(0, error_ns=30), anchor(4_000)))
    process.counters.update(dropped=1, coalesced=2, faults=3, own_cost_ns=500, evicted=6)
    process.heartbeat_ns = 5_000
    process.seal()

    table = open_run(run).processes()

    assert table.columns[: len(PROCESSES)] == PROCESSES
    assert table.row(0)[: len(PROCESSES)] == (
        1, "h", 42, None, None, 2, WALL_OFFSET_NS, WALL_OFFSET_NS + 5_000, False, 1, 2, 3, 60, 0.1,
    )  # fmt: skip
    assert table["evicted"].to_list() == [6]


def test_a_wall_clock_that_is_stepped_does_not_move_ranges(run: Path) -> None:
    hour = 3_600_000_000_000
    anchors = (anchor(0), anchor(10**9), anchor(2 * 10**9, offset_ns=WALL_OFFSET_NS + hour))
    ProcessFiles(run, anchors=anchors).seal(BankFiles().range("a", 10, 20).range("b", 3 * 10**9, 3 * 10**9 + 1))

    assert open_run(run).ranges()["start_ns"].to_list() == [WALL_OFFSET_NS + 10, WALL_OFFSET_NS + 3 * 10**9]


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_host_whose_wall_clock_is_wrong_is_read_by_that_of_the_others(run: Path, hosts: int) -> None:
    """As whoever judged the job has found; of one host alone nothing is wrong."""
    for rank in range(hosts):
        process = ProcessFiles(run, rank + 1, rank=rank, host=f"h{rank}", boot=f"boot {rank}")
        process.seal(BankFiles().range("a", 10, 15))
    (run / layout.VERDICTS).mkdir()
    job_file.write_state(run, RUN_ID, JobState(clocks={"boot 0": 7000}))

    begins = open_run(run).ranges().sort("rank")["start_ns"].to_list()
    assert begins == [10 + (7000 if hosts == 2 else WALL_OFFSET_NS), 10 + WALL_OFFSET_NS][:hosts]


def test_a_part_of_a_job_has_the_times_that_it_has_in_all_of_it(run: Path) -> None:
    """The ranks of the host whose wall clock is wrong are no job of one host."""
    for rank in range(2):
        process = ProcessFiles(run, rank + 1, rank=rank, host=f"h{rank}", boot=f"boot {rank}")
        process.seal(BankFiles().range("a", 10, 15))
    (run / layout.VERDICTS).mkdir()
    job_file.write_state(run, RUN_ID, JobState(hosts=2, clocks={"boot 0": 7000}))

    assert open_run(run, ranks=0).ranges()["start_ns"].to_list() == [7010]


def test_processes_of_one_kernel_share_their_offset(run: Path) -> None:
    first = ProcessFiles(run, 1, rank=0, anchors=(anchor(0), anchor(1), anchor(2)))
    second = ProcessFiles(run, 2, rank=1, anchors=(anchor(0, offset_ns=WALL_OFFSET_NS + 900),))
    first.seal(BankFiles().range("a", 5, 6))
    second.seal(BankFiles().range("a", 5, 6))

    assert open_run(run).ranges()["start_ns"].to_list() == [WALL_OFFSET_NS + 5] * 2


def test_a_run_without_processes_has_empty_tables_with_all_columns(run: Path) -> None:
    opened = open_run(run)

    assert opened.ranges().columns == RANGES
    assert opened.marks().columns == MARKS
    assert opened.stages().columns == STAGES
    assert opened.processes().columns[: len(PROCESSES)] == PROCESSES
    assert opened.escalations().columns == ESCALATIONS
    assert opened.ranges().height + opened.marks().height + opened.stages().height + opened.processes().height == 0


def test_tables_have_the_same_types_with_and_without_rows(run: Path, tmp_path: Path) -> None:
    other = new_run(tmp_path / "other")
    ProcessFiles(other).seal(BankFiles().range("a", 0, 1, stage="s", own=True, step=1, n=1, busy=1).mark("m", 3))
    empty, full = open_run(run), open_run(other)

    for table in ("ranges", "marks", "stages", "processes"):
        assert getattr(empty, table)().schema == getattr(full, table)().schema, table


def test_batches_give_what_the_tables_give(run: Path) -> None:
    bank = BankFiles()
    for i in range(50):
        bank.range(f"r{i}", i, i + 1).mark(f"m{i}", i)
    process = ProcessFiles(run)
    process.seal(bank, ended=None)
    process.seal(*(BankFiles(seq).range(f"b{seq}", 0, 1) for seq in range(2, 40)))
    opened = open_run(run)

    pieces = list(opened.batches(rows=16))

    assert len(pieces) > 3
    assert pl.concat([r["name"].cast(pl.String) for r, _ in pieces]).to_list() == opened.ranges()["name"].to_list()
    assert sum(m.height for _, m in pieces) == 50


def test_the_run_folder_may_be_given_through_a_link(run: Path, tmp_path: Path) -> None:
    ProcessFiles(run).seal(BankFiles().range("a", 0, 1))
    (tmp_path / "link").symlink_to(run)

    assert names(tmp_path / "link") == ["a"]


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("x")])
def test_what_is_no_run_is_refused_with_its_path(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "no run"
    make(path)

    with pytest.raises(ReadError, match="no run"):
        open_run(path)


def test_without_polars_the_error_says_what_to_install(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)

    with pytest.raises(MstxkitError, match=r"pip install 'mstxkit\[report\]'"):
        open_run(run)


@pytest.mark.parametrize(
    ("offset", "change", "is_the_same"),
    [(0, 1, False), (16, 1, False), (32, 1, False), (32, -1, True), (40, 1, True)],
    ids=["another bank", "another salt", "a count of what it held before", "records since", "texts since"],
)
def test_a_bank_that_changed_hands_while_it_was_copied_is_not_taken(
    run: Path, offset: int, change: int, is_the_same: bool
) -> None:
    """The copy has no order on aarch64: its head may be of two banks, one after the other in the same place."""
    path = ProcessFiles(run).live(BankFiles(7).range("a", 1, 2).range("b", 3, 4))
    data = bytearray(path.read_bytes())
    at = livefile.read_header(data).layout.bank_at(0)
    (value,) = struct.unpack_from("<Q", data, at + offset)
    struct.pack_into("<Q", data, at + offset, value + change)

    with path.open("rb") as stream:
        assert live._is_still_the_same(data, stream.fileno(), at) is is_the_same
    path.write_bytes(b"")
    with path.open("rb") as stream:
        assert not live._is_still_the_same(data, stream.fileno(), at)


@pytest.mark.parametrize(
    ("copied", "now", "second", "seen"),
    [
        (BankFiles(4).range("a", 1, 2), BankFiles(4).range("a", 1, 2).range("b", 2, 3), 5, ["a", "b", "z"]),
        (BankFiles(1).range("a", 1, 2), BankFiles(4).range("b", 2, 3), 5, ["b", "z"]),  # "a" is sealed by now
        (BankFiles(4).range("a", 1, 2), BankFiles(6).range("b", 9, 9), 5, ["z"]),
    ],
    ids=["it grew", "it was sealed and taken again", "it was taken again after all that was copied"],
)
def test_a_copy_holds_what_was_recorded_up_to_a_moment(
    run: Path, monkeypatch: pytest.MonkeyPatch, copied: BankFiles, now: BankFiles, second: int, seen: list[str]
) -> None:
    """The first bank goes on being written while the second is copied: whoever sees "z" sees what ended before it."""
    last = BankFiles(second).range("z", 4, 5)
    earlier = ProcessFiles(run).live(copied, last, pointer=alive()).read_bytes()
    ProcessFiles(run).live(now, last, pointer=alive())
    read_part = documents.read_part
    copies = [earlier]

    def copy_the_file_while_it_is_written(fd: int, offset: int, size: int) -> bytes:
        return copies.pop() if size == live.LIMIT_BYTES and copies else read_part(fd, offset, size)

    monkeypatch.setattr(live.documents, "read_part", copy_the_file_while_it_is_written)

    assert names(run) == seen and not copies


def test_processes_of_a_rank_stand_in_the_order_in_which_they_were_started() -> None:
    """Not by pid, whose numbers begin anew after 32,768 processes, or 4 million; nor as they began to record.

    The kernel tells when, in ticks: those of one tick by pid.
    """
    processes = Processes()
    for pid, ticks, start in ((301, 90, "18a2"), (300, 90, "18a4"), (32_000, 80, "18a3")):
        identity = {"host": "a", "pid": pid, "pid_start": ticks, "start": start}
        processes.of(identity, "").identity.update(identity)

    assert [process.pid for process in processes.ordered()] == [32_000, 300, 301]
