"""`control/requests.json`: what is said to all ranks, requests, cancellations and decisions, as plain data.

Anybody with this user's rights may have edited it: what is no message is a `ConfigError`, and nothing of it is done.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple, Union

from ..errors import ConfigError, shorten_value
from .control_folder import ID_AT_MOST
from .records import NO_STEP
from .request import Known, Request, check_request

REQUEST, CANCEL, COMMIT, DROP = KINDS = ("request", "cancel", "commit", "drop")
_RANKS_AT_MOST = 1 << 31
_REASON_AT_MOST = 1000


class RequestReceived(NamedTuple):
    """A request is there. `suspects` are the ranks that "suspect+peer" stands for, the same on every rank."""

    request: Request
    suspects: tuple[int, ...] = ()


class CancelReceived(NamedTuple):
    """A request is not wanted any more. It may come before the request itself."""

    id: str
    reason: str = "cancelled"


class Commit(NamedTuple):
    """To every rank: this request's window begins at this step."""

    id: str
    first_step: int


class Drop(NamedTuple):
    """To every rank: no step will be agreed for this request."""

    id: str
    reason: str


Message = Union[RequestReceived, CancelReceived, Commit, Drop]


def of_request(request: Request, suspects: Iterable[int] = ()) -> dict[str, Any]:
    """The message that asks every rank; `suspects`: the ranks that "suspect+peer" stands for."""
    return {"id": request.id, "kind": REQUEST, "request": request.as_json(), "suspects": sorted(suspects)}


def of_cancel(id: str, reason: str = "cancelled") -> dict[str, Any]:
    """The message that a request is not wanted any more."""
    return {"id": f"{id}/{CANCEL}", "kind": CANCEL, "request": id, "reason": reason}


def of_decision(decided: Commit | Drop) -> dict[str, Any]:
    """The message of the agreeing rank: the step at which a request begins, or that there will be none."""
    kind, word = (COMMIT, "first_step") if isinstance(decided, Commit) else (DROP, "reason")
    return {"id": f"{decided.id}/{kind}", "kind": kind, "request": decided.id, word: getattr(decided, word)}


def read_message(message: Mapping[str, Any], presets: Iterable[str] | None = None) -> Message:
    """A message out of the file. Ranks are checked by the machine, which knows how many there are. `presets`: those
    that a request may name; None: any. Raises ConfigError: it is no message, or asks for what cannot be.
    """
    source = f"message {shorten_value(message.get('id'))}"
    kind = message.get("kind")
    if kind not in KINDS:
        raise ConfigError(f"{source}: kind={shorten_value(kind)}: one of {', '.join(KINDS)} is needed")
    if kind == REQUEST:
        request, suspects = _read_request(message, presets, source), message.get("suspects", [])
        if not isinstance(suspects, list):
            raise ConfigError(f"{source}: suspects={shorten_value(suspects)}: a list of ranks is needed")
        return RequestReceived(request, tuple(_check_whole(rank, "suspects", source) for rank in suspects))
    id = _text_at(message, "request", source)
    if len(id) > ID_AT_MOST:
        raise ConfigError(f"{source}: request={shorten_value(id)}: no request has an id of {len(id)} characters")
    if kind == COMMIT:
        return Commit(id, _check_whole(message.get("first_step"), "first_step", source, NO_STEP))
    reason = _text_at(message, "reason", source)[:_REASON_AT_MOST]
    return CancelReceived(id, reason) if kind == CANCEL else Drop(id, reason)


def _read_request(message: Mapping[str, Any], presets: Iterable[str] | None, source: str) -> Request:
    """Its stages are known: whoever delivers it looks whether they run here."""
    fields = message.get("request")
    table = fields if isinstance(fields, dict) else {}
    stages = _read_texts(table.get("stages", table.get("stage", [])))
    presets = _read_texts(table.get("preset")) if presets is None else tuple(presets)
    request = check_request(fields, Known(stages, range(_RANKS_AT_MOST), presets), source)
    if request.id != message.get("id"):
        raise ConfigError(f"{source}: it is not the id of the request in it, {request.id}")
    return request


def _read_texts(field: Any) -> list[str]:
    return [text for text in (field if isinstance(field, list) else [field]) if isinstance(text, str)]


def _text_at(message: Mapping[str, Any], key: str, source: str) -> str:
    value = message.get(key)
    if not isinstance(value, str) or not value.isprintable():
        raise ConfigError(f"{source}: {key}={shorten_value(value)}: a printable text is needed")
    return value


def _check_whole(value: Any, key: str, source: str, below: int = _RANKS_AT_MOST) -> int:
    if type(value) is not int or not 0 <= value < below:
        raise ConfigError(f"{source}: {key}={shorten_value(value)}: a whole number from 0 to {below - 1} is needed")
    return value
