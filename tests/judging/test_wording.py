"""What a verdict says to do is a command that can be given as it stands."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mstxkit.cli import build_application
from mstxkit.judging import wording
from mstxkit.judging.evidence import Peer
from mstxkit.judging.findings import Finding, Key
from mstxkit.store import run_file

MEMBERS = [Peer(rank, f"node{rank // 8}") for rank in range(10_240)]
EACH_64TH = tuple(range(3, 10_240, 64))


@pytest.mark.parametrize(
    ("group", "place", "profiled"),
    [((0, 1, 2, 3), -1, "0-3"), (tuple(range(10_240)), -1, "0-7"), (EACH_64TH, -1, "3,67,131,195,259,323,387,451"),
     (EACH_64TH, 963, "3,67,131,195,259,323,387,963")],
)  # fmt: skip
def test_of_a_slow_link_of_many_ranks_some_are_to_be_profiled_and_the_command_is_taken(
    group: tuple[int, ...], place: int, profiled: str, tmp_path: Path
) -> None:
    run, _ = run_file.open_run_folder(tmp_path / "run")
    finding = Finding(Key("link", "link", "update"), place, 20, 0.5, 0.1, 1.0, group)
    words = shlex.split(wording.next_step(finding, MEMBERS, str(run)))
    answer = CliRunner().invoke(build_application(), words[1:])

    assert words[words.index("--ranks") + 1] == profiled
    assert "no process of the run" in answer.output
