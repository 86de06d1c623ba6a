"""Requests in and acknowledgements out through a folder of the run, with no network and no server.

Names are fixed and files are replaced whole, because a shared file system shows changes of folders late. A message is
never changed. For those who may write to the run, nothing counts that others can write to. `escalation/duty/mailbox.py`
is the side of the job.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Sequence

from . import documents, layout, report
from .documents import Unusable, document_in
from .report import Acknowledgement
from .values import is_id


class ControlFolder:
    """The control folder of one run (resolved).

    Args:
        run_id: Files that name another one are not looked at. "": any.
        is_private: Read only what nobody but this user can write to, as those must who act on it.
    """

    def __init__(self, run: Path, run_id: str, is_private: bool = True) -> None:
        self.path, self.run_id, self._is_private = run / layout.CONTROL, run_id, is_private

    def send(self, message: Mapping[str, Any]) -> bool:
        """Add a message for all processes of the run; False when its id is there already, so nothing was done.
        `message`: what JSON can hold; `id` is a text that no other message has. Raises MstxkitError: it is no such
        message, or the folder cannot be used.
        """
        from . import sending

        return sending.add(self, [sending.fit_to_send(message)])

    def send_all(self, several: Sequence[Mapping[str, Any]]) -> bool:
        """As `send`, in one writing; those whose id is there already are left out. Every rank may do it at once: who
        finds all of them there writes nothing, and waits for nobody.
        """
        from . import sending

        return sending.add_missing(self, [sending.fit_to_send(message) for message in several])

    def messages(self) -> list[dict[str, Any]]:
        """What was sent, oldest first: the newest some hundred. Raises Unusable: the file is not what it should be."""
        file = self.path / layout.REQUESTS
        content = documents.read(file, is_private=self._is_private)
        return [] if content is None else messages_in(content, file, self.run_id)

    def acknowledgement(self, rank: int, role: str = "") -> Acknowledgement | None:
        """What a rank said last, in an earlier process of its too; None when that cannot be read."""
        return self._read(layout.ack_name(rank, role), [])

    def acknowledgements(self, unusable: list[Unusable] | None = None) -> list[Acknowledgement]:
        """What every rank said last, by rank and role. Files that cannot be used are added to `unusable`."""
        names = [name for name in documents.names_in(self.path / layout.ACKS) if layout.ack_of(name)]
        acks = (self._read(name, [] if unusable is None else unusable) for name in names)
        return sorted(filter(None, acks), key=lambda ack: (ack.rank, ack.role))

    def _read(self, name: str, unusable: list[Unusable]) -> Acknowledgement | None:
        try:
            return report.read(self.path / layout.ACKS / name, self.run_id, self._is_private)
        except Unusable as exc:
            unusable.append(exc)
            return None


def messages_in(content: bytes, file: Path, run_id: str) -> list[dict[str, Any]]:
    """The messages in a file of requests, without what is none. Raises Unusable: it is no such file of this run."""
    listed = document_in(content, file, run_id, "control file").get("messages")
    if not isinstance(listed, list):
        raise Unusable(file, "holds no list of messages")
    return [message for message in listed if isinstance(message, dict) and is_id(message.get("id"))]
