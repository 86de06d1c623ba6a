"""Sessions of this process on the real torch_npu, on stand-in CANN libraries: what CANN is asked for, and what is left.

Each script costs an import of torch_npu, so that several claims share the run of one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builders.mounts import Mount, mount  # noqa: F401
from builders.peers import MakePeer, make_peer  # noqa: F401

from mstxkit.profiling import guard
from mstxkit.testing import CannCall, CannRange, CannRun, Fail, run_under_cann

pytestmark = [
    pytest.mark.daily(4),
    pytest.mark.npu,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu"),
]

DEVICE = 5
SESSION = ["aclprofInit", "aclprofCreateConfig", "aclprofStart", "aclprofStop", "aclprofFinalize"]

HEAD = """
import json, os, signal, sys, threading, time
from pathlib import Path
from mstxkit import faults, mstx_range, sinks, stage
from mstxkit.host import folders
from mstxkit.store import run_file
from mstxkit.profiling import presets
folders.SHARED_MEMORY = os.environ["TRIED_SHM"]
sinks.install_all()
import torch, torch_npu
import torch_npu.profiler as P
from mstxkit.profiling.declare import Preset
from mstxkit.profiling.backends import find_profiler as backend_here
from mstxkit.profiling.session import OneSession, Order
run, run_id = run_file.open_run_folder(os.environ["TRIED_RUN"])
one, told = OneSession(), {}
def order(stage, preset, **changes):
    made = presets.load_preset(preset) if isinstance(preset, str) else preset
    return Order(run, run_id, 3, 4, "actor", stage, 7, made)._replace(**changes)
def said(recorded):
    return recorded and {**recorded._asdict(), "folder": recorded.folder and str(recorded.folder)}
def update():
    with stage("actor_update"), mstx_range("micro batch"):
        torch.ones(3).add(1)
"""
TAIL = "\nprint('told', json.dumps({**told, 'thread': threading.get_native_id(), 'faults': faults.counts}))\n"


class Ran(NamedTuple):
    """What CANN was asked for, and what the script told."""

    run: CannRun
    told: dict[str, Any]
    folder: Path

    def named(self, *more: str) -> list[CannCall]:
        return self.run.named(*SESSION, *more)

    def sessions(self) -> list[tuple[dict[str, Any], Path]]:
        """Each session.json with its folder, by start."""
        files = sorted(self.folder.rglob("session.json"), key=lambda file: file.parent.name)
        return [(json.loads(file.read_text()), file.parent) for file in files]


def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "shm").mkdir(exist_ok=True)
    return {
        "TRIED_SHM": str(tmp_path / "shm"),
        "TRIED_RUN": str(tmp_path / "run"),
        "ASCEND_RT_VISIBLE_DEVICES": str(DEVICE),
    }


def ran(body: str, tmp_path: Path, returncode: int = 0, **settings: Any) -> Ran:
    settings = {"start_bytes": 4096, **settings}
    given = {**environment(tmp_path), **settings.pop("env", {})}
    run = run_under_cann(HEAD + textwrap.dedent(body) + TAIL, cwd=tmp_path, env=given, **settings)
    assert run.returncode == returncode, run.stderr
    lines = run.stdout.split("told ", 1)[1].splitlines() if returncode == 0 else ["{}"]
    return Ran(run, json.loads(lines[0]), Path(given["TRIED_RUN"]))


ESCALATION = """
from torch_npu.profiler.profiler_interface import ProfPathCreator
P.tensorboard_trace_handler("theirs", worker_name="worker")
kept = ("_dir_path", "_worker_name", "_export_only_mode", "_prof_path", "is_prof_inited")
path = lambda: [getattr(ProfPathCreator(), name) for name in kept]
told["path"] = [path()]
told["backend"] = backend_here()
told["began"] = [one.begin(order("light", "light", step=6))]
update()
told["light"] = said(one.end("an escalation", [6]))
told["path"].append(path())
told["began"].append(one.begin(order("actor_update", "full", request="ab" * 8, seconds=60.0, bytes=1 << 30)))
while not one.bytes_so_far(): time.sleep(0.001)  # the stand-in writes on a thread of its own
told["size"] = one.bytes_so_far()
update()
told["full"] = said(one.end("the stage ended", [7]))
told["began"].append(one.begin(order("light", "light")))
update()
told["again"] = said(one.end("its steps are over", [7]))
told["path"].append(path())
told["still"] = torch._C._autograd._profiler_enabled()
"""


@pytest.fixture(scope="module")
def escalation(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(ESCALATION, tmp_path_factory.mktemp("escalation"))


def test_each_begins_after_the_one_before_ended_on_the_calling_thread(escalation: Ran) -> None:
    assert escalation.told["began"] == [None, None, None]
    assert [call.call for call in escalation.named()] == SESSION * 3
    assert {call.tid for call in escalation.named()} == {escalation.told["thread"]}
    assert {call.code for call in escalation.named()} == {0}
    assert (escalation.told["still"], escalation.told["faults"]) == (False, {})


def test_torch_npus_folder_is_as_the_user_set_it_after_each(escalation: Ran) -> None:
    before, *after = escalation.told["path"]

    assert (before[1], after) == ("worker", [before, before])


def during(ran: Ran, session: int) -> list[CannRange]:
    start, stop = ran.run.named("aclprofStart")[session], ran.run.named("aclprofStop")[session]
    return [one for one in ran.run.ranges() if start.t_ns < (one.start_ns or 0) and (one.end_ns or 0) < stop.t_ns]


@pytest.mark.parametrize("session", range(3))
def test_the_stages_range_is_in_each_exactly_once(escalation: Ran, session: int) -> None:
    assert [one.message for one in during(escalation, session)] == ["actor_update", "micro batch"]


def test_no_range_is_outside_a_session_or_left_open(escalation: Ran) -> None:
    assert len(escalation.run.ranges()) == 6
    assert escalation.run.unbalanced() == []


def test_canns_own_limit_is_set_between_its_init_and_its_start_where_bytes_are_limited(escalation: Ran) -> None:
    """1 GiB and a quarter; the sessions without a limit have none."""
    calls = [call.call for call in escalation.named("aclprofSetConfig")]

    assert calls == SESSION + ["aclprofInit", "aclprofSetConfig", *SESSION[1:]] + SESSION
    (limit,) = escalation.run.named("aclprofSetConfig")
    assert (limit.message, limit.code) == ("1280MB", 0)
    assert "CANN's own storage limit is 1280MB: beyond it the oldest data are thrown away" in [
        note for told, _ in escalation.sessions() for note in told["notes"]
    ]


def test_what_is_on_disk_is_what_was_told(escalation: Ran) -> None:
    for name, (told, folder) in zip(("light", "full", "again"), escalation.sessions()):
        recorded = escalation.told[name]
        output = folder / told["output"]

        assert (recorded["folder"], recorded["problems"]) == (str(folder), [])
        assert (told["state"], told["bytes"]) == ("recorded", recorded["bytes"])
        assert (told["backend"], told["preset"]) == ("torch_npu", "full" if name == "full" else "light")
        assert len(list(output.glob("PROF_*"))) == 1
        assert not (output / "ASCEND_PROFILER_OUTPUT").exists()
    assert 0 < escalation.told["size"] <= escalation.told["full"]["bytes"]


def test_folders_say_stage_step_and_rank(escalation: Ran) -> None:
    assert [str(folder.parent.relative_to(escalation.folder)) for _, folder in escalation.sessions()] == [
        "profiles/light/step6/rank3",
        "profiles/actor_update/step7/rank3",
        "profiles/light/step7/rank3",
    ]


def test_tools_find_the_rank_and_the_session_in_the_data(escalation: Ran) -> None:
    """torch_npu did not know the rank: there is neither RANK nor a process group."""
    told, folder = escalation.sessions()[1]
    output = folder / told["output"]
    info = json.loads((output / "profiler_info_3.json").read_text())
    metadata = json.loads((output / "profiler_metadata.json").read_text())

    assert (info["rank_id"], "config" in info) == (3, True)
    assert not (output / "profiler_info.json").exists()
    assert metadata["mstxkit"]["stage"] == "actor_update"
    assert (metadata["role"], len(metadata["trace_id"])) == ("actor", 32)


EMPTY = """
told["began"] = [one.begin(order("light", "light")), None]
update()
told["light"] = said(one.end("its steps are over", [7]))
told["began"][1] = one.begin(order("actor_update", "full"))
update()
told["full"] = said(one.end("the stage ended", [7]))
"""


def test_what_recorded_nothing_has_failed_though_torch_npu_says_nothing_of_it(tmp_path: Path) -> None:
    """CANN answers 0 to every call, makes its folders, and writes no data into them. Of the second one there are those
    of the host, and it is noted that there is nothing else.
    """
    done = ran(EMPTY, tmp_path, start_bytes=0)
    light, full = (told for told, _ in done.sessions())

    assert done.told["began"] == [None, None]
    assert {call.code for call in done.named()} == {0}
    assert done.told["light"]["folder"] is None
    assert light["state"] == "failed"
    assert light["problems"][0].startswith("nothing was recorded: ")
    assert (full["state"], full["problems"]) == ("recorded", [])
    assert "CANN wrote no data: there are those of the host alone" in full["notes"]
    assert done.told["faults"] == {}


WRONG = """
def attempt(name, preset="full", **changes):
    told[name] = {"begin": one.begin(order("actor_update", preset, **changes))}
    update()
    told[name]["end"] = said(one.end("the stage ended", [7]))

attempt("init fails")

class Lost(Exception): pass
def lost(*_): raise Lost("device lost")
synchronize, torch.npu.synchronize = torch.npu.synchronize, lost
attempt("device lost")
torch.npu.synchronize = synchronize

start_trace = P.profiler_interface._ProfInterface.start_trace
def raises(self): raise Lost("no start")
P.profiler_interface._ProfInterface.start_trace = raises
attempt("start raises")
P.profiler_interface._ProfInterface.start_trace = start_trace

def interrupted(*_): raise KeyboardInterrupt
torch.npu.synchronize = interrupted
try: attempt("interrupt")
except KeyboardInterrupt: told["interrupt"]["open"] = one.is_open
torch.npu.synchronize = synchronize

def users():
    handler = P.tensorboard_trace_handler("users", analyse_flag=False)
    return P.profile(activities=[P.ProfilerActivity.NPU], on_trace_ready=handler)
told["inner"] = {"begin": one.begin(order("actor_update", "full"))}
inner = users()
inner.start(); inner.stop()
told["inner"]["end"] = said(one.end("the stage ended", [7]))

theirs = users()
theirs.start()
attempt("theirs")
told["theirs goes on"] = torch._C._autograd._profiler_enabled()
theirs.stop()

attempt("limit refused", bytes=1000)
attempt("metrics", preset=Preset("mine", "level1", mstx=False, aic_metrics="Nothing"))
attempt("after")
told["still"] = torch._C._autograd._profiler_enabled()
"""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    fails = [Fail("aclprofStart", 100, 1), Fail("aclprofSetConfig", 100, 1)]
    return ran(WRONG, tmp_path_factory.mktemp("wrong"), fail=fails)


def test_what_cann_refuses_shows_at_the_end(wrong: Ran) -> None:
    told = wrong.told["init fails"]

    assert told["begin"] is None
    assert told["end"]["folder"] is None
    (problem,) = told["end"]["problems"]
    assert problem.endswith("holds no PROF_* folder: CANN recorded nothing (its own log says why)")
    assert wrong.sessions()[0][0]["state"] == "failed"


def test_a_device_that_is_lost_at_the_stop_costs_no_later_session(wrong: Ran) -> None:
    told = wrong.told["device lost"]["end"]

    assert told["problems"] == ["torch_npu did not stop when told to, and was closed by force: data may be missing"]
    assert wrong.sessions()[1][0]["problems"] == told["problems"]


def test_a_start_that_raises_is_a_reason(wrong: Ran) -> None:
    """torch_npu prints what it catches and goes on as if nothing had happened."""
    assert wrong.told["start raises"] == {
        "begin": "torch_npu did not start: it said so in its own log, if at all",
        "end": None,
    }
    assert wrong.sessions()[2][0]["state"] == "failed"


def test_an_interrupt_at_the_stop_leaves_nothing_open(wrong: Ran) -> None:
    told = wrong.sessions()[3][0]

    assert wrong.told["interrupt"]["open"] is False
    assert (told["state"], told["problems"]) == ("failed", ["the stop was interrupted: data may be missing"])


def test_a_profiler_of_the_program_that_ends_ours_is_told(wrong: Ran) -> None:
    told = wrong.told["inner"]

    assert told["begin"] is None
    assert told["end"]["problems"][0] == ("torch_npu had ended before it was told to: somebody else stopped it")


def test_a_profiler_of_the_program_is_left_alone_and_named(wrong: Ran) -> None:
    told = wrong.told["theirs"]

    assert told["begin"].startswith("torch_npu's profiler records in this process into ")
    assert told["begin"].endswith("; ask again when it has stopped, or take it out")
    assert (told["end"], wrong.told["theirs goes on"]) == (None, True)


def test_a_limit_that_cann_refuses_is_noted_and_the_session_goes_on(wrong: Ran) -> None:
    assert wrong.told["limit refused"]["end"]["problems"] == []
    noted = [told["notes"] for told, _ in wrong.sessions() if told["limits"]["bytes"] == 1000]
    assert noted == [["CANN's own storage limit is not set: aclprofSetConfig answered 100 to 200MB"]]


def test_metrics_that_this_version_has_not_are_a_reason(wrong: Ran) -> None:
    assert wrong.told["metrics"]["begin"].startswith("refused: this version has no aic_metrics 'Nothing'; it has ")


def test_after_all_that_a_session_records_as_ever(wrong: Ran) -> None:
    assert (wrong.told["after"]["begin"], wrong.told["after"]["end"]["problems"]) == (None, [])
    assert (wrong.told["still"], wrong.told["faults"]) == (False, {})
    assert [call.call for call in wrong.named()][-5:] == SESSION
    states = [told["state"] for told, _ in wrong.sessions()]
    assert "recording" not in states


HOLDER = """
import os
from pathlib import Path
from mstxkit.profiling import guard
def answer(device):
    global mine
    mine = guard.take_device(int(device), run="run-of-another-job", stage="reward", folder=Path(os.environ["AT"]))
    return type(mine).__name__
"""


def test_a_device_that_another_process_has_is_refused_with_its_name(
    tmp_path: Path,
    make_peer: MakePeer,  # noqa: F811
) -> None:
    (tmp_path / "shm").mkdir()
    peer = make_peer(HOLDER, AT=str(tmp_path / "shm"))
    assert peer.ask(DEVICE) == "Claim"

    done = ran("told['why'] = one.begin(order('actor_update', 'full'))", tmp_path)

    owner = f"process {peer.pid} on {os.uname().nodename} (run run-of-another-job, stage reward,"
    assert done.told["why"].startswith(f"device {DEVICE} is taken by {owner}")
    assert done.named() == []
    assert done.sessions() == []


def test_a_kill_leaves_a_session_that_says_it_records_and_frees_the_device(tmp_path: Path) -> None:
    body = """
    assert one.begin(order("actor_update", "full")) is None
    update()
    os.kill(os.getpid(), signal.SIGKILL)
    """
    done = ran(body, tmp_path, returncode=-signal.SIGKILL)

    ((told, folder),) = done.sessions()
    assert (told["state"], told["end_ns"], told["output"]) == ("recording", None, None)
    assert len(list(folder.glob("*_ascend_pt/PROF_*"))) == 1
    claim = guard.take_device(DEVICE, folder=tmp_path / "shm")
    assert isinstance(claim, guard.Claim), claim
    claim.release()


def test_a_full_disk_is_stated_and_training_goes_on(tmp_path: Path, mount: Mount) -> None:  # noqa: F811
    body = """
    told["begin"] = one.begin(order("actor_update", "full"))
    update()
    while os.statvfs(run).f_bavail: time.sleep(0.001)  # CANN writes on a thread of its own
    told["end"] = said(one.end("the stage ended", [7]))
    told["next"] = one.begin(order("actor_update", "full"))
    update()
    """
    disk = mount("disk", "size=40m")
    done = ran(body, tmp_path, env={"TRIED_RUN": str(disk / "run")}, start_bytes=48 << 20)

    told = done.told["end"]
    assert done.told["begin"] is None
    assert told["folder"] is None
    assert any(problem.startswith("no room is left on the disk of ") for problem in told["problems"]), told
    ((session, _),) = [one for one in done.sessions() if one[0]["state"]]
    assert session["state"] == "failed"
    assert any("is the disk full?" in problem for problem in session["problems"])
    assert done.told["next"].startswith("only 0 MiB are left on the disk of ")
    assert done.told["faults"] == {}
