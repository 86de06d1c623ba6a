"""MindStudio Insight's own server, where one was built: it imports a folder, and says what is drawn on its lanes.

INSIGHT_SERVER is the path of its `profiler_server`, with its libraries beside it.

Source, as facts: msinsight 4e16fca1f. Messages are JSON texts of a WebSocket; times count from the earliest that any
database says. What is too short to be seen at a zoom is not sent, so lanes are asked for in pieces.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

PATH = os.environ.get("INSIGHT_SERVER", "")
_PORTS = range(9001, 9100)
_WITHIN_S = 60.0


class Server:
    """A connection to a server that runs; `events`: what it has said unasked."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._received = connection, connection.makefile("rb")
        self._answers: dict[int, Any] = {}
        self.events: list[Any] = []
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        head = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13"
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n\r\n".encode())
        while self._received.readline().strip():
            pass

    def ask(self, module: str, command: str, parameters: dict[str, Any], card: str = "") -> Any:
        """The body of its answer."""
        number = len(self._answers) + 1
        about = {"id": number, "type": "request", "moduleName": module, "command": command, "projectName": "a project"}
        self._send(json.dumps({**about, "fileId": card, "params": parameters}).encode())
        self._listen(lambda: number in self._answers)
        answer = self._answers[number]
        assert answer["result"] is True, answer
        return answer["body"]

    def take_in(self, folder: Path) -> list[Any]:
        """Import a folder; what it says of each rank once all is parsed."""
        how = {"path": [str(folder)], "projectName": "a project", "projectAction": 1, "isConflict": False}
        self.ask("timeline", "import/action", how)
        self._listen(lambda: any(event.get("event") == "allPagesSuccess" for event in self.events))
        assert not [event for event in self.events if "fail" in event["event"].lower()]
        return [event["body"] for event in self.events if event["event"] == "parse/success"]

    def drawn(self, rank: Any, pieces: int) -> Counter[Any]:
        """Rows of all lanes of a rank: lane, name, begin and length in ns."""
        rows: set[tuple[Any, ...]] = set()
        last = int(rank["maxTimeStamp"])
        for lane in _lanes(rank["unit"]):
            about = {key: lane[key] for key in ("cardId", "processId", "threadId", "metaType")}
            about |= {"threadIdList": [lane["threadId"]], "timePerPx": 1}
            about |= {"isFilterPythonFunction": False, "isHideFlagEvents": False}
            for piece in range(pieces):
                part = {"startTime": last * piece // pieces, "endTime": last * (piece + 1) // pieces}
                answer = self.ask("timeline", "unit/threadTraces", {**about, **part}, lane["cardId"])
                rows |= {(lane["metaType"], lane["processId"], lane["threadId"], row["id"], row["name"],
                          row["startTime"], row["duration"]) for line in answer["data"] for row in line}  # fmt: skip
        return Counter((kind, name, begin, length) for kind, _, _, _, name, begin, length in rows)

    def _send(self, content: bytes) -> None:
        assert len(content) < 1 << 16
        self._connection.sendall(b"\x81" + struct.pack("!BH", 0x80 | 126, len(content)) + bytes(4) + content)

    def _listen(self, is_there: Callable[[], bool]) -> None:
        until_s = time.monotonic() + _WITHIN_S
        while not is_there():
            assert time.monotonic() < until_s
            text = self._message()
            message = json.loads(text.partition("\r\n\r\n")[2] if text.startswith("Content-Length") else text)
            if message.get("type") == "response":
                self._answers[message["requestId"]] = message
            else:
                self.events.append(message)

    def _message(self) -> str:
        content, is_last = b"", False
        while not is_last:
            first, size = self._received.read(2)
            is_last = bool(first & 0x80)
            if size >= 126:
                size = int.from_bytes(self._received.read(2 if size == 126 else 8), "big")
            content += self._received.read(size)
        return content.decode()


def _lanes(unit: Any) -> Iterator[Any]:
    if unit["type"] == "thread":
        yield unit["metadata"]
    for inner in unit.get("children") or ():
        yield from _lanes(inner)


@contextmanager
def started(logs: Path) -> Iterator[Server]:
    """A server of one's own, which is ended."""
    port = next(port for port in _PORTS if not _is_taken(port))
    place = Path(PATH).resolve().parent
    command = [str(place / Path(PATH).name), f"--wsPort={port}", f"--logPath={logs}"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(place)}
    process = subprocess.Popen(command, cwd=logs, env=environment, stdout=subprocess.DEVNULL)
    try:
        with _connected(port) as connection:
            yield Server(connection)
    finally:
        process.kill()
        process.wait()


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _connected(port: int) -> socket.socket:
    until_s = time.monotonic() + _WITHIN_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=_WITHIN_S)
        except ConnectionRefusedError:
            assert time.monotonic() < until_s
            time.sleep(0.1)
