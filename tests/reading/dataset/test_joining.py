"""What was compacted comes as it was recorded: in order, whole, and no more of it is read than is asked for."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders import soak
from builders.run_files import RUN_ID, WALL_OFFSET_NS, BankFiles, ProcessFiles, anchor, new_run

pytest.importorskip("polars")

import polars as pl

from mstxkit.reading.dataset import compacting
from mstxkit.reading.dataset.columns import TableFile
from mstxkit.reading.dataset.parts import CompactedParts
from mstxkit.reading.exporters import load_exporter
from mstxkit.reading.rows import Need
from mstxkit.reading.run import open_run
from mstxkit.reading.selection import make_selection
from mstxkit.store import dataset

DAY_NS = 86_400 * 10**9
MIDNIGHT = DAY_NS - WALL_OFFSET_NS % DAY_NS
MINUTE_NS = 60 * 10**9


Recorded = tuple[int, str, int, dict[str, Any]]  # when it ended, its name, when it began (marks: -1), what else


def nested(chance: random.Random, start: int, end: int, depth: int = 0) -> Iterator[Recorded]:
    """A range, in it others and marks; all in the order in which they end. Some begin or end together."""
    at, about = start, {"stage": "actor_update", "step": depth}
    while depth < 4 and at < end and chance.random() < 0.6:
        inner = min(end, at + chance.randrange(1 + (end - at)))
        yield from nested(chance, at, inner, depth + 1)
        at = inner
        if chance.random() < 0.5 and inner + 1 < end:
            yield inner + 1, f"mark {depth}", -1, {**about, "depth": depth + 1}
            at += 2
    more = {"tokens": chance.randrange(9)} if chance.random() < 0.5 else {}
    yield end, f"range {depth}", start, {**about, "depth": depth, **more}


def bank_of(chance: random.Random, seq: int, begin: int) -> BankFiles:
    """Four minutes of two tracks, in the order in which all ended; at no instant something ends on both."""
    bank = BankFiles(seq=seq).track(0, 50, name="MainThread").track(1, 51, is_task=True, name="a task")
    rows = [
        (2 * end + track, track, name, start, about)
        for track in range(2)
        for end, name, start, about in nested(chance, begin // 2, begin // 2 + 2 * MINUTE_NS)
    ]
    for end, track, name, start, about in sorted(rows, key=lambda row: row[0]):
        if start < 0:
            bank.mark(name, end, track=track, **about)
        else:
            bank.range(name, 2 * start + track, end, track=track, **about)
    return bank


def around_midnight(folder: Path, seed: str) -> Path:
    """Three processes of two tracks each, in several files and batches, and one that was killed inside of something."""
    run, chance = new_run(folder), random.Random(seed)
    for rank in range(3):
        files = ProcessFiles(run, 100 + rank, rank=rank, anchors=(anchor(0), anchor(MIDNIGHT + 99 * MINUTE_NS)))
        for part in range(2):
            bank = bank_of(chance, part + 1, MIDNIGHT + (part * 4 - 3) * MINUTE_NS)
            inside = [{"name": "step", "domain": "d", "start": MIDNIGHT + 8 * MINUTE_NS, "depth": 0}]
            files.seal(bank, **({"ended": "killed", "inside": inside} if part else {"ended": None}))
    return run


def exported(run: Path, to: str) -> dict[str, bytes]:
    target = run.parent / f"out {to}"
    if (exporter := load_exporter(to)).form == "folder":
        target.mkdir(exist_ok=True)
    exporter.write_to(open_run(run), target)
    files = [file for file in target.rglob("*") if file.is_file()] if target.is_dir() else [target]
    return {str(file.relative_to(run.parent)): file.read_bytes() for file in files}


@pytest.mark.parametrize("files_a_batch", [1, 4096])
def test_exports_are_the_same_before_and_after(
    tmp_path: Path, files_a_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges of two days, some that end at one instant, marks between them, open ranges, in groups of few rows."""
    monkeypatch.setattr(compacting, "_BATCH_FILES", files_a_batch)
    monkeypatch.setattr(compacting, "_ROWS_A_GROUP", 8)
    for number in range(soak.rounds(100, 2)):
        run = around_midnight(tmp_path / f"run {number}", f"{soak.seed()} {number}")
        before = {to: exported(run, to) for to in ("chrome", "otlp", "csv")}

        compacting.compact_files(run, remove=True)

        assert len(list((run / dataset.FOLDER).glob("ranges/day=*"))) == 2
        after = {to: exported(run, to) for to in before}
        assert {to: after[to] == content for to, content in before.items()} == dict.fromkeys(before, True)


def test_what_ends_together_on_two_days_stays_inside_of_each_other(tmp_path: Path) -> None:
    """The inner one began after midnight; a body that was driven ends with it, and is no deeper."""
    run, bank = new_run(tmp_path / "run"), BankFiles()
    end = MIDNIGHT + MINUTE_NS
    bank.range("inner", MIDNIGHT + 5, end, depth=1).range("body", MIDNIGHT - 5, end, depth=1, busy=3)
    bank.range("outer", MIDNIGHT - 9, end)
    ProcessFiles(run, 100, rank=0, anchors=(anchor(0), anchor(MIDNIGHT + 99 * MINUTE_NS))).seal(bank)

    compacting.compact_files(run, remove=True)

    assert open_run(run).ranges()["name"].to_list() == ["inner", "body", "outer"]


def many_steps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A compacted run of 100 steps in groups of ten rows, a minute and another stage each; and its one file."""
    monkeypatch.setattr(compacting, "_ROWS_A_GROUP", 10)
    run, bank = new_run(folder), BankFiles()
    for step in range(100):
        stage = f"stage {step // 10}"
        bank.range(stage, step * MINUTE_NS, step * MINUTE_NS + 5, stage=stage, own=True, step=step)
    ProcessFiles(run, 100, rank=0, anchors=(anchor(0), anchor(101 * MINUTE_NS))).seal(bank)
    compacting.compact_files(run, remove=True)
    (file,) = (run / dataset.FOLDER).glob("ranges/*/*/*/*.parquet")
    return run, file


START = WALL_OFFSET_NS + 50 * MINUTE_NS


@pytest.mark.parametrize(
    "asked",
    [{"steps": range(50, 60)}, {"since": START, "until": START + 9 * MINUTE_NS}, {"stages": "stage 5"}],
    ids=str,
)
def test_of_groups_of_rows_that_are_not_asked_for_nothing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    """All values of the others are damaged here."""
    run, file = many_steps(tmp_path / "run", monkeypatch)
    expected = open_run(run, **asked).ranges()
    file.write_bytes(with_damaged_values(file.read_bytes(), groups=[*range(5), *range(6, 10)], of=10))

    part, whole = open_run(run, **asked), open_run(run)

    assert part.ranges().equals(expected) and part.damage == [] and 9 <= expected.height <= 10
    assert whole.ranges().height == 10 and whole.damage != []


def with_damaged_values(content: bytes, groups: list[int], of: int) -> bytes:
    """A page is a frame of zstd, which begins with a magic number: without it nothing of the page can be unpacked."""
    magic, made = b"\x28\xb5\x2f\xfd", bytearray(content)
    pages = [at for at in range(len(content)) if content[at : at + 4] == magic]
    pages_a_group, rest = divmod(len(pages), of)
    assert rest == 0
    for group in groups:
        for at in pages[group * pages_a_group : (group + 1) * pages_a_group]:
            made[at] = 0
    return bytes(made)


def test_who_is_in_which_group_is_written_down_and_read_from_the_rows_where_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests of old do not say it."""
    monkeypatch.setattr(compacting, "_ROWS_A_GROUP", 8)
    run = around_midnight(tmp_path / "run", "who")
    compacting.compact_files(run, remove=True)
    reads: list[str] = []
    rows_of = TableFile.rows

    def noted(table: TableFile, group: Any, names: Any) -> Any:
        reads.extend(names)
        return rows_of(table, group, names)

    monkeypatch.setattr(TableFile, "rows", noted)

    def holders() -> dict[str, list[tuple[str, int]]]:
        parts = CompactedParts(run, RUN_ID, (), [], make_selection(None, None, None, None, None))
        return {name: [(group.file, group.rows.first) for group in own] for name, own in parts.holders.items()}

    written = holders()
    assert len(written) == 3 and reads == []
    for manifest in (run / dataset.FOLDER).glob("*.json"):
        fields = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({key: fields[key] for key in fields if key != "holders"}))
    assert holders() == written and set(reads) == {"process"}


def test_which_steps_and_stages_there_are_is_known_without_the_other_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before a part of a run is read."""
    run, _ = many_steps(tmp_path / "run", monkeypatch)

    reach = open_run(run).files.reach()

    assert reach == (0, 99, frozenset(f"stage {number}" for number in range(10)))


def test_how_many_rows_there_are_is_known_before_and_told_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = many_steps(tmp_path / "run", monkeypatch)
    opened, told = open_run(run, steps=range(50, 60)), []
    opened.files.on_rows = told.append

    assert opened.files.rows_at_most() == 10
    assert sum(piece.height for piece in opened.files.coded(Need())) == sum(told) == 10


@pytest.mark.parametrize("backwards", [False, True])
def test_pieces_are_as_large_as_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    run, _ = many_steps(tmp_path / "run", monkeypatch)

    pieces = [piece for piece in open_run(run).files.coded(Need(), 30, backwards) if piece.height]

    assert [piece.height for piece in pieces] == [30, 30, 30, 10]
    assert pl.concat(pieces[:: -1 if backwards else 1])["step"].to_list() == list(range(100))


def test_attributes_have_the_types_that_they_had(tmp_path: Path) -> None:
    run, bank = new_run(tmp_path / "run"), BankFiles()
    values: dict[str, Any] = {"whole": 3, "half": 0.5, "yes": True, "text": 'a "whole": 4', "ü": "ü", "mixed": 1}
    bank.range("a", 0, 5, **values).range("b", 6, 9, mixed="two", whole=-(1 << 62)).range("c", 10, 12)
    ProcessFiles(run, 100, rank=0).seal(bank)
    before = open_run(run).ranges(attributes=list(values))

    compacting.compact_files(run, remove=True)

    after = open_run(run).ranges(attributes=list(values))
    assert after.equals(before) and after.schema == before.schema


def test_names_and_domains_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """They are coded together, and some texts are both."""
    run, bank = new_run(tmp_path / "run"), BankFiles()
    for number in range(200):
        bank.range(f"name {number % 20}", number, number, domain=f"name {number // 20}", own=number % 3 == 0)
    ProcessFiles(run, 100, rank=0).seal(bank)
    before = open_run(run)
    expected = [rows.select("name", "domain", "is_stage").rows() for rows, _ in before.batches() if rows.height]

    compacting.compact_files(run, remove=True)

    found = [rows.select("name", "domain", "is_stage").rows() for rows, _ in open_run(run).batches() if rows.height]
    assert found == expected
