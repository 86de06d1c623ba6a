"""Jobs of verl's own main_ppo on a CPU: what each version is told, started as a user starts it, and what it left.

What verl finds there is in `frameworks/verl_cpu/`: a task, a reward, and stand-ins for a device and a rollout engine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from builders import quickstart, trl_server
from builders.contracts.where import ENVIRONMENTS, FRAMEWORKS_PYTHON, INSTALLED_VERL, verl_paths
from builders.ray_jobs import NO_LESS_THAN_OTHERS
from builders.real_job import RealJob

HERE = Path(__file__).resolve().parents[1] / "frameworks/verl_cpu"
ROOT = HERE.parents[2]
STEPS = 3
# In one batch, in one mini-batch, and how many answers to each.
PPO, GRPO, FULLY_ASYNC = (16, 8, 1), (8, 4, 4), (8, 8, 1)
MICRO_BATCH = 4
# With these, verl's legacy workers run a model of transformers 4 only.
TRAINS_ON_TRANSFORMERS_4 = ("0.6.1", "0.7.0", "0.7.1")
# Trainers whose rollout is apart from the training, and the program of each.
APART = {
    "one_step_off": "verl.experimental.one_step_off_policy.main_ppo",
    "fully_async": "verl.experimental.fully_async_policy.fully_async_main",
    "separate_async": "verl.trainer.main_ppo",
}


class Kind(NamedTuple):
    """Which job it is.

    Args:
        algorithm: "ppo", with a critic; or "grpo".
        ranks: Of the training.
        trainer: Of 0.9.1: "v0", which the versions before it have too, or its default "v1", or one of `APART`.
        has_lora: Adapters alone are trained, and the reference is the actor without them.
        has_vllm: Its rollout is vLLM's, of the Python that VLLM_PYTHON names; all else of the frameworks' environment.
    """

    version: str
    algorithm: str = "ppo"
    ranks: int = 1
    trainer: str = "v0"
    has_lora: bool = False
    has_vllm: bool = False

    def __str__(self) -> str:
        more = [self.trainer] * (self.trainer != "v0") + ["lora"] * self.has_lora + ["vllm"] * self.has_vllm
        return "-".join([self.version, self.algorithm, *more])

    @property
    def batch(self) -> tuple[int, int, int]:
        """Prompts in one batch and in one mini-batch, and how many answers to each.

        Apart from the training there is one, so that what is sampled does not depend on the order of the requests.
        """
        if self.trainer == "fully_async":
            return FULLY_ASYNC
        return PPO if self.algorithm == "ppo" or self.trainer in APART else GRPO

    @property
    def answers(self) -> int:
        """In each step."""
        prompts, _, each = self.batch
        return prompts * each

    @property
    def mini_batches(self) -> int:
        """In each step: as many steps of the optimizer."""
        prompts, in_one, _ = self.batch
        return prompts // in_one

    @property
    def updates(self) -> int:
        """Of the actor, in each step: as many calls."""
        return self.mini_batches if self.trainer == "separate_async" else 1

    @property
    def is_legacy(self) -> bool:
        """Does it have workers of its own for each backend, instead of engines?"""
        return self.version in TRAINS_ON_TRANSFORMERS_4


def prepare(folder: Path, *more: str) -> Path:
    """The task's models and data, which jobs share; written by transformers 4, which both can read."""
    command = [str(FRAMEWORKS_PYTHON), str(HERE / "sums.py"), str(folder), *more]
    older = _environment(TRAINS_ON_TRANSFORMERS_4[-1])
    subprocess.run(command, env=older, check=True, capture_output=True, timeout=Job.ENDS_WITHIN_S)
    return folder


class Job(RealJob):
    """One run of main_ppo, from its start on.

    Args:
        kind: Of what.
        task: What `prepare` made.
        folder: A new one; the job's run, output and metrics go there.
        recorded: Under `mstxkit run`; else nothing loads mstxkit.
        held: The second step stays in its rewards until `go`.
    """

    ENDS_WITHIN_S = 900.0

    def __init__(self, kind: Kind, task: Path, folder: Path, *, recorded: bool = True, held: bool = False) -> None:
        folder.mkdir(parents=True)
        self.kind, self._ray = kind, Path(tempfile.mkdtemp(prefix="verl-"))  # short: sockets are in it
        python = str(trl_server.PYTHON if kind.has_vllm else FRAMEWORKS_PYTHON)
        environment = _environment(kind.version) | {
            **(_beside_vllm(kind, folder) if kind.has_vllm else {}),
            "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"), "RAY_TMPDIR": str(self._ray),
            **({"SUMS_HOLD": f"{kind.answers} {folder / 'go'}"} if held else {}),
            **({} if recorded else {"VERL_USE_EXTERNAL_PLUGINS": "none"}),
        }  # fmt: skip
        under = quickstart.mstxkit("verl", "run", folder / "run", python=python) if recorded else []
        program = APART.get(kind.trainer, "verl.trainer.main_ppo")
        command = [*under, python, "-m", program, *options(kind, task)]
        super().__init__(folder, command, environment, folder)

    def clear(self) -> None:
        """Nothing of it runs or lies in shared folders any more."""
        super().clear()  # what Ray started for it ends with it
        shutil.rmtree(self._ray, ignore_errors=True)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """What verl's own logger wrote of each step."""
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["data"] for line in lines]


def _environment(version: str) -> dict[str, str]:
    """The test's own, without what would steer mstxkit, Ray or verl."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MSTXKIT_", "RAY_", "VERL_", "SUMS_"))}
    transformers = ENVIRONMENTS / "verl/transformers-4"
    paths = [str(ROOT), str(HERE), *verl_paths(version)]
    if version in TRAINS_ON_TRANSFORMERS_4 and str(transformers) not in paths:
        paths.append(str(transformers))
    return {
        **kept, "PYTHONPATH": os.pathsep.join(paths), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "GLOO_SOCKET_IFNAME": "lo",
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_prestart_worker_first_driver": "0",
        "HYDRA_FULL_ERROR": "1", "VERL_LOGGING_LEVEL": "WARN", "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
        **NO_LESS_THAN_OTHERS,
    }  # fmt: skip


def _beside_vllm(kind: Kind, folder: Path) -> dict[str, str]:
    """The frameworks' packages in front of those of vLLM's own environment."""
    packages = next((FRAMEWORKS_PYTHON.parents[1] / "lib").glob("python3.*/site-packages"))
    trl_server.name_vllm(folder)
    paths = [_environment(kind.version)["PYTHONPATH"], str(folder), str(packages)]
    return {"PYTHONPATH": os.pathsep.join(paths), **trl_server.OF_VLLM}


# ---- what verl is told ----


def options(kind: Kind, task: Path) -> list[str]:
    """Hydra's overrides."""
    chosen = {**_training(kind, task), **_model(task), **_actor(), **_rollout(kind), **_ray(kind)}
    chosen |= _ppo(kind, task) if kind.algorithm == "ppo" else _grpo(kind)
    chosen |= {
        **_of_version(kind),
        **(_LORA if kind.has_lora else {}),
        **(_VLLM if kind.has_vllm else {}),
        **(_apart(kind) if kind.trainer in APART else {}),
    }
    return [f"{name}={value}" for name, value in chosen.items()]


def _training(kind: Kind, task: Path) -> dict[str, Any]:
    return {
        "trainer.device": "cpu", "trainer.n_gpus_per_node": kind.ranks, "trainer.nnodes": 1,
        "trainer.logger": "['file']", "trainer.project_name": "sums", "trainer.experiment_name": kind.algorithm,
        "trainer.total_training_steps": STEPS, "trainer.total_epochs": 20, "trainer.val_before_train": False,
        "trainer.test_freq": -1, "trainer.save_freq": -1, "trainer.resume_mode": "disable",
        "data.train_files": task / "train.parquet", "data.val_files": task / "train.parquet",
        "data.max_prompt_length": 16, "data.max_response_length": 12, "data.dataloader_num_workers": 0,
        "data.shuffle": False, "data.seed": 1,
    }  # fmt: skip


def _model(task: Path) -> dict[str, Any]:
    model = "actor_rollout_ref.model"
    return {
        f"{model}.path": task / "model", f"+{model}.override_config.attn_implementation": "eager",
        f"{model}.use_remove_padding": False, f"{model}.enable_gradient_checkpointing": False,
    }  # fmt: skip


def _actor() -> dict[str, Any]:
    actor, reference = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
    return {
        f"{actor}.strategy": "fsdp2", f"{actor}.optim.lr": 1e-3, f"{actor}.use_kl_loss": True,
        f"{actor}.ppo_micro_batch_size_per_gpu": MICRO_BATCH, f"{actor}.fsdp_config.model_dtype": "fp32",
        f"{actor}.use_torch_compile": False, f"{reference}.use_torch_compile": False,
        f"{reference}.fsdp_config.model_dtype": "fp32", f"{reference}.log_prob_micro_batch_size_per_gpu": MICRO_BATCH,
    }  # fmt: skip


def _rollout(kind: Kind) -> dict[str, Any]:
    rollout = "actor_rollout_ref.rollout"
    return {
        f"{rollout}.name": "on_cpu", f"{rollout}.mode": "async", f"{rollout}.load_format": "auto",
        f"{rollout}.tensor_model_parallel_size": kind.ranks, f"{rollout}.agent.num_workers": 1,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": MICRO_BATCH, f"{rollout}.calculate_log_probs": False,
    }  # fmt: skip


# Adapters begin with random numbers, for which verl sets a seed only so.
_LORA = {
    "actor_rollout_ref.model.lora_rank": 8, "actor_rollout_ref.model.lora_alpha": 16,
    "actor_rollout_ref.model.target_modules": "all-linear",
    "actor_rollout_ref.actor.fsdp_config.full_determinism": True,
}  # fmt: skip

# vLLM cannot sleep on a CPU. One request at a time: who meets in a batch decides the last bits.
_VLLM = {
    "actor_rollout_ref.rollout.name": "vllm", "actor_rollout_ref.rollout.dtype": "float32",
    "actor_rollout_ref.rollout.enforce_eager": True, "actor_rollout_ref.rollout.free_cache_engine": False,
    "+actor_rollout_ref.rollout.enable_sleep_mode": False, "actor_rollout_ref.rollout.max_num_seqs": 1,
    "actor_rollout_ref.rollout.max_model_len": 64, "actor_rollout_ref.rollout.max_num_batched_tokens": 128,
    "actor_rollout_ref.rollout.calculate_log_probs": True,
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes": 16,
}  # fmt: skip


def _ray(kind: Kind) -> dict[str, Any]:
    """Ray places workers by devices: so many does it believe in."""
    init = "ray_kwargs.ray_init"
    return {
        f"+{init}.num_gpus": kind.ranks, f"+{init}.resources.cpu": 16, f"{init}.num_cpus": 16,
        f"+{init}.include_dashboard": False,
    }  # fmt: skip


def _ppo(kind: Kind, task: Path) -> dict[str, Any]:
    prompts, in_one, each = PPO
    engine = "critic.model.fsdp_config" if kind.is_legacy else "critic.fsdp"
    return {
        "algorithm.adv_estimator": "gae", "actor_rollout_ref.rollout.n": each, "data.train_batch_size": prompts,
        "actor_rollout_ref.actor.ppo_mini_batch_size": in_one, "critic.ppo_mini_batch_size": in_one,
        "critic.strategy": "fsdp2", "critic.model.path": task / "model_critic", "critic.optim.lr": 1e-3,
        "critic.ppo_micro_batch_size_per_gpu": MICRO_BATCH, f"{engine}.model_dtype": "fp32",
        "critic.model.use_remove_padding": False, "critic.model.enable_gradient_checkpointing": False,
        "+critic.model.override_config.attn_implementation": "eager",
    }  # fmt: skip


def _grpo(kind: Kind) -> dict[str, Any]:
    prompts, in_one, each = kind.batch
    return {
        "algorithm.adv_estimator": "grpo", "actor_rollout_ref.rollout.n": each, "data.train_batch_size": prompts,
        "actor_rollout_ref.actor.ppo_mini_batch_size": in_one,
    }  # fmt: skip


def _of_version(kind: Kind) -> dict[str, Any]:
    of_its_own = "custom_reward_function" if kind.version == "0.6.1" else "reward.custom_reward_function"
    reward = {f"{of_its_own}.path": HERE / "sums_reward.py", f"{of_its_own}.name": "compute_score"}
    if kind.version == "0.6.1":
        return {**reward, "data.return_raw_chat": True}
    chosen = {**reward, "reward.num_workers": 1}
    if kind.version == INSTALLED_VERL:
        chosen["trainer.use_v1"] = kind.trainer in ("v1", "separate_async")
    if chosen.get("trainer.use_v1"):
        chosen["transfer_queue.backend.SimpleStorage.num_data_storage_units"] = 1
    return chosen


def _apart(kind: Kind) -> dict[str, Any]:
    """One rollout on a device of its own; weights go there by an engine of ours, as verl's own need accelerators."""
    rollout, init = "actor_rollout_ref.rollout", "ray_kwargs.ray_init"
    where = rollout if kind.trainer == "separate_async" else "rollout"
    chosen = {
        "actor_rollout_ref.hybrid_engine": False, f"{where}.nnodes": 1, f"{where}.n_gpus_per_node": 1,
        f"{rollout}.tensor_model_parallel_size": 1, f"{rollout}.checkpoint_engine.backend": "on_cpu",
        f"{rollout}.checkpoint_engine.custom_backend_module": "verl_on_cpu.weights",
        f"{rollout}.calculate_log_probs": True, "algorithm.rollout_correction.bypass_mode": True,
        f"+{init}.num_gpus": kind.ranks + 1, f"+{init}.resources.cpu": 32, f"{init}.num_cpus": 32,
    }  # fmt: skip
    return chosen | _OF_TRAINER[kind.trainer]


# Fully asynchronous, and yet on policy: it generates no answer for the next step before that has its weights.
_OF_TRAINER: dict[str, dict[str, Any]] = {
    "one_step_off": {"hydra.searchpath": "[pkg://verl.trainer.config]"},
    "fully_async": {
        "data.train_batch_size": 0, "rollout.n": FULLY_ASYNC[2], "rollout.total_rollout_steps": STEPS * FULLY_ASYNC[0],
        "async_training.staleness_threshold": 0, "async_training.trigger_parameter_sync_step": 1,
        "async_training.concurrent_samples_per_replica": 1,
    },
    "separate_async": {
        "trainer.v1.trainer_mode": "separate_async", "trainer.v1.separate_async.parameter_sync_step": PPO[0] // PPO[1],
    },
}  # fmt: skip
