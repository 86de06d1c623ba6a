"""A program: a training that is captured, and somebody else's profiler in it, a case after the other in one process.

`python their_profilers.py FOLDER CASES FRAMEWORKS`: cases as JSON, [kind, phase, ours]; with torch_npu under the
stand-in CANN libraries. Prints what became of both as JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable

WITHIN_S = 30.0
torch: Any = None
torch_npu: Any = None
mindspore: Any = None


def wait_until(is_so: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.005)


def work() -> None:
    if torch is not None:
        torch.ones(8).mul(2)
    if mindspore is not None:
        mindspore.ops.ones((4, 4)).sum().asnumpy()


class Stepped:
    """One that is started, told of each step, and stopped."""

    profiler: Any

    def start(self) -> None:
        self.profiler.start()

    def step(self) -> None:
        self.profiler.step()

    def stop(self) -> None:
        self.profiler.stop()


class Torch(Stepped):
    """torch.profiler on the CPU, with and without a schedule."""

    def __init__(self, folder: Path, schedule: dict[str, int] | None) -> None:
        profiler = torch.profiler
        self.events: list[str] = []
        self.profiler = profiler.profile(
            activities=[profiler.ProfilerActivity.CPU],
            schedule=None if schedule is None else profiler.schedule(**schedule),
            on_trace_ready=lambda made: self.events.extend(event.key for event in made.key_averages()),
        )

    def lacks(self) -> str:
        return "" if "aten::mul" in self.events else f"no aten::mul in {self.events}"


class OnDisk:
    """What all kinds of torch_npu's leave: one folder with CANN's in it."""

    folder: Path

    def lacks(self) -> str:
        made = list(self.folder.glob("**/*_ascend_pt"))
        if len(made) != 1:
            return f"{len(made)} folders in {self.folder}"
        if not any(made[0].glob("PROF_*")) or not any(made[0].glob("profiler_info*.json")):
            return f"{made[0]} has only {os.listdir(made[0])}"
        return ""


def npu_profile(folder: Path, schedule: dict[str, int] | None) -> Any:
    profiler = torch_npu.profiler
    return profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=None if schedule is None else profiler.schedule(**schedule),
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder), analyse_flag=False),
    )


class TorchNpu(Stepped, OnDisk):
    def __init__(self, folder: Path, schedule: dict[str, int] | None) -> None:
        self.folder, self.profiler = folder, npu_profile(folder, schedule)


class Dynamic(OnDisk):
    """torch_npu's dynamic profiler: started by code, or by what its monitor has read."""

    def __init__(self, folder: Path, schedule: dict[str, int] | None) -> None:
        self.folder, self.schedule = folder, schedule
        self.module = importlib.import_module("torch_npu.profiler.dynamic_profile")
        config = json.loads((Path(__file__).parent / "dynamic_profile.json").read_text())
        lasts = {"warmup": schedule["warmup"], "active": schedule["active"]} if schedule else {"active": 1}
        self.config = {**config, **lasts, "prof_dir": str(folder)}
        self.file = folder.parent / "profiler_config.json"
        self.file.write_text(json.dumps(self.config))
        conf = folder.parent.parent / "conf"
        conf.mkdir(exist_ok=True)
        with contextlib.redirect_stdout(sys.stderr):
            self.module.init(str(conf))

    def start(self) -> None:
        if self.schedule is None:
            self.module.start(str(self.file))
            return
        state = self.module._DynamicProfile()  # as if the monitor's process had told it so
        state.cfg_ctx = self.module.ConfigContext({**self.config, "start_step": state.cur_step + self.schedule["wait"]})

    def step(self) -> None:
        self.module.step()

    def stop(self) -> None:
        while self.module._DynamicProfile().prof is not None:
            self.module.step()


class MindSpeedRl(OnDisk):
    """Its three functions, as the package in `PACKAGE` has them; of all stages with a schedule, else of one."""

    def __init__(self, folder: Path, schedule: dict[str, int] | None) -> None:
        utils = importlib.import_module("mindspeed_rl.utils.utils")
        self.folder, self.schedule, self.utils, self.profiler = folder, schedule, utils, None
        utils.profiler_of = lambda skip, active, role: npu_profile(
            folder, {"wait": 0, "warmup": 0, "active": active, "repeat": 1, "skip_first": skip}
        )

    def start(self) -> None:
        wait = self.schedule["wait"] if self.schedule else 0
        of = {"stage": "all" if self.schedule else "actor_update", "role": "integrated", "profile": True}
        setting = type("Config", (), {**of, "profile_step_start": 1 + wait, "profile_step_end": 2 + wait})
        role = "integrated" if self.schedule else "actor_update"
        self.profiler = self.utils.profiler_start(setting, role, None)

    def step(self) -> None:
        self.utils.profiler_step(self.profiler)

    def stop(self) -> None:
        self.step()


class Verl(OnDisk):
    """verl's own, of a worker: from `start_profile` to `stop_profile`."""

    def __init__(self, folder: Path, schedule: dict[str, int] | None) -> None:
        module = importlib.import_module("verl.utils.profiler.mstx_profile")
        config = importlib.import_module("verl.utils.profiler.config")
        tool = config.NPUToolConfig(contents=["npu", "cpu"], level="level0", analysis=False, discrete=False)
        setting = config.ProfilerConfig(tool="npu", enable=True, all_ranks=True, save_path=str(folder))
        self.folder, self.profiler = folder, module.NPUProfiler(rank=0, config=setting, tool_config=tool)

    def start(self) -> None:
        self.profiler.start(role="actor", profile_step="1")

    def step(self) -> None:
        pass

    def stop(self) -> None:
        self.profiler.stop()


class MindSpore(Stepped):
    """On a CPU."""

    def __init__(self, folder: Path, schedule: dict[str, int] | None) -> None:
        profiler = mindspore.profiler
        self.folder = folder
        self.profiler = profiler.profile(
            activities=[profiler.ProfilerActivity.CPU],
            start_profile=False,
            schedule=None if schedule is None else profiler.schedule(**schedule),
            on_trace_ready=profiler.tensorboard_trace_handler(str(folder), analyse_flag=False),
        )

    def lacks(self) -> str:
        made = list(self.folder.glob("**/*_ascend_ms"))
        is_whole = len(made) == 1 and any(made[0].glob("FRAMEWORK/*"))
        return "" if is_whole else f"{[list(one.rglob('*')) for one in made]} in {self.folder}"


KINDS = {
    "mindspore": MindSpore,
    "torch": Torch,
    "torch_npu": TorchNpu,
    "dynamic": Dynamic,
    "mindspeed_rl": MindSpeedRl,
    "verl": Verl,
}


def read_reports(run: Path) -> list[dict[str, Any]]:
    """What rank 0 says of requests; [] while it is not on duty."""
    ack = run / "control" / "acks" / "rank0.json"
    return json.loads(ack.read_text())["document"]["reports"] if ack.exists() else []


class Training:
    """A loop of steps, each with one stage."""

    def __init__(self, folder: Path, ours: str) -> None:
        self.run, self.number, self.is_light = folder / "run", 0, ours == "light"
        light = "every 4 steps, 4 steps, any device" if self.is_light else None
        mstxkit.capture(str(self.run), cooldown_s=0, poll_every_s=0.02, light=light)
        mstxkit.identify(rank=0, world_size=1)
        self.step()
        wait_until((self.run / "control" / "acks" / "rank0.json").exists, "this rank is not on duty")
        if self.is_light:
            self.number = 3

    def step(self, inside: Callable[[], object] = lambda: None) -> None:
        """One step; `inside` its stage."""
        self.number += 1
        mstxkit.step(self.number)
        with mstxkit.stage("actor_update"):
            work()
            inside()
            work()

    def reports(self) -> list[dict[str, Any]]:
        return read_reports(self.run)

    def ask(self) -> None:
        """One request, where ours is an escalation, until this rank has heard of it."""
        if not self.is_light:
            mstxkit.escalate("actor_update", preset="kernels")
            wait_until(lambda: any(self.is_heard(each) for each in self.reports()), "the request does not come")

    def is_heard(self, report: dict[str, Any]) -> bool:
        """Is it armed, or does it wait for theirs? In a process's first case it waits for imports before that."""
        waits = report["reason"].startswith("waits for") and "imports" not in report["reason"]
        return waits or report["state"] == "armed"

    def is_over(self) -> bool:
        return all(report["state"] not in ("queued", "armed", "running", "draining") for report in self.reports())

    def end(self) -> dict[str, Any]:
        if not self.is_light:
            wait_until(self.go_on, "the request does not end")
        capturing.stop_recording()
        sessions = [json.loads(file.read_text()) for file in sorted(self.run.rglob("session.json"))]
        told = ("stage", "step", "state", "ended_because", "problems")
        return {
            "reports": [{key: report[key] for key in ("state", "reason", "recorded")} for report in self.reports()],
            "sessions": [{key: session[key] for key in told} for session in sessions],
        }

    def go_on(self) -> bool:
        self.step()
        time.sleep(0.03)  # a look of the watcher's
        return self.is_over()


def planned(phase: str) -> dict[str, int] | None:
    """A schedule that is where the phase says, after its start and `ahead` steps."""
    waits = {"waiting": 3, "warming up": 1, "recording": 1}
    return {"wait": waits[phase], "warmup": 1, "active": 2, "repeat": 1} if phase in waits else None


AHEAD = {"waiting": 0, "warming up": 1, "recording": 2}


def record_whole(theirs: Any) -> None:
    theirs.start()
    work()
    theirs.stop()


def before(training: Training, theirs: Any) -> None:
    theirs.start()
    training.step()
    theirs.stop()
    training.ask()
    training.step()


def scheduled(training: Training, theirs: Any, ahead: int) -> None:
    theirs.start()
    for _ in range(ahead):
        training.step()
        theirs.step()
    training.ask()
    for _ in range(7 - ahead):
        training.step()
        theirs.step()
    theirs.stop()


def running(training: Training, theirs: Any) -> None:
    theirs.start()
    training.ask()
    training.step()
    theirs.stop()


def inside(training: Training, theirs: Any) -> None:
    training.ask()

    training.step(lambda: record_whole(theirs))


def begun_on_a_thread(training: Training, theirs: Any) -> None:
    """Nothing but what happened can be told: a session is ended on its own thread only."""
    training.ask()

    def meanwhile() -> None:
        thread = threading.Thread(target=record_whole, args=(theirs,), name="theirs")
        thread.start()
        thread.join()

    training.step(meanwhile)


def made_on_a_thread(training: Training, make: Callable[[], Any]) -> Any:
    """That one exists there is seen beforehand."""
    is_made, may_begin, made = threading.Event(), threading.Event(), []

    def whole() -> None:
        made.append(make())
        is_made.set()
        may_begin.wait(WITHIN_S)
        record_whole(made[0])

    def meanwhile() -> None:
        may_begin.set()
        thread.join()

    thread = threading.Thread(target=whole, name="theirs")
    thread.start()
    is_made.wait(WITHIN_S)
    training.ask()
    training.step(meanwhile)
    return made[0]


def case(kind: str, phase: str, ours: str, folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True)
    training = Training(folder, ours)

    def make() -> Any:
        return KINDS[kind](folder / "theirs", planned(phase))

    if phase == "made on a thread":
        theirs = made_on_a_thread(training, make)
    elif phase in AHEAD:
        theirs = make()
        scheduled(training, theirs, AHEAD[phase])
    else:
        theirs = make()
        {"before": before, "running": running, "inside": inside, "begun on a thread": begun_on_a_thread}[phase](
            training, theirs
        )
    told = training.end()
    return {**told, "lacks": theirs.lacks(), "faults": dict(faults.counts)}


def main(folder: Path, cases: list[list[str]]) -> None:
    for number, (kind, phase, ours) in enumerate(cases):
        faults.reset_counts()
        calls_from = time.monotonic_ns()
        try:
            told = case(kind, phase, ours, folder / str(number))
        except BaseException:
            capturing.stop_recording()
            told = {"raised": traceback.format_exc()}
        told = {**told, "from_ns": calls_from, "to_ns": time.monotonic_ns()}
        sys.stdout.write(f"TOLD {json.dumps(told)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.path += [path for path in os.environ.get("THEIR_PATHS", "").split(os.pathsep) if path]
    import mstxkit
    from mstxkit import capturing, faults
    from mstxkit.host import folders

    own = Path(sys.argv[1]).parent / "shm"  # the device's lock is this program's alone
    own.mkdir()
    folders.SHARED_MEMORY = str(own)

    for name in sys.argv[3].split(","):  # the frameworks of this process
        globals()[name] = importlib.import_module(name)
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
