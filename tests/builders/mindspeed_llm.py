"""Jobs of MindSpeed-LLM's own entries on a CPU, started as a user starts them, and what they left.

The sources are those that .ci/systems.py finds, the packages that they need beside the frameworks' those of
.ci/environments.py; what only an NPU has is stood in for by `frameworks/llm_cpu/`. torch_npu is the real one, on
stand-in CANN, and no function that mstxkit patches is replaced.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from builders import quickstart
from builders.contracts.where import ENVIRONMENTS, FRAMEWORKS_PYTHON
from builders.real_job import RealJob

from mstxkit.testing.stand_in import StandIn

HERE = Path(__file__).resolve().parents[1] / "frameworks/llm_cpu"
ROOT = HERE.parents[2]
PYTHON, PACKAGES = str(FRAMEWORKS_PYTHON), ENVIRONMENTS / "mindspeed_llm/26.1.0"
RANKS, STEPS, MICRO_BATCH, BATCH = 2, 8, 2, 8
# At the end of which updates a job waits.
HOLDS = (2, 4)
ENDS_WHEN_TOLD_WITHIN_S = 60.0
# Of the training: what its loop logs of each update, to the last digit.
LOGGED = re.compile(r"iteration +(\d+)/.*? lm loss: (\S+) .*?grad norm: (\S+)")


def _systems() -> ModuleType:
    spec = importlib.util.spec_from_file_location("systems_of_ci", ROOT / ".ci/systems.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its classes look it up
    spec.loader.exec_module(module)
    return module


SYSTEMS = _systems()
ARE_HERE = SYSTEMS.are_to_be_had(SYSTEMS.MINDSPEED_LLM) and PACKAGES.is_dir()
MISSING = (
    "no MindSpeed-LLM here: SOAK_TESTS=1 make setup-frameworks; python .ci/systems.py, or set SYSTEM_SOURCES=FOLDER"
)


class Kind(NamedTuple):
    """Which job it is: `mcore` or `fsdp2`, and how many stages a pipeline has."""

    entry: str
    pipeline: int = 1

    def __str__(self) -> str:
        return self.entry if self.pipeline == 1 else f"{self.entry}-pipeline{self.pipeline}"

    @property
    def micro_batches(self) -> int:
        """Of each rank in each step."""
        return BATCH // MICRO_BATCH * self.pipeline // RANKS

    @property
    def first_step(self) -> int:
        """How the first is called."""
        return 1 if self.entry == "mcore" else 0


class Job(RealJob):
    """One training, from its start on.

    Args:
        kind: Of what.
        folder: A new one; the job's run and output go there.
        recorded: Under `mstxkit run`; else nothing loads mstxkit.
        config: A configuration that mstxkit carries out.
    """

    def __init__(self, kind: Kind, folder: Path, *, recorded: bool = True, config: Path | None = None) -> None:
        folder.mkdir(parents=True)
        self.kind = kind
        sources = [SYSTEMS.unpack(one) for one in SYSTEMS.MINDSPEED_LLM]
        environment = {
            **_environment(folder, sources),
            **({"TRAINING_BACKEND": "mindspeed_fsdp"} if kind.entry == "fsdp2" else {}),
            **({"LLM_HOLD": f"{','.join(map(str, HOLDS))} {folder}", "MSTXKIT_COOLDOWN_S": "0"} if recorded else {}),
            **({} if config is None else {"MSTXKIT_CONFIG": str(config)}),
        }
        under = quickstart.mstxkit("mindspeed_llm", "run", folder / "run", python=PYTHON) if recorded else []
        torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", f"{RANKS}"]
        command = [*under, *torchrun, *_program(kind, folder, environment)]
        super().__init__(folder, command, environment, sources[0])

    @property
    def logged(self) -> list[tuple[str, ...]]:
        """Number, loss and gradient norm of each update, as they were printed."""
        return LOGGED.findall(self.output)

    def go_after(self, update: int) -> None:
        """Let the ranks go on after that update."""
        (self.folder / f"go{update}").touch()

    def clear(self) -> None:
        """Nothing of it runs any more. Each rank has a session of its own: torchrun ends them when it is told to."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDS_WHEN_TOLD_WITHIN_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _environment(folder: Path, sources: list[Path]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MSTXKIT_", "PYTHON", "LLM_"))}
    paths = [HERE, PACKAGES, ROOT, *sources]
    return {
        **kept, **StandIn.build().environment(log=folder / "cann.log"), "PYTHONPATH": os.pathsep.join(map(str, paths)),
        # Megatron's Makefile asks python3 for pybind11.
        "PATH": f"{FRAMEWORKS_PYTHON.parent}{os.pathsep}{kept['PATH']}",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "MSTXKIT_JUDGE": "0",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore",
        "ASCEND_RT_VISIBLE_DEVICES": "230,231",
    }  # fmt: skip


# ---- what it is told ----


def _program(kind: Kind, folder: Path, environment: dict[str, str]) -> list[str]:
    if kind.entry == "mcore":
        return ["pretrain_gpt.py", *_words({**_MCORE, "pipeline-model-parallel-size": kind.pipeline})]
    command = [PYTHON, str(HERE / "sums.py"), str(folder)]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=Job.ENDS_WITHIN_S)
    file = folder / "fsdp2.yaml"
    file.write_text(FSDP2.format(folder=folder, ranks=RANKS, steps=STEPS, micro_batch=MICRO_BATCH))
    return ["train_fsdp2.py", str(file)]


def _words(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", *([] if value is True else [f"{value}"]))]


_MCORE: dict[str, Any] = {
    "use-mcore-models": True, "transformer-impl": "local", "num-layers": 2, "hidden-size": 32, "ffn-hidden-size": 64,
    "num-attention-heads": 4, "seq-length": 32, "max-position-embeddings": 32, "tokenizer-type": "NullTokenizer",
    "vocab-size": 4607, "make-vocab-size-divisible-by": 1, "padded-vocab-size": 4608, "position-embedding-type": "rope",
    "normalization": "RMSNorm", "swiglu": True, "disable-bias-linear": True,
    "untie-embeddings-and-output-weights": True, "micro-batch-size": MICRO_BATCH, "global-batch-size": BATCH,
    "lr": 1e-3, "lr-decay-style": "cosine", "min-lr": 1e-4, "train-iters": STEPS, "seed": 42, "attention-dropout": 0,
    "hidden-dropout": 0, "clip-grad": 1.0, "tensor-model-parallel-size": 1, "no-gradient-accumulation-fusion": True,
    "no-masked-softmax-fusion": True, "no-bias-swiglu-fusion": True, "no-bias-dropout-fusion": True,
    "no-rope-fusion": True, "attention-softmax-in-fp32": True, "mock-data": True, "split": "100,0,0",
    "log-interval": 1, "save-interval": 1000, "eval-interval": 1000, "eval-iters": 0, "distributed-backend": "nccl",
    "ckpt-format": "torch", "num-workers": 0,
}  # fmt: skip
FSDP2 = """
model: {{model_name_or_path: {folder}/model, trust_remote_code: false, train_from_scratch: true,
  init_model_with_meta_device: false}}
data:
  dataset: {{file_name: {folder}/sums.json}}
  template: qwen3
  cutoff_len: 64
  max_samples: 1000
  overwrite_cache: true
  preprocessing_num_workers: 1
  data_manager_type: lf
parallel: {{fsdp_size: {ranks}, fsdp_modules: ["model.layers.{{*}}", model.embed_tokens, lm_head], tp_size: 1,
  ep_size: 1, recompute: false, cp_size: 1}}
training:
  stage: sft
  per_device_train_batch_size: {micro_batch}
  gradient_accumulation_steps: 2
  dataloader_num_workers: 0
  seed: 42
  output_dir: {folder}/out
  optimizer: adamw
  lr: 1.0e-3
  max_grad_norm: 1.0
  lr_scheduler_type: cosine
  warmup_ratio: 0.0
  num_train_epochs: 200
  max_steps: {steps}
  save_steps: 0
  save_epochs: 0
  logging_steps: 1
"""
