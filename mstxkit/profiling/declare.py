"""What a profiler session is made from and what comes out of it: presets, outcomes, and what a backend has to offer.

Data and interfaces only; nothing of a framework is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Sequence

from ..errors import ConfigError

# The same words as in `config.model`, which needs pydantic, and which a training process need not load.
Level = Literal["none", "level0", "level1", "level2"]
Activity = Literal["cpu", "npu"]
Export = Literal["text", "db", "both"]
Options = dict[str, Any]

_WITH_METRICS = ("level1", "level2")


@dataclass(frozen=True)
class Preset:
    """What one profiler session records. Fields mean what those of `config.model.Config` mean.

    Args:
        name: What it is called in configuration and requests.
        level: Depth on the device: `none` is mstx ranges alone.
        activities: Sides that are recorded; never empty.
        mstx: Are mstx ranges recorded? Always so at level none.
        domains_exclude: mstx domains that are left out.
        memory: Allocations on the device; with them the device records its tasks, even at level none.
        shapes: Shapes of operator inputs.
        stacks: Python call stacks of operators.
        modules: Call stacks by module, cheaper than `stacks`.
        export: What a later analysis makes of the raw data.
        aic_metrics: Counters of the AI Core, or `none`; the device records them at level1 and level2 only.
        est_mb_per_step: Megabytes of raw data per rank for a training step of a few seconds: assumed, not measured;
            good for telling megabytes from terabytes.
        cost: What recording costs, one sentence.

    Raises:
        ConfigError: fields that exclude each other, which torch_npu and MindSpore would silently replace, often by
            something heavier.
    """

    name: str
    level: Level
    activities: tuple[Activity, ...]
    mstx: bool = True
    domains_exclude: tuple[str, ...] = ()
    memory: bool = False
    shapes: bool = False
    stacks: bool = False
    modules: bool = False
    export: Export = "db"
    aic_metrics: str = "none"
    est_mb_per_step: int = 0
    cost: str = ""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise ConfigError(f"preset {self.name!r}: {problem}")

    def _problem(self) -> str | None:
        if not self.activities:
            return "activities is empty: name cpu, npu or both"
        if self.level == "none" and not self.mstx:
            return "level none records mstx ranges alone, and mstx is off"
        if self.aic_metrics != "none" and self.level not in _WITH_METRICS:
            return f"aic_metrics={self.aic_metrics!r} needs level1 or level2, not {self.level}"
        if "cpu" not in self.activities and (self.shapes or self.stacks or self.modules):
            return "shapes, stacks and modules are those of operators on the host: they need the activity cpu"
        if self.domains_exclude and not self.mstx:
            return "domains_exclude leaves out mstx domains, and mstx is off"
        return None


class Outcome(NamedTuple):
    """What became of a session. Nothing of it is raised: what went wrong is in `problems`.

    Attributes:
        folder: What the profiler wrote; None if it wrote nothing.
        steps: Training steps that were really recorded, as they were told to `Session.stop`.
        start_ns: When recording began, Unix time; 0 if it never did.
        end_ns: When it ended, before the profiler began to write.
        start_cost_ns: How long the training thread was held up at the start.
        stop_cost_ns: The same at the stop: the device is waited for, and data are written.
        bytes: Raw data on disk.
        problems: What went wrong, a sentence each; empty if the data can be relied on.
        is_whole: Is there an output that holds what it must? Problems may remain all the same.
        notes: What is good to know, and no problem.
    """

    folder: Path | None
    steps: tuple[int, ...]
    start_ns: int
    end_ns: int
    start_cost_ns: int
    stop_cost_ns: int
    bytes: int
    problems: tuple[str, ...]
    is_whole: bool = False
    notes: tuple[str, ...] = ()


class Order(NamedTuple):
    """One session that is wanted of this process.

    Args:
        run: The run folder, resolved.
        run_id: Its id.
        rank, world_size, role: Of this process; the role is empty where none is known.
        stage: Canonical key of the stage that it covers; "light" for light capture.
        step: The rank's step; None before its first.
        preset: How deep.
        request: Id of the request; empty for light capture.
        reason: In the asker's words.
        seconds: Limit of the request or the policy: whoever gave the order ends the session then. None: no limit.
        bytes: The same of raw data; CANN is given a limit of its own behind it.
    """

    run: Path
    run_id: str
    rank: int
    world_size: int
    role: str
    stage: str
    step: int | None
    preset: Preset
    request: str = ""
    reason: str = ""
    seconds: float | None = None
    bytes: int | None = None


class Recorded(NamedTuple):
    """What became of an ordered session.

    Args:
        folder: The session's own, with session.json and what the profiler wrote; None where there are no data.
        bytes: Raw data on disk.
        problems: What went wrong, a sentence each.
        start_ns, end_ns: When it recorded, Unix time; 0 where it never did.
    """

    folder: Path | None
    bytes: int
    problems: tuple[str, ...]
    start_ns: int
    end_ns: int


class Session(Protocol):
    """One recording, from `Backend.start` to `stop`, both on the same thread. No call of it raises."""

    @property
    def is_running(self) -> bool:
        """Does it record? False at once where the start went wrong: `stop` says why."""

    def bytes_so_far(self) -> int | None:
        """Raw data on disk up to now; None where they are in memory until the stop, so that no limit can hold.

        Cost: looks at every file of the folder.
        """

    def stop(self, steps: Sequence[int] = ()) -> Outcome:
        """End the recording. A second call gives the same outcome.

        On another thread, or in a forked child, nothing is touched: the outcome says so, and the owner may still stop.

        Args:
            steps: Training steps that were recorded.
        """


class Backend(Protocol):
    """A profiler that sessions are made with: `mstxkit.backends.<name>.BACKEND`."""

    @property
    def name(self) -> str:
        """Its name, as in `backends.known()`."""

    @property
    def on_disk(self) -> bool:
        """Does it write while it records? Else no limit of bytes can hold."""

    def version(self) -> str:
        """That of the imported framework; empty where it does not say."""

    def device(self) -> int | None:
        """The device that this thread uses, as this process numbers them; None where it has none. No wait for it."""

    def why_not(self) -> str | None:
        """Why it cannot record in this process now; None if it can. Imports nothing."""

    def described(self, preset: Preset) -> tuple[Options, tuple[str, ...]]:
        """What a preset becomes: the options by the profiler's own names, and what this version drops or changes.

        Found out from the signatures of the imported framework; where it is not imported, as for the newest known.
        """

    def start(self, preset: Preset, folder: Path, limit_bytes: int | None = None) -> Session:
        """Begin to record on this thread, below `folder`, which is made. Never raises.

        Args:
            limit_bytes: What the session should not exceed: its owner ends it then, and the profiler's own limit, if
                it has one, is set a little above.
        """
