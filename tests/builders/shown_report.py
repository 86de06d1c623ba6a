"""A report as a terminal shows it."""

from __future__ import annotations

import io
from typing import Any

from rich import console

from mstxkit.reading.report.text import render_report


def printed(summary: dict[str, Any], columns: int = 100, **options: Any) -> str:
    """All of it."""
    return shown(render_report(summary, **options), columns=columns)


def shown(*lines: Any, columns: int = 200) -> str:
    """Each on lines of its own."""
    out = io.StringIO()
    for line in lines:
        console.Console(file=out, width=columns, highlight=False).print(line)
    return out.getvalue()
