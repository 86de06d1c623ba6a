"""What `capture` and `escalate` take by name, for editors and type checkers alone: no program loads it.

Made by tests/builders/argument_types.py; a test fails while it is stale.
"""

import os
from typing import Literal, Mapping, Sequence, TypedDict

from typing_extensions import Required

StageKey = Literal[
    "actor_generate",
    "actor_compute_log_prob",
    "reference_compute_log_prob",
    "critic_compute_values",
    "actor_update",
    "critic_update",
    "load_batch",
    "actor_image_embeds",
    "reward",
    "compute_advantage",
    "compute_kl",
    "dynamic_sampling",
    "weight_sync",
    "train_step",
    "evaluate",
    "save_checkpoint",
]
PresetName = Literal["comm", "deep", "full", "kernels", "light", "memory"]
RanksInWords = Literal["all", "suspect+peer", "host:NAME", "role:NAME", "dp:3", "tp:0", "pp:last", "peers:3"]

class CaptureSettings(TypedDict, total=False):
    """Each may also be MSTXKIT_<NAME> in the environment."""

    bank_bytes: int
    """one bank of the live file, 24 bytes a record; give more where records are dropped (default: 1048576)"""
    banks: int
    """banks of a live file (default: 4)"""
    slots: int
    """open ranges that can be seen after a kill (default: 1024)"""
    quota_bytes: int
    """sealed files of one process; the oldest go, counted as `evicted`; 0: none is kept (default: 268435456)"""
    rotate_bytes: int
    """at this size, or a quarter of `quota_bytes`, a new sealed file begins (default: 33554432)"""
    seal_every_s: float
    """so often what was recorded goes into the run (default: 30)"""
    heartbeat_s: float
    """seconds between two signs of life in the live file (default: 1)"""
    live_folder: str | os.PathLike[str] | None
    """parent folder of live files; none: `/dev/shm` (default: none)"""
    budget_ratio: float
    """cost of ranges over wall time; beyond it the costliest are coalesced (default: 0.005)"""
    stop_s: float
    """the end of a process waits so long for the run folder (default: 2)"""
    sealed: str | None
    """`local:/a/folder`: sealed files go there, on each host's own disk (default: none)"""
    sealed_mb_s: float
    """megabytes a second from there into the run; 0: they stay (default: 20)"""
    sealed_host_bytes: int
    """all sealed files of a host; the oldest go (default: 0)"""
    sealed_run_bytes: int
    """all sealed files in the run; the oldest go (default: 0)"""
    keep_days: float
    """sealed files not written to for so many days are removed; 0: none is (default: 0)"""
    care_every_s: float
    """so often a host looks after that (default: 120)"""
    poll_every_s: float
    """between two looks while something is armed; 0: it takes no requests (default: 0.25)"""
    light: str | None
    """a schedule of light capture, `every 100 steps, 1 step` (default: none)"""
    cooldown_s: float
    """between sessions (default: 30)"""
    session_s: float
    """one session (default: 600)"""
    hour_s: float
    """sessions in any hour (default: 600)"""
    run_s: float
    """sessions in the whole run (default: 7200)"""
    agreement_s: float
    """in which all ranks of a request have to be ready (default: 120)"""
    transport_s: float
    """that a message may take to every rank; less where a job has one host (default: 4)"""
    run_bytes: int
    """raw data of all sessions of a rank (default: 0)"""
    planned: int
    judge: bool | Literal[0, 1]
    """0: this process starts no judge (default: 1)"""
    profiles: str | None
    """`local:/a/folder`: raw data go there, on each host's own disk (default: none)"""
    profiles_mb_s: float
    """megabytes a second from there into the run; 0: they stay (default: 50)"""
    profiles_host_bytes: int
    """all raw data of a run on one host (default: 0)"""
    profiles_run_bytes: int
    """all raw data in a run (default: 0)"""
    rings: int
    """1: torch's rings of collectives are on, which tell who is late (default: 0)"""
    hang_s: float
    """a range may stay open so long before it is a hang; 0: nobody watches (default: 30)"""
    incidents: int
    """so many are kept in a run: the first, and the newest (default: 20)"""
    incidents_bytes: int
    """what they may take together (default: 268435456)"""
    act: Literal["observe", "escalate"]
    """`escalate`: verdicts may ask for profiles (default: observe)"""
    metrics: str | None
    """where figures go; none: `auto` (default: none)"""
    flops_per_token: float | str | Mapping[str, float] | None
    """operations a token, for MFU: a number, or `actor_update=4.2e10,actor_generate=1.4e10` (default: none)"""
    peak_flops: float | str | Mapping[str, float] | None
    """operations a second of one rank's devices, in the same form (default: none)"""

class OptionsOverPreset(TypedDict, total=False):
    """Of `escalate(options=…)`: over those of its preset."""

    level: Literal["none", "level0", "level1", "level2", 0, "0", 1, "1", 2, "2"]
    """Depth on the device: `none` is mstx ranges alone, level0 kernels and their times, level1 adds AscendCL calls,
    communication operators and AI Core metrics, level2 adds runtime calls and AI CPU."""
    activities: Sequence[Literal["cpu", "npu"]]
    """Sides that are recorded: framework operators on the host, the device. Never empty: each system takes an empty
    list for something else."""
    mstx: bool
    """Are mstx ranges recorded? Always so at level none."""
    domains_exclude: Sequence[str]
    """mstx domains that are left out; torch_npu's own for collectives is `communication`."""
    memory: bool
    """Allocations on the device (`profile_memory`)."""
    shapes: bool
    """Shapes of operator inputs (`record_shapes`); needs the activity cpu."""
    stacks: bool
    """Python call stacks of operators (`with_stack`); needs the activity cpu."""
    modules: bool
    """Call stacks by module (`with_modules`, cheaper than stacks); needs the activity cpu."""
    aic_metrics: Literal[
        "none",
        "PipeUtilization",
        "ArithmeticUtilization",
        "Memory",
        "MemoryL0",
        "MemoryUB",
        "ResourceConflictRatio",
        "L2Cache",
        "MemoryAccess",
    ]
    """Counters of the AI Core; the device records them at level1 and level2 only."""
    export: Literal["text", "db", "both"]
    """What an analysis makes of raw data: text (JSON and CSV), db (SQLite), both."""

class SampleOfStage(TypedDict, total=False):
    """Of `escalate(sample=…)`: the part of each occurrence that is recorded."""

    per: Required[Literal["micro_batch", "mini_batch", "decode_step"]]
    skip: int
    record: int
