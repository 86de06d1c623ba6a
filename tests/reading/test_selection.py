"""What is asked for of a run is what a filter of the whole run gives; what is not asked for is not read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.run_files import BankFiles, ProcessFiles, Slot, new_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.errors import ReadError  # noqa: E402
from mstxkit.reading import places  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.reading.selection import make_selection  # noqa: E402
from mstxkit.store import segment  # noqa: E402

BANKS, ROWS = 4, 6
_settings = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def bank(number: int) -> BankFiles:
    """Six ranges in two steps and two stages, one after the other, and a mark."""
    made = BankFiles(number, origin=number * 1000)
    for place in range(ROWS):
        begin, step = number * 1000 + place * 100, 2 * number + place // 3
        stage = ("actor_update", "reward", None)[place % 3]
        made.range(f"r{place}", begin, begin + 50, stage=stage, own=stage is not None, step=step, tokens=place)
    return made.mark("done", number * 1000 + 700, step=2 * number + 1)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four ranks: sealed with an index, without one, of the first version, and a live one."""
    folder = new_run(tmp_path / "run")
    banks = [bank(number) for number in range(1, BANKS + 1)]
    ProcessFiles(folder, 100, rank=0).seal_indexed(*banks)
    ProcessFiles(folder, 101, rank=1).seal_indexed(*banks, ended=None, index_at=(1, 2))
    ProcessFiles(folder, 102, rank=2).seal(*banks)
    slot = Slot(9_000, banks[-1].site("open", "default"), 0, 9, 0, 0, 77)
    ProcessFiles(folder, 103, rank=3).live(*banks[-2:], slots=(slot,))
    return folder


def of(frame: pl.DataFrame, **asked: Any) -> pl.DataFrame:
    """A filter of the whole table."""
    at = pl.col("start_ns" if "start_ns" in frame.columns else "time_ns")
    end = at + (pl.col("duration_ns").fill_null(1 << 60) if "duration_ns" in frame.columns else 0)
    for name, value in asked.items():
        if value is None:
            continue
        frame = frame.filter({
            "ranks": lambda v: pl.col("rank").is_in(list(v)), "steps": lambda v: pl.col("step").is_in(list(v)),
            "stages": lambda v: pl.col("stage").is_in(list(v)), "since": lambda v: end >= v, "until": lambda v: at < v,
        }[name](value))  # fmt: skip
    return frame


def some(values: Any) -> Any:
    return st.none() | st.sets(values, max_size=3)


_moments = st.none() | st.integers(0, 6_000)


@_settings
@given(
    ranks=some(st.integers(0, 4)), steps=some(st.integers(0, 11)),
    stages=some(st.sampled_from(["actor_update", "reward"])), since=_moments, until=_moments,
)  # fmt: skip
def test_what_is_asked_for_is_what_a_filter_gives(run: Path, **asked: Any) -> None:
    whole = open_run(run)
    start = whole.ranges()["start_ns"].min()
    for name in ("since", "until"):
        asked[name] = None if asked[name] is None else start + asked[name]
    part = open_run(run, **asked)

    assert part.ranges().rows() == of(whole.ranges(), **asked).rows()
    assert part.marks().rows() == of(whole.marks(), **asked).rows()
    batches = [ranges.drop("process", "is_stage") for ranges, _ in part.batches(rows=5)]
    assert pl.concat(batches).rows() == part.ranges().rows()
    backwards = [ranges.drop("process", "is_stage") for ranges, _ in part.batches(rows=5, backwards=True)]
    assert sorted(map(str, pl.concat(backwards).rows())) == sorted(map(str, part.ranges().rows()))
    assert part.damage == []


def test_small_blocks_that_are_decoded_together_are_what_each_is_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one of them is damaged, or has other texts."""
    run = new_run(tmp_path / "run")
    banks = [bank(number) for number in range(1, 9)]
    banks[3] = BankFiles(4, origin=4000).range("of other texts", 4100, 4200, step=9, tokens=5)
    ProcessFiles(run, 100, rank=0).seal_indexed(*banks)
    ProcessFiles(run, 101, rank=1).seal(*banks)
    file = next((run / "sealed").glob("*-101-*"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)

    def tables() -> list[Any]:
        opened = open_run(run)
        asked = open_run(run, stages=["reward"])
        ranges = opened.ranges(attributes=["tokens"])
        return [ranges.rows(), opened.stages().rows(), asked.ranges().rows(), opened.marks().rows(), opened.damage]

    together = tables()
    monkeypatch.setattr("mstxkit.reading.rows._ROWS_TOGETHER", 0)
    assert together == tables()
    assert together[4] and len(together[0]) > 60


def test_only_processes_of_these_ranks_are_there(run: Path) -> None:
    assert open_run(run, ranks=[1, 3, 77]).processes()["rank"].to_list() == [1, 3]
    assert open_run(run, ranks=1).processes()["rank"].to_list() == [1]
    assert open_run(run, ranks=[]).processes().height == 0


def test_a_stage_is_asked_for_by_any_of_its_names(run: Path) -> None:
    assert open_run(run, stages="update_actor").ranges()["stage"].unique().to_list() == ["actor_update"]


def test_a_time_may_be_a_datetime(run: Path) -> None:
    start = open_run(run).ranges()["start_ns"].min()
    moment = datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=start // 1000 + 3)

    assert (
        open_run(run, since=moment).ranges().rows() == open_run(run, since=start // 1000 * 1000 + 3000).ranges().rows()
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"ranks": "3"}, {"ranks": -1}, {"ranks": [1.5]}, {"ranks": True}, {"steps": [1 << 32]}, {"steps": 1.5},
        {"since": 1.5}, {"until": datetime(2026, 1, 1)}, {"since": "now"}, {"stages": [3]},
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_asked_for_is_refused_and_says_what_can(run: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(ReadError, match=f"open_run.{next(iter(asked))}"):
        open_run(run, **asked)


def test_what_an_index_excludes_is_not_read(run: Path) -> None:
    (path,) = (run / "sealed").glob("*-100-*")
    data = bytearray(path.read_bytes())
    heads = [block for block in segment.scan_blocks(bytes(data)) if isinstance(block, segment.Block)]
    data[heads[0].payload_at + 5] ^= 1  # of bank 1: steps 2 and 3
    path.write_bytes(data)
    without, with_it = open_run(run, steps=range(4, 99)), open_run(run, steps=[3])

    assert without.ranges().filter(pl.col("rank") == 0).height == 6 * 3
    assert without.damage == []
    assert with_it.ranges().filter(pl.col("rank") == 0).height == 0
    assert [part.reason for part in with_it.damage] == [segment.NO_MATCH]


def test_which_steps_and_stages_a_live_run_has_is_told_by_indexes_and_live_banks(tmp_path: Path) -> None:
    """A block that tells is not read: not one that is damaged, either."""
    process = ProcessFiles(new_run(tmp_path / "run"), 100, rank=0)
    path = process.seal_indexed(bank(1), ended=None)
    data = bytearray(path.read_bytes())
    first = next(block for block in segment.scan_blocks(bytes(data)) if isinstance(block, segment.Block))
    data[first.payload_at + 5] ^= 1
    path.write_bytes(data)
    live = BankFiles(2, origin=2000).range("r", 2000, 2050, stage="rollout", own=True, step=7).range("r", 2060, 2070)
    site, stage = live.site("open"), live.stage("save")
    process.live(live, slots=(Slot(site=site, stage=stage, start=2100, track=0, step=9, depth=0, thread=0),))

    opened = open_run(tmp_path / "run")

    assert opened.files.reach() == (2, 9, {"actor_update", "reward", "rollout", "save"})
    assert opened.damage == []


def test_files_of_other_ranks_are_not_opened_but_for_their_newest(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = ProcessFiles(run, 104, rank=4)
    for number in (1, 2, 3):
        process.seal_indexed(bank(number), ended="exit" if number == 3 else None)
    opened: list[str] = []
    real = places.SealedFolder.opened
    monkeypatch.setattr(
        places.SealedFolder, "opened", lambda folder, name: (opened.append(name), real(folder, name))[1]
    )
    open_run(run, ranks=0).ranges()

    assert [name[-8:-4] for name in opened if "-104-" in name] == ["0002"]


def test_several_files_of_a_process_are_read_in_their_order(tmp_path: Path) -> None:
    process = ProcessFiles(new_run(tmp_path / "run"))
    for number in range(1, BANKS + 1):
        process.seal_indexed(bank(number), ended="exit" if number == BANKS else None)
    starts = open_run(tmp_path / "run").ranges()["start_ns"].to_list()

    assert starts == sorted(starts) and len(starts) == BANKS * ROWS


@pytest.mark.parametrize("index_at", [(), (1,), (1, 3), (4, 5)])
def test_an_index_tells_what_going_through_the_file_tells(tmp_path: Path, index_at: tuple[int, ...]) -> None:
    banks = [bank(number) for number in range(1, BANKS + 1)]
    with_index, without = new_run(tmp_path / "with"), new_run(tmp_path / "without")
    ProcessFiles(with_index, 100, error="ValueError: x").seal_indexed(*banks, index_at=index_at)
    ProcessFiles(without, 100, error="ValueError: x").seal(*banks)
    found, expected = open_run(with_index), open_run(without)

    for table in ("ranges", "marks", "stages", "processes", "tracks", "open_ranges", "occurrences"):
        assert getattr(found, table)().rows() == getattr(expected, table)().rows(), table
    assert found.damage == expected.damage == []


def test_no_flipped_bit_of_an_indexed_file_is_shown_as_good(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    path = ProcessFiles(run, 100).seal_indexed(bank(1), bank(2))
    whole, good = path.read_bytes(), set(open_run(run).ranges().rows())
    about = open_run(run).processes().rows()

    apart = soak.rounds(7, 21)
    for offset in range(soak.seed() % apart, len(whole), apart):
        altered = bytearray(whole)
        altered[offset] ^= 1 << offset % 8
        path.write_bytes(altered)
        opened = open_run(run)
        rows = set(opened.ranges().rows())

        assert rows <= good, offset
        assert rows == good or opened.damage, offset
        assert opened.damage or opened.processes().rows() == about, offset


def test_attributes_become_columns_with_types(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    made = BankFiles(1)
    made.range("a", 0, 10, tokens=5, ratio=0.5, who="x", ok=True, mixed=1, beside=2, gone=None)
    made.range("b", 20, 30, tokens=-7, ratio=3, who="résumé", mixed="one", beside=0.5)
    made.range("c", 40, 50)
    ProcessFiles(run).seal(made)
    names = ["tokens", "ratio", "who", "ok", "mixed", "beside", "gone", "never"]
    found = open_run(run).ranges(attributes=names)

    assert found.columns[-len(names) :] == names
    assert [found[name].to_list() for name in names] == [
        [5, -7, None], [0.5, 3.0, None], ["x", "résumé", None], [True, None, None], ["1", "one", None],
        [2.0, 0.5, None], [None] * 3, [None] * 3,
    ]  # fmt: skip
    kinds = (pl.Int64, pl.Float64, pl.String, pl.Boolean, pl.String, pl.Float64)
    assert [found[name].dtype for name in names[:6]] == list(kinds)
    assert found["attributes"].to_list() == open_run(run).ranges()["attributes"].to_list()
    assert "attributes" not in open_run(run).ranges(attributes=False).columns
    assert open_run(run).marks(attributes=False).height == 0


def test_one_name_is_no_list_of_names_and_a_column_is_none(run: Path) -> None:
    with pytest.raises(ReadError, match=r"attributes=\['tokens'\]"):
        open_run(run).ranges(attributes="tokens")
    with pytest.raises(ReadError, match="is a column already"):
        open_run(run).ranges(attributes=["stage"])


def test_rows_of_a_table_are_chosen_by_any_name_of_their_stage() -> None:
    """A device's profile has the framework's own name."""
    rows = {"rank": [0, 1, 0, 0], "step": [1, 1, 2, 1], "stage": ["update_actor", "update_actor", "actor_update", None]}
    chosen = make_selection(0, None, None, None, "update_actor").of_table(pl.DataFrame(rows))

    assert chosen.rows() == [(0, 1, "update_actor"), (0, 2, "actor_update")]
