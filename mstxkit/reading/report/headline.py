"""What is said first of a run, by whatever shows it: what weighs most, what it costs, why, and what to do next.

Next is a command that shows more of it, and works as the run is now: a profile that lies there; while a process listens
that may be asked, a profile; the steps before it began beside those after; else what is inside of the stage.
"""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from rich.console import RenderableType
from rich.text import Text

from ...stages import canonical_key
from ...store import fate
from ...store.control_folder import ControlFolder
from ...store.request import WHOLE_STEPS
from ..processes import find_living
from ..tables import profiles
from . import matters, no_verdict
from .account import Account, Matter
from .number_table import indent_lines
from .sentences import begin_sentence

_OTHERS = 4
_LISTENS_WITHIN_NS = 180_000_000_000
_COMPARED_FROM, _COMPARED, _RANGES = 5, 50, 20
_STATUS = "mstxkit status {run}"
# Of what is not a stage's: the command, whatever else can be done.
_OF_KIND = {
    **dict.fromkeys((no_verdict.HEALTHY, matters.EARLIER, matters.NAME), ""),
    no_verdict.NOTHING_RECORDED: "mstxkit doctor",
    **dict.fromkeys(("killed", "signal", "exception", matters.HOST_GONE, matters.DAMAGE), _STATUS),
    **dict.fromkeys((matters.OUT_OF_MEMORY, matters.ENDED_EARLY), _STATUS),
}  # fmt: skip


class Possible(NamedTuple):
    """What can be done with a run now: which stages can be profiled, of which stage and rank a profile lies there."""

    stages: frozenset[str]
    profiled: frozenset[tuple[str, int | None]]


def find_possible(run: str, run_id: str, processes: Iterable[Mapping[str, Any]]) -> Possible:
    """*Cost*: reads a small file a rank, and one a profile."""
    folder = Path(run).resolve()
    control, newest_ns = ControlFolder(folder, run_id, is_private=False), time.time_ns() - _LISTENS_WITHIN_NS
    is_alive = find_living((process["host"], process["pid"], process["state"]) for process in processes)
    listening = [
        heard for heard in fate.read_heard(control, is_alive)
        if heard.standing.backend is not None
        and (heard.is_alive or (heard.is_alive is None and heard.acknowledgement.written_ns > newest_ns))
    ]  # fmt: skip
    may_write = os.access(control.path if os.path.exists(control.path) else folder, os.W_OK)
    lying = [row for row in profiles.list_rows(run, run_id, []) if row["place"] == profiles.RUN and row["request"]]
    return Possible(
        frozenset(key for heard in listening if may_write for key in heard.keys),
        frozenset((canonical_key(row["stage"]), row["rank"]) for row in lying),
    )


def make_headline(account: Account, now: Possible | None = None) -> dict[str, Any]:
    """`headline` and `matters`, plain values: all that is the matter as it weighs, and the first with its `verdict`, a
    whole sentence. `now`: what can be done with the run; None: what its judge advises.
    """
    every = matters.weigh_matters(account)
    if now is not None:
        every = [matter._replace(next=write_command(account, matter, now)) for matter in every]
    plain = [{**matter._asdict(), "ranks": list(matter.ranks)} for matter in every]
    return {"headline": {**plain[0], "verdict": begin_sentence(plain[0]["words"]) + "."}, "matters": plain}


def render_headline(matters: Sequence[dict[str, Any]], everything: bool = False) -> list[RenderableType]:
    """The first lines of a terminal: the first one with why and what next, others in a line each."""
    shown = matters if everything else matters[: 1 + _OTHERS]
    keys = ("why", "profile", "advice", "next", *(["evidence"] if everything else []))
    shown_lines: list[RenderableType] = []
    for place, matter in enumerate(shown):
        words = (matter["words"], "bold red" if matter["blames"] else "bold")
        cost = f": {matter['cost']}." if matter["cost"] else "."
        shown_lines.append(Text.assemble(("also: " if place else "Verdict: ", "bold"), words, cost))
        if everything or place == 0:
            shown_lines += indent_lines([({"advice": "do"}.get(key, key), matter[key]) for key in keys])
    if len(matters) > len(shown):
        shown_lines.append(Text(f"… and {len(matters) - len(shown)} more (--all)", "dim"))
    return shown_lines


def write_command(account: Account, matter: Matter, now: Possible) -> str:
    """The command; "" where there is nothing more to see."""
    run, key = shlex.quote(account.path), matter.stage and canonical_key(matter.stage)
    if matter.next.startswith("cat ") or matter.kind in _OF_KIND:
        return matter.next or _OF_KIND[matter.kind].format(run=run)
    if any(stage == key and (not matter.ranks or rank in matter.ranks) for stage, rank in now.profiled):
        return f"mstxkit profiles {run}"
    may_ask = key in now.stages or (now.stages and f"--stage {WHOLE_STEPS}" in matter.next)
    if may_ask and matter.next.startswith("mstxkit escalate"):
        return matter.next
    since, (first, last) = matter.since_step, account.steps or (0, 0)
    if since is not None and first + _COMPARED_FROM <= since <= last - _COMPARED_FROM:
        before, after = f"{max(first, since - _COMPARED)}:{since - 1}", f"{since}:{min(last, since + _COMPARED)}"
        return f"mstxkit compare {run} --before {before} --after {after}"
    return f"mstxkit report {run} " + (f"--stages {shlex.quote(key)} --ranges {_RANGES}" if key else "--all")
