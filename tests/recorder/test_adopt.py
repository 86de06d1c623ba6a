"""Adoption of what dead processes left: sealed once, what is not ours or cannot be read is left alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders import lives
from builders.run_files import RUN_ID, BankFiles, ProcessFiles, alive, new_run, started_ticks

from mstxkit import faults
from mstxkit.errors import MstxkitError
from mstxkit.host import identity
from mstxkit.recorder import adopt
from mstxkit.recorder.adopt import Adopted
from mstxkit.store import livefile, segment

SLOT = livefile.Slot(start=500, site=1, track=0, step=0, stage=0, depth=0, thread=77)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return new_run(tmp_path / "run")


def left_by(run: Path, *banks: BankFiles, pid: int = 100, start: str = "5eed", **more: Any) -> Path:
    """A live file where one may be, and its pointer; its process is gone."""
    process = ProcessFiles(run, pid, start=start)
    pointer = more.pop("pointer", {})
    made = process.live(*banks, **more)
    folder = run.parent / "shm" / RUN_ID
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / made.name
    made.rename(path)
    process.point_to(path, **pointer)
    return path


def two_banks() -> tuple[BankFiles, BankFiles]:
    later = BankFiles(seq=5)
    later.site("a")  # a site keeps its number for the life of a process
    return BankFiles(seq=4).range("a", 1, 2).range("a", 2, 3), later.range("b", 3, 4)


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MstxkitError, match=r"not a run: it has neither run\.json"):
        adopt.collect_dead(tmp_path)


def test_of_who_sealed_nothing_itself_the_sealed_files_of_others_are_not_listed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that forks all the time has tens of thousands of them."""
    path = left_by(run, BankFiles(seq=4).range("a", 1, 2))
    listed, listdir = [], os.listdir

    def noted(folder: Any) -> list[str]:
        listed.append(os.path.realpath(f"/proc/self/fd/{folder}" if isinstance(folder, int) else folder))
        return listdir(folder)

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", noted)
        adopt.collect_dead(run)

    assert str(path.parent) in listed and str(run / "sealed") not in listed
    assert lives.ended(run) == {"a": 1}


def test_what_an_adopter_had_written_before_it_was_killed_is_not_written_again(run: Path) -> None:
    path = left_by(run, BankFiles(seq=4).range("a", 1, 2))
    (pointer,) = (run / "live").iterdir()
    left = {file: file.read_bytes() for file in (path, pointer)}
    adopt.collect_dead(run)
    (sealed,) = (run / "sealed").iterdir()
    size = sealed.stat().st_size
    for file, content in left.items():
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    adopt.collect_dead(run)

    assert [file.stat().st_size for file in (run / "sealed").iterdir()] == [size]
    assert not list((run / "live").iterdir())


def test_a_dead_process_is_sealed_with_what_was_open_and_then_gone(run: Path) -> None:
    path = left_by(run, *two_banks(), slots=(SLOT,))
    adopted = adopt.collect_dead(run)

    assert adopted == [Adopted(f"{identity.name_host()}-100-5eed", 3, True)]
    assert lives.ended(run) == {"a": 2, "b": 1}
    assert lives.still_open(run) == {"a": 1}
    assert [row["state"] for row in lives.processes(run)] == ["killed"]
    assert not path.parent.exists() and not list((run / "live").iterdir())


def test_a_second_collection_finds_nothing(run: Path) -> None:
    left_by(run, *two_banks())
    adopt.collect_dead(run)

    assert adopt.collect_dead(run) == []
    assert lives.ended(run) == {"a": 2, "b": 1}


def test_a_process_that_had_closed_its_file_itself_has_exited(run: Path) -> None:
    left_by(run, *two_banks(), state=livefile.CLOSED)
    adopt.collect_dead(run)

    assert [row["state"] for row in lives.processes(run)] == ["ended"]


NOT_OURS: dict[str, dict[str, Any]] = {
    "alive": alive(),
    "of another host": {"host": "elsewhere"},
    "of another boot": {"boot": "another"},
    "of another run": {"run": "f" * 32},
}


@pytest.mark.parametrize("why", NOT_OURS)
def test_a_process_that_is_not_ours_to_adopt_is_left_alone(run: Path, why: str) -> None:
    path = left_by(run, *two_banks(), pointer=NOT_OURS[why])

    assert adopt.collect_dead(run) == []
    assert path.exists() and len(list((run / "live").iterdir())) == 1
    assert not list((run / "sealed").iterdir())


def test_what_is_left_on_a_disk_from_before_the_host_was_started_anew_is_sealed(run: Path) -> None:
    """By somebody who did not see when its process was gone."""
    lock = run.parent / "shm" / RUN_ID / f"{identity.name_host()}-100-15eed.life"
    left_by(run, *two_banks(), start="15eed", pointer={"boot": "another", "life": str(lock)})
    lock.touch()
    adopted = adopt.collect_dead(run, by="keeper-1-5eed")

    assert [one.records for one in adopted] == [3]
    assert [row["state"] for row in lives.processes(run)] == ["killed"]
    blocks = segment.scan_blocks(next((run / "sealed").iterdir()).read_bytes())
    (end,) = (block for block in blocks if isinstance(block, segment.Block) and block.kind == segment.END)
    assert "gone_ns" not in end.meta


def test_one_that_a_living_adopter_has_claimed_is_left_to_it(run: Path) -> None:
    left_by(run, *two_banks())
    (pointer,) = (run / "live").iterdir()
    claimed = pointer.rename(f"{pointer}.adopting.{os.getpid()}.{started_ticks(os.getpid())}")

    assert adopt.collect_dead(run) == []
    assert claimed.exists()


def test_one_that_a_dead_adopter_had_claimed_is_taken_over(run: Path) -> None:
    left_by(run, *two_banks())
    (pointer,) = (run / "live").iterdir()
    pointer.rename(f"{pointer}.adopting.{os.getpid()}.1")

    assert [one.records for one in adopt.collect_dead(run)] == [3]
    assert not list((run / "live").iterdir())


def test_banks_that_were_sealed_before_the_death_are_not_sealed_again(run: Path) -> None:
    """A process dies between writing a block and freeing its bank."""
    first, second = two_banks()
    ProcessFiles(run).seal(first, ended=None)
    left_by(run, first, second)
    adopted = adopt.collect_dead(run)

    assert [one.records for one in adopted] == [1]
    assert lives.ended(run) == {"a": 2, "b": 1}


def test_an_end_that_was_written_before_the_death_is_not_written_again(run: Path) -> None:
    """A process dies between writing its end and removing its live file."""
    first, second = two_banks()
    path = ProcessFiles(run).seal(first, second, ended="exit")
    left_by(run, first, second, slots=(SLOT,))
    before = path.read_bytes()
    adopt.collect_dead(run)

    assert [one.read_bytes() for one in (run / "sealed").iterdir()] == [before]
    assert [row["state"] for row in lives.processes(run)] == ["ended"]


@pytest.mark.parametrize("torn", [1, 15, 16, 40, 200])
def test_a_file_torn_by_the_death_is_mended(run: Path, torn: int) -> None:
    first, second = two_banks()
    path = ProcessFiles(run).seal(first, ended=None)
    whole = path.read_bytes()
    path.write_bytes(whole[:torn])
    left_by(run, first, second)
    adopt.collect_dead(run)

    assert len(whole) > 200
    assert lives.ended(run) == {"a": 2, "b": 1}
    assert not lives.damage(run)


def test_damage_in_the_middle_of_a_sealed_file_is_left_for_the_reader_to_tell(run: Path) -> None:
    first, second = two_banks()
    path = ProcessFiles(run).seal(first, ended=None)
    spoilt = bytearray(path.read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    path.write_bytes(spoilt)
    left_by(run, second)
    adopt.collect_dead(run)

    assert path.read_bytes() == spoilt
    assert lives.ended(run) == {"b": 1}
    assert lives.damage(run)


@pytest.mark.parametrize("content", [b"", bytes(8192), bytes(100_000)])
def test_a_file_that_was_never_laid_out_is_removed(run: Path, content: bytes) -> None:
    path = left_by(run, *two_banks())
    path.write_bytes(content)

    assert adopt.collect_dead(run) == []
    assert not path.exists() and not list((run / "live").iterdir())
    assert not faults.counts


# Named: up to pytest 8 the noise itself was the name, which no two workers of pytest-xdist agreed about.
@pytest.mark.parametrize(
    "content",
    [b"something else", b"MSTXLIVE" + bytes(9000), os.urandom(20_000)],
    ids=["words", "a live file's first words", "noise"],
)
def test_a_file_that_is_no_live_file_is_left_where_it_is(run: Path, content: bytes) -> None:
    path = left_by(run, *two_banks())
    path.write_bytes(content)

    assert adopt.collect_dead(run) == []
    assert path.read_bytes() == content
    assert faults.counts == {"adopt": 1}
    assert not list((run / "live").iterdir()), "it is announced no more"


def test_a_file_of_a_newer_mstxkit_is_left_to_one_that_can_read_it(run: Path) -> None:
    path = left_by(run, *two_banks())
    content = path.read_bytes()
    path.write_bytes(content[:8] + (livefile.VERSION + 1).to_bytes(2, "little") + content[10:])
    adopted = adopt.collect_dead(run)
    told = lives.damage(run)
    path.write_bytes(content)

    assert adopted == [] and faults.counts["adopt"] == 1
    assert "upgrade it" in told[0]
    assert adopt.collect_dead(run) and lives.ended(run) == {"a": 2, "b": 1}


def test_a_pointer_to_a_file_that_is_gone_is_dropped(run: Path) -> None:
    left_by(run, *two_banks()).unlink()

    assert adopt.collect_dead(run) == []
    assert not list((run / "live").iterdir())


@pytest.mark.parametrize("path", ["/etc/passwd", "relative.live", "{folder}/../{id}/{name}", "{folder}/other.live"])
def test_a_pointer_to_where_no_live_file_can_be_is_not_followed(run: Path, path: str) -> None:
    real = left_by(run, *two_banks())
    named = path.format(folder=real.parent, id=RUN_ID, name=real.name)
    ProcessFiles(run).point_to(Path(named))

    assert adopt.collect_dead(run) == []
    assert real.exists()
    assert faults.counts == {"adopt": 1}


def test_a_link_in_place_of_a_live_file_is_not_followed(run: Path, tmp_path: Path) -> None:
    path = left_by(run, *two_banks())
    path.rename(tmp_path / "target")
    path.symlink_to(tmp_path / "target")

    assert adopt.collect_dead(run) == []
    assert (tmp_path / "target").exists()
    assert faults.counts == {"adopt": 1}


def test_a_live_file_of_another_run_is_left_alone(run: Path) -> None:
    process = ProcessFiles(run)
    process.identity["run"] = "f" * 32
    folder = run.parent / "shm" / RUN_ID
    folder.mkdir(parents=True)
    path = process.live(*two_banks()).rename(folder / f"{process.name}.live")
    process.point_to(path)

    assert adopt.collect_dead(run) == []
    assert path.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"pid": "x"}',
        '{"path": 7}',
        f'{{"run": "{RUN_ID}"}}',
        f'{{"run": "{RUN_ID}", "host": 7, "pid": []}}',
    ],
)
def test_a_pointer_that_is_none_is_passed_over(run: Path, text: str) -> None:
    (run / "live" / f"{identity.name_host()}-1-x.json").write_text(text)
    left_by(run, *two_banks())

    assert [one.records for one in adopt.collect_dead(run)] == [3]


@pytest.mark.parametrize("odd", [float("inf"), 10**400, [], "x"], ids=["inf", "long", "list", "text"])
def test_numbers_that_are_none_keep_nobody_from_being_sealed(run: Path, odd: Any) -> None:
    """In a pointer, and in what is sealed of another process already."""
    path = left_by(run, *two_banks(), pid=300, pointer={"life": f"{run.parent}/shm/{RUN_ID}/x.life"})
    pointer = run / "live" / f"{path.stem}.json"
    (path.parent / "x.life").touch()
    pointer.write_text(json.dumps({**json.loads(pointer.read_text()), "pid": odd}))
    process = ProcessFiles(run)
    meta = {**process.meta(), "bank": odd, "records": odd, "attributes": odd, "codec": "zlib", "text_bytes": 0}
    block = segment.pack_block(segment.RECORDS, meta, b"")
    (run / "sealed" / f"{process.name}.0000.mxs").write_bytes(segment.file_header() + block)
    left_by(run, *two_banks())

    assert [one.records for one in adopt.collect_dead(run) if one.name == process.name] == [3]


def test_told_to_leave_off_it_leaves_the_rest_to_the_next_call(run: Path) -> None:
    left_by(run, *two_banks())
    left_by(run, BankFiles(seq=1).range("c", 1, 2), pid=200)
    answers = iter([True, False])
    first = adopt.collect_dead(run, lambda: next(answers))
    between = lives.ended(run)
    second = adopt.collect_dead(run)

    assert (first, [one.records for one in second]) == ([], [1, 1])
    assert between == lives.ended(run) == {"a": 2, "b": 1, "c": 1}
    assert not faults.counts


def test_the_order_of_blocks_is_records_open_ranges_end_index(run: Path) -> None:
    left_by(run, *two_banks(), slots=(SLOT,))
    adopt.collect_dead(run)
    (path,) = (run / "sealed").iterdir()
    kinds = [block.kind for block in segment.scan_blocks(path.read_bytes()) if isinstance(block, segment.Block)]

    assert kinds == [segment.RECORDS, segment.RECORDS, segment.OPEN_RANGES, segment.END, segment.INDEX]
