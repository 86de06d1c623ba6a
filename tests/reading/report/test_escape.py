"""No text of a trace reaches a terminal, rich's markup, a spreadsheet or JSON as anything but text."""

from __future__ import annotations

import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstxkit.reading.report.escape import for_json, for_rich, for_terminal

any_text = st.text(st.characters(exclude_categories=()))


@given(any_text)
def test_nothing_invisible_is_left_for_a_terminal(text: str) -> None:
    shown = for_terminal(text)

    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    shown.encode()


def test_what_is_visible_stays() -> None:
    assert for_terminal("rerank 重排 é €") == "rerank 重排 é €"


def test_control_sequences_are_shown_as_escapes() -> None:
    assert for_terminal("\x1b[31mred\r\n\x9b\u202e\ud800") == "\\x1b[31mred\\x0d\\x0a\\x9b\\u202e\\ud800"


def test_long_texts_are_cut_before_they_are_escaped() -> None:
    assert for_terminal("abcdef", 4) == "abc…"


@pytest.mark.parametrize("text", ["[red]x[/red]", "[/]", "a\\", "\\[b]", "[link=http://x]y[/link]"])
def test_rich_shows_markup_as_it_stands(text: str) -> None:
    console = pytest.importorskip("rich.console").Console(file=io.StringIO(), width=80)

    console.print(for_rich(text, style="bold"))

    assert console.file.getvalue() == text + "\n"


@given(any_text)
def test_json_reads_back_and_holds_nothing_invisible(text: str) -> None:
    written = for_json(text)

    assert json.loads(written) == text
    assert not any(unicodedata.category(c) in ("Cf", "Cs", "Zl", "Zp") for c in written)
    written.encode()


@pytest.mark.parametrize("text", ["更新 🚀 é €", "a\u3000b", "更\n新", "е\u0301\u202eр"])
def test_json_has_what_is_visible_as_it_is(text: str) -> None:
    """Perfetto shows an escape of Chrome's JSON as it stands there."""
    visible = [c for c in text if unicodedata.category(c) not in ("Cc", "Cf")]

    assert all(c in for_json(text) for c in visible)
