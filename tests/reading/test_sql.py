"""SQL over a run's tables: both engines give the same, and neither reads anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

pl = pytest.importorskip("polars")

from builders.run_files import BankFiles, ProcessFiles, new_run  # noqa: E402

from mstxkit.errors import ReadError  # noqa: E402
from mstxkit.reading import sql  # noqa: E402
from mstxkit.reading.run import Run, open_run  # noqa: E402

FUNCTIONS = sorted(name for name in dir(pl) if name.startswith(("read_", "scan_")))
ENGINES = ["polars", "duckdb"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = new_run(tmp_path_factory.mktemp("sql") / "run")
    for rank in range(2):
        bank = BankFiles()
        for step in range(4):
            bank.range("gen", step * 100, step * 100 + 10 * (rank + 1), stage="gen", own=True, step=step, tokens=5)
        ProcessFiles(path, 100 + rank, rank=rank).seal(bank)
    return open_run(path)


def needs(engine: str) -> None:
    if engine == "duckdb":
        pytest.importorskip("duckdb")


@pytest.mark.parametrize(
    "query",
    [
        "select rank, sum(total_ns) as ns, count(*) as n from stages group by rank order by rank",
        "with slow as (select * from ranges where duration_ns > 10) select rank, name from slow order by start_ns",
        "select p.rank, s.stage from processes p join stages s on p.rank = s.rank order by p.rank, s.step",
        "select step, role, duration_ns, gate_rank from steps order by step",
        "select * from stragglers",
    ],
)
def test_both_engines_give_the_same(run: Run, query: str) -> None:
    needs("duckdb")

    answers = [run.sql(query, engine).rows() for engine in ENGINES]

    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "query",
    [
        "select step, rank, stage, total_ns from stages",
        "select step, rank, stage, total_ns from stages where step > 100",
        "select max(step) as last, sum(total_ns) as ns, avg(total_ns) as mean from stages",
        "select rank, own_cost_ratio, native, state from processes where rank is null",
        *(f"select * from {table} where 1 = 0" for table in sql.TABLES),
    ],
)
def test_both_engines_give_the_same_types_also_of_no_rows(run: Run, query: str) -> None:
    needs("duckdb")

    schemas = [dict(run.sql(query, engine).schema) for engine in ENGINES]

    assert schemas[0] == schemas[1]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("170141183460469231731687303715884105727::hugeint", None), ("[1, 2]", [1, 2]), ("[]", []),
        ("{'a': 1}", {"a": 1}),
        ("null", None), ("1.5", 1.5), ("'x'::blob", b"x"), ("[[1.5]]", [[1.5]]), ("1::utinyint", 1), ("true", True),
        ("'a'::enum('a', 'b, c')", "a"), ("map {'k': 1}", None), ("date '2020-01-02'", None), ("now()", None),
        ("timestamp '2020-01-02 03:04:05'", None), ("interval 1 day", None), ("uuid()", None),
        ("time '03:04:05'", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["", " where rank = 99"])
def test_duckdb_may_answer_with_any_type(run: Run, expression: str, value: object, where: str) -> None:
    needs("duckdb")

    answer = run.sql(f"select {expression} as x, rank as x from processes{where} order by rank", "duckdb")

    assert answer.height == (0 if where else 2) and answer.width == 2
    assert value is None or where or answer.row(0)[0] == value


def test_every_table_can_be_asked(run: Run) -> None:
    for name in sql.TABLES:
        assert run.sql(f"select count(*) as n from {name}").row(0) == (getattr(run, name)().height,)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("function", [*FUNCTIONS, "READ_CSV", "read_text", "read_blob", "read_csv_auto", "glob"])
def test_no_function_reads_a_file(run: Run, tmp_path: Path, engine: str, function: str) -> None:
    needs(engine)
    secret = tmp_path / "secret.csv"
    secret.write_text("word\nswordfish\n")
    spellings = [function, f'"{function}"', f"`{function}`", f"{function} /* , */ "]

    for spelling in spellings:
        for query in (
            f"select * from {spelling}('{secret}')",
            f"with t as (select * from {spelling}('{secret}')) select * from t",
            f"select * from stages where stage in (select word from {spelling}('{secret}'))",
        ):
            with pytest.raises(ReadError):
                run.sql(query, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "query",
    [
        "select * from '{file}'", 'select * from "{file}"', "copy stages to '{out}'", "attach '{out}' as other",
        "create table t as select * from stages",
        "drop table stages", "install httpfs", "set enable_external_access = true",
        "select 1; copy stages to '{out}'", "select * from stages; select 2", "pragma database_list", "", "   ",
        "from '{file}'", "with t as (select 1) insert into stages select * from t", "/* select */ drop table stages",
    ],
)  # fmt: skip
def test_one_select_alone_is_allowed_and_nothing_is_written(run: Run, tmp_path: Path, engine: str, query: str) -> None:
    needs(engine)
    file, out = tmp_path / "secret.csv", tmp_path / "out.csv"
    file.write_text("word\nswordfish\n")

    with pytest.raises(ReadError):
        run.sql(query.format(file=file, out=out), engine)

    assert not out.exists()


def test_a_text_may_look_like_a_function(run: Run) -> None:
    assert run.sql("select count(*) as n from ranges where name = 'read_batch(1)'").row(0) == (0,)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_tells_the_tables_and_the_columns(run: Run, engine: str) -> None:
    needs(engine)

    with pytest.raises(ReadError, match=r"(?s)sql: .*Tables: ranges, marks.*stages has step, stage, rank"):
        run.sql("select nonsense from stages", engine)


def test_an_unknown_engine_is_refused(run: Run) -> None:
    with pytest.raises(ReadError, match="choose one of polars, duckdb"):
        run.sql("select 1 from stages", "sqlite")
