"""Rules that a configuration keeps before anything starts, whatever system it came from; rejected, never repaired.

All of them are decided from values alone, the same on every rank, before any choice of ranks: a rank that refuses
while its peers start would leave these waiting in a collective.

Sources of the rules: schedules of MindSpore 2.10.0 and torch_npu (master 9e73e708), `_ExperimentalConfig` of torch_npu
2.13.0, `ProfilerParameters` of MindSpore 2.10.0: where these warn and go on with something heavier, this refuses.
"""

from __future__ import annotations

import difflib
from operator import attrgetter
from typing import Iterator, Mapping, NamedTuple

from .. import stages
from ..errors import ConfigError, Problem
from ..profiling.schedule import Schedule
from ..store.limits import CANN_LEAST_BYTES
from ..store.options import CONFIG, METRIC_LEVELS, list_settable
from .model import Config, Window
from .sources import SourcePlace

# Rough sizes of raw data, megabytes per step and rank, of a training step of a few seconds: assumed, not measured.
_MB_PER_STEP = {"none": 1, "level0": 100, "level1": 300, "level2": 1000}
_CPU_FACTOR, _STACKS_FACTOR = 3, 4
LARGEST_EXPECTED_BYTES = 20 << 30


class Findings(NamedTuple):
    """Problems, with which nothing may start; and warnings: what works, but its author may not have meant."""

    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


def check_config(
    config: Config, places: Mapping[str, SourcePlace] | None = None, name: str = "<configuration>",
    total_steps: int | None = None, world_size: int | None = None,
) -> Findings:  # fmt: skip
    """All that is wrong or surprising in a configuration; in the run of so many steps and ranks, where that is known.

    `places` are where fields were given; `name` stands for the source of a field that has none.
    """
    wrong = [
        *_check_window(config.window, total_steps),
        *_check_scope(config, world_size),
        *_check_depth(config),
    ]
    try:
        if config.light is not None:
            Schedule.parse(config.light)
    except ConfigError as exc:
        wrong.append(("light", str(exc).partition("; ")[2]))
    problems = []
    for field, why in wrong:
        own_place = places and (places.get(field) or places.get(field.partition(".")[0]))
        place, value = own_place or SourcePlace(name, None, field), attrgetter(field)(config)
        if field.startswith("window.") and not place.key.endswith(field.partition(".")[2]):
            value = None  # the system's own key counts otherwise
        problems.append(Problem(*place, value, why))
    return Findings(tuple(problems), tuple(_list_warnings(config, total_steps)) if config.enabled else ())


def expected_bytes(config: Config) -> int | None:
    """A rough size of all raw data of one rank; None where it goes on to the end of the run.

    Assumed from level, activities and stacks, not measured: good for telling megabytes from terabytes.
    """
    window = config.window
    if window.steps is None or window.repeat == 0:
        return None
    megabytes = _MB_PER_STEP[config.level]
    megabytes *= _CPU_FACTOR if "cpu" in config.activities else 1
    megabytes *= _STACKS_FACTOR if config.stacks or config.modules else 1
    return (megabytes << 20) * (window.steps * window.repeat + len(window.more_steps))


def _check_window(window: Window, total_steps: int | None) -> Iterator[tuple[str, str]]:
    if window.skip_first < 0:
        before = f"{window.wait} steps of wait and {window.warmup} of warmup"
        earliest = 1 + window.wait + window.warmup
        yield "window.first_step", f"no room before it for {before}: the earliest is {earliest}"
    if window.steps is None and window.repeat != 1:
        yield "window.repeat", "a window that goes to the end of the run cannot be repeated"
    if list(window.more_steps) != sorted(set(window.more_steps)):
        yield "window.more_steps", "steps must go up, each once"
    if window.more_steps and (window.last_step is None or window.more_steps[0] <= window.last_step):
        yield "window.more_steps", "these steps must come after the window"
    if window.more_steps and window.repeat != 1:
        yield "window.more_steps", "single steps go with one window only, repeat: 1"
    if total_steps is None:
        return
    if (window.last_step or window.first_step) > total_steps:
        last = f"step {window.last_step}" if window.steps else "the last step"
        yield "window.first_step", f"a window that can never finish: it goes to {last}, the run has {total_steps} steps"
    if max(window.more_steps, default=0) > total_steps:
        yield "window.more_steps", f"steps that never come: the run has {total_steps}"


def _check_scope(config: Config, world_size: int | None) -> Iterator[tuple[str, str]]:
    for field in ("ranks", "replicas"):
        chosen = getattr(config, field)
        if isinstance(chosen, tuple) and len(set(chosen)) < len(chosen):
            yield field, "given twice"
    if isinstance(config.ranks, tuple) and world_size is not None and max(config.ranks) >= world_size:
        yield "ranks", f"there is no such rank: ranks are 0 to {world_size - 1}"
    for key in () if config.stages == "all" else config.stages:
        near = difflib.get_close_matches(key, stages.BY_KEY, n=1)
        if not stages.is_known(key) and near:
            yield "stages", f"unknown stage {key}; did you mean {near[0]}? allowed: all, {', '.join(stages.BY_KEY)}"
    if isinstance(config.stages, tuple) and "all" in config.stages:
        yield "stages", "all stands alone: it is one recording of the whole step, not a stage"
    if config.sampling is None:
        return
    if config.stages == "all":
        yield "sampling", "a part of a stage is recorded: name the stages"
    elif config.sampling.per == "decode_step" and "actor_generate" not in config.stages:
        yield "sampling.per", "only the stage actor_generate has decode steps"
    elif config.sampling.per != "decode_step" and set(config.stages) == {"actor_generate"}:
        yield "sampling.per", "the stage actor_generate has decode steps, no batches"


def _check_depth(config: Config) -> Iterator[tuple[str, str]]:
    if config.level == "none" and not config.mstx:
        yield "mstx", "level none records mstx ranges and nothing else: it needs mstx: true"
    if config.aic_metrics != "none" and config.level not in METRIC_LEVELS:
        yield "aic_metrics", f"AI Core metrics are recorded at level1 and level2, not at {config.level}"
    for option in (option for option in list_settable(CONFIG) if option.needs_cpu and "cpu" not in config.activities):
        if getattr(config, option.name) != option.default:
            yield option.name, "needs the activity cpu, which is off"
    if config.op_attr and config.export == "text":
        yield "op_attr", "needs export: db"
    if config.domains_include and config.domains_exclude:
        yield "domains_exclude", "give domains_include or domains_exclude, not both"
    for field in ("domains_include", "domains_exclude"):
        if getattr(config, field) and not config.mstx:
            yield field, "needs mstx: true"


def _list_warnings(config: Config, total_steps: int | None) -> Iterator[str]:
    window = config.window
    if window.steps is None:
        yield "records to the end of the run, in one window: limit it with window.steps or limits"
    if window.repeat == 0:
        yield "repeats its window until the run ends: limit it with window.repeat"
    if window.warmup == 0 and config.level in ("level1", "level2"):
        yield "no warm-up step: the first recorded step holds the profiler's own start"
    whole = window.skip_first + window.repeat * (window.wait + window.warmup + (window.steps or 0))
    if total_steps is not None and window.steps is not None and window.repeat > 1 and whole > total_steps:
        yield f"the run ends after step {total_steps}, before the last of {window.repeat} windows does"
    if config.mstx and "npu" not in config.activities:
        yield "mstx ranges are recorded with the activity npu only, which is off: there will be none"
    if config.memory and config.level == "none":
        yield "memory makes the device record tasks, even at level none"
    if config.replicas is not None and (config.stages == "all" or "actor_generate" not in config.stages):
        yield "replicas choose engines of the stage actor_generate, which is not recorded alone"
    if config.limits is not None and (config.limits.bytes or CANN_LEAST_BYTES) < CANN_LEAST_BYTES:
        yield "limits.bytes is below 200 MiB, the least that CANN enforces by itself"
    size = expected_bytes(config)
    if size is not None and size > LARGEST_EXPECTED_BYTES:
        yield f"about {size >> 30} GiB of raw data per rank are to be expected: fewer steps, a lower level, or sampling"
