"""Blocks made from a live file that nobody writes any more: each record once; open is what has not ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.run_files import BankFiles, ProcessFiles, new_run

from mstxkit.recorder import blocks
from mstxkit.store import livefile, records, segment
from mstxkit.store.block_index import Indexed

WHOLE = livefile.Slot(start=500, site=1, track=0, step=3, stage=0, depth=0, thread=77)


def live_view(folder: Path, *banks: BankFiles, slots: tuple[livefile.Slot, ...] = ()) -> memoryview:
    """A live file with these banks and open slots, in memory."""
    process = ProcessFiles(new_run(folder / "run"), rank=4)
    return memoryview(bytearray(process.live(*banks, slots=slots).read_bytes()))


def layout(view: memoryview) -> livefile.Layout:
    return livefile.read_header(view).layout


def parsed(block: Indexed) -> segment.Block:
    (found,) = segment.scan_blocks(segment.file_header() + block.data)
    assert isinstance(found, segment.Block)
    return found


def open_in(view: memoryview) -> list[dict[str, Any]]:
    block = blocks.of_open_ranges(view)
    if block is None:
        return []
    found = parsed(block)
    listed: list[dict[str, Any]] = json.loads(segment.decompress_stream(found.meta["codec"], found.payload))
    return listed


def test_each_bank_in_use_is_a_block_oldest_first(tmp_path: Path) -> None:
    later, earlier = BankFiles(seq=8).range("b", 30, 40), BankFiles(seq=7).range("a", 10, 20).range("a", 20, 25)
    view = live_view(tmp_path, later, earlier)
    made = list(blocks.of_left_banks(view, layout(view)))

    assert [block.records for block in made] == [2, 1]
    assert [parsed(block).meta["bank"] for block in made] == [7, 8]


def test_banks_that_are_sealed_already_or_empty_are_left_out(tmp_path: Path) -> None:
    view = live_view(tmp_path, BankFiles(seq=1).range("a", 1, 2), BankFiles(seq=2), BankFiles(seq=3).range("c", 1, 2))

    assert [parsed(block).meta["bank"] for block in blocks.of_left_banks(view, layout(view), {1: 1})] == [3]


def test_a_block_says_whose_it_is_and_when(tmp_path: Path) -> None:
    view = live_view(tmp_path, BankFiles(seq=1, origin=123).range("a", 200, 300))
    meta = parsed(next(blocks.of_left_banks(view, layout(view)))).meta

    assert (meta["identity"]["rank"], meta["origin"], meta["records"]) == (4, 123, 1)
    assert meta["clock"]["anchors"] and meta["counters"].keys() == set(livefile.COUNTERS)


def test_what_is_open_is_named(tmp_path: Path) -> None:
    bank = BankFiles()
    bank.stage("actor_update")
    bank.site("actor_update", own_stage=1)
    view = live_view(tmp_path, bank, slots=(WHOLE._replace(stage=1),))

    assert open_in(view) == [
        {
            "name": "actor_update", "domain": "default", "stage": "actor_update", "own_stage": True,
            "step": 3, "track": 0, "depth": 0, "start": 500, "tid": 77,
        }
    ]  # fmt: skip


def test_nothing_open_is_no_block(tmp_path: Path) -> None:
    assert blocks.of_open_ranges(live_view(tmp_path, BankFiles().range("a", 1, 2))) is None


def test_a_name_that_was_lost_is_a_question_mark(tmp_path: Path) -> None:
    assert [one["name"] for one in open_in(live_view(tmp_path, BankFiles(), slots=(WHOLE,)))] == ["?"]


def test_a_range_killed_between_its_record_and_its_slot_has_ended(tmp_path: Path) -> None:
    bank = BankFiles(origin=100).range("whole", 500, 900, step=3)

    assert not open_in(live_view(tmp_path, bank, slots=(WHOLE,)))


def test_so_has_one_that_took_so_long_that_its_duration_is_scaled(tmp_path: Path) -> None:
    end = 500 + records.DURATION_MAX + 5000
    bank = BankFiles(origin=100).range("whole", 500, end, step=3)

    assert not open_in(live_view(tmp_path, bank, slots=(WHOLE,)))


@pytest.mark.parametrize("difference", [{"start": 501}, {"track": 1}, {"step": 4}])
def test_another_range_of_the_same_name_is_open_all_the_same(tmp_path: Path, difference: dict[str, int]) -> None:
    bank = BankFiles(origin=100).range("whole", 500, 900, step=3)

    assert len(open_in(live_view(tmp_path, bank, slots=(WHOLE._replace(**difference),)))) == 1


def test_a_range_inside_itself_is_open_once_when_the_inner_one_has_ended(tmp_path: Path) -> None:
    bank = BankFiles(origin=100).range("whole", 600, 900, step=3, depth=1)
    view = live_view(tmp_path, bank, slots=(WHOLE, WHOLE._replace(start=600, depth=1)))

    assert [one["start"] for one in open_in(view)] == [500]


def test_an_end_says_how(tmp_path: Path) -> None:
    found = parsed(blocks.of_end(live_view(tmp_path), "killed"))

    assert (found.kind, found.meta["ended"], found.payload) == (segment.END, "killed", b"")
