"""Two processes with the real torch_npu claim one device at once: one records, the other says who has it, and waits."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import lives

from mstxkit.escalation import asking
from mstxkit.store import fate
from mstxkit.testing import CannRun, run_under_cann

pytestmark = [
    pytest.mark.npu,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu"),
]

# One parent imports torch_npu; its children are ranks 0 and 1, which were given the same device by mistake: of one run,
# then of two. As the interpreter does at its exit they end, without seconds of freeing torch.
PROGRAM = """
    import atexit, json, os, sys, time
    from pathlib import Path
    import torch, torch_npu, mstxkit
    from mstxkit.escalation import asking
    from mstxkit.errors import MstxkitError
    from mstxkit.escalation.duty import beginning
    from mstxkit.recorder import sealer
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
    def case(number, names):
        place = folder / str(number)
        place.mkdir()
        os.environ["ASCEND_RT_VISIBLE_DEVICES"] = str(device + number)
        pids = []
        for rank in range(2):
            pids.append(os.fork())
            if not pids[-1]:
                status = 1
                try:
                    train(rank, place, place / names[rank])
                    status = 0
                finally:
                    atexit._run_exitfuncs()
                    os._exit(status)
        for name in sorted(set(names)):
            run, ranks = place / name, [rank for rank in range(2) if names[rank] == name]
            until(lambda: set(states(run)) >= set(ranks))
            asking.ask(run, {"stage": "actor_update", "ranks": ranks, "occurrences": 1})
        return {"pids": pids, "status": [os.waitpid(pid, 0)[1] for pid in pids]}

    print(json.dumps([case(0, ("one", "one")), case(1, ("one", "other"))]))
"""
DEVICE = 9000
CASES = (("one", "one"), ("one", "other"))


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CannRun, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("claims")
    command = [sys.executable, "-c", lives.dedented(PROGRAM), str(folder), str(DEVICE)]
    run = run_under_cann(command, env=lives.environment())
    assert run.returncode == 0, run.stderr
    return folder, run, json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("number", range(len(CASES)), ids=["of one run", "of two runs"])
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
        (call, pid) for pid in told["pids"] for call in ("aclprofStart", "aclprofStop")
    ]
    assert sorted((one["rank"], one["state"]) for one in found) == [(0, "recorded"), (1, "recorded")]


def report_of(run: Path, rank: int) -> Any:
    control = asking.control_of(run)
    said = fate.Fates(fate.heard(control)).progress(fate.asked(control)[0])
    return next(one for one in said.reports if one.rank == rank)
