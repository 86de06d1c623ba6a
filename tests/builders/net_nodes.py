"""A Ray cluster of two nodes with a network between them that can be cut: the second one is in a namespace of its own.

For drivers of root. Names and addresses are of this process, so that several tests may do it at once; all of it goes
with `close`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_STARTS_WITHIN_S = 120


class CutCluster:
    """The head here, and a node behind a cable, once it is called to `join`.

    Args:
        live: Folder for the live files of the node behind it: so it has a keeper, and an agent, of its own.

    Raises:
        subprocess.CalledProcessError: this user may make no network namespaces, or Ray did not start.
    """

    def __init__(self, live: Path) -> None:
        number = os.getpid() % 50_000
        self._space, self._cable = f"mstx{number}", f"mx{number}"
        self._net = f"10.{100 + number % 100}.{number // 100 % 250}"
        port = 7000 + number % 2000  # below those that Ray takes for itself
        self.address = f"{self._net}.1:{port}"
        # In a folder of its own, or the next job on this machine would try to join it.
        self._temp = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._there = {"MSTXKIT_LIVE_FOLDER": str(live)}
        try:
            self._lay_cable()
            self._start(
                [],
                ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self._temp}"],
                f"{self._net}.1",
                {},
            )
        except BaseException:
            self.close()
            raise

    def join(self) -> None:
        """Start the other node. A driver of Ray 2.42 that comes before the head itself is given that one's raylet."""
        before = ["ip", "netns", "exec", self._space]
        self._start(before, [f"--address={self.address}"], f"{self._net}.2", self._there)

    def _lay_cable(self) -> None:
        near, far = f"{self._cable}a", f"{self._cable}b"
        inside = ["ip", "-n", self._space]
        for words in (
            ["ip", "netns", "add", self._space],
            ["ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", self._space],
            ["ip", "addr", "add", f"{self._net}.1/24", "dev", near],
            ["ip", "link", "set", near, "up"],
            [*inside, "addr", "add", f"{self._net}.2/24", "dev", far],
            [*inside, "link", "set", far, "up"],
            [*inside, "link", "set", "lo", "up"],
        ):
            subprocess.run(words, check=True, capture_output=True)

    def _start(self, before: list[str], words: list[str], ip: str, more: dict[str, str]) -> None:
        """A node, which lives as long as its command."""
        kind = "far" if before else "near"
        words += [f"--node-ip-address={ip}", "--num-cpus=2", "--disable-usage-stats", f'--resources={{"{kind}": 9}}']
        command = [*before, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
        with open(Path(self._temp) / f"{kind}.log", "wb") as log:
            env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
            self._nodes.append(subprocess.Popen(command, env={**env, **more}, stdout=log, stderr=log))

    def cut(self) -> None:
        """Nothing goes through from now on."""
        subprocess.run(["ip", "link", "set", f"{self._cable}a", "down"], check=True)

    def heal(self) -> None:
        """As it was before."""
        subprocess.run(["ip", "link", "set", f"{self._cable}a", "up"], check=True)

    def close(self) -> None:
        """End both nodes, and take the cable away."""
        for node in reversed(self._nodes):
            node.terminate()
        for node in self._nodes:
            try:
                node.wait(_STARTS_WITHIN_S)
            except subprocess.TimeoutExpired:
                node.kill()
        subprocess.run(["ip", "netns", "del", self._space], capture_output=True)
        subprocess.run(["ip", "link", "del", f"{self._cable}a"], capture_output=True)
        shutil.rmtree(self._temp, ignore_errors=True)
