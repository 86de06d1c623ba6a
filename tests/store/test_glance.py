"""A glance at a live file: step and stage of a process that records, on both engines, without its knowing."""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from builders import lives, packing

import mstxkit
from mstxkit.engine.choose import engine
from mstxkit.errors import FormatError
from mstxkit.recorder import current
from mstxkit.store import livefile, records
from mstxkit.store.glance import Glimpse, LiveGlance, newest_kinds, newest_records


@pytest.fixture
def glance(tmp_path: Path) -> Iterator[Callable[[], Glimpse | None]]:
    """Looks at the live file of this process."""
    with lives.own_run(tmp_path) as run, mstxkit.capture(run, poll_every_s=0):
        assert current.recorder is not None
        yield LiveGlance(current.recorder.live.path).look


def seen(look: Callable[[], Glimpse | None]) -> Glimpse:
    found = look()
    assert found is not None
    return found


def test_before_anything_there_is_no_step_and_no_stage(glance: Any) -> None:
    assert seen(glance)[1:] == (None, None, None)
    assert seen(glance).identity["pid"] == os.getpid()


def test_the_stage_is_the_innermost_that_is_open_and_since_when(glance: Any) -> None:
    before_ns = time.monotonic_ns()
    with mstxkit.at_step(7), mstxkit.stage("actor_update"):
        within_ns = time.monotonic_ns()
        with mstxkit.mstx_range("micro batch"):
            found = seen(glance)

    assert found.step == 7
    assert found.stage == "actor_update"
    assert found.since_ns is not None
    assert before_ns - 10**6 <= found.since_ns <= within_ns + 10**6


def test_between_two_stages_the_step_is_that_of_the_newest_record(glance: Any) -> None:
    for step in (3, 4):
        with mstxkit.at_step(step), mstxkit.stage("actor_update", tokens=5, kind="long"):
            pass

    assert seen(glance)[1:] == (4, None, None)


def test_the_step_is_kept_when_its_bank_was_sealed(glance: Any) -> None:
    """A rank may be in no range for a while, and all that it had is in the run by then."""
    with mstxkit.at_step(4), mstxkit.mstx_range("work"):
        pass
    assert seen(glance).step == 4
    recorder = current.recorder
    assert recorder is not None
    engine.rotate()
    recorder.sealer.seal_full_banks()

    assert seen(glance).step == 4


def test_a_stage_that_is_new_in_a_later_bank_has_its_name(glance: Any) -> None:
    with mstxkit.stage("outer"):
        assert seen(glance).stage == "outer"
        engine.rotate()
        with mstxkit.stage("inner"):
            assert seen(glance).stage == "inner"
        assert seen(glance).stage == "outer"


def test_of_a_file_that_is_none_it_says_so(tmp_path: Path) -> None:
    file = tmp_path / "x.live"
    file.write_bytes(b"no live file" * 1000)

    with pytest.raises(FormatError):
        LiveGlance(file).look()


def test_a_file_that_is_still_being_made_or_closed_says_nothing(glance: Any, tmp_path: Path) -> None:
    assert current.recorder is not None
    copy = tmp_path / "copy.live"
    content = bytearray(bytes(current.recorder.live.view))
    for state in (livefile.BEING_MADE, livefile.CLOSED):
        livefile.set_state(memoryview(content), state)
        copy.write_bytes(content)

        assert LiveGlance(copy).look() is None


def test_damage_is_no_more_than_an_error(glance: Any, tmp_path: Path) -> None:
    """Whatever stands in a header, nothing is read beyond the file, and nothing but FormatError is raised."""
    assert current.recorder is not None
    with mstxkit.stage("actor_update"):
        content = bytes(current.recorder.live.view)
    for at in range(8, 200, 4):
        damaged = bytearray(content)
        damaged[at : at + 4] = b"\xff\xff\xff\xff"
        copy = tmp_path / "damaged.live"
        copy.write_bytes(damaged)
        try:
            LiveGlance(copy).look()
        except FormatError:
            continue


def test_a_stage_is_seen_below_more_open_ranges_than_are_read_at_first(glance: Any) -> None:
    with mstxkit.at_step(9), ExitStack() as stack:
        for number in range(200):
            stack.enter_context(mstxkit.mstx_range(f"range {number}"))
        stack.enter_context(mstxkit.stage("actor_update"))
        found = seen(glance)
    after = seen(glance)

    assert (found.step, found.stage) == (9, "actor_update")
    assert (after.step, after.stage) == (9, None)


def test_kinds_are_counted_as_the_records_say_without_attributes_and_what_is_damaged(tmp_path: Path) -> None:
    salt, chance = 77, random.Random(1)
    raw = [
        packing.record(_record(chance, index), salt, index + (index % 7 == 3)) for index in range(200)
    ]  # of every seventh the check bits are another place's
    file = tmp_path / "bank"
    file.write_bytes(b"\0" * livefile.BANK_HEADER_BYTES + b"".join(raw))
    bank = livefile.BankHead(1, livefile.ACTIVE, salt, 0, 200, 0, 0)
    with file.open("rb") as opened:
        newest = list(newest_records(opened.fileno(), 0, bank, 64))
        kinds = newest_kinds(opened.fileno(), 0, bank, 64)

    assert set(kinds) == {(record.stage, record.site, record.track) for record in newest}
    assert all(kinds[record.stage, record.site, record.track] >= newest.count(record) for record in newest)
    assert sum(kinds.values()) <= 64 - sum(records.kind_of(records.WORDS.unpack(one)[2]) == 2 for one in raw[-64:])


def _record(chance: random.Random, index: int) -> records.Record:
    kind = chance.choice((records.RANGE, records.RANGE, records.MARK, records.ATTRIBUTE))
    place = chance.randrange(3), chance.randrange(3), chance.randrange(5), chance.randrange(2)
    return records.Record(1000 + index, 10, *place, 0, False, kind)
