"""The command that shows more of what is the matter with a run, and works as the run is now.

A profile that lies there; while a process listens that may be asked, a profile; the steps before it began beside those
after; else what is inside of the stage.
"""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Any, Iterable, Mapping, NamedTuple

from ...stages import canonical
from ...store import fate
from ...store.control_folder import ControlFolder
from ...store.request import WHOLE_STEPS
from ..processes import liveness
from ..tables import profiles
from . import matters, nobody
from .account import Account, Matter

_LISTENS_WITHIN_NS = 180_000_000_000
_COMPARED_FROM, _COMPARED, _RANGES = 5, 50, 20
_STATUS = "mstxkit status {run}"
# Of what is not a stage's: the command, whatever else can be done.
_OF_KIND = {
    **dict.fromkeys((nobody.HEALTHY, matters.EARLIER, matters.NAME), ""), nobody.NOTHING_RECORDED: "mstxkit doctor",
    **dict.fromkeys(("killed", "signal", "exception", matters.HOST_GONE, matters.DAMAGE), _STATUS),
    matters.OUT_OF_MEMORY: _STATUS,
}  # fmt: skip


class Possible(NamedTuple):
    """What can be done with a run now: which stages can be profiled, of which stage and rank a profile lies there."""

    stages: frozenset[str]
    profiled: frozenset[tuple[str, int | None]]


def possible(run: str, run_id: str, processes: Iterable[Mapping[str, Any]]) -> Possible:
    """*Cost*: reads a small file a rank, and one a profile."""
    folder = Path(run).resolve()
    control, newest_ns = ControlFolder(folder, run_id, is_private=False), time.time_ns() - _LISTENS_WITHIN_NS
    is_alive = liveness((process["host"], process["pid"], process["state"]) for process in processes)
    listening = [
        heard for heard in fate.heard(control, is_alive)
        if heard.standing.backend is not None
        and (heard.is_alive or (heard.is_alive is None and heard.acknowledgement.written_ns > newest_ns))
    ]  # fmt: skip
    may_write = os.access(control.path if os.path.exists(control.path) else folder, os.W_OK)
    lying = [row for row in profiles.rows(run, run_id, []) if row["place"] == profiles.RUN and row["request"]]
    return Possible(
        frozenset(key for heard in listening if may_write for key in heard.keys),
        frozenset((canonical(row["stage"]), row["rank"]) for row in lying),
    )


def command(account: Account, matter: Matter, now: Possible) -> str:
    """The command; "" where there is nothing more to see."""
    run, key = shlex.quote(account.path), matter.stage and canonical(matter.stage)
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
