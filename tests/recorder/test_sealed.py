"""Sealed files: blocks appended whole or not at all, files rotated by size, the oldest dropped beyond the quota."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mstxkit.recorder.sealed import SealedFiles, cut_torn_end
from mstxkit.store import sealed_place, segment
from mstxkit.store.block_index import Indexed

NO_LIMIT = 1 << 40


def block(size_bytes: int, number: int = 0, records: int = 1) -> Indexed:
    """A whole block of exactly that size, of which no index is to be made."""
    empty = segment.pack_block(segment.RECORDS, {"bank": number})
    data = segment.pack_block(segment.RECORDS, {"bank": number}, bytes(size_bytes - len(empty)))
    return Indexed(data, records)


def sealed(folder: Path, rotate_bytes: int = NO_LIMIT, quota_bytes: int = NO_LIMIT) -> tuple[SealedFiles, list[int]]:
    evicted: list[int] = []
    before = sealed_place.all_names([folder], "host-1-a")
    return SealedFiles(folder, "host-1-a", rotate_bytes, quota_bytes, evicted.append, before=before), evicted


def numbers_in(folder: Path) -> dict[str, list[int]]:
    """The blocks of each file; fails on damage."""
    scanned = {path.name: list(segment.scan_blocks(path.read_bytes())) for path in sorted(folder.iterdir())}
    return {name: [one.meta["bank"] for one in found] for name, found in scanned.items()}  # type: ignore[union-attr]


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_blocks_go_one_after_the_other_into_one_file(tmp_path: Path) -> None:
    files, _ = sealed(tmp_path)
    for number in range(3):
        files.append(block(200, number))

    assert numbers_in(tmp_path) == {"host-1-a.0001.mxs": [0, 1, 2]}


def test_a_block_that_does_not_fit_begins_a_new_file(tmp_path: Path) -> None:
    files, evicted = sealed(tmp_path, rotate_bytes=450)
    for number in range(5):
        files.append(block(200, number))

    assert list(numbers_in(tmp_path).values()) == [[0, 1], [2, 3], [4]]
    assert not evicted


def test_a_block_larger_than_a_file_should_be_has_a_file_of_its_own(tmp_path: Path) -> None:
    files, _ = sealed(tmp_path, rotate_bytes=300)
    for number, size in enumerate((200, 1000, 200)):
        files.append(block(size, number))

    assert list(numbers_in(tmp_path).values()) == [[0], [1], [2]]


def test_the_quota_is_kept_at_any_time_and_costs_the_oldest(tmp_path: Path) -> None:
    files, evicted = sealed(tmp_path, quota_bytes=2000)
    for number in range(50):
        files.append(block(200, number, records=10))
        assert size_of(tmp_path) <= 2000
        assert number < 10 or size_of(tmp_path) >= 1000, "no more is dropped at once than a part of it"

    kept = [number for numbers in numbers_in(tmp_path).values() for number in numbers]
    assert kept == list(range(50 - len(kept), 50))
    assert sum(evicted) == 10 * (50 - len(kept))


@pytest.mark.parametrize("quota_bytes", [0, 100, 215])
def test_a_block_beyond_the_quota_is_counted_and_not_written(tmp_path: Path, quota_bytes: int) -> None:
    files, evicted = sealed(tmp_path, quota_bytes=quota_bytes)
    files.append(block(200, records=7))

    assert evicted == [7]
    assert not list(tmp_path.iterdir())


def test_a_later_writer_of_the_same_process_goes_on_in_a_new_file(tmp_path: Path) -> None:
    for number in range(3):
        files, _ = sealed(tmp_path)
        files.append(block(200, number))
    (tmp_path / "host-1-ab.0009.mxs").write_bytes(b"another process")
    (tmp_path / "host-1-a.x.mxs").write_bytes(b"no number")

    assert sorted(path.name for path in tmp_path.glob("host-1-a.0*")) == [f"host-1-a.000{k}.mxs" for k in (1, 2, 3)]


@pytest.mark.parametrize("already", [0, 2])
def test_a_block_that_does_not_fit_on_the_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, already: int
) -> None:
    real = os.write

    def full_after_100_bytes(descriptor: int, content: Any) -> int:
        if len(content) <= 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, content[:100])

    files, _ = sealed(tmp_path)
    for number in range(already):
        files.append(block(200, number))
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(os, "write", full_after_100_bytes)
        files.append(block(200, 7))
    before = numbers_in(tmp_path)
    files.append(block(200, 8))

    assert before == ({"host-1-a.0001.mxs": [0, 1]} if already else {})
    assert numbers_in(tmp_path) == {"host-1-a.0001.mxs": [*range(already), 8]}


def test_a_write_that_goes_in_pieces_is_whole_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: real(descriptor, content[:7]))
    files, _ = sealed(tmp_path)
    files.append(block(200, 3))

    assert numbers_in(tmp_path) == {"host-1-a.0001.mxs": [3]}


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    folder, target = tmp_path / "sealed", tmp_path / "target"
    folder.mkdir()
    target.write_text("mine")
    (folder / "host-1-a.0001.mxs").symlink_to(target)
    files = SealedFiles(folder, "host-1-a", NO_LIMIT, NO_LIMIT, lambda count: None)
    (folder / "host-1-a.0002.mxs").symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        files.append(block(200))

    assert target.read_text() == "mine"


def test_a_torn_end_can_be_cut_off(tmp_path: Path) -> None:
    files, _ = sealed(tmp_path)
    files.append(block(200, 1))
    (path,) = tmp_path.iterdir()
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes() + block(200, 2).data[:77])
    cut_torn_end(path, whole)

    assert numbers_in(tmp_path) == {path.name: [1]}


def held(folder: Path) -> list[str]:
    """Which files of a folder this process holds open."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    return sorted(Path(target).name for target in targets if target.startswith(str(folder)))


def test_the_newest_file_is_held_open_until_the_last_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = sealed(tmp_path, rotate_bytes=450)
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *how, **named: (opened.append(path), real(path, *how, **named))[1])
    for number in range(3):
        files.append(block(200, number))
    while_it_goes_on = held(tmp_path)
    files.append(block(200, 3), is_last=True)

    assert [name for name in opened if str(name).endswith(".mxs")] == ["host-1-a.0001.mxs", "host-1-a.0002.mxs"]
    assert (while_it_goes_on, held(tmp_path)) == (["host-1-a.0002.mxs"], [])
    assert list(numbers_in(tmp_path).values()) == [[0, 1], [2, 3]]


def test_a_file_that_was_moved_away_is_let_go_and_made_anew(tmp_path: Path) -> None:
    folder, away = tmp_path / "sealed", tmp_path / "away"
    folder.mkdir()
    files, _ = sealed(folder)
    files.append(block(200, 1))
    folder.rename(away)
    files.append(block(200, 2))
    moved, made = numbers_in(away), numbers_in(folder)
    files.append(block(200, 3), is_last=True)

    assert (moved, made) == ({"host-1-a.0001.mxs": [1]}, {"host-1-a.0001.mxs": [2]})
    assert held(tmp_path) == []


def test_a_program_that_closed_it_keeps_its_own_file(tmp_path: Path) -> None:
    folder = tmp_path / "sealed"
    folder.mkdir()
    files, _ = sealed(folder)
    files.append(block(200, 1))
    number = next(int(name) for name in os.listdir("/proc/self/fd") if str(folder) in _target(name))
    theirs = os.open(tmp_path / "theirs", os.O_WRONLY | os.O_CREAT)
    os.dup2(theirs, number)
    files.append(block(200, 2), is_last=True)

    assert _target(str(number)) == str(tmp_path / "theirs")
    assert (tmp_path / "theirs").stat().st_size == 0
    assert numbers_in(folder) == {"host-1-a.0001.mxs": [1, 2]}
    os.close(theirs), os.close(number)


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""
