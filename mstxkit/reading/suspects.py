"""Whom "suspect+peer" means in a run. A training process, which loads no tables, asks it of a process of its own:

python -m mstxkit.reading.suspects RUN STAGE [STAGE ...]      two ranks and why as a JSON list, or why not, and status 2
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Collection, NamedTuple, Sequence

from ..errors import MstxkitError, ReadError
from ..stages import canonical
from .run import open_run
from .tables import stages

if TYPE_CHECKING:
    import polars as pl

STEPS = 10
_FEW = 5


class Suspicion(NamedTuple):
    """Whom "suspect+peer" means.

    Args:
        stage: In which stage, of those asked for, the slowest rank stands out most.
        suspect, peer: The slowest rank; the rank in the middle, the lower of the two where there are two.
        suspect_ns, peer_ns: Time of each in that stage, mean of a step.
        steps, ranks: Over how many steps, at most, and of how many ranks.
    """

    stage: str
    suspect: int
    peer: int
    suspect_ns: float
    peer_ns: float
    steps: int
    ranks: int


def suspicion(rows: pl.DataFrame, wanted: Collection[str], steps: int = STEPS) -> Suspicion:
    """Who is slowest in one of these stages over the last steps, by time a step, as `stages.per_step` has it.

    A rank that waits for others inside a stage is as slow as they are: look at a stage without collectives first.

    Args:
        rows: as `Run.stages()` gives them.
        wanted: canonical keys.
        steps: so many of the latest steps count; where none are counted, all occurrences.

    Raises:
        ReadError: fewer than two ranks have ended one of these stages.
    """
    suspicions = list(filter(None, (_slowest(rows, key, steps) for key in sorted(wanted))))
    if not suspicions:
        names = " and ".join(sorted(wanted))
        others = _ended_by_several(rows)
        instead = f", or ask for {', '.join(others)}, which several have ended" if others else ""
        raise ReadError(
            f"nobody can be suspected: fewer than two ranks have ended {names} in this run; name ranks{instead}"
        )
    return max(suspicions, key=lambda suspicion: suspicion.suspect_ns / max(suspicion.peer_ns, 1))


def _ended_by_several(rows: pl.DataFrame) -> list[str]:
    """The stages, by any name, that more than one rank has ended; some of them."""
    pairs = rows.select("stage", "rank").drop_nulls().unique()
    return sorted(name for name, count in pairs["stage"].value_counts().iter_rows() if count > 1)[:_FEW]


def _slowest(rows: pl.DataFrame, key: str, steps: int) -> Suspicion | None:
    import polars as pl

    names = [name for name in rows["stage"].unique().to_list() if name is not None and canonical(name) == key]
    rows = rows.filter(pl.col("stage").cast(pl.String).is_in(names) & pl.col("rank").is_not_null())
    numbers = rows["step"].drop_nulls().unique().sort().tail(steps)
    if len(numbers):
        rows = rows.filter(pl.col("step").is_in(numbers.implode()))
    means = stages.per_step(rows.with_columns(stage=pl.lit(key)), "rank").select("rank", "step_ns")
    if len(means) < 2:
        return None
    suspect, suspect_ns = means.row(0)
    peer, peer_ns = means.row(stages.middle(len(means)))
    return Suspicion(key, suspect, peer, suspect_ns, peer_ns, len(numbers), len(means))


def in_words(suspicion: Suspicion) -> str:
    """Who is suspected, of what, and whom it is compared with; as the reason of a request that gives none."""
    more = suspicion.suspect_ns / max(suspicion.peer_ns, 1) - 1
    return f"rank {suspicion.suspect} is slowest in {suspicion.stage}, {more:+.0%} over rank {suspicion.peer}"


def suspected_in(run: Path, names: Sequence[str]) -> Suspicion:
    """The slowest rank in one of these stages, and an average one.

    Raises:
        ReadError: the run cannot be read, or fewer than two ranks have ended one of these stages.
    """
    return suspicion(open_run(run).stages(), {canonical(name) for name in names})


def main(arguments: Sequence[str]) -> int:
    """Print the suspect and its peer."""
    try:
        suspicion = suspected_in(Path(arguments[0]), arguments[1:])
    except MstxkitError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    sys.stdout.write(json.dumps([suspicion.suspect, suspicion.peer, in_words(suspicion)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
