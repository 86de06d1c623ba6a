"""Jobs of MindSpeed-RL's own `cli/train_grpo.py` on a CPU, started as a user starts them, and what they left.

The sources are those that .ci/systems.py finds; what only an NPU has is stood in for by `frameworks/rl_cpu/`, whose
README.md says what that is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from builders import quickstart
from builders.mindspeed_llm import HERE as LLM_HERE
from builders.mindspeed_llm import PACKAGES, PYTHON, ROOT, SYSTEMS
from builders.ray_jobs import NO_LESS_THAN_OTHERS
from builders.real_job import RealJob

from mstxkit import open_run
from mstxkit.testing.stand_in import StandIn

HERE = LLM_HERE.with_name("rl_cpu")
RANKS, STEPS = 2, 10
# Of each rank in each step: as many steps of the optimizer.
MINI_BATCHES = 2
# The job waits within its second step, at the end of the last of them.
HOLD, HELD_STEP = 2 * MINI_BATCHES, 1
NEEDED = (*SYSTEMS.MINDSPEED_RL, *SYSTEMS.MINDSPEED_LLM)
ARE_HERE = SYSTEMS.are_to_be_had(NEEDED) and PACKAGES.is_dir()
MISSING = (
    "no MindSpeed-RL here: SOAK_TESTS=1 make setup-frameworks; python .ci/systems.py, or set SYSTEM_SOURCES=FOLDER"
)
# What its logger says of each step, each value to the last digit; how long something took, and what follows from that.
LOGGED = re.compile(rf"iteration: (\d+) / {STEPS} \| (.*)")
MEASURED = re.compile(r"timing/|.*_tps$")


def prepare(folder: Path) -> Path:
    """A model's shape, its tokenizer and prompts, which jobs share."""
    command = [PYTHON, str(HERE / "words.py"), str(folder)]
    output = subprocess.run(
        command, env=_environment(folder), capture_output=True, text=True, timeout=Job.ENDS_WITHIN_S, check=False
    )
    assert output.returncode == 0, output.stderr[-4000:]
    return folder


class Job(RealJob):
    """One training, from its start on.

    Args:
        task: What `prepare` made.
        folder: A new one; the job's run, output and checkpoint go there.
        recorded: Under `mstxkit run`, and held in its second step until `go`; else nothing loads mstxkit.
    """

    ENDS_WITHIN_S = 900.0

    def __init__(self, task: Path, folder: Path, *, recorded: bool = True) -> None:
        folder.mkdir(parents=True)
        self._ray = Path(tempfile.mkdtemp(prefix="rl-"))  # short: sockets are in it
        held = {"LLM_HOLD": f"{HOLD} {folder}"} if recorded else {}
        environment = {**_environment(folder), "RAY_TMPDIR": str(self._ray), **held}
        under = quickstart.mstxkit("mindspeed_rl", "run", folder / "run", python=PYTHON) if recorded else []
        command = [*under, PYTHON, "cli/train_grpo.py", *_options(task, folder)]
        super().__init__(folder, command, environment, SYSTEMS.unpack(NEEDED[0]))

    @property
    def logged(self) -> list[dict[str, str]]:
        """What was printed of each step, but what is measured."""
        found = []
        for number, line in LOGGED.findall(self.output):
            values = {"iteration": number} | dict(value.strip().split(" : ") for value in line.split(" | "))
            found.append({name: value for name, value in values.items() if not MEASURED.match(name)})
        return found

    def escalate(self) -> tuple[int, str]:
        """Its quick start's command, while the job stands still, and what that says once the job went on."""
        command = quickstart.mstxkit("mindspeed_rl", "escalate", self.run, python=sys.executable)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as asked:
            try:
                self.until(lambda: "armed" in open_run(self.run).escalations()["state"].to_list())
                (self.folder / f"go{HOLD}").touch()
                said, _ = asked.communicate(timeout=self.ENDS_WITHIN_S)
            finally:
                asked.kill()
        return asked.returncode, said

    def clear(self) -> None:
        """Nothing of it runs or lies in shared folders any more."""
        super().clear()  # what Ray started for it ends with it
        shutil.rmtree(self._ray, ignore_errors=True)


def _environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MSTXKIT_", "PYTHON", "RAY_", "LLM_"))}
    paths = [HERE, PACKAGES, ROOT, *(SYSTEMS.unpack(one) for one in NEEDED)]
    return {
        **kept, **StandIn.build().environment(log=folder / "cann.log"), "PYTHONPATH": os.pathsep.join(map(str, paths)),
        # Megatron's Makefile asks python3 for pybind11.
        "PATH": f"{Path(PYTHON).parent}{os.pathsep}{kept['PATH']}",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "MSTXKIT_JUDGE": "0",
        "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore", "ASCEND_RT_VISIBLE_DEVICES": "230,231",
        "HYDRA_FULL_ERROR": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0",
        "RAY_prestart_worker_first_driver": "0",
        # Its dock alone asks for ten.
        "RAY_OVERRIDE_RESOURCES": json.dumps({"CPU": 16, "NPU": RANKS}),
        **NO_LESS_THAN_OTHERS,
    }  # fmt: skip


def _options(task: Path, folder: Path) -> list[str]:
    """Hydra's."""
    chosen = {
        "megatron_training.tokenizer_name_or_path": task / "model", "megatron_training.data_path": task / "data",
        "megatron_training.train_iters": STEPS, "actor_config.load": task / "checkpoint",
        "actor_config.save": folder / "saved", "rl_config.actor_resource.num_npus": RANKS,
    }  # fmt: skip
    return ["--config-dir", str(HERE), "--config-name", "grpo", *(f"{name}={value}" for name, value in chosen.items())]
