"""What stands in the control folder: messages to all ranks, and what a rank says of itself, as plain data.

Messages are read back as events of the machine. They come from a file that anybody with this user's rights may have
edited: what is no message is a `ConfigError`, and nothing of it is done.
"""

from __future__ import annotations

import json
from typing import Any, Iterable, Mapping, NamedTuple

from ..errors import ConfigError, shortened
from . import moves
from .files import ID_AT_MOST, LIMIT_BYTES
from .moves import Report
from .requests import Known, Request, checked

REQUEST, CANCEL, COMMIT, DROP = KINDS = ("request", "cancel", "commit", "drop")
_REPORTS_AT_MOST = 500
_RANKS_AT_MOST = 1 << 31
_REASON_AT_MOST = 1000
_ENVELOPE_BYTES = 4096  # what a document is written with


def of_request(request: Request, suspects: Iterable[int] = ()) -> dict[str, Any]:
    """The message that asks every rank; `suspects`: the ranks that "suspect+peer" stands for."""
    return {"id": request.id, "kind": REQUEST, "request": request.as_json(), "suspects": sorted(suspects)}


def of_cancel(id: str, reason: str = "cancelled") -> dict[str, Any]:
    """The message that a request is not wanted any more."""
    return {"id": f"{id}/{CANCEL}", "kind": CANCEL, "request": id, "reason": reason}


def of_decision(decided: moves.Commit | moves.Drop) -> dict[str, Any]:
    """The message of the agreeing rank: the step at which a request begins, or that there will be none."""
    if isinstance(decided, moves.Commit):
        return {"id": f"{decided.id}/{COMMIT}", "kind": COMMIT, "request": decided.id, "first_step": decided.first_step}
    return {"id": f"{decided.id}/{DROP}", "kind": DROP, "request": decided.id, "reason": decided.reason}


def as_event(message: Mapping[str, Any], presets: Iterable[str]) -> moves.Event:
    """A message as an event of the machine. Ranks are checked by the machine, which knows how many there are.

    Raises:
        ConfigError: it is no message, or asks for what cannot be.
    """
    source = f"message {shortened(message.get('id'))}"
    kind = message.get("kind")
    if kind not in KINDS:
        raise ConfigError(f"{source}: kind={shortened(kind)}: one of {', '.join(KINDS)} is needed")
    if kind == REQUEST:
        return moves.RequestReceived(_request(message, tuple(presets), source), _suspects(message, source))
    id = _text(message, "request", source)
    if len(id) > ID_AT_MOST:
        raise ConfigError(f"{source}: request={shortened(id)}: no request has an id of {len(id)} characters")
    if kind == COMMIT:
        return moves.Commit(id, _whole(message.get("first_step"), "first_step", source))
    reason = _text(message, "reason", source)[:_REASON_AT_MOST]
    return moves.CancelReceived(id, reason) if kind == CANCEL else moves.Drop(id, reason)


def _request(message: Mapping[str, Any], presets: tuple[str, ...], source: str) -> Request:
    """Its stages are known: whoever delivers it looks whether they run here."""
    told = message.get("request")
    stages = told.get("stages", told.get("stage", [])) if isinstance(told, dict) else []
    named = [one for one in (stages if isinstance(stages, list) else [stages]) if isinstance(one, str)]
    request = checked(told, Known(named, range(_RANKS_AT_MOST), presets), source)
    if request.id != message.get("id"):
        raise ConfigError(f"{source}: it is not the id of the request in it, {request.id}")
    return request


def _suspects(message: Mapping[str, Any], source: str) -> tuple[int, ...]:
    given = message.get("suspects", [])
    if not isinstance(given, list):
        raise ConfigError(f"{source}: suspects={shortened(given)}: a list of ranks is needed")
    return tuple(_whole(one, "suspects", source) for one in given)


def _text(message: Mapping[str, Any], key: str, source: str) -> str:
    value = message.get(key)
    if not isinstance(value, str) or not value.isprintable():
        raise ConfigError(f"{source}: {key}={shortened(value)}: a printable text is needed")
    return value


def _whole(value: Any, key: str, source: str) -> int:
    if type(value) is not int or not 0 <= value < _RANKS_AT_MOST:
        raise ConfigError(f"{source}: {key}={shortened(value)}: a whole number from 0 is needed")
    return value


class Standing(NamedTuple):
    """What a rank says of itself: the document of its acknowledgement.

    Args:
        world_size: Ranks of the run, as this one knows.
        step: Its step when this was written; None before the first.
        step_ns: How long a step took last; None: not known.
        stages: Keys of the stages that it has entered.
        phase: idle, armed, running, draining or cooldown.
        backend: Name of the profiler that sessions are made with; None where none can record.
        why_no_backend: Backend name to why it cannot record here.
        reports: Of every request that it knows, and of those it speaks for; newest last.
    """

    world_size: int
    step: int | None
    step_ns: int | None
    stages: tuple[str, ...]
    phase: str
    backend: str | None
    why_no_backend: Mapping[str, str]
    reports: tuple[Report, ...]

    def as_json(self) -> dict[str, Any]:
        """A plain dict; `Standing.read` makes an equal one of it."""
        reports = [report.as_json() for report in self.reports[-_REPORTS_AT_MOST:]]
        return {
            **self._asdict(),
            "stages": list(self.stages),
            "why_no_backend": dict(self.why_no_backend),
            "reports": reports,
        }

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Standing:
        """Of the document of an acknowledgement; reports that are none are left out.

        Raises:
            ConfigError: it is no such document.
        """
        try:
            return cls(
                world_size=int(told["world_size"]),
                step=None if told["step"] is None else int(told["step"]),
                step_ns=None if told["step_ns"] is None else int(told["step_ns"]),
                stages=tuple(str(one) for one in told["stages"]),
                phase=str(told["phase"]),
                backend=None if told["backend"] is None else str(told["backend"]),
                why_no_backend={str(name): str(why) for name, why in told["why_no_backend"].items()},
                reports=tuple(_reports(told["reports"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
            raise ConfigError(f"not what a rank says of itself: {exc!r}") from None


def fitted(document: dict[str, Any]) -> dict[str, Any]:
    """The same without the oldest of what it tells and remembers, if an acknowledgement would be too large to be read.

    What cannot be written down would keep a rank from recording anything.
    """
    while len(json.dumps(document, default=str)) > LIMIT_BYTES - _ENVELOPE_BYTES:
        memory = document["memory"]
        early = {kind: dict(_newer(list(of.items()))) for kind, of in memory["early"].items()}
        memory = {**memory, "ended": _newer(memory["ended"]), "elsewhere": _newer(memory["elsewhere"]), "early": early}
        smaller = {**document, "reports": _newer(document["reports"]), "memory": memory}
        if smaller == document:
            break
        document = smaller
    return document


def _newer(listed: list[Any]) -> list[Any]:
    return listed[(len(listed) + 1) // 2 :]


def _reports(told: Iterable[Any]) -> Iterable[Report]:
    for one in told:
        try:
            yield Report.read(one)
        except (TypeError, ValueError):
            continue
