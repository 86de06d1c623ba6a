"""Text that somebody else chose, made safe to show: a name in a trace must not drive a terminal or a spreadsheet."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

# Control, format (bidirectional overrides, zero-width), surrogate, private use, line and paragraph separators.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
# Characters of a name, and of a sentence that somebody else wrote.
NAME_LIMIT, SENTENCE_LIMIT = 48, 400


def for_terminal(text: str, limit: int | None = None) -> str:
    """`text` with everything that is not a visible character written as an escape, cut to `limit` characters.

    It still holds what rich reads as markup: give rich `for_rich` instead, or append it to a `rich.text.Text`.
    """
    if limit is not None and len(text) > limit:
        text = text[: max(limit - 1, 0)] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(_show_character(char) for char in text)


def escape_name(name: str | None) -> str:
    """A name from a trace, safe and not too long."""
    return "" if name is None else for_terminal(name, NAME_LIMIT)


def _show_character(char: str) -> str:
    if unicodedata.category(char) not in _HIDDEN:
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def for_rich(text: str, limit: int | None = None, style: str = "") -> Text:
    """The same as a rich text, in which no markup is read."""
    from rich.text import Text

    return Text(for_terminal(text, limit), style)


def for_json(text: str) -> str:
    """A JSON string in UTF-8; what is not a visible character is an escape. Perfetto shows escapes as they stand."""
    if text.isprintable():
        return json.dumps(text, ensure_ascii=False)
    inner = (json.dumps(char, ensure_ascii=unicodedata.category(char) in _HIDDEN)[1:-1] for char in text)
    return f'"{"".join(inner)}"'
