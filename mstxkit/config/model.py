"""The canonical configuration: what is recorded, when, where and in which depth, in one vocabulary for every system.

Each field says its unit and where its meaning comes from. Sources: MindSpeed-RL 05a90d7, verl 0.6.1 to 0.9.1,
MindSpeed-LLM c77308a1, MindSpore 2.10.0, torch_npu 2.13.0 (`torch_npu.profiler`, `dynamic_profile`).
"""

from __future__ import annotations

# ruff: noqa: UP007, UP045  (pydantic evaluates annotations, and Python 3.9 has no `X | Y`)
from typing import Annotated, Any, Literal, Optional, Union

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["none", "level0", "level1", "level2"]
Activity = Literal["cpu", "npu"]
Export = Literal["text", "db", "both"]
Analysis = Literal["off", "sync", "async"]
HostSystem = Literal["cpu", "mem", "disk", "network", "osrt", "numa"]
AicMetrics = Literal[
    "none", "PipeUtilization", "ArithmeticUtilization", "Memory", "MemoryL0", "MemoryUB", "ResourceConflictRatio",
    "L2Cache", "MemoryAccess",
]  # fmt: skip
CountedFrom = Literal["training", "process"]
Boundary = Literal["micro_batch", "mini_batch", "decode_step"]

Count = Annotated[int, Field(ge=0, strict=True)]
Positive = Annotated[int, Field(ge=1, strict=True)]
Rank = Annotated[int, Field(ge=0, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Ranks = Union[Literal["all"], Annotated[tuple[Rank, ...], Field(min_length=1)]]
Text = Annotated[str, Field(min_length=1)]


class _Fixed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class Window(_Fixed):
    """Which steps are recorded: `steps` of them from `first_step` on, the same again `repeat` times."""

    first_step: Positive = 1
    """First step that is recorded. Counted from 1, as the framework's log counts when nothing was resumed."""

    steps: Optional[Positive] = 1
    """How many steps in a row one window records; null: to the end of the run."""

    counted_from: CountedFrom = "training"
    """What step 1 is: `training` the first step ever (a resumed run goes on counting: MindSpeed-LLM MCore, verl);
    `process` the first one after this start (MindSpeed-RL, MindSpeed-LLM FSDP2, MindSpore, torch_npu)."""

    warmup: Count = 0
    """Steps before each window in which the profiler is on and records nothing (torch_npu `schedule(warmup=)`)."""

    wait: Count = 0
    """Idle steps before each window's warm-up (torch_npu `schedule(wait=)`); they are between repeated windows."""

    repeat: Count = 1
    """How many windows; 0: until the run ends (torch_npu `schedule(repeat=)`)."""

    more_steps: tuple[Positive, ...] = ()
    """Steps that are recorded besides, each alone, where they are no one window (verl `global_profiler.steps`)."""

    @property
    def skip_first(self) -> int:
        """Steps before the schedule begins, as torch_npu `schedule(skip_first=)` has it when `step()` ends each step.
        Below 0 where first_step leaves no room for wait and warmup: validation refuses that.
        """
        return self.first_step - 1 - self.wait - self.warmup

    @property
    def last_step(self) -> Optional[int]:
        """Last step of the first window, counted from 1; None where it goes to the end of the run."""
        return None if self.steps is None else self.first_step + self.steps - 1


class Sampling(_Fixed):
    """Which part of each stage is recorded, where a whole one is too much."""

    per: Boundary
    """What is counted inside the stage."""

    skip: Count = 0
    """How many of these pass before recording starts, in each occurrence of the stage."""

    record: Positive = 1
    """How many of these are recorded."""


class Limits(_Fixed):
    """What ends a recording early, at the next boundary of the thread that owns it."""

    seconds: Optional[Annotated[float, Field(gt=0)]] = None
    """Wall clock seconds of one recording; null: no limit."""

    bytes: Optional[Positive] = None
    """Bytes of raw data of one recording on disk; null: no limit. Not enforceable for torch.profiler."""


class Config(_Fixed):
    """One profiling configuration, as every system is read and written."""

    enabled: Flag = False
    """Is anything profiled at all? (MindSpeed-RL `profile`, MindSpeed-LLM `--profile`, verl `enable` and `steps`,
    MindSpore `start_step` >= 0)"""

    window: Window = Window()
    """When."""

    stages: Union[Literal["all"], Annotated[tuple[Text, ...], Field(min_length=1)]] = "all"
    """What inside a step: `all` is one recording that goes through the whole step; keys (canonical, `mstxkit.stages`)
    are one recording per occurrence of each of these stages (MindSpeed-RL `stage`, verl `discrete: true`)."""

    stage_names: dict[str, str] = {}
    """The framework's own name of a stage, by canonical key, where it is not that key."""

    ranks: Ranks = "all"
    """Which global ranks record. Never empty: nothing at all is `enabled: false`."""

    replicas: Optional[Ranks] = None
    """Which replicas (indices from 0) of the inference engine record the stage actor_generate, where these are chosen
    apart from ranks (verl's Agent Loop); null: `ranks` decides."""

    level: Level = "level0"
    """Depth on the device: `none` is mstx ranges alone, level0 kernels and their times, level1 adds AscendCL calls,
    communication operators and AI Core metrics, level2 adds runtime calls and AI CPU."""

    activities: Annotated[tuple[Activity, ...], Field(min_length=1)] = ("cpu", "npu")
    """Sides that are recorded: framework operators on the host, the device. Never empty: each system takes an empty
    list for something else."""

    mstx: Flag = False
    """Are mstx ranges recorded? Always so at level none."""

    domains_include: tuple[Text, ...] = ()
    """mstx domains that are recorded, no others; empty: all."""

    domains_exclude: tuple[Text, ...] = ()
    """mstx domains that are left out; torch_npu's own for collectives is `communication`."""

    memory: Flag = False
    """Allocations on the device (`profile_memory`)."""

    shapes: Flag = False
    """Shapes of operator inputs (`record_shapes`); needs the activity cpu."""

    stacks: Flag = False
    """Python call stacks of operators (`with_stack`); needs the activity cpu."""

    modules: Flag = False
    """Call stacks by module (`with_modules`, cheaper than stacks); needs the activity cpu."""

    flops: Flag = False
    """Floating point operations of operators (torch_npu `with_flops`)."""

    l2_cache: Flag = False
    """L2 cache hit rates per kernel."""

    sys_io: Flag = False
    """NIC and RoCE counters, at 100 Hz."""

    sys_interconnection: Flag = False
    """HCCS, PCIe and inter-chip counters, at 50 Hz."""

    host_sys: tuple[HostSystem, ...] = ()
    """Host system counters. disk needs iotop, osrt perf and ltrace; numa is torch_npu's alone."""

    op_attr: Flag = False
    """Attributes of operators (torch_npu); needs the db export."""

    record_op_args: Flag = False
    """Arguments of operators, for a later dump (torch_npu)."""

    gc_detect_threshold_ms: Optional[Annotated[float, Field(ge=0)]] = None
    """Garbage collections that last at least so many milliseconds, 0 for all (torch_npu); null: not looked for."""

    aic_metrics: AicMetrics = "none"
    """Counters of the AI Core; the device records them at level1 and level2 only."""

    export: Export = "text"
    """What an analysis makes of raw data: text (JSON and CSV), db (SQLite), both."""

    analysis: Analysis = "off"
    """When raw data is parsed: off (later, apart), sync (the rank waits, peers with it), async (in a child)."""

    data_simplification: Flag = True
    """Delete what an analysis no longer needs."""

    path: str = ""
    """Folder of the data; empty: the system's own default."""

    sampling: Optional[Sampling] = None
    """A part of each stage only."""

    limits: Optional[Limits] = None
    """When a recording ends early."""

    extras: dict[str, dict[str, Any]] = {}
    """What only one system has, by its flavour and its own name, so that reading and writing that flavour loses
    nothing."""


def schema() -> dict[str, Any]:
    """The JSON schema of a configuration, as a plain dict."""
    return Config.model_json_schema()
