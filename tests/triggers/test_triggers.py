"""Each trigger answers its question from values alone."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from mstxkit import triggers  # noqa: E402
from mstxkit.triggers import every_n, jitter, late_rank, on_request, slow_link, slow_rank, slow_stage  # noqa: E402

times = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12)


def summed(values: list[list[float]], noise: float = 0.05) -> slow_rank.AddedUp:
    """Of one stage, a list of ranks' excess for each step."""
    limits = slow_rank.SlowRank()
    sums = slow_rank.empty_sums(len(values[0]), 1)
    for step in values:
        sums = slow_rank.added(sums, np.array(step)[:, None], np.array([noise]), limits.slack, limits.clip)
    return sums


def test_every_file_of_the_folder_is_a_trigger_with_settings_that_are_described() -> None:
    for name, trigger in triggers.load_triggers().items():
        assert trigger.__name__ == name.title().replace("_", "")
        assert trigger.__doc__ and trigger.__doc__.endswith("?")
        assert trigger()


def test_a_rank_that_is_slower_in_every_step_is_slow_after_a_few() -> None:
    limits = slow_rank.SlowRank()
    sums = summed([[0.0, 0.22, 0.0]] * 5)

    assert slow_rank.find_slow(limits, sums, 3)[:, 0].tolist() == [False, True, False]


def test_a_rank_that_was_slow_once_is_not_slow_however_slow_it_was() -> None:
    sums = summed([[0.0, 50.0, 0.0], *[[0.0, 0.0, 0.0]] * 3])

    assert not slow_rank.find_slow(slow_rank.SlowRank(), sums, 3).any()


def test_a_step_in_which_nothing_was_seen_changes_nothing() -> None:
    before = summed([[0.0, 0.2, 0.0]] * 3)
    after = slow_rank.added(before, np.full((3, 1), np.nan), np.array([0.05]), 0.5, 4.0)

    assert all((one == other).all() for one, other in zip(before, after))


def test_the_threshold_grows_with_the_number_of_ranks_that_are_compared() -> None:
    limits = slow_rank.SlowRank()

    assert (
        slow_rank.threshold_for(limits, 10_240)
        > slow_rank.threshold_for(limits, 1024)
        > slow_rank.threshold_for(limits, 8)
    )
    assert slow_rank.threshold_for(limits, 8) == limits.threshold


@given(times, st.floats(-1e6, 1e6))
@settings(max_examples=60, deadline=None)
def test_lateness_is_the_same_whatever_all_clocks_say(entered: list[float], constant: float) -> None:
    values = np.array(entered)

    assert late_rank.after_others(values + constant) == pytest.approx(late_rank.after_others(values), abs=1e-6)


@given(times, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_whoever_is_listed_first_is_as_late_as_when_listed_last(entered: list[float], random) -> None:  # type: ignore[no-untyped-def]
    order = list(range(len(entered)))
    random.shuffle(order)
    values = np.array(entered)

    assert (late_rank.after_others(values[order]) == late_rank.after_others(values)[order]).all()


def test_of_two_each_is_late_by_the_other() -> None:
    assert late_rank.after_others(np.array([1.0, 3.0])).tolist() == [-2.0, 2.0]


def test_a_middle_leaves_out_who_was_not_there() -> None:
    values = np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, np.nan]])

    assert late_rank.middle_of(values)[0] == 2
    assert np.isnan(late_rank.middle_of(values)[1])


def test_a_stage_that_became_slower_for_all_is_slow_and_one_that_jumps_is_not() -> None:
    limits, change = slow_stage.SlowStage(), slow_rank.empty_sums(2)
    for step in range(12):
        change = slow_rank.added(
            change, np.array([0.15, 0.15 * (-1) ** step]), np.array([0.05, 0.05]), limits.slack, limits.clip, 0.0
        )

    assert slow_stage.find_slower(limits, change).tolist() == [True, False]


def test_a_rank_is_named_where_all_its_groups_are_slow_and_the_others_are_not() -> None:
    groups = {0: (0, 1), 1: (2, 3), 2: (0, 2), 3: (1, 3)}

    assert slow_link.find_shared(groups, [0, 2]) == (0,)


def test_one_group_alone_separates_no_rank() -> None:
    assert slow_link.find_shared({0: (0, 1, 2, 3)}, [0]) == ()
    assert slow_link.find_shared({0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}, [0]) == ()


def test_a_slow_group_of_two_is_a_pair() -> None:
    assert slow_link.find_shared({0: (0, 1), 1: (2, 3)}, [1]) == (2, 3)


def test_stalls_count_when_there_are_more_than_chance_has() -> None:
    limits = jitter.Jitter()

    assert not jitter.is_fault(limits, 3, 1.2)
    assert jitter.is_fault(limits, 20, 1.2)
    assert jitter.is_fault(limits, 3, 0.03) and not jitter.is_fault(limits, 3, 0.03, among=64)  # of 64 one had as many


def test_every_nth_step_and_a_step_that_was_asked_for_have_their_turn_once() -> None:
    assert [step for step in range(7) if every_n.is_turn(every_n.EveryN(3), step)] == [3, 6]
    assert not every_n.is_turn(every_n.EveryN(), 3)
    asked = [step for step in range(0, 20, 2) if on_request.is_asked(on_request.OnRequest(7), step, step - 2)]
    assert asked == [8]
