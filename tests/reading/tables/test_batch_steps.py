"""Lateness from what hosts have handed over: rings come before stage entries, in the steps in which they were read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterable

import pytest
from builders.judged import collectives, role_step
from builders.judged_runs import BEHIND, INPUT, MS, recorded, stage_times
from builders.run_files import RUN_ID

np = pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.judging.controller import Controller  # noqa: E402
from mstxkit.judging.evidence import MEET, TAKE  # noqa: E402
from mstxkit.reading.report.units import write_spans  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.reading.tables import batch_steps, lateness  # noqa: E402
from mstxkit.store import batches, layout  # noqa: E402
from mstxkit.store.batches import HandingProcess  # noqa: E402
from mstxkit.store.collectives import CollectiveEntry  # noqa: E402
from mstxkit.store.summaries import StageSummary  # noqa: E402

S = 1_000_000_000
RINGED = range(8, 12)


def hand_over(run: Path, late_rank: int, late_ns: int, ringed: range = RINGED) -> None:
    """One batch of two ranks: actor_update of all steps, and a collective in the middle of it in some."""
    head = {
        "run": RUN_ID, "host": "h", "boot": "b", "sender": "s", "number": 0, "clock": [100 * S, 1000 * S, 0],
        "groups": {"7": {"ranks": "0-1"}},
        "processes": [HandingProcess(rank, f"h-{rank}", rank, stages=("actor_update",)).as_json() for rank in (0, 1)],
    }  # fmt: skip
    sections = []
    for rank in (0, 1):
        stages = [StageSummary(n, 1, 1, n * S, n * S + S // 2, S // 2, None, S // 2) for n in range(1, 20)]
        entered = [n * S + 200 * MS + (late_ns if rank == late_rank else 0) for n in ringed]
        entries = [CollectiveEntry(7, n, at, 0, 1, 0, 4) for n, at in zip(ringed, entered)]
        sections.append((batches.STAGES, rank, b"".join(row.pack() for row in stages)))
        if entries:
            sections.append((batches.COLLECTIVES, rank, b"".join(row.pack() for row in entries)))
    folder = run / layout.SUMMARIES
    folder.mkdir()
    (folder / f"h-00{layout.SUMMARIES_SUFFIX}").write_bytes(batches.encode_batch(head, sections))


def test_in_the_steps_of_a_ring_it_tells_who_is_late_behind_the_barrier(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(BEHIND, steps=20))
    hand_over(run, late_rank=1, late_ns=20 * MS)

    table = open_run(run).lateness()

    ringed = table.filter(pl.col("source") == "flight_recorder")
    assert sorted(ringed["step"].unique()) == list(RINGED)
    assert ringed.filter(pl.col("rank") == 1)["late_ns"].to_list() == pytest.approx([20 * MS] * 4, abs=MS)
    assert set(ringed.filter(pl.col("rank") == 0)["late_ns"]) == {0}
    assert (set(ringed["group"]), set(ringed["stage"])) == ({"0-1"}, {"actor_update"})
    others = table.filter(pl.col("source") == "stage_entry")
    assert sorted(others["step"].unique()) == [step for step in range(20) if step not in RINGED]
    assert table["step"].is_sorted()


def test_the_ranks_of_a_group_are_put_into_words_once_and_not_for_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a group of all 10,240 ranks that took 24 s a step, which grew with their square."""
    run, said = recorded(tmp_path / "run", stage_times(BEHIND, steps=20)), list[object]()
    hand_over(run, late_rank=1, late_ns=20 * MS)

    def counted(ranks: Iterable[int]) -> str:
        said.append(ranks)
        return write_spans(ranks)

    monkeypatch.setattr(lateness, "write_spans", counted)
    table = open_run(run).lateness()

    assert table.filter(pl.col("source") == "flight_recorder").height == 2 * len(RINGED)
    assert said.count((0, 1)) == table["step"].n_unique() == 20


def test_filters_of_the_run_hold_for_rings_too(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT, steps=20))
    hand_over(run, late_rank=0, late_ns=5 * MS)

    some = open_run(run, ranks=0, steps=[9, 15]).lateness().filter(pl.col("source") == "flight_recorder")

    assert some.select("step", "rank", "stage").rows() == [(9, 0, "actor_update")]


def test_batches_that_anybody_wrote_are_no_error(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT, steps=20))
    hand_over(run, late_rank=0, late_ns=5 * MS)
    file = next((run / layout.SUMMARIES).iterdir())
    file.write_bytes(b"MXS1" + file.read_bytes()[:-7])

    assert set(open_run(run).lateness()["source"]) == {"stage_entry"}


@pytest.mark.parametrize(("ringed", "times"), [(RINGED, 1), (range(0), 0)])
def test_what_was_handed_over_is_put_together_once_for_all_tables_and_only_where_a_ring_is_in_it(
    tmp_path: Path, ringed: range, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a long job it is much: what the report needs of it must not cost as much as to judge the job anew."""
    run = recorded(tmp_path / "run", stage_times(BEHIND, steps=20))
    hand_over(run, late_rank=1, late_ns=20 * MS, ringed=ringed)
    put_together: list[Controller] = []

    def noted(*words: Any, **options: Any) -> Controller:
        put_together.append(Controller(*words, **options))
        return put_together[-1]

    monkeypatch.setattr(batch_steps, "Controller", noted)
    opened = open_run(run)
    tables = opened.steps(), opened.lateness(), opened.what_if()

    assert [controller.judge.standing() for controller in put_together] == [[]] * times
    assert tables[0].height == 20 and ("flight_recorder" in tables[1]["source"]) == bool(times)


def test_what_is_taken_does_not_stand_for_collectives_and_is_there_for_who_judges() -> None:
    met = collectives([(0, 7, 1, 0.2, 0.3, 0), (1, 7, 1, 0.3, 0.3, 0)], kind=np.array([MEET, MEET]))
    both = collectives([(0, 7, 1, 0.2, 0.3, 0), (0, 9, 1, 0.1, 0.4, 0)], kind=np.array([MEET, TAKE]))
    taken = collectives([(1, 9, 2, 0.1, 0.4, 0)], kind=np.array([TAKE]))
    steps = [
        role_step(number, ("actor_update",), [[0.0]] * 2, [[1.0]] * 2, collectives=of)
        for number, of in enumerate((met, both, taken))
    ]
    found = {are_taking: batch_steps.pick_waits(steps, are_taking) for are_taking in (False, True)}

    assert {of: [step.step for step in kept] for of, kept in found.items()} == {False: [0, 1], True: [1, 2]}
    assert all(step.collectives is not None and len(step.collectives.member) == 1 for step in found[True])
