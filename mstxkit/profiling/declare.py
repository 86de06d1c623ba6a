"""What a profiler session is made from and what comes out of it: presets and outcomes. Data only."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..store.options import METRIC_LEVELS, PRESET, list_settable

Options = dict[str, Any]

_PresetFields: Any = make_dataclass(
    "_PresetFields",
    [
        ("name", str),
        *((option.name, Any, field(default=option.preset_value)) for option in list_settable(PRESET)),
        ("est_mb_per_step", int, field(default=0)),
        ("cost", str, field(default="")),
    ],
    namespace={"__post_init__": lambda preset: preset._check_options()},
    frozen=True,
)


class Preset(_PresetFields):  # type: ignore[misc]
    """What one profiler session records: a name, a value for each option that a preset may set, and what it costs.

    Args:
        name: What it is called in configuration and requests.
        level, activities, ...: Options, in the order of `store.options.OPTIONS`.
        est_mb_per_step: Megabytes of raw data per rank for a training step of a few seconds: assumed, not measured;
            good for telling megabytes from terabytes.
        cost: What recording costs, one sentence.

    Raises:
        ConfigError: options that exclude each other, which torch_npu and MindSpore would silently replace, often by
            something heavier.
    """

    def _check_options(self) -> None:
        of_host = [option for option in list_settable(PRESET) if option.needs_cpu]
        if not self.activities:
            problem = "activities is empty: name cpu, npu or both"
        elif self.level == "none" and not self.mstx:
            problem = "level none records mstx ranges alone, and mstx is off"
        elif self.aic_metrics != "none" and self.level not in METRIC_LEVELS:
            problem = f"aic_metrics={self.aic_metrics!r} needs level1 or level2, not {self.level}"
        elif "cpu" not in self.activities and any(getattr(self, option.name) != option.default for option in of_host):
            names = ", ".join(option.name for option in of_host[:-1])
            problem = f"{names} and {of_host[-1].name} are those of operators on the host: they need the activity cpu"
        elif self.domains_exclude and not self.mstx:
            problem = "domains_exclude leaves out mstx domains, and mstx is off"
        else:
            return
        raise ConfigError(f"preset {self.name!r}: {problem}")


class Recorded(NamedTuple):
    """What became of an ordered session."""

    folder: Path | None  # with session.json, which says where the data are; None where there are none
    bytes: int  # raw data on disk
    problems: tuple[str, ...]  # what went wrong, a sentence each
    start_ns: int  # when it recorded, Unix time; 0 where it never did
    end_ns: int
