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
from typing import Any, Mapping

from ... import stages
from ...errors import Problem
from .. import hydra
from ..model import Config
from ..sources import Source
from . import GROUPS, Read, Reading, Written, build_config, yaml_of

# The section says what mstxkit does, beside what the framework reads for itself.
FLAVOUR = SECTION = "mstxkit"
DESCRIPTION = "a YAML's section mstxkit:, every canonical field"

# What mstxkit alone has: a section of these alone goes with the framework's own section beside it.
MANNER = ("light", "budgets", "act", "takes_over")


def detect(source: Source) -> bool:
    """Is there a section `mstxkit`?"""
    return SECTION in source.values


def is_manner_alone(source: Source) -> bool:
    """Does the section say how mstxkit goes about it, and nothing of what is recorded?"""
    section = source.values.get(SECTION)
    return isinstance(section, Mapping) and bool(section) and set(section) <= set(MANNER)


def read(source: Source) -> Read:
    """What it says, with what its interpolations stand for. Raises: ConfigError with all that is wrong in it."""
    if source.values.get(SECTION) is not None:
        source = hydra.resolve_source(source, [(SECTION,)])
    reading = Reading(source, (SECTION,))
    if source.values.get(SECTION) is None and SECTION in source.values:
        reading.wrong("", "the section is empty: it needs at least enabled: true")
    reading.only(Config.model_fields)
    fields = {name: reading.get(name, name) for name in Config.model_fields if name in reading.values}
    for name in (name for name in GROUPS if isinstance(fields.get(name), Mapping)):
        places = {key: source.place(SECTION, name, str(key)) for key in fields[name]}
        allowed = GROUPS[name].model_fields
        unknown = [key for key in places if key not in allowed]
        reading.problems += [Problem(*places[key], None, "unknown key", tuple(allowed)) for key in unknown]
        reading.places.update({f"{name}.{key}": place for key, place in places.items()})
    if fields.get("analysis") is False:  # YAML takes a bare `off` for false
        fields["analysis"] = "off"
    names = _name_stages(reading, fields)
    reading.stop_if_wrong()
    return Read(build_config(source, reading.places, {**fields, **names}), reading.places, tuple(reading.notes))


def _name_stages(reading: Reading, fields: dict[str, Any]) -> dict[str, Any]:
    """Stages by their canonical keys, and their names in the source; a single one may stand without a list."""
    listed = fields.get("stages")
    if isinstance(listed, str) and listed != "all":
        listed = [listed]
    if not isinstance(listed, list) or not listed or not all(isinstance(name, str) for name in listed):
        return {}
    for name in (name for name in listed if not stages.is_known(name) and name != "all"):
        reading.note(f"no system has a stage {name}: it is taken for one of your own")
    names = {stages.canonical_key(name): name for name in listed if stages.canonical_key(name) != name}
    keys = tuple(dict.fromkeys(stages.canonical_key(name) for name in listed))
    own = fields.get("stage_names", {})
    return {"stages": keys, "stage_names": {**names, **own} if isinstance(own, Mapping) else own}


def write(config: Config) -> Written:
    """The section with every field given: nothing is lost."""
    return Written(yaml_of({SECTION: json.loads(config.model_dump_json())}))
