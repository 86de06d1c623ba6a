"""The matrix of detection: shapes of jobs by faults. What is said of each, held to a second run without the fault.

    python -m benchmarks.detection --shapes pipeline,queue --faults rank,host --seeds 4 --jobs 1

prints a row for each cell. Steps go to `JobJudge.close` as a simulation hands them over, in the order in which they
are over; rings that are asked for are given. (`mstxkit.testing.judge` does the same from tables of occurrences; that
these give the same verdicts is tested. Here the arrays of the simulation are judged as they are, for speed.)
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

from mstxkit.judging.judge import JobJudge
from mstxkit.store.verdicts import Verdict
from mstxkit.testing.simulator import InjectedFault, JobShape, Simulation, lost_ratio
from mstxkit.testing.simulator.simulation import CONTROLLER
from mstxkit.testing.simulator.truth import StepTruth

from .shapes import SHAPES
from .shapes.shape import Shape

# Settings of the judge are chosen on seeds below 6000, and those up to 8019 were looked at since: others are reported.
REPORTED_FROM = 9000
ONSET, HORIZON, HEALTHY = 40, 110, "healthy"
# A fault that costs less need not be named, and a loss of less is none.
COSTS, NOTHING = 0.02, 0.005
FACTORS = {
    "link": (2.5, 4.0), "controller": (2.0, 4.0), "input": (2.5, 4.0), "one": (1.5, 2.0), "absorbed": (1.2,),
    "intermittent": (2.0, 3.0), "moving": (1.5, 2.0), "two": (1.5, 2.0), "drifting": (1.5, 2.0),
    "behind": (1.25, 1.5, 2.0, 4.0),
}  # fmt: skip
_USUAL_FACTORS = (1.10, 1.25, 1.5, 2.0)
_KINDS = {"link": "link", "input": "input", "inside": "inside", "behind": "behind", "before": "before"}


class Cause(NamedTuple):
    """Who has a fault: ranks, as a set where they have it together; or a role, a controller being one."""

    role: str
    ranks: frozenset[int]
    is_whole_role: bool = False
    is_link: bool = False

    def is_named_by(self, verdict: Verdict) -> bool:
        """Does a verdict name it?"""
        if not verdict.is_blaming:
            return False
        if self.is_whole_role:
            of_role = verdict.evidence.get("of_role", verdict.role if verdict.kind == "all_slow" else None)
            return of_role == self.role or (verdict.role == self.role and set(verdict.group) == self.ranks)
        if self.is_link:
            return verdict.kind in ("link", "communication") and bool(self.ranks & set(verdict.group))
        if len(self.ranks) == 1:
            return verdict.rank in self.ranks
        return verdict.rank is None and set(verdict.group) == self.ranks

    def has_victim(self, verdict: Verdict) -> bool:
        """Does a verdict name a rank, or a role, that has no part in it?"""
        if not verdict.is_blaming or self.is_named_by(verdict):
            return False
        role = verdict.evidence.get("of_role")
        if verdict.rank is not None:
            return verdict.rank not in self.ranks
        if role is not None:
            return bool(role != self.role)
        is_set = verdict.kind in ("compute", "input") and bool(verdict.group)
        return is_set and not set(verdict.group) <= self.ranks


@dataclass(frozen=True)
class MatrixCase:
    """A job of a shape, and what goes wrong in it; several causes where any of them may be named first."""

    shape: str
    fault: str
    seed: int
    made: JobShape
    faults: tuple[InjectedFault, ...]
    causes: tuple[Cause, ...]

    def job(self) -> Shape:
        """It, from its beginning on."""
        return SHAPES[self.shape][0](self.made, self.seed, self.faults)


class CellOutcome(NamedTuple):
    """What became of a case.

    Args:
        lost: Share of a step that its faults cost together, by the second run.
        is_right: Was the first that was named, or of those that were named in that step the costliest, the right one?
        is_right_at_end: Is the costliest of those that stand at the end the right one?
        delay: Steps from the onset to the first verdict that blames; None: none came.
        victims, early: Verdicts that name who has no fault; and those before there was a fault.
        off: How far the impact of the right verdict, at the end, is from the truth; None: there is none.
    """

    factor: float
    lost: float
    is_right: bool
    is_right_at_end: bool
    delay: int | None
    victims: int
    early: int
    off: float | None
    wrong: str

    def is_slower_by(self, factor: float) -> bool:
        """Is it of that factor, and does it cost anything?"""
        return self.factor == factor and self.lost >= COSTS / 2


def shape_of(name: str, draw: random.Random, ranks: int = 0) -> JobShape:
    """How many there are, how long a step is, and how it varies; its mismatch is 0.3 at least."""
    count = ranks or draw.choice((16, 32, 64))
    shape = JobShape(
        ranks=count, ranks_per_host=4 if count < 32 else 8, step_s=draw.choice((0.6, 2.0, 20.0)),
        mismatch=draw.choice((0.3, 0.45, 0.6)), noise_ratio=draw.choice((0.03, 0.04, 0.05)),
        error_s=draw.choice((2e-5, 5e-5)), tail=draw.choice((0.3, 0.3, 0.8)),
    )  # fmt: skip
    return replace(shape, **SHAPES[name][1])  # type: ignore[arg-type]


def case(shape: str, fault: str, seed: int, ranks: int = 0) -> MatrixCase:
    """A case of a cell."""
    draw = random.Random(f"{shape} {fault} {seed}")
    made = shape_of(shape, draw, ranks)
    blank = MatrixCase(shape, fault, seed, made, (), ())
    if fault == HEALTHY:
        return blank
    made_of = list(_injected(blank.job(), fault, draw))
    return replace(blank, faults=tuple(of for of, _ in made_of), causes=tuple(cause for _, cause in made_of))


def _injected(job: Shape, name: str, draw: random.Random) -> Iterator[tuple[InjectedFault, Cause]]:
    """The faults of a cell, with who has them."""
    role, stage = job.at[name]
    peers = next(team.peers for team in job.teams if team.role == role)
    ranks = [peer.rank for peer in peers if peer.rank is not None]
    factor = draw.choice(FACTORS.get(name, _USUAL_FACTORS))
    fault = InjectedFault(_KINDS.get(name, "compute"), stage, None, factor, ONSET, role=role)
    if name in ("controller", "role", "producer", "consumer"):
        yield fault, Cause(role, frozenset(ranks), is_whole_role=True)
        return
    rank = 0 if name == "one" else draw.choice(ranks[1:])
    if name in ("host", "place"):
        alike = job.beside(rank, name, peers)
        yield replace(fault, ranks=alike), Cause(role, frozenset(alike))
    elif name == "link":
        pair = job.linked(rank)
        factor = factor if len(pair) == 1 else 5 * factor  # of pairs, which take far less
        yield replace(fault, ranks=pair, factor=factor), Cause(role, frozenset(pair), is_link=True)
    elif name == "moving":
        some = tuple(draw.sample(ranks, 4))
        yield replace(fault, ranks=some, moves_every=25), Cause(role, frozenset(some[:1]))
        for other in some[1:]:
            yield replace(fault, ranks=some, moves_every=25, until=ONSET), Cause(role, frozenset((other,)))
    else:
        fault = replace(fault, rank=rank, rate=0.3 if name == "intermittent" else 1.0, drifts=name == "drifting")
        yield fault, Cause(role, frozenset((rank,)))
        if name == "two":
            other = draw.choice([one for one in ranks if one != rank])
            less = 1 + 0.7 * (factor - 1)
            yield replace(fault, rank=other, factor=less), Cause(role, frozenset((other,)))


def is_by_design(shape: str, verdict: Verdict) -> bool:
    """Is it true of a healthy job of that shape: what one process does alone while all wait for it?"""
    is_alone = verdict.rank == 0 and verdict.stage == "log_metrics"
    is_calling = CONTROLLER in (verdict.role, verdict.evidence.get("of_role"))
    return verdict.kind == "serial" and (is_alone if shape == "stage_of_one" else is_calling)


def verdicts_of(job: Simulation, steps: int) -> Iterator[tuple[int, list[Verdict], JobJudge]]:
    """Go through a job: of each step that is closed its number since the beginning, what was said, and the judge."""
    judge, before, past = JobJudge(), dict[str, int](), 0
    for step in job.steps(steps):
        if judge.is_of_next_attempt(step):
            past += max(before.values()) + 1 - step.step
            judge, before = judge.of_next_attempt(), {}
        before[step.role] = max(step.step, before.get(step.role, -1))
        done = judge.close(step)
        job.grant(done.wants)
        yield past + step.step, [verdict for verdict in done.verdicts if verdict.is_blaming], judge


def judged(of: MatrixCase, horizon: int = HORIZON) -> CellOutcome:
    """Judge a case to its end."""
    named: list[Verdict] = []
    delay, early, alarms, victims, wrong = None, set[str](), set[str](), set[str](), ""
    last = JobJudge()
    for number, verdicts, judge in verdicts_of(of.job(), ONSET + horizon):
        last = judge
        if number < ONSET:
            early |= {verdict.id for verdict in verdicts}
            alarms |= {verdict.id for verdict in verdicts if not is_by_design(of.shape, verdict)}
            continue
        fresh = [verdict for verdict in verdicts if verdict.id not in early]
        if fresh and delay is None:
            delay, named = number - ONSET + 1, fresh
        hit = [verdict for verdict in fresh if all(cause.has_victim(verdict) for cause in of.causes)]
        victims |= {verdict.id for verdict in hit}
        wrong = wrong or next((_words(verdict) for verdict in hit), "")
    standing = [verdict for verdict in last.standing() if verdict.is_blaming and verdict.id not in early]
    is_right, is_right_at_end = (_is_right(of, verdicts) for verdicts in (named, standing))
    wrong = wrong or ("" if is_right or not named else _words(_costliest(named)))
    lost = lost_ratio(_late(of.job().truths(ONSET + horizon), of))
    return CellOutcome(
        of.faults[0].factor, lost, is_right, is_right_at_end, delay, len(victims), len(alarms),
        _off(of, standing, lost, ONSET + horizon), wrong,
    )  # fmt: skip


def _costliest(verdicts: Iterable[Verdict]) -> Verdict:
    return max(verdicts, key=lambda verdict: verdict.impact_ratio)


def _is_right(of: MatrixCase, verdicts: Sequence[Verdict]) -> bool:
    return bool(verdicts) and any(cause.is_named_by(_costliest(verdicts)) for cause in of.causes)


def _words(verdict: Verdict) -> str:
    who = f"rank {verdict.rank}" if verdict.rank is not None else f"{len(verdict.group)} ranks"
    of_role = verdict.evidence.get("of_role", "")
    return f"{verdict.kind} {verdict.role} {verdict.stage} {who} {of_role} {100 * verdict.impact_ratio:.0f} %"


def _late(truths: list[StepTruth], of: MatrixCase) -> list[StepTruth]:
    """Of the role that has the fault, once a drift has come to its end; all roles of a job have steps as long."""
    since = ONSET + 20
    roles = [truth.role for truth in truths]
    role = of.causes[0].role if of.causes[0].role in roles else roles[0]
    return [truth for truth in truths if truth.role == role and truth.step >= since]


def _off(of: MatrixCase, standing: list[Verdict], lost: float, steps: int) -> float | None:
    """The impact of the costliest right verdict against what its fault alone costs."""
    for verdict in sorted(standing, key=lambda verdict: -verdict.impact_ratio):
        for fault, cause in zip(of.faults, of.causes):
            if cause.is_named_by(verdict):
                if of.fault == "two":
                    lost = lost_ratio(_late(of.job().truths(steps, [fault]), of))
                return abs(verdict.impact_ratio - lost)
    return None


def false_alarms(shape: str, seed: int, steps: int = 775, ranks: int = 0) -> tuple[int, list[str]]:
    """Of a healthy job: steps that were judged, and each verdict that blames somebody or something."""
    alarms: dict[str, str] = {}
    count = 0
    for number, verdicts, _ in verdicts_of(case(shape, HEALTHY, seed, ranks).job(), steps):
        count = max(count, number + 1)
        for verdict in (verdict for verdict in verdicts if not is_by_design(shape, verdict)):
            alarms.setdefault(verdict.id, f"{seed}: {_words(verdict)} step {number}")
    return count, list(alarms.values())


# Cells.


class Cell(NamedTuple):
    """What became of all cases of a shape and a fault. Of those that cost enough, unless it says otherwise.

    Args:
        cases, costly: How many, and how many of them cost enough to be named.
        lost: What they cost, in the middle of all.
        right, right_at_end, silent: Shares.
        victims: Cases in which one was blamed, of all.
        alarms: Verdicts before there was a fault, or where nothing is lost by it; of a healthy job in 10,000 steps.
        delay, delay_125, delay_110: Steps in the middle: of all, of faults of these factors.
        off, off_90: How far impacts are from the truth: in the middle, and of nine in ten.
        note: What was wrong first.
    """

    shape: str
    fault: str
    cases: int
    costly: int = 0
    lost: float = 0.0
    right: float = 1.0
    right_at_end: float = 1.0
    silent: float = 0.0
    victims: int = 0
    alarms: float = 0.0
    delay: float | None = None
    delay_125: float | None = None
    delay_110: float | None = None
    off: float | None = None
    off_90: float | None = None
    note: str = ""

    def words(self) -> str:
        """All but its name and what is right, in short."""
        numbers = {name: value for name, value in self._asdict().items() if isinstance(value, (int, float))}
        return (
            ", ".join(f"{name} {value:.3g}" for name, value in numbers.items() if name != "right")
            + f"; {self.note[:90]}"
        )


def cell_of(shape: str, fault: str, outcomes: Sequence[CellOutcome]) -> Cell:
    """The row of a cell."""
    costly = [outcome for outcome in outcomes if outcome.lost >= COSTS]
    nothing = [outcome for outcome in outcomes if outcome.lost < NOTHING]
    offs = sorted(outcome.off for outcome in costly if outcome.off is not None)
    wrong = [outcome.wrong for outcome in outcomes if outcome.wrong]
    return Cell(
        shape, fault, len(outcomes), len(costly), statistics.median(outcome.lost for outcome in outcomes),
        _share(outcome.is_right for outcome in costly), _share(outcome.is_right_at_end for outcome in costly),
        1 - _share(outcome.delay is not None for outcome in costly), sum(outcome.victims > 0 for outcome in outcomes),
        sum(outcome.early for outcome in outcomes) + sum(outcome.delay is not None for outcome in nothing),
        _delay(costly), _delay(outcome for outcome in outcomes if outcome.is_slower_by(1.25)),
        _delay(outcome for outcome in outcomes if outcome.is_slower_by(1.10)),
        statistics.median(offs) if offs else None, offs[int(0.9 * (len(offs) - 1) + 0.5)] if offs else None,
        "; ".join(wrong[:2]),
    )  # fmt: skip


def _share(truths: Iterable[bool]) -> float:
    values = list(truths)
    return sum(values) / len(values) if values else 1.0


def _delay(outcomes: Iterable[CellOutcome]) -> float | None:
    delays = [HORIZON if outcome.delay is None else outcome.delay for outcome in outcomes]
    return statistics.median(delays) if delays else None


class _Task(NamedTuple):
    shape: str
    fault: str
    seed: int
    ranks: int
    steps: int


def _result(task: _Task) -> Any:
    if task.fault == HEALTHY:
        return false_alarms(task.shape, task.seed, task.steps, task.ranks)
    return judged(case(task.shape, task.fault, task.seed, task.ranks))


def cells(
    shapes: Sequence[str], faults: Sequence[str], seeds: Sequence[int], jobs: int = 2, ranks: int = 0, steps: int = 775,
) -> Iterator[Cell]:  # fmt: skip
    """Each cell as it is done: of these shapes with those of these faults that they may have; (): all."""
    wanted = [
        (shape, fault) for shape in shapes or SHAPES for fault in (*SHAPES[shape][0].at, HEALTHY)
        if not faults or fault in faults
    ]  # fmt: skip
    tasks = [_Task(shape, fault, seed, ranks, steps) for shape, fault in wanted for seed in seeds]
    with get_context("spawn").Pool(jobs) as pool:
        results = pool.imap(_result, tasks, chunksize=1) if jobs > 1 else map(_result, tasks)
        for shape, fault in wanted:
            of_cell = [next(results) for _ in seeds]
            yield _healthy(shape, of_cell) if fault == HEALTHY else cell_of(shape, fault, of_cell)


def _healthy(shape: str, results: Sequence[tuple[int, list[str]]]) -> Cell:
    steps, alarms = sum(result[0] for result in results), [alarm for result in results for alarm in result[1]]
    return Cell(shape, HEALTHY, len(results), alarms=1e4 * len(alarms) / steps, note="; ".join(alarms[:2]))


_HEAD = (
    f"{'shape':21} {'fault':13} cases costly  lost right  (end) silent victims "
    "alarms delay 1.25 1.10   off   p90  wrong"
)


def main() -> None:
    """Print the cells that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", default="", help=f"of {', '.join(SHAPES)}; all by default")
    parser.add_argument("--faults", default="", help="rank, host, …, healthy; all by default")
    parser.add_argument("--seeds", type=int, default=4, help="cases of each cell")
    parser.add_argument("--first", type=int, default=0, help=f"first seed; reported: from {REPORTED_FROM} on")
    parser.add_argument("--ranks", type=int, default=0, help="of each job; drawn by default")
    parser.add_argument("--steps", type=int, default=775, help="of each healthy job")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    shapes, faults = (tuple(filter(None, text.split(","))) for text in (options.shapes, options.faults))
    seeds = range(options.first, options.first + options.seeds)
    print(_HEAD)
    for cell in cells(shapes, faults, seeds, options.jobs, options.ranks, options.steps):
        print(_line(cell), flush=True)


def _line(cell: Cell) -> str:
    steps, ratios = (cell.delay, cell.delay_125, cell.delay_110), (cell.off, cell.off_90)
    delays = " ".join(f"{'-' if value is None else round(value):>4}" for value in steps)
    offs = " ".join(f"{'-' if value is None else f'{value:.3f}':>5}" for value in ratios)
    return (
        f"{cell.shape:21} {cell.fault:13} {cell.cases:5} {cell.costly:6} {100 * cell.lost:4.1f}% "
        f"{100 * cell.right:4.0f}% {100 * cell.right_at_end:4.0f}% {100 * cell.silent:5.0f}% {cell.victims:7} "
        f"{cell.alarms:6.1f} {delays} {offs}  {cell.note[:90]}"
    ).rstrip()  # fmt: skip


if __name__ == "__main__":
    main()
