"""Filing requests: checked against what the run's own processes have said, so that who asks wrongly hears it at once.

A process listens from a second after its first stage on. Nothing is written into a folder that is no run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Collection, Mapping, Sequence

from ..errors import ConfigError, Problem
from ..profiling import presets
from ..store import fate, groups, messages, run_file
from ..store.control_folder import ControlFolder
from ..store.documents import Unusable
from ..store.fate import Asked, Fates, Progress
from ..store.request import SUSPECT_AND_PEER, Known, Request, check_request
from ..store.session_file import read_sessions
from .meaning import ranks_meant

_FEW = 10


def control_of(run: Path) -> ControlFolder:
    """The control folder of a run. Nothing is made or written. Raises ConfigError where `run` is none."""
    folder = Path(run).resolve()
    run_id = run_file.id_of(folder)
    if run_id is None:
        raise ConfigError(run_file.why_none(run))
    return ControlFolder(folder, run_id)


def fates_of(control: ControlFolder) -> Fates:
    """Who says how the requests of a run stand now."""
    return Fates(fate.read_heard(control), lambda: read_sessions(control.path.parent, control.run_id))


def find_nameable(control: ControlFolder, also: Known | None = None) -> Known:
    """What a request to this run may name. `also`: what the caller knows of the run by itself, as one of its processes.
    Raises ConfigError: nobody has said anything yet, or nobody is left, and the caller is no process of the run.
    """
    unusable: list[Unusable] = []
    heard = fate.read_heard(control, unusable=unusable)
    if also is None:
        run = control.path.parent
        if unusable and not heard:
            raise ConfigError(f"what the processes of the run {run} say cannot be used: {unusable[0]}")
        if not heard:
            raise ConfigError(
                f"no process of the run {run} listens yet: each does from a second after its first stage on, unless it "
                f"was captured with poll_every_s=0; mstxkit status {run} shows which there are"
            )
        if all(process.is_alive is False for process in heard):
            raise ConfigError(f"no process of the run {run} is left: a request needs one that runs")
        also = Known((), (), ())
    stages = {stage for process in heard for stage in process.standing.stages} | set(also.stages)
    ranks = range(max(fate.world_size(heard), *(rank + 1 for rank in also.ranks), 0))
    return Known(sorted(stages), ranks, presets.list_presets())


def find_ranks(run: Path, fields: Mapping[str, Any], source: str = "request") -> tuple[int, ...]:
    """Whom the groups of a request mean (`dp:3`), by what the run's processes have said of themselves; else nobody.
    Raises ConfigError: that is not known, and why; or `run` is no run.
    """
    words, stages = fields.get("ranks"), fields.get("stages")
    if not groups.are_groups(words) or not isinstance(stages, (list, tuple)):
        return ()
    return ranks_meant(str(words), fate.read_heard(control_of(run)), [str(stage) for stage in stages], source)


def ask_ranks(
    run: Path, fields: Mapping[str, Any], suspects: Collection[int] = (), also: Known | None = None,
    source: str = "request",
) -> Request:  # fmt: skip
    """Check a request and leave it for all ranks of a run. The same id twice is one request.
    `fields`: of a request, as docs/internals/control.md has them. `suspects`: the ranks that words like "suspect+peer"
    stand for. `also`: as in `find_nameable`. `source`: what messages call the request. Raises ConfigError: it is wrong,
    or nobody listens; with what is allowed; MstxkitError: it cannot be written into the control folder.

    *Cost*: reads what each rank said last, a small file each, unless `also` says enough; writes one file, under a lock
    that may take 10 s.
    """
    control = control_of(run)
    request = check_for_ranks(control, fields, suspects, also, source)
    control.send(messages.of_request(request, suspects))
    return request


def check_for_ranks(
    control: ControlFolder, fields: Mapping[str, Any], suspects: Collection[int] = (), also: Known | None = None,
    source: str = "request",
) -> Request:  # fmt: skip
    """As `ask_ranks`, without leaving it."""
    if also is not None and not suspects:
        try:
            return _check_fields(fields, Known(also.stages, also.ranks, presets.list_presets()), suspects, source)
        except ConfigError:
            pass  # other ranks may know better; and what they know belongs into the message
    return _check_fields(fields, find_nameable(control, also), suspects, source)


def _check_fields(fields: Mapping[str, Any], may_name: Known, suspects: Collection[int], source: str) -> Request:
    request = check_request(dict(fields), may_name, source)
    try:
        presets.made_preset(request.preset, request.options)
    except ConfigError as exc:
        raise ConfigError.of([Problem(source, None, "options", dict(request.options), str(exc), ())]) from None
    if request.ranks == SUSPECT_AND_PEER and not suspects:
        raise ConfigError(f"{source}: ranks={SUSPECT_AND_PEER}: nobody is suspected in this run; name ranks, or all")
    strangers = sorted(set(suspects) - set(may_name.ranks))
    if strangers:
        words = "suspects" if request.ranks == SUSPECT_AND_PEER else f"ranks={request.ranks}"
        raise ConfigError(f"{source}: {words}={strangers}: no ranks of this run")
    return request


def find_absent(control: ControlFolder, request: Request, suspects: Collection[int] = ()) -> list[int]:
    """The ranks asked that have entered none of its stages yet: where ranks agree, all others wait for them."""
    heard = fate.read_heard(control)
    ready = {process.rank for process in heard if not set(request.stages).isdisjoint(process.keys)}
    return [rank for rank in request.ranks_in(fate.world_size(heard), suspects) if rank not in ready]


def cancel_request(run: Path, id: str, reason: str = "cancelled") -> Progress:
    """Say that a request is not wanted any more; a session of it is closed at its thread's next stage, step or tick.

    `id`: a request's, or the beginning of one that no other has. Returns: how it stood before.
    Raises ConfigError: there is no such request, or there are several; with those that are open; MstxkitError: it
    cannot be written into the control folder.
    """
    control = control_of(run)
    asked = find_request(control, id)
    if not reason.isprintable():
        raise ConfigError(f"reason={reason!r}: printable characters are needed")
    stood = fates_of(control).progress(asked)
    control.send(messages.of_cancel(asked.request.id, reason))
    return stood


def find_request(control: ControlFolder, id: str) -> Asked:
    """The request of this id, or the only one whose id begins so. Raises ConfigError as `cancel_request` does."""
    every = fate.read_asked(control)
    matches = [asked for asked in every if id and asked.request.id.startswith(id)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ConfigError(f"several requests begin with {id}: {_list_requests(matches)}")
    judge = fates_of(control)
    still_open = [asked for asked in every if not judge.progress(asked).has_ended]
    open_ones = f"open are {_list_requests(still_open)}" if still_open else "none is open"
    raise ConfigError(f"no request of this run has the id {id!r}; {open_ones}")


def _list_requests(requests: Sequence[Asked]) -> str:
    words = [f"{asked.request.id} ({', '.join(asked.request.stages)})" for asked in requests[-_FEW:]]
    return ", ".join([*words, *([f"and {len(requests) - _FEW} older"] if len(requests) > _FEW else [])])
