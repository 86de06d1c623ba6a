"""The kernel kills a rank as memory runs out."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, left, said_of, trained, written


def test_it_is_called_out_of_memory_whatever_the_signal(tmp_path: Path) -> None:
    survivor, _ = trained()
    _, victim = trained(steps=range(31))
    run = written(tmp_path / "run", survivor, victim.inside_of(31).ending(host="node1"))
    details = {"signal": 9, "oom_kills": 1, "process": "node1-4712-5eed"}
    left(run, "killed", victim.end_ns, details=details)

    assert said_of(run) == Said(
        "Verdict: rank 1 was killed by SIGKILL as memory ran out in forward_backward of actor_update: the "
        "job ended 4.11 s later.",
        next="cat RUN/incidents/20231114T221325.000/incident.txt", codes=(1, 1), kind="out_of_memory", blames=True,
    )  # fmt: skip
