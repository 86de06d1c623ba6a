"""A request for a part of each occurrence: the session covers just these pieces, as patched functions tell them."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import pytest
from builders.rank_on_duty import UPDATE, Rank, listen

from mstxkit.pieces import boundaries

Pieces = Callable[[int], None]


@pytest.fixture
def pieces(rank: Rank) -> Iterator[Pieces]:
    """An update of so many micro-batches, each of which is a range of its own."""
    site = rank.engine.intern("micro")
    undo = boundaries.declare_site(site, "micro_batch")

    def update(count: int) -> None:
        with rank.engine.stage(UPDATE):
            for _ in range(count):
                with rank.engine.timed(site):
                    pass

    yield update
    undo()


def micro(rank: Rank) -> list[str]:
    return [one for one in rank.session.did if "micro" in one or one[0] in "+-"]


def test_a_sample_is_the_pieces_asked_for_in_each_occurrence(rank: Rank, pieces: Pieces) -> None:
    request = rank.ask(occurrences=2, sample={"per": "micro_batch", "skip": 1, "record": 2})
    listen(rank.engine, rank.session.did)
    pieces(5)
    pieces(4)
    pieces(4)

    piece = ["begin micro", "end micro"]
    sampled = [*piece, "+actor_update", *piece, *piece, "-actor_update"]
    assert micro(rank) == [*sampled, *piece, *piece, *sampled, *piece, *piece * 4]
    assert (rank.last(request).state, rank.last(request).recorded) == ("done", 2)


def test_an_occurrence_that_is_too_short_for_its_sample_says_so(rank: Rank, pieces: Pieces) -> None:
    request = rank.ask(occurrences=1, sample={"per": "micro_batch", "skip": 3})
    pieces(2)

    assert not rank.session.orders
    assert "too short for its sample" in rank.last(request).reason

    pieces(4)
    assert rank.last(request).state == "done"


def test_a_sample_of_what_nobody_counts_here_is_refused(rank: Rank, pieces: Pieces) -> None:
    pieces(1)
    request = rank.ask(occurrences=1, sample={"per": "decode_step"})

    last: Any = rank.last(request)
    assert (last.state, "micro_batch" in last.reason) == ("refused", True)
