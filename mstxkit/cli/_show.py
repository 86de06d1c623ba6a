"""How verbs show things: rich on a terminal, the same in plain text in a pipe, JSON when asked for."""

from __future__ import annotations

import json
from pathlib import Path
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


def path(folder: Path, inside: str) -> str:
    """A path below a folder, as it may be copied from a terminal."""
    from ..report.escape import for_terminal

    return for_terminal(str(folder / inside))


def as_json(value: Any) -> None:
    """`value` on standard output, as JSON in ASCII."""
    print(json.dumps(value, indent=2, default=str))
