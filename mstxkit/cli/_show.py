"""How verbs show things: rich on a terminal, the same in plain text in a pipe, JSON when asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PIPE_COLUMNS = 120


def console() -> Console:
    """Standard output. In a pipe 120 columns wide, unless COLUMNS says otherwise."""
    import os

    from rich.console import Console

    plain = Console(highlight=False, soft_wrap=False)
    if plain.is_terminal or os.environ.get("COLUMNS"):
        return plain
    return Console(highlight=False, width=PIPE_COLUMNS)


def as_json(value: Any) -> None:
    """`value` on standard output, as JSON in ASCII."""
    print(json.dumps(value, indent=2, default=str))
