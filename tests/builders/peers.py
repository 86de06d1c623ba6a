"""Processes of their own that answer a line to each line: what only another process can show, kills and forks too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterator

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_LOOP = """
import sys
for line in sys.stdin:
    print(answer(*line.split()), flush=True)
"""


class Peer:
    """Runs a script that defines `answer(*words) -> str`."""

    def __init__(self, script: str, **environment: str) -> None:
        settings = {**os.environ, "PYTHONPATH": str(_ROOT), **environment}
        self._process = subprocess.Popen(
            [sys.executable, "-c", script + _LOOP],
            env=settings,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid

    def ask(self, *words: object) -> str:
        self.tell(*words)
        return self.hear()

    def tell(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self, number: int = signal.SIGKILL) -> None:
        """Kill it, or what else `number` does, and wait until it is gone."""
        self._process.send_signal(number)
        with self._process:
            self._process.wait()


MakePeer = Callable[..., Peer]


@pytest.fixture
def make_peer() -> Iterator[MakePeer]:
    made: list[Peer] = []

    def make(script: str, **environment: str) -> Peer:
        made.append(Peer(script, **environment))
        return made[-1]

    yield make
    for peer in made:
        peer.end()
