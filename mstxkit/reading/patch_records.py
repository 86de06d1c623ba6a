"""What processes wrote of their patched targets: `patches/<process>.json`, read on trust of nothing in it."""

from __future__ import annotations

import json
from typing import Any, Iterator

from .folder import Damage, Folder
from .processes import Process

LIMIT_BYTES = 1 << 20
_FIELDS = ("framework", "path", "state", "reason", "detail", "tier")
_SUFFIX = ".json"


def rows(folder: Folder, processes: list[Process], damage: list[Damage]) -> Iterator[tuple[Process, tuple[str, ...]]]:
    """Each process with one target of its record: framework, path, state, reason, detail, tier.

    What cannot be read is added to `damage`.
    """
    by_name = {process.name: process for process in processes}
    for name in folder.names(_SUFFIX):
        process = by_name.get(name[: -len(_SUFFIX)])
        if process is not None:
            for target in _targets(folder, name, damage):
                yield process, tuple(str(target.get(field, "")) for field in _FIELDS)


def _targets(folder: Folder, name: str, damage: list[Damage]) -> list[dict[str, Any]]:
    try:
        fields = json.loads(folder.read(name, size=LIMIT_BYTES))
        targets = fields["targets"]
        if not all(isinstance(target, dict) for target in targets):
            raise TypeError("a target is no object")
        return list(targets)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as exc:
        one = Damage(folder.path_of(name), 0, 0, f"the record of patches cannot be read: {exc}")
        if one not in damage:
            damage.append(one)
        return []
