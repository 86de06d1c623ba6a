"""Replicas of a student and of a teacher have the same numbers, and (rank, role, part, attempt) is one process."""

from __future__ import annotations

from typing import Any

import pytest

from mstxkit.host import identity, parts
from mstxkit.reading import attempts
from mstxkit.reading.processes import Process, settle_replicas

SECOND = 1_000_000_000


class Job:
    """Processes of a run on one host."""

    def __init__(self) -> None:
        self.processes: list[Process] = []

    def add(self, part: str | None, ppid: int = 1, *, rank: int | None = None, under: str = "", **more: Any) -> int:
        pid = 100 + len(self.processes)
        who = {"ppid": ppid, "boot": "b", "pidns": 1, "rank": rank, "part": part, "under": under, "job": "j",
               "start_ns": pid * SECOND, **more}  # fmt: skip
        self.processes.append(Process(("h", pid, "5eed"), len(self.processes), who))
        return pid

    def server(self, name: str, tensor_parallel: int, data_parallel: int = 1) -> None:
        """A server of verl's, its engines' cores and their workers, as their variables and names say."""
        replica = parts._replica_of(name)
        above = self.add(replica, under=parts.RAY)
        number = replica.split()[1]
        for dp in range(data_parallel):
            which = f"replica {number}" + (f" dp {dp}" if data_parallel > 1 else "")
            core = self.add(f"{which} EngineCore", above, under=parts.PROCESS)
            for rank in range(tensor_parallel):
                self.add(f"{which} Worker-{rank}", core, rank=rank, under=parts.PROCESS)

    def keys(self) -> list[tuple[Any, ...]]:
        settle_replicas(self.processes)
        spans = [(p.identity, p.identity["start_ns"], 10**6 * SECOND) for p in self.processes]
        return [
            (who.get("rank"), who.get("role"), who.get("part"), attempt)
            for (who, _, _), attempt in zip(spans, attempts.number_attempts(spans))
        ]


def test_teacher_and_student_never_share_a_lane() -> None:
    job = Job()
    for rank in range(4):
        job.add(f"x_WorkerDict_0:{rank}", rank=rank, role="actor", under=parts.RAY)
        job.add(f"y_WorkerDict_0:{rank}", rank=rank, role="reference", under=parts.RAY)
    for replica in range(2):
        for kind in ("", "teacher_", "reward_"):
            job.server(f"vllm_server_{kind}{replica}_0", 2)
        job.server(f"sglang_server_decode_{replica}_1", 2, data_parallel=2)
    keys = job.keys()

    assert len(set(keys)) == len(keys)
    assert (0, None, "replica 1 teacher Worker-0", 0) in keys
    assert (0, None, "replica 1 Worker-0", 0) in keys


def test_what_is_below_nobody_that_says_more_stays_as_it_is() -> None:
    job = Job()
    job.add("replica 0 Worker-0", 4711, rank=0)
    alone = job.add("replica 0")
    job.add("replica 0 Worker-1", alone)
    other = job.add("replica 1 teacher", under=parts.RAY)
    job.add("replica 0 Worker-2", other)
    keys = job.keys()

    assert [part for _, _, part, _ in keys] == [
        "replica 0 Worker-0", "replica 0", "replica 0 Worker-1", "replica 1 teacher", "replica 0 Worker-2",
    ]  # fmt: skip


def test_a_pid_that_comes_again_is_its_last_owner_and_circles_end() -> None:
    job = Job()
    teacher = job.add("replica 0 teacher", under=parts.RAY)
    job.add("replica 0", under=parts.RAY)
    job.processes[1].key = ("h", teacher, "again")
    job.add("replica 0 Worker-0", teacher)
    loop = job.add("replica 0 Worker-1", 104)
    job.add("replica 0 Worker-2", loop)

    assert job.keys()[2][2] == "replica 0 Worker-0"


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"VERL_REPLICA_RANK": "2"}, "replica 2"), ({"VLLM_DP_RANK": "1"}, "replica 1"),
        ({"VERL_REPLICA_RANK": "2", "VLLM_DP_RANK": "1"}, "replica 2 dp 1"), ({}, None),
    ],
)  # fmt: skip
def test_ranks_of_a_replica_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], part: str | None
) -> None:
    for name in ("VERL_REPLICA_RANK", "VLLM_DP_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    replica = identity._read_replica()

    assert (None if replica is None else f"replica {replica}") == part
