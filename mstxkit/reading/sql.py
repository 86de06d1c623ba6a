"""`Run.sql()`: a SELECT over the run's tables, by polars' SQL or DuckDB. It reads these tables and no file."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import polars as pl

from ..errors import ReadError

POLARS, DUCKDB = ENGINES = ("polars", "duckdb")
# By the names of the methods that make them.
TABLES = (
    "ranges", "marks", "stages", "processes", "tracks", "patches", "occurrences", "open_ranges", "waits", "verdicts",
    "lateness", "device", "escalations", "profiles", "incidents",
    "steps", "ranks", "stragglers", "bubbles", "critical_path",
    "tails", "samples", "links", "resharding", "what_if", "throughput", "overhead", "drops",
)  # fmt: skip
_SELECTS = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
_TEXTS_AND_COMMENTS = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
# Functions that take a file for a table. The second is looked for wherever it stands: no comment, quote or text hides
# it from us that does not hide it from the engine.
_READS = re.compile(r"\b(?:read|scan)_?\w*[\"`\]]?\s*\(", re.IGNORECASE)
_FORMATS = re.compile(
    r"(?:read|scan)_(?:csv|ndjson|json|parquet|ipc|avro|delta|iceberg|lance|excel|ods|database|feather|lines|text|blob)",
    re.IGNORECASE,
)
# DuckDB's types, and polars' with the same values. A sum of whole numbers is a HUGEINT there.
_TYPES = {
    "BOOLEAN": pl.Boolean, "VARCHAR": pl.String, "BLOB": pl.Binary, "DATE": pl.Date, "FLOAT": pl.Float32,
    "DOUBLE": pl.Float64,
    "TINYINT": pl.Int8, "SMALLINT": pl.Int16, "INTEGER": pl.Int32, "BIGINT": pl.Int64, "HUGEINT": pl.Int64,
    "UTINYINT": pl.UInt8, "USMALLINT": pl.UInt16, "UINTEGER": pl.UInt32, "UBIGINT": pl.UInt64,
}  # fmt: skip
_WORDS_AT_MOST = 100_000
_ONE_QUERY = "sql: one query is allowed, and it begins with SELECT or WITH"


def answer_query(tables: Mapping[str, Callable[[], pl.DataFrame]], query: str, engine: str = POLARS) -> pl.DataFrame:
    """See `Run.sql`; `tables` makes each of a run by its name."""
    if engine not in ENGINES:
        raise ReadError(f"engine={engine!r} is none; choose one of {', '.join(ENGINES)}")
    plain = _TEXTS_AND_COMMENTS.sub(lambda each: "''" if each[0].startswith("'") else " ", query[:_WORDS_AT_MOST])
    if len(query) > _WORDS_AT_MOST or not _SELECTS.match(plain):
        raise ReadError(_ONE_QUERY)
    if _FORMATS.search(query) or _READS.search(plain):
        raise ReadError("sql: functions that read a file are not allowed; query the run's own tables")
    words = {word.lower() for word in re.findall(r"\w+", query)}
    asked = {name: make() for name, make in tables.items() if name in words}
    named = {name: frame.with_columns(pl.col(pl.Categorical).cast(pl.String)) for name, frame in asked.items()}
    try:
        if engine == DUCKDB:
            return _by_duckdb(query, named)
        return pl.SQLContext(frames=named, eager=True).execute(query)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as exc:
        first = next(iter(str(exc).strip().splitlines()), "the query cannot be answered")
        columns = "".join(f"\n{name} has {', '.join(frame.columns)}" for name, frame in named.items())
        raise ReadError(f"sql: {first[:300]}\nTables: {', '.join(tables)}{columns}") from exc


def _by_duckdb(query: str, tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    try:
        import duckdb
    except ImportError as exc:
        raise ReadError("engine='duckdb' needs duckdb: pip install duckdb") from exc
    with duckdb.connect(":memory:", config={"autoload_known_extensions": "false"}) as connection:
        with tempfile.TemporaryDirectory(prefix="mstxkit-sql-") as folder:
            for name, frame in tables.items():
                file = Path(folder, f"{name}.parquet")
                frame.write_parquet(file)
                connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM read_parquet(?)', [str(file)])
        # From here on nothing outside can be reached, and that cannot be undone.
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        try:
            statements = connection.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise ReadError(_ONE_QUERY)
            kinds = [row[1] for row in connection.execute(f"DESCRIBE {query}").fetchall()]
            result = connection.execute(query)
            titles = [column[0] for column in result.description or ()]
            rows: list[Any] = result.fetchall()
        except duckdb.Error as exc:
            raise ValueError(str(exc)) from exc
    columns = zip(*rows) if rows else ((),) * len(titles)
    return pl.DataFrame([
        _make_series(name if titles.index(name) == place else f"{name}_{place}", kind, values)
        for place, (name, kind, values) in enumerate(zip(titles, kinds, columns))
    ])  # fmt: skip


def _make_series(name: str, kind: str, values: Sequence[Any]) -> pl.Series:
    """A column of what DuckDB says it is of; of what its values are, where polars has nothing like it."""
    try:
        return pl.Series(name, values, _type_of(kind), strict=True)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        return pl.Series(name, values, strict=False)


def _type_of(kind: str) -> Any:
    if kind.endswith("[]"):
        inner = _type_of(kind[:-2])
        return None if inner is None else pl.List(inner)
    return _TYPES.get(kind)
