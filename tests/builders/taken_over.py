"""A program: a training with a configuration file, and the framework of that file, which carries it out by itself.

`python taken_over.py FRAMEWORK FILE FOLDER`, with torch_npu under the stand-in CANN libraries and the framework in
THEIR_PATHS. Prints the profiles that the framework recorded.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import their_profilers  # of this folder, which Python puts on the path of a program in it
import torch
import torch_npu

import mstxkit

STEPS, PROFILED = 4, 3
STAGES = ("actor_generate", "actor_compute_log_prob", "actor_update")


def main() -> None:
    """Train."""
    framework, file, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    sys.path += os.environ["THEIR_PATHS"].split(os.pathsep)
    mstxkit.autopatch(framework)
    their_profilers.torch_npu = torch_npu
    theirs = their_profilers.KINDS[framework](folder / "theirs", None)
    with mstxkit.capture(str(folder / "run"), config=file, poll_every_s=0.02):
        mstxkit.identify(rank=0, world_size=1)
        for number in range(1, STEPS + 1):
            mstxkit.step(number)
            if number == PROFILED:
                theirs.start()
            for stage in STAGES:
                with mstxkit.stage(stage):
                    torch.ones(8).mul(2)
            if number == PROFILED:
                theirs.stop()
            their_profilers.wait_until(
                lambda: their_profilers.read_reports(folder / "run") != [], "this rank has not heard of what is planned"
            )
    profiles = sorted(str(path) for path in (folder / "theirs").rglob("*_ascend_pt"))
    sys.stdout.write(f"TOLD {json.dumps(profiles)}\n")


if __name__ == "__main__":
    main()
