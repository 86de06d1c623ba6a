"""Triggers: each answers one question from values alone. One file each; no clock, no file, no state.

A file `triggers/<name>.py` has `TRIGGER`; a listing of the folder finds it.
"""

from __future__ import annotations

import importlib

from ..host import listing


def load_triggers() -> dict[str, type]:
    """`TRIGGER` of each trigger there is, by the name of its file, sorted: a frozen dataclass of its settings, whose
    fields are made by `_declare.setting`.
    """
    return {name: importlib.import_module(f"{__name__}.{name}").TRIGGER for name in listing.modules_in(__path__)}
