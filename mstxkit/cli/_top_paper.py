"""What a picture of `mstxkit top` is drawn on, and its smallest parts: a line, a column, a count."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.text import Text


class Paper(NamedTuple):
    """A terminal, or a pipe, and whose job is drawn."""

    columns: int
    rows: int
    is_ascii: bool  # can it show nothing else?
    run: str  # the run's name
    folder: str  # the run's folder, as it was given

    @property
    def dot(self) -> str:
        """Between two things on a line."""
        return " - " if self.is_ascii else " · "


def line_of(text: str = "", style: str = "") -> Text:
    """A line of the picture; nothing in it is read as markup."""
    from rich.text import Text

    return Text(text, style, no_wrap=True)


def fitted(text: str, columns: int) -> str:
    """As wide as that: cut, or filled up. Wide characters count twice."""
    line = line_of(text)
    line.truncate(columns, overflow="ellipsis", pad=True)
    return line.plain
