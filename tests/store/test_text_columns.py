"""Texts as columns: both engines make the same, they read back as they were, and what is no columns is refused."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from builders import lives
from hypothesis import given
from hypothesis import strategies as st

import mstxkit
from mstxkit.engine.choose import engine
from mstxkit.errors import FormatError
from mstxkit.store import livefile, text_columns

payloads = st.one_of(
    st.binary(max_size=40), st.integers(0, 99).map(lambda n: f"request {n}".encode()),
    st.integers(0, 9).map(lambda n: b"x" * 400 + bytes([n])),
)  # fmt: skip
entries = st.lists(st.tuples(st.integers(0, 255), st.integers(0, 0xFFFFFFFF), payloads), max_size=30)


def lying(some: list[Any], salt: int = 0) -> bytes:
    """As they lie in a bank: the first at the end."""
    return b"".join(reversed([livefile.pack_text(kind, number, payload, salt) for kind, number, payload in some]))


@given(entries, st.integers(0, 1 << 40))
def test_texts_read_back_as_they_lay_but_for_their_checksums(some: list[Any], salt: int) -> None:
    texts = livefile.without_checksums(lying(some, salt))
    columns = text_columns.to_columns(texts)
    known = [entry for entry in some if entry[0] in (livefile.STAGE, livefile.TEXT)]

    assert columns is not None
    assert text_columns.read_texts(text_columns.seal_texts(texts, columns)) == texts
    assert livefile.read_texts(texts, None)[0] == livefile.read_texts(lying(some, salt), salt)[0] or not known
    assert text_columns.read_texts(text_columns.seal_texts(texts, None)) == texts


@pytest.mark.skipif(not engine.NATIVE, reason="there is no C engine here")
@given(entries, st.binary(max_size=40), st.integers(0, 200))
def test_both_engines_make_the_same(some: list[Any], odd: bytes, at: int) -> None:
    hot = import_module("mstxkit.engine.native.hot")
    whole = livefile.without_checksums(lying(some, 5))
    damaged = bytearray(whole)
    if damaged:
        damaged[at % len(damaged)] ^= 1

    for texts in (whole, odd + whole, bytes(damaged), odd, lying(some, 5)):
        assert hot.text_columns(texts) == text_columns.to_columns(texts)


@given(entries, st.data())
def test_what_is_no_columns_is_refused(some: list[Any], data: Any) -> None:
    """Or gives texts of that length, where a damage makes other columns of them."""
    texts = livefile.without_checksums(lying(some))
    stored = bytearray(text_columns.seal_texts(texts, text_columns.to_columns(texts)))
    for _ in range(data.draw(st.integers(1, 3))):
        stored[data.draw(st.integers(0, len(stored) - 17))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(stored) - 16))

    for one in (bytes(stored), bytes(stored[cut:])):
        try:
            found = text_columns.read_texts(one)
        except FormatError:
            continue
        assert len(found) == len(texts)


@pytest.mark.parametrize("size", [1 << 28, 0xFFFFFFFF, 1])
def test_nothing_is_made_of_columns_that_say_that_they_are_longer_than_any_bank(size: int) -> None:
    texts = livefile.without_checksums(lying([(livefile.TEXT, 1, b"text")]))
    columns = text_columns.to_columns(texts)
    assert columns is not None

    with pytest.raises(FormatError):
        text_columns.read_texts(columns + livefile.TRAILER.pack(size, text_columns.MARK, 0, 0, 0))


def test_names_and_texts_of_their_own_read_back_from_a_sealed_run(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    count = 2 * text_columns.FROM_BYTES // 32
    lives.run(
        f"""
        import sys, mstxkit
        with mstxkit.capture(sys.argv[1], budget_ratio=0), mstxkit.stage("reward"):
            for number in range({count}):
                with mstxkit.mstx_range(f"request {{number}}", text=f"{{number}} is \u00e4 text", same="same"):
                    pass
        """,
        tmp_path / "run",
    )

    run = mstxkit.open_run(tmp_path / "run")
    rows = run.ranges(attributes=["text", "same"])
    rows = rows.filter(rows["name"] != "reward")
    assert rows["name"].to_list() == [f"request {number}" for number in range(count)]
    assert rows["text"].to_list() == [f"{number} is \u00e4 text" for number in range(count)]
    assert set(rows["same"].to_list()) == {"same"} and set(rows["stage"].to_list()) == {"reward"}
    assert run.damage == []
