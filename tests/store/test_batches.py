"""Batches of what the processes of a host handed over: whole ones are read, whatever else is in their file."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest
from builders import soak

from mstxkit.errors import FormatError
from mstxkit.store import batches
from mstxkit.store.batches import Batch, BatchFile, HandingProcess
from mstxkit.store.summaries import StageSummary

RUN = "0" * 32
ROW = StageSummary(3, 1, 1, 1000, 2000, 1000, None, 1000).pack()


def frame(number: int, rows: bytes = ROW, run: str = RUN) -> bytes:
    process = HandingProcess(0, "host-1-1", 4, "actor", stages=("reward",))
    head = {"run": run, "host": "h", "boot": "b", "sender": "s", "number": number, "processes": [process.as_json()]}
    return batches.encode_batch(head, [(batches.STAGES, 0, rows)])


def numbers(of: list[Batch]) -> list[int | None]:
    return [batch.number for batch in of]


def test_a_batch_is_read_as_it_was_made() -> None:
    (batch,) = batches.decode_batches(frame(7), RUN).batches

    assert (batch.host, batch.boot, batch.sender, batch.number) == ("h", "b", "s", 7)
    assert batch.parts == [(batches.STAGES, 0, ROW)]
    assert list(batch.processes()) == [HandingProcess(0, "host-1-1", 4, "actor", stages=("reward",))]


@pytest.mark.parametrize(
    "foreign",
    [b"", b"\0" * 100, b"MXS1", b"MXS1" * 9, struct.pack("<4sIII", b"MXS1", 1 << 31, 1 << 31, 0), frame(1)[:-1] + b"x"],
)
def test_what_is_no_batch_between_two_is_left_out_and_counted(foreign: bytes) -> None:
    decoded = batches.decode_batches(frame(1) + foreign + frame(2), RUN)

    assert numbers(decoded.batches) == [1, 2]
    assert decoded.damaged_bytes == len(foreign)


def test_a_batch_without_its_end_is_waited_for_until_another_one_follows() -> None:
    """Who wrote it may just be writing, or was killed."""
    whole, torn = frame(1), frame(2)[:-3]

    waiting, over = batches.decode_batches(whole + torn, RUN), batches.decode_batches(whole + torn + frame(3), RUN)

    assert (numbers(waiting.batches), waiting.used_bytes, waiting.damaged_bytes) == ([1], len(whole), 0)
    assert (numbers(over.batches), over.damaged_bytes) == ([1, 3], len(torn))


def test_a_batch_of_another_run_is_none_of_this_one() -> None:
    assert batches.decode_batches(frame(1, run="1" * 32), RUN).batches == []


def sections_of(value: object) -> bytes:
    import json
    import zlib

    head = json.dumps({"format": 1, "run": RUN, "sections": value}).encode()
    return struct.pack("<4sIII", b"MXS1", len(head), len(ROW), zlib.crc32(ROW, zlib.crc32(head))) + head + ROW


@pytest.mark.parametrize(
    "sections",
    [[["stages", 0, 2]], [["stages", 0, -1]], [["stages", 0, 1 << 40]], [["?", 0, 1]], [["stages", 0]], [], {}, 7,
     [["stages", "0", 1]], [[["stages"], 0, 1]], [[None, 0, 1]]],
)  # fmt: skip
def test_sections_that_do_not_fit_make_it_none(sections: object) -> None:
    assert batches.decode_batches(sections_of(sections), RUN).batches == []


def test_what_is_too_large_is_refused_by_who_makes_it() -> None:
    with pytest.raises(FormatError):
        batches.encode_batch({}, [(batches.STAGES, 0, bytes(batches.BODY_AT_MOST // 40 * 40 + 40))])
    with pytest.raises(FormatError):
        batches.encode_batch({}, [(batches.STAGES, 0, b"half a row")])


def test_of_a_file_with_any_damage_every_whole_batch_behind_it_is_read() -> None:
    chance = random.Random(soak.seed())
    for _ in range(soak.rounds(2000, 60)):
        content = bytearray(b"".join(frame(number) for number in range(6)))
        for _ in range(chance.randrange(4)):
            content[chance.randrange(len(frame(0)), len(frame(0)) * 3)] = chance.randrange(256)
        decoded = batches.decode_batches(bytes(content) + frame(6)[: chance.randrange(40)], RUN)

        assert numbers(decoded.batches)[0] == 0
        assert numbers(decoded.batches)[-3:] == [3, 4, 5]


def test_a_growing_file_is_followed_piece_by_piece(tmp_path: Path) -> None:
    path = tmp_path / "h-0.mxb"
    content = b"".join(frame(number, ROW * (1 + number * 100)) for number in range(9))
    follower, seen = BatchFile(path, RUN), []

    assert list(follower.read()) == [], "there is none yet"
    for end in range(0, len(content), 997):
        path.write_bytes(content[:end])
        seen += numbers(list(follower.read()))
    path.write_bytes(content)
    seen += numbers(list(follower.read()))

    assert seen == list(range(9))
    assert follower.damaged_bytes == 0


def test_a_file_that_was_put_aside_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "h-0.mxb"
    path.write_bytes(frame(0))
    follower = BatchFile(path, RUN)
    seen = numbers(list(follower.read()))
    with open(path, "ab") as stream:
        stream.write(frame(1))
    os.replace(path, tmp_path / "h-0.old.mxb")
    path.write_bytes(frame(2))

    seen += numbers(list(follower.read()))

    assert seen == [0, 1, 2]
    assert numbers(list(BatchFile(path, RUN).read())) == [0, 1, 2], "who comes later reads both"


def test_what_was_half_written_and_taken_back_is_forgotten(tmp_path: Path) -> None:
    """A full disk: the writer takes back what it could not end."""
    path = tmp_path / "h-0.mxb"
    path.write_bytes(frame(0) + frame(1)[:20])
    follower = BatchFile(path, RUN)
    seen = numbers(list(follower.read()))
    path.write_bytes(frame(0))
    seen += numbers(list(follower.read()))
    path.write_bytes(frame(0) + frame(2))

    assert seen + numbers(list(follower.read())) == [0, 2]


@pytest.fixture
def handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of which 40 of 50 batches were read; who reads on begins two and a bit before."""
    monkeypatch.setattr(batches, "READ_AGAIN_BYTES", 2 * len(frame(0)) + 9)
    path = tmp_path / "h-0.mxb"
    path.write_bytes(b"".join(map(frame, range(40))))
    return path


def test_the_next_reader_goes_on_shortly_before_where_one_was_in_the_middle_of_a_batch(handed_on: Path) -> None:
    first = BatchFile(handed_on, RUN)
    list(first.read())
    with open(handed_on, "ab") as stream:
        stream.write(b"".join(map(frame, range(40, 50))))

    assert numbers(list(BatchFile(handed_on, RUN, first.position).read())) == list(range(38, 50))


def test_the_next_reader_goes_on_in_what_was_put_aside_meanwhile(handed_on: Path) -> None:
    first = BatchFile(handed_on, RUN)
    list(first.read())
    handed_on.rename(handed_on.with_name("h-0.old.mxb"))
    handed_on.write_bytes(frame(40))
    second = BatchFile(handed_on, RUN, first.position)

    assert second.position == first.position, "nothing is read yet"
    assert numbers(list(second.read())) == [38, 39, 40]


def test_of_files_that_are_others_than_what_was_read_the_next_reader_reads_all(handed_on: Path) -> None:
    """A run that was copied, say."""
    (handed_on.with_name("h-0.old.mxb")).write_bytes(frame(7))

    assert numbers(list(BatchFile(handed_on, RUN, (1, 10**6)).read())) == [7, *range(40)]


def test_neither_a_link_nor_a_pipe_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(frame(1))
    (tmp_path / "a-0.mxb").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "b-0.mxb")

    assert [list(BatchFile(tmp_path / name, RUN).read()) for name in ("a-0.mxb", "b-0.mxb")] == [[], []]
