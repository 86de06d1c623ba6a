"""Two processes with the real torch_npu claim one device at once: one records, the other says who has it, and waits for
its turn; so does one that has agreed with the other on the steps.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import lives, situations

from mstxkit import open_run
from mstxkit.escalation import asking
from mstxkit.host import identity
from mstxkit.store import fate
from mstxkit.testing import CannRun, run_under_cann

pytestmark = [
    pytest.mark.npu,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu"),
]

# One parent imports torch_npu; its children are ranks 0 and 1, which were given the same device by mistake: of one run,
# then of two, then of one in which they agree on steps, each of which rank 0 enters first. As the interpreter does at
# its exit they end, without seconds of freeing torch.
PROGRAM = """
    import atexit, json, multiprocessing, os, sys, time
    from pathlib import Path
    import torch, torch_npu, mstxkit
    from mstxkit.escalation import asking
    from mstxkit.errors import MstxkitError
    from mstxkit.escalation.duty import beginning
    from mstxkit.recorder import sealer
    from mstxkit.store.report import OPEN_STATES
    sealer._GOVERN_EVERY_NS = 50_000_000
    beginning.WAITS_AT_MOST_S = 20  # a busy machine puts no session off
    folder, device = Path(sys.argv[1]), int(sys.argv[2])

    def until(is_so):
        deadline = time.monotonic() + 60
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.005)
    def states(run):
        try:
            acks = asking.control_of(run).acknowledgements()
        except MstxkitError:
            return {}
        return {one.rank: [report["state"] for report in one.document["reports"]] for one in acks}
    def train(rank, place, run):
        mstxkit.identify(rank=rank, world_size=2)
        mstxkit.capture(run, poll_every_s=0.02, cooldown_s=0)
        with mstxkit.stage("actor_update"): pass
        until(lambda: states(run).get(rank) == ["armed"])
        until(lambda: rank == 0 or (place / "inside").exists())
        with mstxkit.stage("actor_update"):
            torch.ones(3).add(1)
            (place / ("inside", "refused")[rank]).write_text("")
            until(lambda: rank == 1 or (place / "refused").exists())
        (place / ("left", "waits")[rank]).write_text("")
        until((place / "left").exists)
        for _ in range(rank):
            with mstxkit.stage("actor_update"):
                torch.ones(3).add(1)
    at_once, are_over = multiprocessing.Barrier(2, timeout=60), multiprocessing.Value("b", False)
    def train_steps(rank, place, run):
        mstxkit.identify(rank=rank, world_size=2)
        mstxkit.capture(run, poll_every_s=0.02, cooldown_s=0, transport_s=1)
        step = 0
        while not are_over.value:
            step += 1
            mstxkit.step(step)
            if rank == 1:
                at_once.wait()  # rank 0 is inside
            with mstxkit.stage("actor_update"):
                torch.ones(3).add(1)
                time.sleep(0.02)
                if rank == 0:
                    at_once.wait()
                at_once.wait()  # both are
            at_once.wait()
            if rank == 0:
                if step == 3:
                    (place / "steady").write_text("")  # nobody waits for a first step of others, as HCCL connects
                said = [state for words in states(run).values() for state in words]
                are_over.value = len(said) == 2 and set(said).isdisjoint(OPEN_STATES)
            at_once.wait()
    def case(number, names, trains, **window):
        place = folder / str(number)
        place.mkdir()
        os.environ["ASCEND_RT_VISIBLE_DEVICES"] = str(device + number)
        pids = []
        for rank in range(2):
            pids.append(os.fork())
            if not pids[-1]:
                status = 1
                try:
                    trains(rank, place, place / names[rank])
                    status = 0
                finally:
                    atexit._run_exitfuncs()
                    os._exit(status)
        for name in sorted(set(names)):
            run, ranks = place / name, [rank for rank in range(2) if names[rank] == name]
            until(lambda: set(states(run)) >= set(ranks) and (trains is train or (place / "steady").exists()))
            asking.ask_ranks(run, {"stage": "actor_update", "ranks": ranks, **window})
        return {"pids": pids, "status": [os.waitpid(pid, 0)[1] for pid in pids]}

    ones = case(0, ("one", "one"), train, occurrences=1), case(1, ("one", "other"), train, occurrences=1)
    print(json.dumps([*ones, case(2, ("one", "one"), train_steps, steps=2)]))
"""
DEVICE = 9000
SESSIONS = (1, 1, 2)  # of each rank
CASES = (("one", "one"), ("one", "other"), ("one", "one"))


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CannRun, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("claims")
    command = [sys.executable, "-c", lives.dedented(PROGRAM), str(folder), str(DEVICE)]
    # Where the first step is not over yet, ranks wait no shorter for each other than afterwards.
    run = run_under_cann(command, env=lives.environment(HCCL_CONNECT_TIMEOUT="7200"))
    assert run.returncode == 0, run.stderr
    return folder, run, json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("number", range(len(CASES)), ids=["of one run", "of two runs", "agreed steps"])
def test_who_comes_second_says_who_has_the_device_and_records_once_it_is_free(
    claimed: tuple[Path, CannRun, list[dict[str, Any]]], number: int
) -> None:
    folder, run, cases = claimed
    place, told = folder / str(number), cases[number]
    words = [report_of(place / name, rank) for rank, name in enumerate(CASES[number])]
    found = [json.loads(path.read_text()) for path in place.glob("*/profiles/*/*/*/*/session.json")]
    profiles = [call for call in run.named("aclprofStart", "aclprofStop") if call.pid in told["pids"]]

    assert told["status"] == [0, 0]
    assert [report.state for report in words] == ["done", "done"]
    assert re.search(rf"device {DEVICE + number} is taken by process {told['pids'][0]} on ", words[1].reason)
    assert [(call.call, call.pid) for call in profiles] == [
        (call, pid) for pid in told["pids"] for _ in range(SESSIONS[number]) for call in ("aclprofStart", "aclprofStop")
    ]
    assert sorted((one["rank"], one["state"]) for one in found) == [
        (rank, "recorded") for rank in range(2) for _ in range(SESSIONS[number])
    ]


def test_the_turn_of_who_had_agreed_comes_after_the_others_steps_and_all_say_why(
    claimed: tuple[Path, CannRun, list[dict[str, Any]]],
) -> None:
    folder, run, cases = claimed
    one = folder / "2" / "one"
    first, second = (report_of(one, rank) for rank in range(2))
    why = f"device {DEVICE + 2} is taken by process {cases[2]['pids'][0]} on {identity.name_host()}"
    rows = open_run(one).escalations().sort("rank").select("rank", "reason").rows()
    status = situations.called("status", str(one)).stdout

    assert len(first.recorded_steps) == 2 == len(second.recorded_steps)
    assert second.first_step == first.first_step + 2
    assert rows == [(0, ""), (1, second.reason)] and second.reason == f"an occurrence was passed over: {why}"
    assert re.search(rf"request {first.id} of actor_update waits: {re.escape(why)}", run.stderr)
    assert f"rank 1: {second.reason}" in status


def report_of(run: Path, rank: int) -> Any:
    control = asking.control_of(run)
    said = fate.Fates(fate.read_heard(control)).progress(fate.read_asked(control)[0])
    return next(one for one in said.reports if one.rank == rank)
