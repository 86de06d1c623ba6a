"""What a configuration of any system means for a capture: requests that are planned, settings, a folder.

Loaded only by a process that is given one: it loads pydantic. The requests lie in the run folder then, so that the
processes that this one starts need to know no more than that there are some.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, NamedTuple

from ..config import configuring
from ..config.model import Config
from ..escalation import planning
from ..escalation.duty.own_sections import TAKES_OVER
from ..host import identity
from ..store import run_file
from . import settings


class Configured(NamedTuple):
    """A configuration, ready to be carried out."""

    plan: planning.Plan  # the requests that it names
    settings: dict[str, Any]  # of requests, as `capture` takes them
    path: str  # where its data is to go; empty: it does not say

    def variables(self, overrides: Mapping[str, Any]) -> dict[str, str]:
        """How it is handed on to processes that this one starts."""
        taken = ",".join(self.plan.takes_over)
        return {**settings.as_variables(self.settings, overrides), **({TAKES_OVER: taken} if taken else {})}

    def leave_in(self, folder: Path) -> None:
        """Leave its requests for all ranks of a run. Raises CaptureError, MstxkitError: the folder cannot be used."""
        if self.plan.requests:
            planning.leave_requests(*run_file.open_run_folder(folder), self.plan)


def configure_from(source: Any) -> Configured:
    """What a file, a mapping or a `Config` asks for. Raises ConfigError: something in it is wrong, or mstxkit's
    sessions cannot record it; all of that at once.
    """
    if isinstance(source, Config):
        config, places, name = source, {}, "Config"
    else:
        understood = configuring.understand_source(source, world_size=identity.read_current()["world_size"])
        config, places, name = understood.read.config, understood.read.places, understood.source.name
    plan = planning.plan_of(config, places, name)
    limits = {} if config.budgets is None else config.budgets.model_dump(exclude_none=True)
    if config.light is not None:
        limits["light"] = config.light
    if config.act is not None:
        limits["act"] = config.act
    return Configured(plan, {**limits, **({"planned": 1} if plan.requests else {})}, config.path)
