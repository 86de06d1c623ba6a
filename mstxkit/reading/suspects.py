"""Whom "suspect+peer" means in a run: the rank that a verdict blames, else the one that takes longest, and a peer.

A training process, which loads no tables, asks it of a process of its own:

python -m mstxkit.reading.suspects RUN STAGE [STAGE ...]  two ranks, why, their role as a JSON list; or why not, and 2
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Collection, NamedTuple, Sequence

from ..errors import MstxkitError, ReadError
from ..stages import canonical_key
from . import judged
from .run import open_run

if TYPE_CHECKING:
    import polars as pl

    from ..store.verdicts import Verdict
    from .judged import JobVerdicts

STEPS = 10
_FEW = 5


class Suspicion(NamedTuple):
    """Whom "suspect+peer" means.

    Args:
        stage: In which stage, of those asked for, the slowest rank stands out most, or the others wait.
        suspect, peer: The rank that a verdict blames, and a healthy one of its group. Else the slowest rank, and the
            rank in the middle, the lower of the two where there are two.
        suspect_ns, peer_ns: Time of each in that stage, mean of a step.
        steps, ranks: Over how many steps, at most, and of how many ranks.
        verdict: The verdict; None where times alone decide.
        why_by_time: Why they do; "" with a verdict.
    """

    stage: str
    suspect: int
    peer: int
    suspect_ns: float
    peer_ns: float
    steps: int
    ranks: int
    verdict: Verdict | None = None
    why_by_time: str = ""

    @property
    def role(self) -> str:
        """Theirs; "" where it is not known, as where times alone decide."""
        return "" if self.verdict is None else self.verdict.role

    @property
    def is_upstream(self) -> bool:
        """Is the cause in another stage, before the one that was asked for?"""
        return self.verdict is not None and canonical_key(self.verdict.stage or "") != self.stage


def find_blamed(judgement: JobVerdicts, rows: pl.DataFrame, wanted: Collection[str]) -> Suspicion | None:
    """Whom a verdict that holds blames in one of these stages, or before it, so that others wait in it; and a peer.
    `rows`: `Run.stages()`; `wanted`: canonical keys.
    """
    blaming = [verdict for verdict in judgement.blaming if verdict.rank is not None and verdict.stage is not None]
    # Its own stage; then where others wait for it: "ranks 0,2-7 wait for rank 1 in actor_update".
    own = [(verdict, canonical_key(verdict.stage or "")) for verdict in blaming]
    upstream = [(verdict, canonical_key(verdict.waits_for.rpartition(" in ")[2])) for verdict in blaming]
    places = [(verdict, key) for verdict, key in (*own, *upstream) if key in wanted]
    accused = {verdict.rank for verdict in blaming}
    return next(filter(None, (_with_peer(rows, key, verdict, accused) for verdict, key in places)), None)


def find_slowest(rows: pl.DataFrame, wanted: Collection[str]) -> Suspicion:
    """Who is slowest in one of these stages, by time a step, as `stages.per_step` has it.

    Over the last STEPS steps; where none are counted, over all occurrences. A rank that waits for others inside a stage
    is as slow as they are: look at a stage without collectives first. `rows` and `wanted` as of `find_blamed`.
    Raises ReadError: fewer than two ranks have ended one of these stages.
    """
    suspicions = list(filter(None, (_with_peer(rows, key) for key in sorted(wanted))))
    if not suspicions:
        names = " and ".join(sorted(wanted))
        ended = rows.select("stage", "rank").drop_nulls().unique()["stage"].value_counts().iter_rows()
        others = sorted(name for name, count in ended if count > 1)[:_FEW]
        instead = f", or ask for {', '.join(others)}, which several have ended" if others else ""
        raise ReadError(
            f"nobody can be suspected: fewer than two ranks have ended {names} in this run; name ranks{instead}"
        )
    return max(suspicions, key=lambda suspicion: suspicion.suspect_ns / max(suspicion.peer_ns, 1))


def _with_peer(
    rows: pl.DataFrame, key: str, verdict: Verdict | None = None, accused: Collection[int | None] = ()
) -> Suspicion | None:
    """Whom a verdict blames, and the rank in the middle of those of its group that are healthy; without one the slowest
    in a stage and the rank in the middle. None where it, or all others, are not there.
    """
    import polars as pl

    from .tables import stages  # after `open_run`, which says so where polars is missing

    names = [name for name in rows["stage"].unique().to_list() if name is not None and canonical_key(name) == key]
    rows = rows.filter(pl.col("stage").cast(pl.String).is_in(names) & pl.col("rank").is_not_null())
    numbers = rows["step"].drop_nulls().unique().sort().tail(STEPS)
    if len(numbers):
        rows = rows.filter(pl.col("step").is_in(numbers.implode()))
    means = stages.per_step(rows.with_columns(stage=pl.lit(key)), "rank").select("rank", "step_ns")
    of_rank: dict[int, float] = dict(means.iter_rows())  # the slowest first
    group = [rank for rank in of_rank if verdict is None or not verdict.group or rank in verdict.group]
    suspect = next(iter(of_rank), None) if verdict is None else verdict.rank
    healthy = [rank for rank in group if rank not in accused]
    if suspect is None or suspect not in of_rank or len(healthy) < (2 if verdict is None else 1):
        return None
    peer = healthy[len(healthy) // 2]
    return Suspicion(key, suspect, peer, of_rank[suspect], of_rank[peer], len(numbers), len(of_rank), verdict)


def in_words(suspicion: Suspicion) -> str:
    """Who is suspected, of what, and whom it is compared with; as the reason of a request that gives none."""
    if suspicion.verdict is not None:
        return f"{write_accusation(suspicion)}; rank {suspicion.peer} is a healthy peer"
    more = suspicion.suspect_ns / max(suspicion.peer_ns, 1) - 1
    by_time = f"; by its time alone: {suspicion.why_by_time}" if suspicion.why_by_time else ""
    return f"rank {suspicion.suspect} is slowest in {suspicion.stage}, {more:+.0%} over rank {suspicion.peer}{by_time}"


def write_accusation(suspicion: Suspicion) -> str:
    """`verdict: rank 1 gets its input more slowly than the others in reference, for which others wait in actor_update`.

    Safe to show.
    """
    from .report.escape import for_terminal
    from .report.sentences import write_sentence

    assert suspicion.verdict is not None
    upstream = f", for which others wait in {for_terminal(suspicion.stage)}" if suspicion.is_upstream else ""
    return f"verdict: {write_sentence(suspicion.verdict._asdict())}{upstream}"


def suspected_in(run: Path, names: Sequence[str]) -> Suspicion:
    """The rank that a verdict blames in one of these stages or before it, else the slowest one; and a peer.
    Raises ReadError: the run cannot be read, or fewer than two ranks have ended one of these stages.
    """
    opened, wanted = open_run(run), {canonical_key(name) for name in names}
    rows, judgement = opened.stages(), judged.of_run(opened.roles)
    suspect = find_blamed(judgement, rows, wanted)
    if suspect is not None:
        return suspect
    why = f"it was not judged, as {judgement.why_not}" if judgement.why_not else "no verdict blames a rank there"
    return find_slowest(rows, wanted)._replace(why_by_time=why)


def main(arguments: Sequence[str]) -> int:
    """Print the suspect and its peer."""
    try:
        suspicion = suspected_in(Path(arguments[0]), arguments[1:])
    except MstxkitError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    sys.stdout.write(json.dumps([suspicion.suspect, suspicion.peer, in_words(suspicion), suspicion.role]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
