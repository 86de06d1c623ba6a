"""CSV: a folder with a file for each table of a run, UTF-8, for spreadsheets and for whoever reads text.

A text that a spreadsheet would take for a formula (`=`, `+`, `-`, `@` and tabs at its begin) gets an apostrophe before
it, as OWASP advises. Times are whole ns; a spreadsheet that rounds them shows the wrong nanosecond, not the wrong file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import FOLDER, Exporter, _tables

if TYPE_CHECKING:
    import polars as pl

    from ..run import Run

FORMULA = r"^([=+\-@\t\r])"
# What a terminal, or a program of tables, would act on.
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"


def write(run: Run, folder: Path) -> int:
    """Write `run` into an empty folder; the number of ranges and marks. *Cost*: about a microsecond a range."""

    def put(name: str, number: int, piece: pl.DataFrame) -> None:
        with open(folder / f"{name}.csv", "wb" if not number else "ab") as file:
            _harmless(piece).write_csv(file, include_header=not number)

    return _tables.write(run, put)


def _harmless(piece: pl.DataFrame) -> pl.DataFrame:
    """Nothing in it is a formula, a list, or a control character."""
    import polars as pl
    import polars.selectors as columns

    lists = [name for name, dtype in piece.schema.items() if isinstance(dtype, pl.List)]
    flat = piece.with_columns(pl.col(name).list.eval(pl.element().cast(pl.String)).list.join(" ") for name in lists)
    return flat.with_columns(columns.string().str.replace(FORMULA, "'${1}").str.replace_all(_CONTROL, "\ufffd"))


EXPORTER = Exporter("_csv", write, form=FOLDER)
