"""A shell script read without running it: the words of its commands, what it assigns, and their lines.

Quotes, comments, continued lines and its own variables are understood, as far as launch scripts use them. What a
command would yield (`$(...)`) stays as it is written.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PART = re.compile(
    r"""
      (?P<single>'[^']*(?:'|\Z))
    | (?P<double>"(?:[^"\\]|\\.)*(?:"|\Z))
    | \\\n
    | \\(?P<escaped>\S)
    | (?P<command>\$\([^)]*\))
    | (?P<end>\d*[<>]{1,2}(?:&[\d-]+|&?[ \t]*[^\s;|&<>()]+)?|[;|&<>()]+)
    | (?P<blank>\s+|\\(?=\s))
    | (?P<plain>[^\s'"\\;|&<>()$]+|\$)
    """,
    re.VERBOSE | re.DOTALL,
)
# Stands between the words of two commands.
END = ";"
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-([^{}]*))?\})")
_PLAIN_DOLLAR = "\ue000"  # one that was quoted: it stands for no variable


class Word(NamedTuple):
    """One word of a command line or one variable's text, unquoted, and its line."""

    text: str
    line: int | None = None


class _Piece(NamedTuple):
    text: str
    line: int
    is_first: bool  # of a command
    is_bare: bool  # no part of it was quoted


def split(text: str) -> tuple[list[Word], dict[str, Word]]:
    """Words of all commands, in order, `END` between two, and the variables that are assigned before or with them."""
    words: list[Word] = []
    variables: dict[str, Word] = {}
    is_first = True
    for piece in _pieces(text, 1):
        is_first = is_first or piece.is_first
        if is_first and _ASSIGNED.match(piece.text):
            name, _, value = piece.text.partition("=")
            variables[name] = Word(_expanded(value, variables), piece.line)
        elif piece.text != "export":
            words += [Word(END, piece.line)] if is_first and words else []
            is_first = False
            words += _as_words(piece, variables)
    return words, variables


def _as_words(piece: _Piece, variables: dict[str, Word]) -> list[Word]:
    """A word; several where it is a variable that holds arguments, as in `torchrun train.py $PROFILE_ARGS`."""
    whole = _VARIABLE.fullmatch(piece.text)
    held = variables.get(whole[1] or whole[2]) if whole and piece.is_bare else None
    if held is None or held.line is None:
        return [Word(_expanded(piece.text, variables), piece.line)]
    return [Word(part.text, part.line) for part in _pieces(held.text, held.line)]


def _expanded(text: str, variables: dict[str, Word]) -> str:
    def value(match: re.Match[str]) -> str:
        held = variables.get(match[1] or match[2])
        return held.text if held else match[0] if match[3] is None else match[3]

    return _VARIABLE.sub(value, text).replace(_PLAIN_DOLLAR, "$")


def _pieces(text: str, line: int) -> list[_Piece]:
    reading, position = _Pieces(line), 0
    while position < len(text):
        if text[position] == "#" and not reading.parts:
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        match = _PART.match(text, position)
        if match is None:  # a lone backslash at the very end
            break
        reading.take(match)
        position = match.end()
    reading.finish()
    return reading.pieces


class _Pieces:
    """The words up to here, and the one that is being put together."""

    def __init__(self, line: int) -> None:
        self.pieces: list[_Piece] = []
        self.parts: list[str] = []
        self.line = self.begun = line
        self.is_first = self.is_bare = True

    def take(self, match: re.Match[str]) -> None:
        """Go on by one part: of a word, or between two."""
        if match["blank"] is not None or match["end"] is not None:
            self.finish()
            self.is_first = self.is_first or match["end"] is not None or "\n" in match[0]
        elif match[0] != "\\\n":
            self.begun = self.begun if self.parts else self.line
            self.parts.append(_unquoted(match))
            self.is_bare = self.is_bare and match["plain"] is not None
        self.line += match[0].count("\n")

    def finish(self) -> None:
        """End the word."""
        if self.parts:
            self.pieces.append(_Piece("".join(self.parts), self.begun, self.is_first, self.is_bare))
            self.parts, self.is_bare, self.is_first = [], True, False


def _unquoted(match: re.Match[str]) -> str:
    if match["single"] is not None:
        return match[0][1:].removesuffix("'").replace("$", _PLAIN_DOLLAR)
    if match["double"] is not None:
        inner = match[0][1:-1] if match[0].endswith('"') and len(match[0]) > 1 else match[0][1:]
        # A continued line stays one, for its number.
        return re.sub(r'\\(\n|["\\$`])', lambda escaped: escaped[1].replace("$", _PLAIN_DOLLAR), inner)
    return (match["escaped"] or match[0]).replace("$", _PLAIN_DOLLAR if match["escaped"] else "$")
