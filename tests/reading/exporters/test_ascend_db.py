"""Databases for MindStudio Insight and msprof-analyze: one a rank, with all that these tools need, and nothing that
makes them fail.
"""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from builders import msprof_analyze, profiler_database, soak
from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles, anchor

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.errors import MstxkitError  # noqa: E402
from mstxkit.reading.exporters import load_exporter  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402

pytestmark = pytest.mark.days("even")

UNUSED = 4294967295
STAGES = ("actor_generate", "reward", "actor_update")


def exported(run: Path, **options: str) -> Path:
    """The folder of an export."""
    folder = run.parent / f"out{len(list(run.parent.glob('out*')))}"
    folder.mkdir()
    load_exporter("ascend-db").write(open_run(run), folder, **options)
    return folder


def ask(file: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as base:
        return base.execute(query).fetchall()


def of_rank(folder: Path, rank: int) -> Path:
    (file,) = folder.glob(f"msmonitor_*_{rank}.db")
    return file


def ranges_in(file: Path) -> list[Any]:
    return ask(
        file,
        "select t.value, startNs, endNs, eventType from MSTX_EVENTS join STRING_IDS t on t.id = message order by 2, 1",
    )


def steps_of(run: Path, ranks: int = 3, steps: int = 3) -> Path:
    """Stages, with a range inside of each; rank 2 is slow in its first."""
    for rank in range(ranks):
        bank, at = BankFiles().track(0, 100 + rank, False, "MainThread"), 1_000
        for step in range(1, steps + 1):
            for place, stage in enumerate(STAGES):
                lasts = (
                    1_000_000 * (place + 1) + 1_000 * rank + 700 * step + (500_000 if (rank, place) == (2, 0) else 0)
                )
                bank.range("inside", at + 10, at + 20 + rank, stage=stage, step=step, depth=1)
                bank.range(stage, at, at + lasts, stage=stage, own=True, step=step, domain="rl")
                at += lasts + 5_000
        ProcessFiles(run, 100 + rank, rank=rank, role="actor").seal_indexed(bank)
    return run


def test_a_rank_is_a_file_named_as_msmonitor_names_its_own(run: Path) -> None:
    folder = exported(steps_of(run))

    assert {path.name.split("_")[-1] for path in folder.glob("msmonitor_10?_20?????????????0?_?.db")} == {
        "0.db", "1.db", "2.db",
    }  # fmt: skip


def test_ranges_have_their_times_and_connections_of_their_own(run: Path) -> None:
    file = of_rank(exported(steps_of(run, steps=1)), 0)

    rows = ask(file, "select connectionId, eventType, rangeId, category, globalTid, endGlobalTid from MSTX_EVENTS")

    assert len({row[0] for row in rows}) == len(rows) == 6
    assert UNUSED not in {row[0] for row in rows}
    assert {row[1:] for row in rows} == {(2, UNUSED, UNUSED, 100 << 32 | 100, 100 << 32 | 100)}
    assert ranges_in(file)[0] == ("generate_sequences", WALL_OFFSET_NS + 1_000, WALL_OFFSET_NS + 1_001_700, 2)


def test_of_many_ranges_each_has_what_belongs_to_it(run: Path) -> None:
    """They are inserted a hundred at once, and the rest one by one."""
    bank = BankFiles().track(0, 7, False, "MainThread").track(1, 8, False, "other")
    rows = [(f"r{n % 5}", n * 10, n * 10 + n % 9, n % 2) for n in range(257)]
    for name, begin, end, track in rows:
        bank.range(name, begin, end, track=track, domain=f"d{track}")
    ProcessFiles(run, 100, rank=0).seal(bank)

    query = """select n.value, startNs, endNs, globalTid, endGlobalTid, d.value, connectionId from MSTX_EVENTS
        join STRING_IDS n on n.id = message join STRING_IDS d on d.id = domainId order by startNs"""
    read = ask(of_rank(exported(run), 0), query)

    at, threads = WALL_OFFSET_NS, (100 << 32 | 7, 100 << 32 | 8)
    assert [row[:6] for row in read] == [
        (name, at + begin, at + end, threads[track], threads[track], f"d{track}") for name, begin, end, track in rows
    ]
    assert len({row[6] for row in read}) == 257


def test_every_table_that_the_tools_ask_for_is_there_and_no_task(run: Path) -> None:
    file = of_rank(exported(steps_of(run)), 1)

    tables = {name for (name,) in ask(file, "select name from sqlite_master")}

    assert tables == {
        "STRING_IDS", "MSTX_EVENTS", "ENUM_MSTX_EVENT_TYPE", "SESSION_TIME_INFO", "HOST_INFO", "NPU_INFO",
        "RANK_DEVICE_MAP", "META_DATA", "STEP_TIME",
    }  # fmt: skip
    assert ask(file, "select * from RANK_DEVICE_MAP") == [(1, 1)]
    assert ("SCHEMA_VERSION", "1.2.0") in ask(file, "select * from META_DATA")
    assert ask(file, "pragma journal_mode") == [("delete",)]


def test_steps_follow_each_other_without_a_gap(run: Path) -> None:
    file = of_rank(exported(steps_of(run)), 0)

    steps = ask(file, "select id, startNs, endNs from STEP_TIME order by startNs")

    assert [step for step, _, _ in steps] == [1, 2, 3]
    assert all(end + 1 == begin for (_, _, end), (_, begin, _) in zip(steps, steps[1:]))


def started_anew(run: Path, rank: int = 0) -> None:
    """Steps 1 to 4, killed, and on from step 3; in each a range inside of one of the same name."""
    for attempt, steps in enumerate((range(1, 5), range(3, 7))):
        bank, begin = BankFiles(), attempt * 20_000
        for step in steps:
            at = begin + step * 1_000
            bank.range("update", at + 10, at + 100 + step + rank, stage="update", step=step, depth=1)
            bank.range("update", at, at + 500 + rank, stage="update", own=True, step=step)
        anchors = (anchor(begin), anchor(begin + 10_000))
        start = {"restart": attempt, "job": f"job {attempt}", "start_ns": WALL_OFFSET_NS + begin}
        pid = 100 + 10 * rank + attempt
        ProcessFiles(run, pid, rank=rank, anchors=anchors, start=f"{attempt}eed", **start).seal_indexed(bank)


def test_steps_of_a_job_that_was_started_anew_are_those_of_the_last_attempt_that_has_them(run: Path) -> None:
    """Each attempt ends a step of 1000 ns with its last range."""
    started_anew(run)

    windows = ask(of_rank(exported(run), 0), "select id, startNs, endNs from STEP_TIME order by startNs")

    begun = {1: 1_000, 2: 2_000, 3: 23_000, 4: 24_000, 5: 25_000, 6: 26_000}
    ended = {1: 1_999, 2: 2_999, 3: 23_999, 4: 24_999, 5: 25_999, 6: 26_500}
    assert [(step, begin - WALL_OFFSET_NS, end - WALL_OFFSET_NS) for step, begin, end in windows] == [
        (step, begun[step], ended[step]) for step in begun
    ]


def test_two_roles_with_one_rank_get_numbers_of_their_own(run: Path) -> None:
    for pid, role in ((1, "actor"), (2, "rollout")):
        ProcessFiles(run, pid, rank=0, role=role).seal(BankFiles().range(role, 0, 5))
    ProcessFiles(run, 3, rank=0, under="dataloader", part="dataloader 0").seal(BankFiles().range("fetch", 0, 5))

    folder = exported(run)

    with open(folder / "ranks.csv", newline="") as file:
        whose = {(row["file_rank"], row["label"]) for row in csv.DictReader(file)}
    assert whose == {("0", "rank 0 actor"), ("1", "rank 0 rollout"), ("0", "rank 0 dataloader 0")}
    assert [name for name, *_ in ranges_in(of_rank(folder, 0))] == ["actor", "fetch"]
    assert ask(of_rank(folder, 1), "select hostName from HOST_INFO")[0][0].endswith("-rollout")


@pytest.mark.parametrize(
    ("first", "second"),
    [("actor", "rollout"), ("trainer", "rollouter"), ("actor_rollout_ref", "vllm"), (None, "rollout")],
)
@pytest.mark.parametrize("pids", [(1, 2, 3, 4), (3, 4, 1, 2), (1, 4, 3, 2)])
def test_a_trainer_keeps_its_numbers_and_all_ranks_of_a_rollout_get_higher_ones(
    run: Path, first: str | None, second: str, pids: tuple[int, ...]
) -> None:
    for place, pid in enumerate(pids):
        role = first if place < 2 else second
        ProcessFiles(run, pid, rank=place % 2, role=role).seal(BankFiles().range("r", 0, 5))

    with open(exported(run) / "ranks.csv", newline="") as file:
        whose = [(row["role"], row["rank"]) for row in csv.DictReader(file)]

    assert whose == [(first or "", "0"), (first or "", "1"), (second, "0"), (second, "1")]


def test_no_role_is_a_formula_for_who_opens_the_table_of_ranks_in_a_spreadsheet(run: Path) -> None:
    ProcessFiles(run, 1, rank=0, role="=cmd|' /C calc'!A0").seal(BankFiles().range("r", 0, 5))

    with open(exported(run) / "ranks.csv", newline="") as file:
        assert [row["role"][:5] for row in csv.DictReader(file)] == ["'=cmd"]


def test_a_role_of_which_some_ranks_are_taken_gets_new_numbers_for_all(run: Path) -> None:
    for pid, (role, rank) in enumerate([("trainer", 0), ("rollout", 0), ("rollout", 1), ("reward", 7)]):
        ProcessFiles(run, 10 + pid, rank=rank, role=role).seal(BankFiles().range("r", 0, 5))

    with open(exported(run) / "ranks.csv", newline="") as file:
        numbers = {(row["role"], row["rank"]): int(row["file_rank"]) for row in csv.DictReader(file)}

    assert numbers == {("trainer", "0"): 0, ("reward", "7"): 7, ("rollout", "0"): 8, ("rollout", "1"): 9}


def test_what_has_no_rank_is_rank_minus_one(run: Path) -> None:
    for pid in (1, 2):
        ProcessFiles(run, pid, rank=None).seal(BankFiles().range(f"by {pid}", 0, 5))

    assert [name for name, *_ in ranges_in(of_rank(exported(run), -1))] == ["by 1", "by 2"]


def test_a_rank_that_two_hosts_have_is_one_file_with_threads_of_its_own_for_each(run: Path) -> None:
    for host in ("a", "b"):
        ProcessFiles(run, 7, rank=0, host=host).seal(BankFiles().track(0, 7).range(host, 0, 5))

    file = of_rank(exported(run), 0)

    assert [name for name, *_ in ranges_in(file)] == ["a", "b"]
    assert len(ask(file, "select distinct globalTid from MSTX_EVENTS")) == 2


def test_an_open_range_is_a_mark_where_it_began(run: Path) -> None:
    ProcessFiles(run, 1).seal(
        BankFiles().range("r", 0, 5), inside=[{"name": "fatal", "domain": "d", "start": 7}], ended="killed"
    )

    assert ranges_in(of_rank(exported(run), 0)) == [
        ("r", WALL_OFFSET_NS, WALL_OFFSET_NS + 5, 2), ("open: fatal", WALL_OFFSET_NS + 7, WALL_OFFSET_NS + 7, 3),
    ]  # fmt: skip


def test_a_rank_without_a_range_has_empty_tables(run: Path) -> None:
    """Where one rank has no table of ranges, msprof-analyze reads none of any rank."""
    ProcessFiles(run, 1).seal(BankFiles())

    assert ranges_in(of_rank(exported(run), 0)) == []


def test_a_rank_without_a_range_does_not_begin_the_time_of_all_in_1970(run: Path) -> None:
    """Insight's zero is the earliest begin that any rank's file says of its session."""
    ProcessFiles(run, 1, rank=None).seal(BankFiles())
    ProcessFiles(run, 2, rank=0).seal(BankFiles().range("r", 5_000, 6_000))
    ProcessFiles(run, 3, rank=1).seal(BankFiles(), inside=[{"name": "hung", "domain": "d", "start": 4_000}])

    folder = exported(run)

    sessions = [ask(of_rank(folder, rank), "select * from SESSION_TIME_INFO") for rank in (-1, 0, 1)]
    first, last = WALL_OFFSET_NS + 4_000, WALL_OFFSET_NS + 6_000
    assert sessions == [[(first, first)], [(first + 1_000, last)], [(first, first)]]


def test_ranks_without_any_range_begin_with_their_processes(run: Path) -> None:
    ProcessFiles(run, 1, start_ns=WALL_OFFSET_NS).seal(BankFiles())

    assert ask(of_rank(exported(run), 0), "select startTimeNs from SESSION_TIME_INFO") == [(WALL_OFFSET_NS,)]


def test_a_run_of_nothing_is_no_error(run: Path) -> None:
    assert sorted(path.name for path in exported(run).iterdir()) == ["RLMstxConfig.json", "ranks.csv"]


@pytest.mark.parametrize(
    "name",
    [
        "<img src=x>",
        "'); drop table STRING_IDS; --",
        "\x1b[31m",
        "a\0b",
        "\u202eright",
        "更新 🚀",
        "\udc80",
        "x" * 9999,
    ],
)
def test_any_name_is_text_of_bounded_length_in_utf8(run: Path, name: str) -> None:
    ProcessFiles(run, 1, role=name).seal(BankFiles().range(name, 0, 5, stage="s", own=True))

    ((written, *_),) = ranges_in(of_rank(exported(run), 0))

    assert len(written.encode()) <= 4096
    assert "\0" not in written


def test_stages_that_insight_knows_have_its_names_and_others_are_in_its_table(run: Path) -> None:
    folder = exported(steps_of(run))

    tables = rl_tables(folder)
    assert tables["mstxkit"] == {"reward": ("Reward", []), **tables["verl"]}
    assert {name for name, *_ in ranges_in(of_rank(folder, 0))} == {
        "generate_sequences", "reward", "update_actor", "inside",
    }  # fmt: skip


def rl_tables(folder: Path) -> dict[str, dict[str, tuple[str, list[Any]]]]:
    """Of each framework its tasks, in order: role and micro-batches."""
    config = json.loads((folder / "RLMstxConfig.json").read_text())["config"]
    return {
        table["framework"]: {task["taskName"]: (task["roleName"], task["microBatches"]) for task in table["tasks"]}
        for table in config
    }


def test_the_table_for_insight_holds_its_built_in_one_with_roles_and_micro_batches(run: Path) -> None:
    """Source: msinsight 4e16fca1f: all tasks have those of Megatron, but generation in verl has none."""
    batches = [{"name": "TransformerBlock", "type": "FP"}, {"name": "TransformerLayer", "type": "BP"}]
    built_in = {
        "verl": {
            "generate_sequences": ("ActorRollout", []), "compute_log_prob": ("Reward", batches),
            "update_actor": ("Actor", batches), "compute_ref_log_prob": ("Reference", batches),
        },
        "MindSpeed-RL": {
            "ActorHybridWorkerBase.generate_sequences": ("ActorRollout", batches),
            "IntegratedWorker.compute_ref_log_prob": ("Reference", batches),
            "ActorRolloutHybrid.update_actor": ("Actor", batches), "Reward.compute_rm_score": ("Reward", batches),
        },
    }  # fmt: skip

    tables = rl_tables(exported(steps_of(run)))

    assert list(tables) == ["mstxkit", "verl", "MindSpeed-RL"]
    assert {name: tables[name] for name in built_in} == built_in


def test_a_run_whose_stages_insight_knows_needs_no_table_of_its_own(run: Path) -> None:
    bank = BankFiles().range("gen", 0, 5, stage="actor_generate", own=True)
    ProcessFiles(run, 1).seal(bank)

    assert list(rl_tables(exported(run))) == ["verl", "MindSpeed-RL"]


def test_a_run_of_mindspeed_rl_has_the_names_that_insight_knows_it_by(run: Path, monkeypatch: Any) -> None:
    from mstxkit.reading.run import Run

    patched = pl.DataFrame({"framework": ["mindspeed_rl"], "state": ["applied"]})
    monkeypatch.setattr(Run, "patches", lambda self: patched)

    folder = exported(steps_of(run))

    assert "ActorHybridWorkerBase.generate_sequences" in {name for name, *_ in ranges_in(of_rank(folder, 0))}


def test_what_a_controller_waits_for_keeps_its_own_name(run: Path) -> None:
    bank = BankFiles().range("gen", 0, 5, stage="actor_generate", own=True, waits_for="workers")
    ProcessFiles(run, 1, rank=None).seal(bank)

    assert [name for name, *_ in ranges_in(of_rank(exported(run), -1))] == ["gen"]


def test_the_layout_of_torch_npu_says_the_rank_in_each_place(run: Path) -> None:
    ProcessFiles(run, 9, rank=None).seal(BankFiles().range("r", 0, 5))

    folder = exported(steps_of(run, ranks=1), layout="torch-npu")

    databases = sorted(path.name for path in folder.glob("*_ascend_pt/ASCEND_PROFILER_OUTPUT/*.db"))
    assert databases == ["ascend_pytorch_profiler.db", "ascend_pytorch_profiler_0.db"]
    assert len(list(folder.glob("*_ascend_pt/profiler_info_0.json"))) == 1
    assert {json.loads(path.read_text())["role"] for path in folder.glob("*/profiler_metadata.json")} == {None, "actor"}


def test_an_unknown_layout_is_refused_with_those_there_are(run: Path) -> None:
    with pytest.raises(MstxkitError, match="msmonitor or torch-npu"):
        exported(run, layout="flat")


def profile(tmp_path: Path, rank: int, begin: int, end: int) -> Path:
    """A profile with kernels, from then until then on the run's clock."""
    file = profiler_database.write_database(tmp_path / "host_7_20260101000000000_ascend_pt", rank, 1, [("own", 500)])
    with sqlite3.connect(file) as base:
        base.execute("create table TASK(startNs integer, endNs integer, connectionId integer)")
        base.execute("insert into TASK values (1, 2, 4000000001)")
        base.execute("update SESSION_TIME_INFO set startTimeNs = ?, endTimeNs = ?", (begin, end))
    base.close()
    return file


def test_ranges_join_a_copy_of_a_real_profile_on_its_time_alone(run: Path, tmp_path: Path) -> None:
    steps_of(run)
    begin = WALL_OFFSET_NS + 3_000
    real = profile(tmp_path, 1, begin, begin + 5)
    before = real.read_bytes()

    folder = exported(run, into=str(real))

    (joined,) = folder.glob("*_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_1.db")
    assert real.read_bytes() == before
    assert {name for name, *_ in ranges_in(joined)} == {"own", "generate_sequences"}
    assert ask(joined, "select connectionId, eventType from MSTX_EVENTS order by 1") == [
        (4000000001, 2), (4000000002, 1),
    ]  # fmt: skip
    assert ask(joined, "select * from SESSION_TIME_INFO") == [(begin, begin + 5), (begin - 2_000, begin + 5)]


@pytest.mark.daily(2)
@pytest.mark.parametrize("pandas", soak.sample([2, 3], 1))
def test_mstx_sum_counts_of_a_profile_with_tasks_what_it_counted_before(run: Path, tmp_path: Path, pandas: int) -> None:
    """It fails where a range that it counts has no task, which no added one has; marks are not counted either."""
    ProcessFiles(run, 9, rank=1).seal(BankFiles().range("own", 0, 5).mark("x_start", 1).mark("x_stop", 4))
    real = profile(tmp_path, 1, WALL_OFFSET_NS, WALL_OFFSET_NS + 5)
    with sqlite3.connect(real) as base:
        base.execute("update MSTX_EVENTS set startNs = ?, endNs = ?", (WALL_OFFSET_NS, WALL_OFFSET_NS + 5))
        base.execute("update STEP_TIME set startNs = ?, endNs = ?", (WALL_OFFSET_NS, WALL_OFFSET_NS + 9))
    base.close()

    before = msprof_analyze.mstx_sum(real.parents[1].parent, tmp_path / "before", pandas)
    after = msprof_analyze.mstx_sum(exported(run, into=str(real)), tmp_path / "after", pandas)

    assert after == before == {("own", 1): (1, 5, 5, 5, 1, 1)}


def test_a_profile_of_another_time_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(MstxkitError, match="is it a profile of this run"):
        exported(steps_of(run), into=str(profile(tmp_path, 1, 5, 6)))


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"\xff" * 5000, b"{}"])
def test_what_is_no_profile_is_refused_with_its_path(run: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ascend_pytorch_profiler_0.db").write_bytes(content)

    with pytest.raises(MstxkitError, match=r"ascend_pytorch_profiler_0\.db"):
        exported(steps_of(run), into=str(tmp_path / "ascend_pytorch_profiler_0.db"))


@pytest.mark.parametrize(
    ("layout", "pandas"),
    soak.sample([(layout, pandas) for layout in ("msmonitor", "torch-npu") for pandas in (2, 3)], 1),
)
def test_mstx_sum_counts_each_name_and_step_as_the_run_has_it(
    run: Path, tmp_path: Path, layout: str, pandas: int
) -> None:
    found = msprof_analyze.mstx_sum(exported(steps_of(run), layout=layout), tmp_path, pandas)

    assert {key: value for key, value in found.items() if "::" not in key[0]} == expected(run)
    assert len(found) == 2 * len(expected(run))


@pytest.mark.daily(2)  # it starts msprof-analyze
def test_mstx_sum_counts_a_step_that_was_done_again_once_and_tells_ranges_of_one_name_apart(
    run: Path, tmp_path: Path
) -> None:
    """It calls an inner range by both names. What the killed attempt did of steps 3 and 4 is in no step, its 0."""
    for rank in range(2):
        started_anew(run, rank)

    found = msprof_analyze.mstx_sum(exported(run), tmp_path)

    outer = {("update", step): (2, 500, 501, 1_001, 0, 1) for step in range(1, 7)}
    inner = {("update::update", step): (2, 90 + step, 91 + step, 181 + 2 * step, 0, 1) for step in range(1, 7)}
    again = [(f"update_{place}", (2, 500, 501, 1_001, 0, 1)) for place in range(2)]
    again += [(f"update::update_{place}", (2, 93 + place, 94 + place, 187 + 2 * place, 0, 1)) for place in range(2)]
    assert found == {**outer, **inner, **{(name, 0): figures for name, figures in again}}


def expected(run: Path) -> dict[tuple[str, int], tuple[float, ...]]:
    """The same from the run's own table: each stage is once in a step of a rank."""
    renamed = {"actor_generate": "generate_sequences", "actor_update": "update_actor"}
    sums = {}
    for (stage, step), rows in open_run(run).stages().group_by("stage", "step"):
        by_rank = {row["rank"]: row["total_ns"] for row in rows.to_dicts()}
        slowest, fastest = max(by_rank, key=by_rank.__getitem__), min(by_rank, key=by_rank.__getitem__)
        values = (len(by_rank), by_rank[fastest], by_rank[slowest], sum(by_rank.values()), fastest, slowest)
        sums[renamed.get(str(stage), str(stage)), step] = values
    return sums
