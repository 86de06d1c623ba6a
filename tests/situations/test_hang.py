"""A rank hangs, and somebody ends the job after 40 s."""

from __future__ import annotations

from pathlib import Path

from builders.run_files import WALL_OFFSET_NS
from builders.situations import S, Said, left, said_of, trained, written


def test_who_hung_where_and_for_how_long_is_said_and_next_is_its_page(tmp_path: Path) -> None:
    lives = trained(steps=range(31))
    run = written(tmp_path / "run", *(life.inside_of(31) for life in lives))
    begin_ns = lives[0].end_ns
    left(run, "hang", begin_ns + 40 * S, since_ns=WALL_OFFSET_NS + begin_ns, reason="it waits for a lock")

    assert said_of(run) == Said(
        "Verdict: rank 1 hung in forward_backward of actor_update for 40 s: nothing went on.",
        next="cat RUN/incidents/20231114T221325.000/incident.txt", codes=(1, 1), kind="hang", blames=True,
    )  # fmt: skip
