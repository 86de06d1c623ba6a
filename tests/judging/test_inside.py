"""What collectives tell of the inside of a stage."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from builders.judged import collectives, role_step  # noqa: E402

from mstxkit.judging.evidence import CALL, MEET, RECEIVE, SEND  # noqa: E402
from mstxkit.judging.inside import measure_inside  # noqa: E402
from mstxkit.judging.meeting import after_those, labels_in, last_of  # noqa: E402

STAGES = ("actor_update",)


def test_own_time_goes_from_the_release_to_the_next_entry() -> None:
    step = role_step(0, STAGES, [[0.0], [0.0]], [[10.0], [10.0]])
    rings = collectives([
        (0, 0, 1, 1.0, 3.0, 0), (1, 0, 1, 3.0, 3.0, 0), (0, 0, 2, 4.0, 6.0, 0), (1, 0, 2, 6.0, 6.0, 0),
    ])  # fmt: skip

    assert measure_inside(step, rings).own_s.tolist() == [[2.0], [6.0]]


def test_who_waits_in_one_group_is_not_late_in_the_next() -> None:
    """Rank 1 is late in group 0; rank 0 waited for it, and so comes late to group 1, where rank 2 is on time."""
    step = role_step(0, STAGES, [[0.0], [0.0], [0.0]], [[10.0]] * 3)
    rings = collectives([
        (0, 0, 1, 1.0, 5.0, 0), (1, 0, 1, 5.0, 5.0, 0), (0, 1, 1, 6.0, 6.0, 0), (2, 1, 1, 2.0, 6.0, 0),
        (1, 2, 1, 6.0, 6.0, 0), (2, 2, 1, 6.1, 6.1, 0),
    ])  # fmt: skip

    own = measure_inside(step, rings).own_s[:, 0]

    assert own[1] == 6.0
    assert own[0] == 2.0
    assert own[2] == pytest.approx(2.1)


def test_whoever_does_not_wait_for_a_collective_goes_on_from_its_entry() -> None:
    step = role_step(0, STAGES, [[0.0], [0.0]], [[10.0]] * 2)
    rings = collectives([
        (0, 0, 1, 1.0, 2.0, 0), (1, 0, 1, 2.0, 2.0, 0), (0, 0, 2, 1.5, 3.0, 0), (1, 0, 2, 3.0, 3.0, 0),
    ])  # fmt: skip

    assert measure_inside(step, rings).own_s[:, 0].tolist() == [1.5, 3.0]


def test_without_ends_the_last_entry_releases_and_the_clocks_bound_counts() -> None:
    step = role_step(0, STAGES, [[0.0], [0.0]], [[10.0]] * 2, error_s=0.01)
    nan = float("nan")
    rings = collectives([
        (0, 0, 1, 1.0, nan, 0), (1, 0, 1, 3.0, nan, 0), (0, 0, 2, 4.0, nan, 0), (1, 0, 2, 6.0, nan, 0),
    ])  # fmt: skip

    tells = measure_inside(step, rings)

    assert tells.own_s[:, 0].tolist() == [2.0, 6.0]
    assert tells.error_s[:, 0].tolist() == [0.01, 0.01]
    assert tells.groups == ()


def test_a_groups_time_counts_from_when_its_last_member_has_entered() -> None:
    step = role_step(0, STAGES, [[0.0], [0.0]], [[10.0]] * 2)
    (group,) = measure_inside(step, collectives([(0, 7, 1, 1.0, 4.5, 0), (1, 7, 1, 4.0, 4.5, 0)])).groups

    assert tuple(group) == (7, 0, 0.5, 1)


def test_what_somebody_does_before_it_waits_for_what_it_has_sent_is_no_time_of_a_link() -> None:
    """Rank 1 has what it waits for at 3.2 s; rank 0 computes until 6 s before it looks, and waits for nothing.

    In a pipeline of torch's own a link was said to be slow by all that was computed beside it: 21 % of a healthy step.
    """
    step = role_step(0, STAGES, [[0.0], [0.0]], [[10.0]] * 2)
    handed = collectives(
        [(0, 7, 1, 3.0, 6.0, 0), (1, 7, 1, 1.0, 3.2, 0)],
        source=CALL, kind=np.array([SEND, RECEIVE]), waited_s=np.array([0.0, 2.2]),
    )  # fmt: skip
    (group,) = measure_inside(step, handed).groups

    assert tuple(group) == (7, 0, pytest.approx(0.2), -1)


def test_in_the_middle_of_a_pipeline_own_time_is_known_though_more_is_handed_on_there() -> None:
    """Rank 1 receives and sends, rank 0 only sends, rank 2 only receives: 1, 2 and 0 s are their own until then."""
    step = role_step(0, STAGES, [[0.0]] * 3, [[10.0]] * 3)
    handed = collectives(
        [(0, 7, 1, 1.0, 1.0, 0), (1, 7, 1, 0.0, 1.0, 0), (1, 8, 1, 3.0, 3.0, 0), (2, 8, 1, 0.0, 3.0, 0)],
        source=CALL, kind=np.array([SEND, RECEIVE, SEND, RECEIVE]), waited_s=np.array([0.0, 1.0, 0.0, 3.0]),
    )  # fmt: skip

    assert measure_inside(step, handed).own_s[:, 0].tolist() == [1.0, 2.0, 0.0]


def test_what_is_waited_for_one_of_several_that_were_begun_at_once_is_own_time_of_none() -> None:
    """Rank 0 sends and receives in one batch at 1 s; it waits for the send until 5 s, by when the other is over, too.

    Then it works for 2 s. In a pipeline of torch's own these waits made the first rank look slow: 3 of 7 s of its own.
    """
    step = role_step(0, STAGES, [[0.0], [0.0]], [[10.0]] * 2)
    handed = collectives(
        [(0, 7, 1, 1.0, 5.0, 0), (0, 8, 1, 1.1, 5.0, 0), (0, 7, 2, 7.0, 7.0, 0),
         (1, 7, 1, 5.0, 5.0, 0), (1, 8, 1, 5.0, 5.0, 0), (1, 7, 2, 5.0, 7.0, 0)],
        source=CALL, kind=np.array([SEND, RECEIVE, SEND, RECEIVE, SEND, RECEIVE]),
        waited_s=np.array([3.9, 0.0, 0.0, 0.0, 0.0, 2.0]),
    )  # fmt: skip

    assert measure_inside(step, handed).own_s[:, 0].tolist() == [pytest.approx(3.1), pytest.approx(5.0)]


def test_what_is_begun_ahead_is_waited_for_only_since_somebody_waits() -> None:
    """Rank 0 begins a collective at 1 s and works until 6 s before it waits for it; rank 1 enters it at 6.2 s."""
    step = role_step(0, STAGES, [[0.0], [0.0]], [[10.0]] * 2)
    entries = [(0, 7, 1, 1.0, 6.5, 0), (1, 7, 1, 6.2, 6.5, 0)]
    met = collectives(entries, source=CALL, kind=np.array([MEET, MEET]), waited_s=np.array([0.5, 0.3]))

    assert measure_inside(step, met).waits_s[:, 0].tolist() == [pytest.approx(0.2), 0.0]


def test_members_whose_ring_begins_later_are_left_out() -> None:
    step = role_step(0, STAGES, [[0.0]] * 3, [[10.0]] * 3)
    rings = collectives([(m, 0, s, s + 0.0, s + 0.1, 0) for m in range(3) for s in (1, 2, 3) if (m, s) != (2, 1)])

    assert np.isnan(measure_inside(step, rings).own_s[:, 0]).tolist() == [False, False, True]


def test_entries_that_belong_nowhere_are_left_out() -> None:
    step = role_step(0, STAGES, [[0.0]] * 2, [[10.0]] * 2)
    tells = measure_inside(
        step, collectives([(5, 0, 1, 1.0, 1.0, 0), (0, 0, 1, 1.0, 1.0, -1), (1, 0, 1, float("nan"), 1.0, 0)])
    )

    assert np.isnan(tells.own_s).all()


def test_groups_that_share_a_member_meet() -> None:
    chained = collectives([(0, 0, 1, 1, 1, 0), (1, 0, 1, 1, 1, 0), (1, 1, 1, 1, 1, 0), (2, 1, 1, 1, 1, 0)])
    apart = collectives([(0, 0, 1, 1, 1, 0), (1, 0, 1, 1, 1, 0), (2, 1, 1, 1, 1, 0), (3, 1, 1, 1, 1, 0)])

    assert labels_in(chained, 0, 3) is None
    assert labels_in(apart, 0, 4).tolist() == [0, 0, 2, 2]  # type: ignore[union-attr]
    assert labels_in(apart, 1, 4) is None


@pytest.mark.parametrize("labels", [[0, 0, 2, 2, 2, 2], [0, 0, 0, 3, 3, 3]])
def test_each_is_compared_with_those_that_it_meets(labels: list[int]) -> None:
    values, groups = np.arange(6.0)[:, None] ** 2, np.array(labels)
    last, after = last_of(values, groups)[:, 0], after_those(values, groups)[:, 0]

    for label in set(labels):
        inside_of = groups == label
        assert (last[inside_of] == values[inside_of].max()).all()
        assert after[inside_of][-1] > 0 > after[inside_of][0]
