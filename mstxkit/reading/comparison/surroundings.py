"""What else is different about the two sides: work, ranks, versions, how they were recorded and judged, and what was
profiled meanwhile. Of a training's own configuration there is what `patching/trainer_settings.py` keeps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, Iterator, NamedTuple

import polars as pl

from ...judging import settings
from ...store import settings_file
from ...store.documents import Unusable
from ..report.units import write_spans
from .rows import STAGE, ComparedTime
from .sides import Side, is_by_member

_NAMED_AT_MOST = 6


class SideChange(NamedTuple):
    """One thing that differs, "" where it is not there; texts as they are, from files that anybody may have written."""

    what: str
    before: str
    after: str


def find_changes(before: Side, after: Side, rows: Iterable[ComparedTime]) -> list[SideChange]:
    """What is different, what explains most first."""
    different = []
    for row in rows:
        tokens = row.tokens
        if row.of == STAGE and tokens is not None and tokens.direction:
            each = "a step" + " in each" * is_by_member(before.steps[row.role], after.steps[row.role], row.stage or "")
            figures = (f"{tokens.before:.0f} {each}", f"{tokens.after:.0f} {each}")
            different.append(SideChange(f"tokens of {row.stage}", *figures))
    different += _list_differences(_count_ranks(before), _count_ranks(after))
    both = [side.run.trainer_settings() for side in (before, after)]
    named = [{f"trainer's {name}": " and ".join(of[:_NAMED_AT_MOST]) for name, of in each.items()} for each in both]
    if any(both) and not all(both):  # one change where only one side knows any
        named = [{"settings of the trainer": f"{len(each)} known"} if each else {} for each in both]
    different += _list_differences(*named)
    for look in (_list_versions, _list_settings, _count_patches, _count_profiles):
        different += _list_differences(look(before), look(after))
    return different


def _list_differences(before: dict[str, str], after: dict[str, str]) -> Iterator[SideChange]:
    for what in dict.fromkeys((*before, *after)):
        if before.get(what, "") != after.get(what, ""):
            yield SideChange(what, before.get(what, ""), after.get(what, ""))


def _count_ranks(side: Side) -> dict[str, str]:
    members = {
        f"ranks of {role}" if role else "ranks": len({peer.rank for step in steps for peer in step.members})
        for role, steps in side.steps.items()
    }
    peers = {peer for steps in side.steps.values() for step in steps for peer in step.members}
    attempts = side.processes["attempt"].drop_nulls().n_unique()
    counts = {**members, "hosts": len({peer.host for peer in peers}), "attempts of the job": attempts}
    return {what: str(count) for what, count in counts.items()}


def _list_versions(side: Side) -> dict[str, str]:
    """Of Python, mstxkit and loaded frameworks; what recorded, and by which clock; all, where processes disagree."""
    seen: dict[str, set[str]] = {}
    for row in side.processes.select("versions").to_series().drop_nulls().unique().sort().to_list():
        for named in row.split(", "):
            name, _, version = named.partition(" ")
            seen.setdefault(name, set()).add(version)
    seen["recorder"] = {"native" if is_native else "Python" for is_native in side.processes["native"].drop_nulls()}
    seen["clock"] = set(side.processes["clock"].drop_nulls())
    return {name: " and ".join(sorted(values)) for name, values in seen.items()}


def _list_settings(side: Side) -> dict[str, str]:
    """What the run is judged by, also where nobody has changed it."""
    try:
        values, failed = settings_file.read_settings(Path(side.run.path), side.run.id).values, {}
    except Unusable:
        values, failed = {}, {"settings": "cannot be read"}
    named = settings.of_json(values).as_json()
    return {**failed, **{f"setting {name}": f"{value:g}" for name, value in named.items()}}


def _count_patches(side: Side) -> dict[str, str]:
    """How many targets of each framework are ranges; which frameworks are patched at all."""
    applied = side.run.patches().filter(pl.col("state") == "applied").select("framework", "path").unique()
    counts = applied.group_by("framework").len().sort("framework")
    return {f"patched targets of {framework}": str(count) for framework, count in counts.iter_rows()}


def _count_profiles(side: Side) -> dict[str, str]:
    """Profiles that were recorded in these steps: they cost time, which is no difference of the training's."""
    within = (pl.col("last_step") >= side.first_step) & (pl.col("first_step") <= side.last_step)
    rows = side.run.escalations().filter(within & pl.col("start_ns").is_not_null()).to_dicts()
    steps: set[int] = set()
    for row in rows:
        first, last = max(row["first_step"], side.first_step), min(row["last_step"], side.last_step)
        steps.update(range(first, min(last, first + _NAMED_AT_MOST) + 1))
    presets = sorted({row["preset"] or "none" for row in rows})
    shown = write_spans(sorted(steps)[:_NAMED_AT_MOST]) + (" and more" if len(steps) > _NAMED_AT_MOST else "")
    return {"profiles recorded in steps": shown, "presets of profiles": ", ".join(presets)} if steps else {}
