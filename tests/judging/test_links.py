"""Which collectives take long though all entered in time, where their times are as wild as on shared cores."""

from __future__ import annotations

from typing import Callable

import pytest

np = pytest.importorskip("numpy")

from builders.judged import collectives, role_step  # noqa: E402

from mstxkit.judging.evidence import CALL, MEET, RECEIVE, SEND, RoleStep  # noqa: E402
from mstxkit.judging.judge import JobJudge  # noqa: E402
from mstxkit.store.verdicts import Verdict  # noqa: E402

STEPS, SINCE = 90, 40
random = np.random.default_rng


def meeting(
    took_s: Callable[[int], float], behind_s: Callable[[int], float] = lambda _: 0.0, ranks: int = 2
) -> list[RoleStep]:
    """Steps of 80 ms: each rank computes alone, then all meet in one collective that takes `took_s`; rank 1 leaves
    the stage `behind_s` later than the others.
    """
    noise, now, steps = random(1), np.full(ranks, 100.0), []
    for step in range(STEPS):
        entered = now + 0.0005
        alone = entered + 0.05 * np.exp(noise.normal(0, 0.01, ranks))
        came = alone + 0.016 + noise.exponential(1e-4, ranks)
        left = np.full(ranks, came.max() + took_s(step))
        left[1] += behind_s(step)
        rings = collectives(
            [(rank, 7, step, came[rank], left.min(), 1) for rank in range(ranks)], groups={7: tuple(range(ranks))}
        )
        stages, times = ("forward", "backward"), (np.stack([entered, alone], 1), np.stack([alone, left], 1))
        steps.append(role_step(step, stages, *times, role="", collectives=rings))
        now = left
    return steps


def standing(steps: list[RoleStep]) -> list[Verdict]:
    judge = JobJudge()
    for step in steps:
        judge.close(step)
    return [verdict for verdict in judge.standing() if verdict.is_blaming]


def two_levels(upper: float) -> Callable[[int], float]:
    """Half a millisecond, or with that probability five; some of the latter one after the other."""
    draw = random(3)
    often = {step: 0.9 if 55 <= step < 70 else upper for step in range(STEPS)}
    times = {step: 0.005 if draw.random() < often[step] else 0.0006 for step in range(STEPS)}
    return lambda step: times[step] * float(np.exp(random(step).normal(0, 0.1)))


def test_collectives_that_are_at_the_upper_of_their_two_levels_for_a_while_are_no_slow_link() -> None:
    assert standing(meeting(two_levels(0.3))) == []


def test_times_that_were_tight_at_first_and_wild_for_good_are_no_slow_link() -> None:
    wild = two_levels(0.4)

    assert standing(meeting(lambda step: 0.0006 if step < 15 else wild(step))) == []


def test_a_slow_link_is_found_in_wild_times_once_nearly_every_step_is_slower() -> None:
    wild = two_levels(0.3)
    (verdict,) = standing(meeting(lambda step: wild(step) + (0.02 if step >= SINCE else 0.0)))

    assert (verdict.kind, verdict.stage, verdict.group) == ("link", "backward", (0, 1))
    assert verdict.since_step in range(SINCE - 2, SINCE + 3)
    assert verdict.impact_ratio == pytest.approx(0.02 / 0.09, abs=0.03)


def test_who_leaves_the_collectives_of_a_slow_link_a_little_later_is_not_blamed_beside_it() -> None:
    slow = [step >= SINCE for step in range(STEPS)]
    steps = meeting(lambda step: 0.001 + 0.02 * slow[step], lambda step: 0.002 * slow[step])

    assert [(verdict.kind, verdict.rank) for verdict in standing(steps)] == [("link", None)]


def test_who_is_as_late_itself_is_named_beside_a_slow_link() -> None:
    slow = [step >= SINCE for step in range(STEPS)]
    steps = meeting(lambda step: 0.001 + 0.02 * slow[step], lambda step: 0.03 * slow[step])

    assert ("compute", 1) in {(verdict.kind, verdict.rank) for verdict in standing(steps)}


def test_a_link_that_is_mended_is_blamed_no_longer() -> None:
    assert standing(meeting(lambda step: 0.021 if SINCE <= step < SINCE + 12 else 0.001)) == []


def test_a_few_steps_that_were_quick_at_first_do_not_make_a_slow_link_of_a_burst_of_others() -> None:
    judge = JobJudge()
    steps = meeting(lambda step: 0.008 if 11 <= step < 19 else 0.0006)
    said = [verdict for step in steps for verdict in judge.close(step).verdicts]

    assert [verdict for verdict in said if verdict.kind == "link"] == []


@pytest.mark.parametrize(("waited", "kinds"), [(0.01, ["link"]), (0.3, [])])
def test_collectives_whose_members_wait_for_a_cpu_as_long_tell_of_no_link(waited: float, kinds: list[str]) -> None:
    steps = meeting(lambda step: 0.021 if step >= SINCE else 0.001)
    cpu = np.array([[0.3, 0.01], [0.3, waited]])

    found = standing([step._replace(cpu=cpu) for step in steps])
    assert [verdict.kind for verdict in found if verdict.kind in ("link", "communication")] == kinds


def grid(slow_s: float = 0.0) -> list[RoleStep]:
    """Pairs of ranks meet twice in each step of 50 ms, for 10 ms that vary as on shared cores, and each sends to one
    of another pair once, within half a millisecond. Real: eight processes of gloo on two cores.
    """
    noise, steps, kinds = random(5), [], np.array([MEET] * 16 + [SEND, RECEIVE] * 4)
    pairs, handed = [(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 2), (1, 3), (4, 6), (5, 7)]
    for step in range(STEPS):
        begun, entries = 100 + 0.05 * step, []
        for group, pair in enumerate(pairs):
            more_s = slow_s if group == 1 and step >= SINCE else 0.0
            for at, took_s in enumerate(0.005 * np.exp(noise.normal(0, 0.4, 2)) + more_s):
                came = begun + 0.005 + 0.02 * at
                entries += [(rank, group, 2 * step + at, came, came + took_s, 0) for rank in pair]
        for group, pair in enumerate(handed, 4):
            sent = begun + 0.045
            entries += [(rank, group, step, sent, sent + 0.0005 * np.exp(noise.normal(0, 0.4)), 0) for rank in pair]
        groups = dict(enumerate([*pairs, *handed]))
        rings = collectives(entries, groups=groups, source=CALL, kind=kinds, waited_s=np.zeros(24))
        times = np.full((8, 1), begun), np.full((8, 1), begun + 0.049)
        steps.append(role_step(step, ("forward",), *times, role="", collectives=rings))
    return steps


def test_collectives_are_not_compared_with_sends_that_as_many_ranks_do_beside_them() -> None:
    """Compared with sends of half a millisecond, pairs that met for 10 ms were slow links: in half of healthy jobs."""
    judge = JobJudge()
    said = [verdict for step in grid() for verdict in judge.close(step).verdicts]

    assert [verdict for verdict in said if verdict.kind == "link"] == []


def test_one_of_several_pairs_that_meet_is_a_slow_link_beside_pairs_that_send() -> None:
    (verdict,) = [verdict for verdict in standing(grid(slow_s=0.008)) if verdict.kind == "link"]

    assert verdict.group == (2, 3)
