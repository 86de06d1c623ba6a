"""CSV: a folder with a file for each table of a run, for spreadsheets and for whoever reads text.

UTF-8 with a byte order mark, without which Excel takes it for the system's code page. A text that a spreadsheet would
take for a formula (`=`, `+`, `-`, `@` and tabs at its begin) gets an apostrophe before it, as OWASP advises.

Times are whole ns. Excel keeps 15 digits of a number: `excel` makes texts of longer ones, and microseconds of times.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
from polars import selectors

from ..run import Run
from . import FOLDER, Exporter
from .parquet import hand_on_tables

FORMULA = r"^([=+\-@\t\r])"
_TOO_LONG = 10**15
# What a terminal, or a program of tables, would act on.
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"


def write_tables(run: Run, folder: Path, excel: str = "") -> int:
    """Write `run` into an empty folder; the number of ranges and marks. *Cost*: about a microsecond a range.
    `excel`: not empty: no number is longer than Excel keeps.
    """

    def put(name: str, number: int, piece: pl.DataFrame) -> None:
        # Nothing in it is a formula, a list, or a control character.
        lists = [pl.col(column) for column, dtype in piece.schema.items() if isinstance(dtype, pl.List)]
        flat = piece.with_columns(of.list.eval(pl.element().cast(pl.String)).list.join(" ") for of in lists)
        harmless = selectors.string().str.replace(FORMULA, "'${1}").str.replace_all(_CONTROL, "\ufffd")
        table = flat.with_columns(harmless)
        with open(folder / f"{name}.csv", "wb" if not number else "ab") as file:
            (_for_excel(table) if excel else table).write_csv(file, include_header=not number, include_bom=not number)

    return hand_on_tables(run, put)


def _for_excel(piece: pl.DataFrame) -> pl.DataFrame:
    """Times in microseconds; a number that is too long ends in a tab and is a text, as in the CSV of torch_npu."""
    columns = []
    for name, dtype in piece.schema.items():
        text = value = pl.col(name)
        if dtype == pl.Int64:
            size, sign = value.abs(), pl.when(value < 0).then(pl.lit("-")).otherwise(pl.lit(""))
            text = value.cast(pl.String)
            if name.endswith("_ns"):
                text = pl.format("{}{}.{}", sign, size // 1000, (size % 1000).cast(pl.String).str.zfill(3))
            text = pl.when(size < _TOO_LONG).then(text).otherwise(text + "\t")
        columns.append(text.alias(f"{name[:-3]}_us" if name.endswith("_ns") else name))
    return piece.select(columns)


EXPORTER = Exporter("_csv", write_tables, form=FOLDER, options={"excel": "no number is longer than Excel keeps"})
