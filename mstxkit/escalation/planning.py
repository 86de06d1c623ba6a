"""Planning requests: what a configuration names becomes requests of the escalation machine, before training begins.

Each window is one request, for all of its stages and ranks, with the step at which it begins. The same configuration
gives the same requests, so every rank of a program may plan it: it is left in the run folder once.

What mstxkit's sessions cannot record is a `ConfigError` here, with the place of each field.
"""

from __future__ import annotations

import hashlib
import json
import time
from itertools import islice
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, NamedTuple

from .. import faults
from ..errors import ConfigError, Problem
from ..store import messages
from ..store.control_folder import ControlFolder
from ..store.options import CONFIG, REQUEST, list_settable
from ..store.request import COUNT_AT_MOST, LIVES_AT_MOST_S, WHOLE_STEPS, Known, Request, check_request

WINDOWS_AT_MOST = 30
# What a configuration says of the time after the recording: raw data first, parsed apart.
_AFTERWARDS = ("analysis", "data_simplification")
_ANY_RANK = range(1 << 31)
# Systems that mstxkit can keep from carrying out their own section: `patches/_takes_over.py`.
KEPT_FROM_THEIR_OWN = ("mindspeed_rl", "verl", "mindspeed_llm", "mindspeed_llm_fsdp2")


class Plan(NamedTuple):
    """What a configuration asks for."""

    requests: tuple[Request, ...] = ()  # one for each window, in the order of their steps
    notes: tuple[str, ...] = ()  # sentences: what is carried out in another way than its own system would, or not
    takes_over: tuple[str, ...] = ()  # the frameworks that are kept from carrying out their own section


def plan_of(config: Any, places: Mapping[str, Any] | None = None, name: str = "<configuration>") -> Plan:
    """The requests of a canonical configuration (`config.model.Config`); none where it is not enabled.

    `places`: those of the fields, as `config.adapters.Read.places` has them; `name` stands where there is none.
    Raises ConfigError: a session of mstxkit's cannot record that.
    """
    if not config.enabled:
        return Plan()
    frameworks = config._own_of
    problems = []
    for field, why in _find_impossible(config, frameworks):
        file, line, key = (places or {}).get(field) or (name, None, field)
        problems.append(Problem(file, line, key, getattr(config, field), why))
    if problems:
        raise ConfigError.of(problems)
    framework = "" if config.takes_over else next(iter(frameworks), "")
    windows = tuple(islice(_list_windows(config.window), WINDOWS_AT_MOST))
    requests = tuple(_make_request(config, first, steps, framework, name) for first, steps in windows)
    return Plan(requests, tuple(_list_notes(config, len(windows))), frameworks if config.takes_over else ())


def leave_requests(run: Path, run_id: str, plan: Plan) -> None:
    """Leave the requests of a plan for all ranks of a run. Those that lie there stay as they are. Raises MstxkitError
    where they cannot be written into the control folder.
    """
    ControlFolder(run, run_id).send(*map(messages.of_request, plan.requests))
    for note in plan.notes:
        faults.warn_once(f"config: {note}", f"configuration: {note}")


def _find_impossible(config: Any, frameworks: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Fields that no session can carry out, each with the reason."""
    recordable = {option.name for option in list_settable(REQUEST)}
    for option in list_settable(CONFIG):
        is_set = getattr(config, option.name) != option.default
        if is_set and option.name not in recordable and option.name not in _AFTERWARDS:
            yield option.name, "a session of mstxkit's does not record this: leave it out, or let the framework do it"
    chosen = config.stages == WHOLE_STEPS or "actor_generate" in config.stages
    if chosen and config.replicas not in (None, WHOLE_STEPS, config.ranks):
        yield "replicas", "mstxkit chooses by global ranks: give the ranks of these engines as ranks"
    if config.takes_over:
        for framework in (framework for framework in frameworks if framework not in KEPT_FROM_THEIR_OWN):
            able = ", ".join(KEPT_FROM_THEIR_OWN)
            yield "takes_over", f"{framework} cannot be kept from its own section ({able} can): switch it off there"


def _list_notes(config: Any, windows: int) -> Iterator[str]:
    window = config.window
    if window.warmup:
        yield f"no warm-up of {window.warmup} steps: sessions begin right before what they record"
    if window.repeat == 0 or window.repeat > windows:
        yield f"the first {windows} windows are planned, no more"
    if config.analysis != "off":
        yield "nothing is parsed while training runs: mstxkit profiles RUN --analyse does that"


def _list_windows(window: Any) -> Iterator[tuple[int, int]]:
    """First step and number of steps of each window, as the configuration counts."""
    if window.steps is None:
        yield window.first_step, COUNT_AT_MOST  # to the end of the run
        return
    period, number = window.wait + window.warmup + window.steps, 0
    while window.repeat == 0 or number < window.repeat:
        yield window.first_step + number * period, window.steps
        number += 1
    yield from ((step, 1) for step in window.more_steps)


def _make_request(config: Any, first_step: int, steps: int, framework: str, name: str) -> Request:
    options = {option.name: getattr(config, option.name) for option in list_settable(REQUEST)}
    stages = [WHOLE_STEPS] if config.stages == WHOLE_STEPS else list(config.stages)
    sampling, limits, now_ns = config.sampling, config.limits, time.time_ns()
    digest = hashlib.sha256(json.dumps(config.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()
    fields = {
        "stages": stages,
        "ranks": config.ranks if isinstance(config.ranks, str) else sorted(config.ranks),
        "steps": steps,
        "options": {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()},
        "sample": None if sampling is None else sampling.model_dump(),
        "limits": {} if limits is None else limits.model_dump(),
        "reason": f"of {name}"[:100] if name.isprintable() else "of a configuration",
        "occasion": f"configuration {digest[:12]}",
        "planned": {
            "first_step": first_step, "counted_from": config.window.counted_from, "framework": framework,
        },
        "created_ns": now_ns,
        "expires_ns": now_ns + LIVES_AT_MOST_S * 10**9,
    }  # fmt: skip
    return check_request(fields, Known(stages, _ANY_RANK, ()), name)
