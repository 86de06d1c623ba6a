"""What members wait for in a stage, to take it from a queue or another process, is not their own time."""

from __future__ import annotations

from typing import Any, Callable

import pytest

np = pytest.importorskip("numpy")

from builders.judged import role_step  # noqa: E402

from mstxkit.judging import cutting  # noqa: E402
from mstxkit.judging.evidence import CALL, MEET, TAKE, Collectives, RoleStep  # noqa: E402
from mstxkit.judging.judge import JobJudge  # noqa: E402
from mstxkit.judging.shaping import TakingStages  # noqa: E402
from mstxkit.store.verdicts import Verdict  # noqa: E402

MEMBERS, STEPS = 8, 55
STAGES = ("wait_for_samples", "actor_update", "optimizer")
Waits = list[tuple[int, float, float, int]]


def entries(waits: Waits, kind: int = TAKE) -> Collectives:
    """Member, begin, end and stage of each, every one a call of its own."""
    member, entered, left, stage = (np.array(column) for column in zip(*waits))
    count = np.arange(len(waits))
    return Collectives(
        member, 100 + member, count, entered, left, stage, {}, CALL, np.full(len(waits), kind), left - entered
    )


def said_of(play: Callable[[Any, int], tuple[Any, Any, Any]]) -> list[Verdict]:
    """Of trainers that take, update, and meet. `play`: what each waits before, and in its update, and its update."""
    random, judge, said = np.random.default_rng(3), JobJudge(), list[Verdict]()
    now = np.full(MEMBERS, 1000.0)
    for number in range(STEPS):
        before, within, update = play(random, number)
        taken, updated = now + before + 0.005, now + before + 0.005 + within + update
        met = np.full(MEMBERS, updated.max() + 0.05) + random.exponential(1e-4, MEMBERS)
        entered, left = np.stack([now, taken, updated], axis=1), np.stack([taken, updated, met], axis=1)
        waits = [(rank, now[rank], now[rank] + before[rank], 0) for rank in range(MEMBERS)]
        waits += [(rank, taken[rank] + 0.01, taken[rank] + 0.01 + within[rank], 1) for rank in range(MEMBERS)]
        step = role_step(number, STAGES, entered.tolist(), left.tolist(), error_s=2e-5)
        said += judge.close(step._replace(collectives=entries(waits))).verdicts
        now = met
    return said


def trainer(random: Any) -> tuple[Any, Any]:
    """(M,) a wait, of which rank 1's is the longest time after time, and an update."""
    wait = np.abs(random.normal(0.3, 0.06, MEMBERS)) + 0.4 * (np.arange(MEMBERS) == 1)
    return wait, np.abs(random.normal(1.0, 0.03, MEMBERS))


@pytest.mark.parametrize("is_within", [False, True])
def test_of_trainers_that_are_fed_nobody_is_named_for_what_it_waits(is_within: bool) -> None:
    def play(random: Any, number: int) -> tuple[Any, Any, Any]:
        wait, update = trainer(random)
        return (np.full(MEMBERS, 0.01), wait, update) if is_within else (wait, np.full(MEMBERS, 1e-6), update)

    assert said_of(play) == []


def test_a_slow_one_among_them_is_named_with_what_it_costs() -> None:
    def play(random: Any, number: int) -> tuple[Any, Any, Any]:
        wait, update = trainer(random)
        return wait, np.full(MEMBERS, 1e-6), update * np.where((np.arange(MEMBERS) == 3) & (number > 30), 1.8, 1.0)

    said = said_of(play)

    assert {(verdict.rank, verdict.stage) for verdict in said} == {(3, "actor_update")}
    assert said[-1].impact_ratio == pytest.approx(0.4 / 2.15, abs=0.03)


def waited(step: RoleStep) -> list[list[float]]:
    told = TakingStages().tell_waits(step)
    assert told.collectives is None and told.waited_s is not None
    found: list[list[float]] = told.waited_s.tolist()
    return found


def test_waits_are_taken_off_the_stage_in_which_they_are_alone() -> None:
    """Not those that overlap, as of several tasks, nor one that goes on beyond its stage, nor those for its input."""
    stages = ("actor_update", "load_batch")
    step = role_step(0, stages, [[0.0, 5.0]] * 4, [[4.0, 9.0]] * 4)
    alone, both = [(0, 1.0, 2.0, 0), (0, 2.5, 3.0, 0)], [(1, 1.0, 2.0, 0), (1, 1.5, 2.5, 0)]
    taking = step._replace(collectives=entries([*alone, *both, (2, 3.0, 4.5, 0), (3, 5.0, 8.0, 1)]))

    assert waited(taking) == [[1.5, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    pieces = cutting.in_pieces(TakingStages().tell_waits(taking), None)
    assert pieces.took_s[:, pieces.kinds.index(cutting.Piece(cutting.IN, "actor_update"))].tolist() == [2.5, 4, 4, 4]


def test_a_stage_around_another_does_not_get_what_is_waited_in_that() -> None:
    step = role_step(0, ("step", "take"), [[0.0, 1.0]] * 2, [[10.0, 5.0]] * 2)
    told = TakingStages().tell_waits(step._replace(collectives=entries([(0, 1.0, 4.0, 1)])))
    pieces = cutting.in_pieces(told, None)
    own = {kind: pieces.took_s[0, at] for at, kind in enumerate(pieces.kinds)}

    assert own[cutting.Piece(cutting.IN, "take")] == 1.0
    assert own[cutting.Piece(cutting.IN, "step")] + own[cutting.Piece(cutting.REST, "step")] == pytest.approx(6.0)


def test_a_stage_in_which_hardly_anything_else_is_done_waits_for_another_side() -> None:
    taking, told = TakingStages(), None
    for number in range(20):
        step = role_step(number, ("take",), [[0.0]] * 2, [[10.0]] * 2)
        told = taking.tell_waits(step._replace(collectives=entries([(0, 0.1, 9.9, 0), (1, 0.1, 9.9, 0)])))

    assert told is not None and dict(told.waits_for) == {"take": ""}


def test_collectives_are_kept_beside_what_is_taken() -> None:
    step = role_step(0, ("actor_update",), [[0.0]] * 2, [[10.0]] * 2)
    met = entries([(0, 5.0, 6.0, 0), (1, 6.0, 6.0, 0)], MEET)
    both = entries([(0, 1.0, 2.0, 0)])
    names = [name for name in met._fields if name not in ("groups", "source", "is_of_host")]
    together = met._replace(**{name: np.concatenate([getattr(met, name), getattr(both, name)]) for name in names})

    assert TakingStages().tell_waits(step._replace(collectives=together)).collectives is not None
