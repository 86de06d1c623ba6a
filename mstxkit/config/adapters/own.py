"""mstxkit's own: a section `mstxkit:` beside the framework's, with the canonical fields by their names.

mstxkit:
enabled: true
window: {first_step: 10, steps: 2}
stages: [actor_update]
level: level1
limits: {seconds: 120}
"""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping

from ... import stages
from ...errors import Problem
from ..model import Config, Limits, Sampling, Window
from ..sources import Source
from . import Read, Reading, Written, built
from ._text import yaml_of

FLAVOUR = "mstxkit"
DESCRIPTION = "a YAML's section mstxkit:, every canonical field"

SECTION = "mstxkit"
_GROUPS: Mapping[str, Any] = {"window": Window, "sampling": Sampling, "limits": Limits}
_INNER = ("window", "sampling", "limits")


def detect(source: Source) -> bool:
    """Is there a section `mstxkit`?"""
    return SECTION in source.values


def read(source: Source) -> Read:
    """What it says.

    Raises:
        ConfigError: all that is wrong in it.
    """
    reading = Reading(source, (SECTION,))
    if source.values.get(SECTION) is None and SECTION in source.values:
        reading.wrong("", "the section is empty: it needs at least enabled: true")
    reading.only(Config.model_fields)
    fields = {name: reading.get(name, name) for name in Config.model_fields if reading.has(name)}
    for name in (name for name in _INNER if isinstance(fields.get(name), Mapping)):
        reading.problems += _unknown(source, name, fields[name])
        reading.places.update({f"{name}.{key}": source.place(SECTION, name, str(key)) for key in fields[name]})
    if fields.get("analysis") is False:  # YAML takes a bare `off` for false
        fields["analysis"] = "off"
    names = _name_stages(reading, fields)
    reading.stop_if_wrong()
    return Read(built(source, reading.places, {**fields, **names}), reading.places, tuple(reading.notes))


def _unknown(source: Source, group: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    allowed = tuple(_GROUPS[group].model_fields)
    for key in (key for key in values if key not in allowed):
        yield Problem(*source.place(SECTION, group, str(key)), None, "unknown key", allowed)


def _name_stages(reading: Reading, fields: dict[str, Any]) -> dict[str, Any]:
    """Stages by their canonical keys, and the names they were given by; one may be written without a list."""
    given = fields.get("stages")
    if isinstance(given, str) and given != "all":
        given = [given]
    if not isinstance(given, list) or not given or not all(isinstance(name, str) for name in given):
        return {}
    for name in (name for name in given if not stages.is_known(name) and name != "all"):
        reading.note(f"no system has a stage {name}: it is taken for one of your own")
    names = {stages.canonical(name): name for name in given if stages.canonical(name) != name}
    keys = tuple(dict.fromkeys(stages.canonical(name) for name in given))
    own = fields.get("stage_names", {})
    return {"stages": keys, "stage_names": {**names, **own} if isinstance(own, Mapping) else own}


def write(config: Config) -> Written:
    """The section with every field given: nothing is lost."""
    return Written(yaml_of({SECTION: json.loads(config.model_dump_json())}))
