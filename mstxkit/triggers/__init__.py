"""Triggers: each answers one question from values alone. One file each; no clock, no file, no state.

A file `triggers/<name>.py` has `TRIGGER`; a listing of the folder finds it.
"""

from __future__ import annotations

import importlib

from ..host import listing
from ._declare import Trigger


def list_triggers() -> list[str]:
    """All triggers there are, sorted."""
    return listing.modules_in(__path__)


def load_trigger(name: str) -> Trigger:
    """What the trigger of that name declares."""
    trigger: Trigger = importlib.import_module(f"{__name__}.{name}").TRIGGER
    return trigger
