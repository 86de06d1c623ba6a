"""Parquet that is damaged, or made to hurt, is an error with its place; it never ends the process that reads it."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from builders import parquet_fuzz, soak

pl = pytest.importorskip("polars")

from mstxkit.errors import FormatError  # noqa: E402
from mstxkit.reading import parquet  # noqa: E402
from mstxkit.store import parquet as claims  # noqa: E402

TESTS = Path(__file__).resolve().parents[1]
HUGE = b"\xff\xff\xff\xff\xff\xff\xff\x0f"  # a length of 2**53, as thrift writes it


@pytest.fixture(scope="module")
def whole() -> bytes:
    return parquet_fuzz.file_of(1)


def read(content: bytes) -> pl.DataFrame:
    return parquet.read_file(io.BytesIO(content))


def with_footer(content: bytes, footer: bytes) -> bytes:
    length = int.from_bytes(content[-8:-4], "little")
    return content[: -8 - length] + footer + len(footer).to_bytes(4, "little") + content[-4:]


def footer_of(content: bytes) -> bytes:
    return content[-8 - int.from_bytes(content[-8:-4], "little") : -8]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "uncompressed"])
@pytest.mark.parametrize("rows", [0, 1, 300])
def test_what_polars_writes_is_what_it_says(compression: str, rows: int) -> None:
    frame = pl.read_parquet(io.BytesIO(parquet_fuzz.file_of(2)))[:rows]
    content = io.BytesIO()
    frame.write_parquet(content, compression=compression, row_group_size=100, data_page_size=200)

    assert parquet.read_file(content).equals(frame)
    assert parquet.read_file(content, rows=1).equals(frame[:1])


def test_long_texts_are_no_damage() -> None:
    """polars 1 writes the least and the largest of a page into its header."""
    content, frame = io.BytesIO(), pl.DataFrame({"attributes": ["[" * 60_000, "{" * 60_000, None]})
    frame.write_parquet(content, statistics="full")

    assert parquet.read_file(content).equals(frame)


def test_a_page_of_fewer_than_no_values_is_an_error(whole: bytes) -> None:
    """One byte of its header is another: polars ends the process over it, 1.44 as well as 2.1."""
    count = b"\x2c\x15\xd8\x04"  # 300, as the first field of the header of a page of data
    assert count in whole

    with pytest.raises(FormatError, match="a number that cannot be"):
        read(whole.replace(count, b"\x2c\x15\xff\x04", 1))


def test_a_list_of_more_than_is_there_is_an_error(whole: bytes) -> None:
    footer = footer_of(whole)
    assert footer[:3] == b"\x15\x02\x19"  # the version, and then the list of the schema

    with pytest.raises(FormatError, match="claims more than it holds"):
        read(with_footer(whole, footer[:3] + b"\xfc" + HUGE + footer[4:]))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no whole Parquet file"),
        (b"PAR1", "no whole Parquet file"),
        (b"PAR1\xff\xff\xff\x7fPAR1", "no whole Parquet file"),
        (b"PAR1\x01\0\0\0PAR1", "no whole Parquet file"),
        (b"PAR1\0\x01\0\0\0PAR1", "has no schema"),
        (b"PAR1" + b"\x1c" * 40 + (40).to_bytes(4, "little") + b"PAR1", "nested too deep"),
    ],
)
def test_what_is_none_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        read(content)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.99])
def test_a_file_that_is_cut_is_no_whole_one(whole: bytes, part: float) -> None:
    with pytest.raises(FormatError, match="no whole Parquet file"):
        read(whole[: int(len(whole) * part)])


def test_an_error_says_where(whole: bytes) -> None:
    """The header of the first page is overwritten."""
    with pytest.raises(FormatError) as error:
        read(whole[:4] + b"\xff" * 12 + whole[16:])

    assert 4 <= error.value.offset < 20


def test_a_damaged_page_costs_the_columns_and_the_part_that_it_is_of() -> None:
    """Pages are looked at when they are read: what is said of a part says where they lie."""
    content, frame = io.BytesIO(), pl.DataFrame({"a": range(300), "b": range(300)})
    frame.write_parquet(content, row_group_size=100)
    second = claims.look_at_file(content)[1]
    at = next(chunk.at for chunk in second.chunks if chunk.column == "b")
    content.getbuffer()[at : at + 4] = b"\xff" * 4

    groups = claims.look_at_file(content)

    assert parquet.read_part(content, groups[2], ["b"])["b"].to_list() == list(range(200, 300))
    assert parquet.read_part(content, groups[1], ["a"])["a"].to_list() == list(range(100, 200))
    with pytest.raises(FormatError) as error:
        parquet.read_part(content, groups[1], ["b"])
    assert at <= error.value.offset < at + 8


def test_columns_are_those_of_the_schema_whatever_a_part_calls_them(whole: bytes) -> None:
    names = [chunk.column for chunk in claims.look_at_file(io.BytesIO(whole))[0].chunks]

    assert names == ["process", "start_ns", "duration_ns", "name", "attributes", "open", "buckets"]


def test_bytes_changed_anywhere_never_end_the_process() -> None:
    """Without a look at it first, a few of 5,000 do, with polars 1.44 and with 2.1."""
    command = [sys.executable, "-m", "builders.parquet_fuzz", str(soak.seed()), str(soak.rounds(20_000, 200))]

    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True)

    assert done.returncode == 0, f"{done.stdout[-200:]}{done.stderr[-2000:]}"
    assert "read" in done.stdout and "refused" in done.stdout
