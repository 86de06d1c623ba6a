"""Requests in and acknowledgements out through a folder of the run, with no network and no server.

Names are fixed and files are replaced whole, because a shared file system shows changes of folders late. A message is
never changed. For those who may write to the run, nothing counts that others can write to. `escalation/duty/mailbox.py`
is the side of the job.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Mapping

from .. import faults
from ..errors import CaptureError, MstxkitError
from ..host import folders
from . import documents, layout, report
from .documents import LIMIT_BYTES, Unusable, WrittenByNewer, document_in
from .report import Acknowledgement

MESSAGES_AT_MOST, ID_AT_MOST = 1000, 200
_SEND_WITHIN_S, _TRIES = 10.0, 5


class ControlFolder:
    """The control folder of one run (resolved). Files that name another run are not looked at, unless `run_id` is "".
    `is_private`: read only what nobody but this user can write to, as those must who act on it.
    """

    def __init__(self, run: Path, run_id: str, is_private: bool = True) -> None:
        self.path, self.run_id, self._is_private = run / layout.CONTROL, run_id, is_private

    def send(self, *several: Mapping[str, Any]) -> bool:
        """Add messages for all processes of the run, in one writing; False when the ids of all are there already. Every
        rank may do it at once: who finds them there writes nothing and waits for nobody; another may be first.
        `several`: what JSON can hold; `id` is a text that no other message has. Raises MstxkitError: it is no such
        message, or the folder cannot be used.
        """
        fit = [fit_to_send(message) for message in several]
        if self._are_there(fit):
            return False
        try:
            folders.make_folder(self.path)
            os.close(documents.open_folder(self.path, is_private=True))
            with documents.hold_lock(self.path / layout.REQUESTS_LOCK, _SEND_WITHIN_S):
                return self._add_messages(fit)
        except (OSError, Unusable, CaptureError) as exc:
            if self._are_there(fit):
                return False
            raise MstxkitError(f"no request can be left in {self.path}: {exc}") from exc

    def _are_there(self, several: list[dict[str, Any]]) -> bool:
        with suppress(Unusable):  # who sends says what is wrong with it
            return not _find_missing(several, self.messages())
        return False

    def _add_messages(self, several: list[dict[str, Any]]) -> bool:
        for attempt in range(_TRIES + 1):
            # Looked at again after each writing: on a file system without locks another writer may have been faster.
            earlier = self._usable_messages()
            missing = _find_missing(several, earlier)
            if not missing:
                return attempt > 0
            if attempt < _TRIES:
                content = encode_messages(self.run_id, [*earlier, *missing][-MESSAGES_AT_MOST:])
                documents.replace_file(self.path / layout.REQUESTS, content)
        raise MstxkitError(f"{self.path / layout.REQUESTS} is written by too many at once; try again")

    def _usable_messages(self) -> list[dict[str, Any]]:
        """What is there and can be used; the rest is replaced, unless a newer mstxkit has written it."""
        try:
            return self.messages()
        except WrittenByNewer:
            raise
        except Unusable as exc:
            faults.warn_once("control.requests", f"what is in {self.path} cannot be used and is replaced: {exc}")
            return []

    def messages(self) -> list[dict[str, Any]]:
        """What was sent, oldest first: the newest some hundred. Raises Unusable: the file is not what it should be."""
        file = self.path / layout.REQUESTS
        content = documents.read_small(file, is_private=self._is_private)
        return [] if content is None else messages_in(content, file, self.run_id)

    def acknowledgement(self, rank: int, role: str = "") -> Acknowledgement | None:
        """What a rank said last, in an earlier process of its too; None when that cannot be read."""
        return next(documents.each_usable([layout.ack_name(rank, role)], self._read_acknowledgement), None)

    def acknowledgements(self, unusable: list[Unusable] | None = None, of: int | None = None) -> list[Acknowledgement]:
        """What every rank, or this one in each role, said last, by rank and role; `unusable` gets what is no use."""
        names = documents.names_in(self.path / layout.ACKS)
        names = [name for name in names if (who := layout.ack_of(name)) and of in (None, who[0])]
        acks = documents.each_usable(names, self._read_acknowledgement, unusable)
        return sorted(filter(None, acks), key=lambda ack: (ack.rank, ack.role))

    def _read_acknowledgement(self, name: str) -> Acknowledgement | None:
        return report.read_report(self.path / layout.ACKS / name, self.run_id, self._is_private)


def _find_missing(several: list[dict[str, Any]], sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ids = {message["id"] for message in sent}
    return [message for message in several if message["id"] not in ids]


def messages_in(content: bytes, file: Path, run_id: str) -> list[dict[str, Any]]:
    """The messages in a file of requests, without what is none. Raises Unusable: it is no such file of this run."""
    listed = document_in(content, file, run_id, "control file").get("messages")
    if not isinstance(listed, list):
        raise Unusable(file, "holds no list of messages")
    return [message for message in listed if isinstance(message, dict) and is_id(message.get("id"))]


def encode_messages(run_id: str, messages: list[dict[str, Any]]) -> bytes:
    """The content of a file of the newest of these messages that fit."""
    while True:
        content = documents.encode_document(run_id, {"messages": messages})
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
    return dict(json.loads(text))


def is_id(value: object) -> bool:
    """A text that may name a message or a request."""
    return isinstance(value, str) and 0 < len(value) <= ID_AT_MOST and value.isprintable()
