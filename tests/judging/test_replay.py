"""Steps gone through again without some of their time: who would be done earlier, and by how much."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from mstxkit.judging.cutting import IN, Piece  # noqa: E402
from mstxkit.judging.evidence import RECEIVE, SEND, Collectives, Peer  # noqa: E402
from mstxkit.judging.inside import Entered  # noqa: E402
from mstxkit.judging.measuring import HANDED  # noqa: E402
from mstxkit.judging.replay import Course, Less, leads_of  # noqa: E402


def test_who_receives_is_no_earlier_than_it_was_sent_though_the_sender_has_gone_on() -> None:
    """0 sends to 1 at 1, and to 2 at 2. 1 takes it at 3 and sends at 4, after 3 s and 1 s of its own, of which 80 % go.
    2 takes its own at 6.
    """
    entered_s = np.array([1.0, 3.0, 2.0, 6.0, 4.0])
    rings = Collectives(
        member=np.array([0, 1, 0, 2, 1]), group=np.array([0, 0, 1, 1, 2]), sequence=np.ones(5, int),
        entered_s=entered_s, left_s=entered_s + 1e-6, stage=np.zeros(5, int), groups={},
        kind=np.array([SEND, RECEIVE, SEND, RECEIVE, SEND]),
    )  # fmt: skip
    no, has_waited = np.zeros(5, bool), np.array([False, False, False, False, True])
    own_s = np.array([1.0, 3.0, 1.0, 6.0, 1.0])
    entered = Entered(rings, np.array([0, 0, 1, 1, 2]), own_s, has_waited, no, np.zeros(5), np.zeros((3, 1)))
    times, ends = np.full((3, 1), 7.0), np.full(3, 7.0)
    course = Course(
        "actor", 1, (Peer(0), Peer(1), Peer(2)), (Piece(IN, "forward"),), np.zeros(1, int), np.array([HANDED]),
        0 * times, times, times, 0 * times, (None,), (None,), (None,), 0 * ends, ends, entered,
        times, 0 * times, 0 * times,
    )  # fmt: skip

    lead_s = leads_of([course], {course.place: [Less(0, np.array([0.0, 3.2, 0.0]), is_inside=True)]})[course.place]

    assert lead_s[:, -1] == pytest.approx([0.0, 2.0 + 0.8, 0.0])
