"""The ring of summaries: what was put in comes out once, in order, or is counted; nothing foreign is believed."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import struct
import threading
import time
import zlib
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import pytest
from builders import packing, soak
from hypothesis import given, settings
from hypothesis import strategies as st

from mstxkit.store import handed_over, summaries
from mstxkit.store.documents import Unusable
from mstxkit.store.handed_over import HandedOver, SummaryRing

STAGES = {"stages": ["rollout", "update"], "step": 7, "end": False}


def row(number: int) -> bytes:
    return summaries.StageSummary(number, 1, 1, number, number + 1000, 1000, None, 1000).pack()


def rows(first: int, last: int) -> bytes:
    return b"".join(map(row, range(first, last)))


def steps_in(data: bytes) -> list[int | None]:
    return [summary.step for summary in packing.summaries_of(data)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "host-1.sums"


def test_what_was_put_in_comes_out_once(file: Path) -> None:
    ring, reader = SummaryRing(file, 8), HandedOver(file)
    ring.put(rows(0, 3), STAGES)
    first = reader.read_new()
    ring.put(rows(3, 5), {**STAGES, "step": 8})

    assert first == (rows(0, 3), 0, STAGES)
    assert reader.read_new() == (rows(3, 5), 0, {**STAGES, "step": 8})
    assert reader.read_new() == (b"", 0, {**STAGES, "step": 8})


def test_who_was_overtaken_counts_what_it_missed_and_gets_what_is_left(file: Path) -> None:
    ring, reader = SummaryRing(file, 8), HandedOver(file)
    ring.put(rows(0, 2), STAGES)
    reader.read_new()
    ring.put(rows(2, 6), STAGES)
    ring.put(rows(6, 13), STAGES)

    assert reader.read_new() == (rows(5, 13), 3, STAGES)


def test_of_more_than_it_holds_at_once_the_newest_are_kept(file: Path) -> None:
    ring = SummaryRing(file, 4)
    ring.put(rows(0, 11), STAGES)

    assert HandedOver(file).read_new() == (rows(7, 11), 7, STAGES)


@given(st.integers(1, 9), st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=20))
def test_every_row_is_read_or_counted(
    tmp_path_factory: pytest.TempPathFactory, capacity: int, turns: list[tuple[int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("ring") / "process.sums"
    ring, reader, put, read, missed = SummaryRing(path, capacity), HandedOver(path), 0, [], 0
    for count, looks in [*turns, (1, True)]:
        ring.put(rows(put, put + count), {"stages": [], "step": put})
        put += count
        if looks:
            new = reader.read_new()
            read += steps_in(new.rows)
            missed += new.missed

    assert read == sorted(read) and len(read) + missed == put
    assert read[-1] == put - 1 and new.document["step"] == put - 1


def test_a_reader_that_goes_on_where_another_one_was_reads_nothing_twice(file: Path) -> None:
    ring, reader = SummaryRing(file, 8), HandedOver(file)
    ring.put(rows(0, 3), STAGES)
    reader.read_new()
    ring.put(rows(3, 4), STAGES)

    assert HandedOver(file, reader.position).read_new().rows == rows(3, 4)


def test_a_file_that_was_made_anew_is_read_from_its_beginning(file: Path) -> None:
    ring, reader = SummaryRing(file, 8), HandedOver(file)
    ring.put(rows(0, 5), STAGES)
    reader.read_new()
    file.rename(file.with_suffix(".away"))
    ring.put(rows(5, 7), STAGES)

    assert reader.read_new() == (rows(5, 7), 0, STAGES)


def test_what_reads_while_it_is_written_gets_nothing_but_whole_rows(file: Path) -> None:
    ring, reader, is_over, seen, missed = SummaryRing(file, 16), HandedOver(file), threading.Event(), [], 0
    many = soak.rounds(200_000, 4000)
    ring.put(row(0), STAGES)

    def write() -> None:
        for number in range(1, many, 5):
            ring.put(rows(number, number + 5), {**STAGES, "step": number})
        is_over.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not is_over.is_set():
        new = reader.read_new()
        missed += new.missed
        seen += list(packing.summaries_of(new.rows))
    writer.join()
    new = reader.read_new()
    seen += list(packing.summaries_of(new.rows))

    assert all(summary.entered_ns == summary.step and summary.total_ns == 1000 for summary in seen)
    assert len(seen) + missed + new.missed == len(range(1, many, 5)) * 5 + 1


def test_it_is_for_its_user_and_group_only_whatever_the_umask(file: Path) -> None:
    before = os.umask(0)
    try:
        SummaryRing(file).put(row(1), STAGES)
    finally:
        os.umask(before)

    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_all_its_space_is_there_before_anything_is_written(file: Path) -> None:
    SummaryRing(file, 100).put(b"", STAGES)

    assert file.stat().st_blocks * 512 >= 16384 + 100 * 40


def test_without_room_it_is_not_made(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs(file.parent)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result([*full[:4], 10, *full[5:]]))
    with pytest.raises(OSError, match="No space"):
        SummaryRing(file).put(row(1), STAGES)

    assert list(file.parent.iterdir()) == []


def test_a_disk_that_fills_as_it_is_made_leaves_no_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", fail)
        with pytest.raises(OSError, match="No space"):
            SummaryRing(file).put(row(1), STAGES)
    assert not file.exists()


def test_what_could_not_be_written_is_put_in_by_the_next_call(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring, reader = SummaryRing(file, 8), HandedOver(file)
    ring.put(rows(0, 2), STAGES)
    write, left = os.pwrite, iter([True, False])

    def fail_later(descriptor: int, data: bytes, at: int) -> int:
        if at != 32 and not next(left, True):
            raise OSError(5, "Input/output error")
        return write(descriptor, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail_later)
        with pytest.raises(OSError):
            ring.put(rows(2, 4), STAGES)
    ring.put(rows(2, 4), STAGES)

    assert reader.read_new() == (rows(0, 4), 0, STAGES)


def test_nothing_is_written_into_a_file_that_somebody_put_in_its_place(file: Path) -> None:
    ring = SummaryRing(file, 8)
    ring.put(row(0), STAGES)
    file.unlink()
    file.write_bytes(b"theirs")
    with pytest.raises(OSError):
        ring.put(row(1), STAGES)

    assert file.read_bytes() == b"theirs"


def test_a_document_that_is_too_long_leaves_out_the_last_stages(file: Path) -> None:
    stages = [f"stage-{number}-" + "x" * 50 for number in range(1000)]
    SummaryRing(file).put(b"", {"stages": stages, "step": 1})
    document = HandedOver(file).read_new().document

    assert document["stages"] == stages[: len(document["stages"])] and document["stages"]
    assert document["stages_left_out"] == 1000 - len(document["stages"]) and document["step"] == 1


def test_stages_of_any_characters_come_out_as_they_were(file: Path) -> None:
    document = {"stages": ["stufe\u00e9", "\udc80", "a\x1b[31m"], "step": None, "end": True}
    SummaryRing(file).put(b"", document)

    assert HandedOver(file).read_new().document == document


def torn(file: Path) -> None:
    with file.open("r+b") as ring:
        ring.seek(24)
        ring.write(bytes(8))


def test_rows_wait_for_a_document_that_is_being_replaced(file: Path) -> None:
    ring, reader = SummaryRing(file), HandedOver(file)
    ring.put(row(0), STAGES)
    reader.read_new()
    ring.put(row(1), STAGES)
    torn(file)
    waits = reader.read_new()
    with file.open("r+b") as writer:
        text = json.dumps({"stages": ["new"]}).encode()
        writer.seek(64)
        writer.write(text)
        writer.seek(24)
        writer.write(struct.pack("<II", len(text), zlib.crc32(text)))

    assert waits == (b"", 0, STAGES)
    assert reader.read_new() == (row(1), 0, {"stages": ["new"]})


def test_rows_of_a_writer_that_was_killed_in_its_document_come_with_the_one_before(file: Path) -> None:
    ring, reader = SummaryRing(file), HandedOver(file)
    ring.put(row(0), STAGES)
    reader.read_new()
    ring.put(row(1), STAGES)
    torn(file)

    assert [reader.read_new(), reader.read_new()] == [(b"", 0, STAGES), (row(1), 0, STAGES)]


def test_after_a_kill_at_any_moment_whole_rows_are_read(file: Path) -> None:
    for _ in range(soak.rounds(100, 3)):
        child = os.fork()
        if child == 0:
            ring, number = SummaryRing(file, 16), 0
            while True:
                ring.put(rows(number, number + 3), {**STAGES, "step": number})
                number += 3
        while not file.exists() or not _is_laid_out(file):
            pass
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reader = HandedOver(file)
        new = max((reader.read_new() for _ in range(2)), key=lambda new: len(new.rows))
        file.unlink()

        assert all(summary.entered_ns == summary.step for summary in packing.summaries_of(new.rows))
        assert len(new.rows) // 40 + new.missed > 0


def _is_laid_out(file: Path) -> bool:
    """Was a row written?"""
    try:
        count = file.read_bytes()[16:20]
        return len(count) == 4 and count != bytes(4)
    except OSError:
        return False


# Files that nobody vouches for


def link(file: Path) -> None:
    file.rename(file.with_suffix(".real"))
    file.symlink_to(file.with_suffix(".real"))


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def cut(size: int) -> Callable[[Path], None]:
    return lambda file: os.truncate(file, size)


def patched(at: int, data: bytes) -> Callable[[Path], None]:
    def patch(file: Path) -> None:
        with file.open("r+b") as target:
            target.seek(at)
            target.write(data)

    return patch


HOSTILE = {
    "gone": Path.unlink, "a link": link, "a pipe": fifo, "empty": cut(0), "half a head": cut(30), "no rows": cut(16384),
    "cut": cut(16384 + 40 * 7), "other magic": patched(0, b"MSTXLIVE"), "newer": patched(8, b"\2"),
    "no capacity": patched(12, bytes(4)), "huge": patched(12, b"\xff" * 4),
    "larger than it is": patched(12, struct.pack("<I", 9)), "being made": patched(0, bytes(64)),
}  # fmt: skip


@pytest.mark.parametrize("harm", HOSTILE.values(), ids=HOSTILE)
def test_what_cannot_be_believed_is_said_to_be_unusable(file: Path, harm: Callable[[Path], Any]) -> None:
    SummaryRing(file, 8).put(rows(0, 3), STAGES)
    harm(file)

    with pytest.raises(Unusable, match=r"process|host-1\.sums"):
        HandedOver(file).read_new()


def test_a_file_of_another_user_is_not_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SummaryRing(file, 8).put(row(0), STAGES)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)

    with pytest.raises(Unusable, match="belongs to user"):
        HandedOver(file).read_new()


@pytest.mark.parametrize("text", [b"[]", b"{", b"[" * 10_000, b"\xff", b"7"])
def test_a_document_that_is_none_is_an_empty_one(file: Path, text: bytes) -> None:
    SummaryRing(file, 8).put(row(0), STAGES)
    patched(64, text)(file)
    patched(24, struct.pack("<II", len(text), zlib.crc32(text)))(file)

    assert HandedOver(file).read_new() == (row(0), 0, {})


def mutations() -> Iterator[st.SearchStrategy[Any]]:
    yield st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=16))
    yield st.tuples(st.sampled_from([8, 12, 16, 24, 28, 32]), st.binary(min_size=8, max_size=8))


@settings(max_examples=soak.rounds(3000, 100))
@given(st.lists(st.one_of(*mutations()), min_size=1, max_size=4))
def test_whatever_its_bytes_are_a_read_ends_with_few_rows_or_with_unusable(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]]
) -> None:
    path = tmp_path_factory.mktemp("hostile") / "process.sums"
    SummaryRing(path, 8).put(rows(0, 20), STAGES)
    for at, data in changes:
        patched(at, data)(path)
    reader = HandedOver(path)
    for _ in range(3):
        try:
            new = reader.read_new()
        except Unusable:
            continue

        assert len(new.rows) <= 40 * 8 and len(new.rows) % 40 == 0 and new.missed >= 0
        assert isinstance(new.document, dict)


def test_the_page_says_where_everything_lies() -> None:
    page = Path(__file__).parents[2] / "docs/internals/cluster.md"
    offsets = [handed_over._WRITTEN_AT, handed_over._LENGTH_AT, handed_over._BEGUN_AT, handed_over._NONCE_AT]

    assert all(f"\n| {at} | " in page.read_text() for at in [*offsets, handed_over.DOCUMENT_AT, handed_over.ROWS_AT])


def aged(file: Path, seconds: float = 1.0) -> None:
    """As if it was written to so long ago: what is younger may be written to again with the same stamp."""
    at_ns = time.time_ns() - int(seconds * 1e9)
    os.utime(file, ns=(at_ns, at_ns))


def test_a_file_that_nobody_wrote_to_since_need_not_be_read_again(file: Path) -> None:
    ring, reader = SummaryRing(file, 8), HandedOver(file)
    ring.put(rows(0, 3), STAGES)
    aged(file)
    before = reader.is_unchanged
    reader.read_new()
    after = reader.is_unchanged
    ring.put(rows(3, 4), STAGES)

    assert (before, after, reader.is_unchanged) == (False, True, False)


def test_a_file_that_was_written_to_just_now_is_read_again_as_another_write_may_have_the_same_stamp(
    file: Path,
) -> None:
    ring, reader = SummaryRing(file, 8), HandedOver(file)
    ring.put(rows(0, 3), STAGES)
    os.utime(file)
    reader.read_new()

    assert not reader.is_unchanged


def test_a_file_with_half_a_document_is_read_until_it_is_whole(file: Path) -> None:
    SummaryRing(file, 8).put(rows(0, 3), STAGES)
    torn(file)
    aged(file)
    reader = HandedOver(file)
    reader.read_new()

    assert not reader.is_unchanged


def test_a_file_that_is_missing_is_unchanged_until_it_is_there(file: Path) -> None:
    reader = HandedOver(file)
    with pytest.raises(Unusable):
        reader.read_new()
    missing = reader.is_unchanged
    SummaryRing(file, 8).put(rows(0, 3), STAGES)

    assert (missing, reader.is_unchanged) == (True, False)


@pytest.mark.parametrize("seed", range(soak.rounds(40, 4)))
def test_who_reads_only_what_has_changed_misses_no_row(file: Path, seed: int) -> None:
    """Whatever pauses lie between writes and looks."""
    draw, ring, reader, seen = random.Random(seed), SummaryRing(file, 64), HandedOver(file), list[Optional[int]]()
    for number in range(60):
        ring.put(row(number), {**STAGES, "step": number})
        if draw.random() < 0.5:
            time.sleep(draw.choice([0, 0.0005, 0.005, 0.06]))
        if not reader.is_unchanged:
            seen += steps_in(reader.read_new().rows)
    time.sleep(0.06)
    seen += [] if reader.is_unchanged else steps_in(reader.read_new().rows)

    assert seen == list(range(60))
