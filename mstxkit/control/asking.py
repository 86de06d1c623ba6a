"""Filing requests: checked against what the run's own processes have said, so that who asks wrongly hears it at once.

A process listens from a second after its first stage on. Nothing is written into a folder that is no run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Collection, Mapping, Sequence

from .. import places, presets
from ..errors import ConfigError, MstxkitError
from . import messages, progress
from .files import REQUESTS, ControlFolder, Unusable, messages_of, read
from .progress import Asked, Heard, Progress
from .requests import SUSPECT_AND_PEER, Known, Request, checked

_FEW = 10


def control_of(run: Path) -> ControlFolder:
    """The control folder of a run. Nothing is made or written.

    Raises:
        ConfigError: `run` is no run.
    """
    folder = Path(run).resolve()
    told = places.read_json(folder / places.RUN_FILE)
    if told is None or not places.is_run_id(told.get("run")):
        raise ConfigError(f"{run} is no run: it has no {places.RUN_FILE} that says a run id; name the folder that was "
                          "given to capture() or MSTXKIT_RUN")  # fmt: skip
    return ControlFolder(folder, str(told["run"]))


def known(control: ControlFolder, also: Known | None = None) -> Known:
    """What a request to this run may name.

    Args:
        control: The run's control folder.
        also: What the caller knows of the run by itself, where it is one of its processes.

    Raises:
        ConfigError: nobody has said anything yet, or nobody is left, and the caller is no process of the run.
    """
    said = progress.heard(control)
    if also is None:
        _require_listeners(control, said)
        also = Known((), (), ())
    stages = {stage for one in said for stage in one.standing.stages} | set(also.stages)
    ranks = range(max(progress.world_size(said), *(rank + 1 for rank in also.ranks), 0))
    return Known(sorted(stages), ranks, presets.known())


def _require_listeners(control: ControlFolder, said: Sequence[Heard]) -> None:
    run = control.path.parent
    if not said:
        raise ConfigError(
            f"no process of the run {run} listens yet: each does from a second after its first stage on, unless it "
            f"was captured with poll_every_s=0; mstxkit status {run} shows which there are"
        )
    if all(one.is_alive is False for one in said):
        raise ConfigError(f"no process of the run {run} is left: a request needs one that runs")


def ask(
    run: Path, given: Mapping[str, Any], suspects: Collection[int] = (), also: Known | None = None,
    source: str = "request",
) -> Request:  # fmt: skip
    """Check a request and leave it for all ranks of a run. The same id twice is one request.

    Args:
        run: The run folder.
        given: Fields of a request, as docs/control.md has them.
        suspects: The ranks that "suspect+peer" stands for.
        also: As in `known`.
        source: What messages call the request.

    Raises:
        ConfigError: it is wrong, or nobody listens; with what is allowed.
        MstxkitError: it cannot be written into the control folder.

    *Cost*: reads what each rank said last, a small file each, unless `also` says enough; writes one file, under a lock
    that may take 10 s.
    """
    control = control_of(run)
    request = check(control, given, suspects, also, source)
    _leave(control, request, suspects)
    return request


def _leave(control: ControlFolder, request: Request, suspects: Collection[int]) -> None:
    """Every rank of a program may do so at once: one of them has to write, the others only to see that it is there."""
    if _is_there(control, request):
        return
    try:
        control.send(messages.of_request(request, suspects))
    except MstxkitError:
        if not _is_there(control, request):
            raise


def _is_there(control: ControlFolder, request: Request) -> bool:
    try:
        content = read(control.path, REQUESTS)
        return content is not None and request.id in {one["id"] for one in messages_of(content, control.run_id)}
    except Unusable:
        return False  # who sends says what is wrong with it


def check(
    control: ControlFolder, given: Mapping[str, Any], suspects: Collection[int] = (), also: Known | None = None,
    source: str = "request",
) -> Request:  # fmt: skip
    """As `ask`, without leaving it."""
    if also is not None and not suspects:
        try:
            return _checked(given, Known(also.stages, also.ranks, presets.known()), suspects, source)
        except ConfigError:
            pass  # other ranks may know better; and what they know belongs into the message
    return _checked(given, known(control, also), suspects, source)


def _checked(given: Mapping[str, Any], may_name: Known, suspects: Collection[int], source: str) -> Request:
    request = checked(dict(given), may_name, source)
    if request.ranks == SUSPECT_AND_PEER and not suspects:
        raise ConfigError(f"{source}: ranks={SUSPECT_AND_PEER}: nobody is suspected in this run; name ranks, or all")
    strangers = sorted(set(suspects) - set(may_name.ranks))
    if strangers:
        raise ConfigError(f"{source}: suspects={strangers}: no ranks of this run")
    return request


def cancel(run: Path, id: str, reason: str = "cancelled") -> Progress:
    """Say that a request is not wanted any more; a session of it is closed at its thread's next stage, step or tick.

    Args:
        run: The run folder.
        id: A request's id, or the beginning of one that no other has.
        reason: Printable.

    Returns: how it stood before.

    Raises:
        ConfigError: there is no such request, or there are several; with those that are open.
        MstxkitError: it cannot be written into the control folder.
    """
    control = control_of(run)
    found = named(control, id)
    if not reason.isprintable():
        raise ConfigError(f"reason={reason!r}: printable characters are needed")
    control.send(messages.of_cancel(found.request.id, reason))
    return progress.progress(found, progress.heard(control))


def named(control: ControlFolder, id: str) -> Asked:
    """The request of this id, or the only one whose id begins so.

    Raises:
        ConfigError: as `cancel`.
    """
    every = progress.asked(control)
    found = [one for one in every if id and one.request.id.startswith(id)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"several requests begin with {id}: {_listed(found)}")
    said = progress.heard(control)
    still_open = [one for one in every if not progress.progress(one, said).has_ended]
    open_ones = f"open are {_listed(still_open)}" if still_open else "none is open"
    raise ConfigError(f"no request of this run has the id {id!r}; {open_ones}")


def _listed(found: Sequence[Asked]) -> str:
    told = [f"{one.request.id} ({', '.join(one.request.stages)})" for one in found[-_FEW:]]
    return ", ".join([*told, *([f"and {len(found) - _FEW} older"] if len(found) > _FEW else [])])
