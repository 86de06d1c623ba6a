"""Adds messages to `control/requests.json`: what is there stays, as far as there is room, whoever writes beside us."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Mapping

from .. import faults
from ..errors import CaptureError, MstxkitError
from ..host import folders
from . import documents, layout
from .documents import FORMAT, LIMIT_BYTES, Unusable, WrittenByNewer
from .locks import locked
from .values import ID_AT_MOST, is_id

if TYPE_CHECKING:
    from .control_folder import ControlFolder

MESSAGES_AT_MOST = 1000
_SEND_WITHIN_S, _TRIES = 10.0, 5


def add_missing(control: ControlFolder, fit: list[dict[str, Any]]) -> bool:
    """Add those that are not there; False where none was missing. Raises MstxkitError as `add` does."""
    return bool(_missing(fit, _usable_messages(control))) and add(control, fit)


def add(control: ControlFolder, fit: list[dict[str, Any]]) -> bool:
    """Add messages that are fit to be sent; False where all are there. MstxkitError: the folder cannot be used."""
    try:
        folders.make_folder(control.path)
        os.close(documents.open_folder(control.path, is_private=True))
        with locked(control.path / layout.REQUESTS_LOCK, _SEND_WITHIN_S):
            return _add(control, fit)
    except (OSError, Unusable, CaptureError) as exc:
        raise MstxkitError(f"no request can be left in {control.path}: {exc}") from exc


def _add(control: ControlFolder, several: list[dict[str, Any]]) -> bool:
    for attempt in range(_TRIES + 1):
        # Looked at again after each writing: on a file system without locks another writer may have been faster.
        earlier = _usable_messages(control)
        missing = _missing(several, earlier)
        if not missing:
            return attempt > 0
        if attempt < _TRIES:
            content = encoded(control.run_id, [*earlier, *missing][-MESSAGES_AT_MOST:])
            documents.replace_file(control.path / layout.REQUESTS, content)
    raise MstxkitError(f"{control.path / layout.REQUESTS} is written by too many at once; try again")


def _usable_messages(control: ControlFolder) -> list[dict[str, Any]]:
    """What is there and can be used; the rest is replaced, unless a newer mstxkit has written it."""
    try:
        return control.messages()
    except WrittenByNewer:
        raise
    except Unusable as exc:
        faults.warn_once("control.requests", f"what is in {control.path} cannot be used and is replaced: {exc}")
        return []


def _missing(several: list[dict[str, Any]], sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ids = {message["id"] for message in sent}
    return [message for message in several if message["id"] not in ids]


def encoded(run_id: str, messages: list[dict[str, Any]]) -> bytes:
    """The content of a file of the newest of these messages that fit."""
    while True:
        content = json.dumps({"format": FORMAT, "run": run_id, "messages": messages}).encode()
        if len(content) <= LIMIT_BYTES:
            return content
        del messages[: max(1, len(messages) // 8)]


def fit_to_send(message: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a message, as it will be read. Raises MstxkitError: it is none, or too large."""
    if not is_id(message.get("id")):
        raise MstxkitError(f"id={message.get('id')!r}: a text of 1 to {ID_AT_MOST} printable characters is needed")
    try:
        text = json.dumps(dict(message), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise MstxkitError(f"message {message['id']} cannot be written as JSON: {exc}") from exc
    if len(text) > LIMIT_BYTES // 2:
        raise MstxkitError(f"message {message['id']} has {len(text)} characters; {LIMIT_BYTES // 2} at most")
    fit: dict[str, Any] = json.loads(text)
    return fit
