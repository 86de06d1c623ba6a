"""A program: a training with a configuration file, and the framework of that file, which carries it out by itself.

`python taken_over.py FRAMEWORK FILE FOLDER`, with torch_npu under the stand-in CANN libraries and the framework in
THEIR_PATHS. Prints what the framework recorded, and whether mstxkit's profiler ran beside it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch
import torch_npu

import mstxkit

WITHIN_S = 60.0
STEPS, PROFILED = 4, 3
STAGES = ("actor_generate", "actor_compute_log_prob", "actor_update")


class MindSpeedRl:
    """Its three functions, called as its workers do."""

    def __init__(self, folder: Path) -> None:
        self.utils = importlib.import_module("mindspeed_rl.utils.utils")
        self.utils.profiler_of = lambda *_: profile_into(folder)
        fields = {"stage": "actor_update", "role": "actor", "profile": True}
        self.setting = type("Config", (), {**fields, "profile_step_start": PROFILED, "profile_step_end": PROFILED + 1})
        self.profiler: Any = None

    def begin(self, step: int) -> None:
        self.profiler = self.utils.profiler_start(self.setting, "actor_update", step)

    def end(self, step: int) -> None:
        self.utils.profiler_step(self.profiler)


class Verl:
    """Its `NPUProfiler`, for a whole step, as `start_profile` and `stop_profile` of a worker use it."""

    def __init__(self, folder: Path) -> None:
        module = importlib.import_module("verl.utils.profiler.mstx_profile")
        config = importlib.import_module("verl.utils.profiler.config")
        tool = config.NPUToolConfig(contents=["npu"], level="level0", analysis=False, discrete=False)
        setting = config.ProfilerConfig(tool="npu", enable=True, all_ranks=True, save_path=str(folder))
        self.profiler = module.NPUProfiler(rank=0, config=setting, tool_config=tool)

    def begin(self, step: int) -> None:
        if step == PROFILED:
            self.profiler.start(role="actor", profile_step=str(step))

    def end(self, step: int) -> None:
        if step == PROFILED:
            self.profiler.stop()


THEIRS: dict[str, Callable[[Path], Any]] = {"mindspeed_rl": MindSpeedRl, "verl": Verl}


def profile_into(folder: Path) -> Any:
    profiler = torch_npu.profiler
    return profiler.profile(
        activities=[profiler.ProfilerActivity.NPU],
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder), analyse_flag=False),
    )


def is_on_duty(run: Path) -> bool:
    return (run / "control" / "acks" / "rank0.json").exists()


def main() -> None:
    """Train."""
    framework, file, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    sys.path += os.environ["THEIR_PATHS"].split(os.pathsep)
    mstxkit.autopatch(framework)
    theirs = THEIRS[framework](folder / "theirs")
    with mstxkit.capture(str(folder / "run"), config=file, poll_every_s=0.02):
        mstxkit.identify(rank=0, world_size=1)
        for number in range(1, STEPS + 1):
            mstxkit.step(number)
            theirs.begin(number)
            for stage in STAGES:
                with mstxkit.stage(stage):
                    torch.ones(8).mul(2)
            theirs.end(number)
            deadline = time.monotonic() + WITHIN_S
            while not is_on_duty(folder / "run") and time.monotonic() < deadline:
                time.sleep(0.01)
    profiles = sorted(str(path) for path in (folder / "theirs").rglob("*_ascend_pt"))
    sys.stdout.write(f"TOLD {json.dumps(profiles)}\n")


if __name__ == "__main__":
    main()
