"""What an async job would do with other numbers of trainers and rollouts: rows of `Run.what_if()`.

Rollouts make tokens, trainers use them up; the slower of the two sets the pace. How much each of them can do is seen in
the time in which it works: not while it waits for the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Iterator, NamedTuple

import numpy as np

from ...errors import ReadError
from ...stages import canonical
from ..role_runs import of_gap, shown_ns

if TYPE_CHECKING:
    from ..role_runs import RoleRun

MAKES, USES = ("actor_generate",), ("actor_update", "actor_compute_log_prob")
# Moved from one side to the other, as shares of the smaller side.
_MOVED = (0.125, 0.25, 0.5)


class AskedSplit(NamedTuple):
    """Numbers that somebody asks for; None: as many as there are."""

    trainers: int | None = None
    rollouts: int | None = None


def asked_for(trainers: int | None, rollouts: int | None) -> AskedSplit | None:
    """What is asked for; None: nothing.

    Raises:
        ReadError: a number is below 1.
    """
    if any(number is not None and number < 1 for number in (trainers, rollouts)):
        raise ReadError(f"trainers={trainers}, rollouts={rollouts}: give whole numbers from 1 on")
    return None if trainers is None and rollouts is None else AskedSplit(trainers, rollouts)


def rows(runs: tuple[RoleRun, ...], kind: str, asked: AskedSplit | None = None) -> Iterator[tuple[Any, ...]]:
    """Rows of that kind, with the one that is asked for; none where no two roles make and use up tokens.

    Raises:
        ReadError: nothing tells of what is asked for.
    """
    rollouts = next((run for run in runs if _has(run, MAKES) and not _has(run, USES)), None)
    trainers = next((run for run in runs if _has(run, USES) and not _has(run, MAKES)), None)
    if rollouts is None or trainers is None:
        _refuse(asked, "one role generates and another one trains")
        return
    made, used = (_tokens_a_busy_second(run) for run in (rollouts, trainers))
    n, m, a_step = len(trainers.members), len(rollouts.members), _tokens_a_step(trainers)
    if not (made > 0 and used > 0 and a_step > 0):
        _refuse(asked, "both roles tell of their tokens (attribute tokens)")
        return
    now_s = a_step / pace(made, used, n, m)
    for more_trainers, more_rollouts in _splits(n, m, asked):
        then_s = a_step / pace(made, used, more_trainers, more_rollouts)
        yield (
            kind, trainers.role, None, None, None, None, more_trainers, more_rollouts, int(trainers.steps[0]),
            int(trainers.steps[-1]), shown_ns(now_s), shown_ns(then_s), shown_ns(now_s - then_s),
            1 - then_s / now_s,
        )  # fmt: skip


def _refuse(asked: AskedSplit | None, needed: str) -> None:
    if asked is not None:
        raise ReadError(f"what other numbers of trainers and rollouts do is known only of a run in which {needed}")


def _splits(n: int, m: int, asked: AskedSplit | None) -> Iterable[tuple[int, int]]:
    """(trainers, rollouts) to go through: those asked for, and some moved from one side to the other."""
    moves = sorted({round(min(n, m) * share) for share in _MOVED} - {0})
    moved = [(n + more, m - more) for more in [*(-move for move in reversed(moves)), *moves]]
    first = [] if asked is None else [(asked.trainers or n, asked.rollouts or m)]
    return dict.fromkeys([*first, *(split for split in moved if min(split) > 0)])


def pace(made: float, used: float, trainers: int, rollouts: int) -> float:
    """Tokens a second of the job: of a rollout that makes, and a trainer that uses so many in a second of work."""
    return min(used * trainers, made * rollouts)


def _has(run: RoleRun, stages: tuple[str, ...]) -> bool:
    return any(canonical(kind.stage) in stages for kind in run.kinds)


def _tokens(run: RoleRun) -> Any:
    """(T, M) tokens of the stage that tells of most."""
    tokens = np.nan_to_num(run.work[:, :, :, 0])
    return tokens[:, :, int(tokens.sum(axis=(0, 1)).argmax())]


def _tokens_a_step(run: RoleRun) -> float:
    return float(_tokens(run).sum(axis=1).mean())


def _tokens_a_busy_second(run: RoleRun) -> float:
    """Of one member, in the time of its steps less what it waits for the other role: the gap before its first stage."""
    working = [piece for piece, kind in enumerate(run.kinds) if not of_gap(kind)]
    busy = np.nan_to_num(run.own_s[:, :, working]).sum() + np.nan_to_num(run.wait_s[:, :, working]).sum()
    return float(_tokens(run).sum() / busy) if busy > 0 else 0.0
