"""Rows of collectives, and what is said of their groups."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from builders import soak

from mstxkit.store import collectives, handed_over
from mstxkit.store.collectives import CollectiveEntry
from mstxkit.store.documents import Unusable

ENTRY = CollectiveEntry(4_000_000_000, 17, 1_234_567_890_123, 0, 3, collectives.DISTURBED, 1 << 40)


def test_a_row_is_32_bytes_and_comes_back_with_what_fits() -> None:
    data = ENTRY.pack()

    assert len(data) == collectives.ROW_BYTES == 32 == np.dtype(collectives.FIELDS).itemsize
    assert list(collectives.unpack_entries(data + data[:9])) == [ENTRY._replace(size_kib=0xFFFFFFFF)]


def test_numpy_reads_the_same() -> None:
    row = np.frombuffer(ENTRY.pack(), dtype=np.dtype(collectives.FIELDS))[0]

    assert (int(row["group"]), int(row["entered_ns"]), int(row["flags"])) == (ENTRY[0], ENTRY[2], ENTRY[5])


@pytest.mark.parametrize(
    ("ranks", "text"),
    [(range(10_000), "0-9999"), (range(1, 1024, 4), "1-1021/4"), ([5], "5"), ([9, 3, 4, 0], "0,3-4,9"), ([], "")],
)
def test_ranks_are_said_in_runs(ranks: list[int], text: str) -> None:
    assert collectives.ranks_as_text(ranks) == text
    assert collectives.ranks_in(text) == tuple(sorted(ranks))


def test_any_ranks_come_back_or_are_not_said() -> None:
    draw = random.Random(soak.seed())
    for _ in range(soak.rounds(2000, 200)):
        ranks = sorted(draw.sample(range(64), draw.randrange(1, 64)))
        assert collectives.ranks_in(collectives.ranks_as_text(ranks)) in (tuple(ranks), ())


@pytest.mark.parametrize("text", ["x", "1-", "-1", "0-999999999", "1/2", "١", None, 7, "0," * 50])
def test_what_is_no_text_of_ranks_names_nobody(text: object) -> None:
    assert collectives.ranks_in(text) == ()


def test_groups_that_are_none_are_left_out() -> None:
    good = {"name": "0", "ranks": "0-3"}
    document = {"groups": {"12": good, "x": good, "99999999999": good, "13": "no", "14": {"ranks": 3}}}

    assert collectives.groups_in(document) == {12: (0, 1, 2, 3), 14: ()}
    assert collectives.groups_in({"groups": []}) == {}


def test_they_are_handed_over_in_a_ring_of_their_own_kind(tmp_path: Path) -> None:
    file = tmp_path / "a.rings"
    handed_over.SummaryRing(file, 8, handed_over.OF_COLLECTIVES).put(ENTRY.pack() * 3, {"rank": 1})
    new = handed_over.HandedOver(file, kind=handed_over.OF_COLLECTIVES).read_new()

    assert (new.rows, new.missed, new.document) == (ENTRY.pack() * 3, 0, {"rank": 1})
    with pytest.raises(Unusable, match="no file of its kind"):
        handed_over.HandedOver(file).read_new()


def test_each_asking_is_seen_once(tmp_path: Path) -> None:
    before = collectives.find_asked(tmp_path)
    collectives.ask_rings(tmp_path)
    first = collectives.find_asked(tmp_path)
    collectives.ask_rings(tmp_path)

    assert before == ()
    assert collectives.find_asked(tmp_path) not in (first, ())
