"""What is known of a run, whoever looks, and what is the matter with it: of these every headline is made."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

Rows = Sequence[Mapping[str, Any]]


class Account(NamedTuple):
    """All that is known of a run, as the report's summary has it; what nobody has read is empty.

    Args:
        processes: Each: what names it, `attempt`, `last_seen_ns`, `state`, `how` it ended, what it was `inside` of.
        longest: The stage that most of a step's time goes to, and its share; None: nobody knows.
        occupancy: How much of a step nobody is in a stage, and how much one process alone is.
        fed_by: In which roles ranks wait for another role, how much of a step.
        steps: The first and the last of which there are means.
        has: Which of "ranges", "stages", "steps" it has; None: nobody has looked.
        silent: Hosts that say nothing any more of where their processes are, while others do.
    """

    path: str
    judged: Mapping[str, Any]
    verdicts: Rows = ()
    what_if: Rows = ()
    tails: Rows = ()
    held_up_by: Rows = ()
    processes: Rows = ()
    incidents: Rows = ()
    damage: Rows = ()
    losses: Rows = ()
    stages: Sequence[str] = ()
    longest: tuple[str, float] | None = None
    occupancy: Mapping[str, Any] | None = None
    fed_by: Rows = ()
    steps: tuple[int, int] | None = None
    has: frozenset[str] | None = None
    roles: int = 1
    is_running: bool = False
    silent: frozenset[str] = frozenset()


class Matter(NamedTuple):
    """One thing that is the matter with a run, in sentences; "" where there is nothing to say.

    Args:
        kind: Of a verdict, a row of what-if or an incident, or one of `matters` and `nobody`.
        words, cost: What it is, beginning small; what it costs or ends: one number, of which steps.
        why, advice, profile, evidence: What it rests on; what to do beside `next`; what it has asked for by itself; the
            numbers behind it.
        next: A command that shows more of it, now.
        blames: Is anything wrong?
        weight: Share of the run's time that acting on it saves, or of the run that is not there.
        stage, ranks, since_step: Where and whose it is, and from which step on, where not from the first.
    """

    kind: str
    words: str
    cost: str = ""
    why: str = ""
    advice: str = ""
    profile: str = ""
    evidence: str = ""
    next: str = ""
    blames: bool = True
    weight: float = 0.0
    stage: str | None = None
    ranks: tuple[int, ...] = ()
    since_step: int | None = None
