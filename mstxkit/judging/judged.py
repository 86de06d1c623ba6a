"""What comes of the judging of one step: verdicts that are new, changed or withdrawn, and what else is wanted."""

from __future__ import annotations

from typing import NamedTuple

from ..store.verdicts import Verdict

RINGS, LIGHT, CLOCKS, COUNTS = ("rings", "light", "clocks", "counts")


class Want(NamedTuple):
    """Evidence that the judge asks for; whoever runs the job may give it or not.

    Args:
        kind: RINGS: dump the flight recorder's rings; LIGHT: one light step, profiled on these ranks; CLOCKS of hosts;
            COUNTS of steps that agree.
        role: Of which role.
        ranks: Which ranks; (): all of the role.
        stage: Which stage it is for; None: any.
        since_step, until_step: Of which steps. Steps that are over already may still be in the rings: close them
            again, with their collectives.
        why: For people.
    """

    kind: str
    role: str
    ranks: tuple[int, ...]
    stage: str | None
    since_step: int
    until_step: int
    why: str


class Judged(NamedTuple):
    """What comes of one step: verdicts that are new, have changed, or are withdrawn; and what is asked for."""

    verdicts: tuple[Verdict, ...] = ()
    wants: tuple[Want, ...] = ()
