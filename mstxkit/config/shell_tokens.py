"""The tokens of a shell script: words with their quotes taken off, operators, ends of lines; and where each stands."""

from __future__ import annotations

import re
from typing import NamedTuple

_PART = re.compile(
    r"""
      (?P<single>'[^']*(?:'|\Z))
    | (?P<double>"(?:[^"\\]|\\.)*(?:"|\Z))
    | \\\n
    | \\(?P<escaped>\S)
    | (?P<command>\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|`[^`]*`|\$\{(?:[^{}]|\{[^{}]*\})*\})
    | (?P<redirect>\d*[<>]{1,2}(?:&[\d-]+|&?[ \t]*[^\s;|&<>()]+)?)
    | (?P<operator>;;&?|;&|;|&&|\|\||\|&?|&|[()])
    | (?P<blank>\s+|\\(?=\s))
    | (?P<plain>[^\s'"\\;|&<>()$`]+|[$`])
    """,
    re.VERBOSE | re.DOTALL,
)
NEW_LINE, REDIRECT = "\n", ">"
# What was quoted: it stands for no variable and for no command.
_PLAIN_DOLLAR, _PLAIN_BACKTICK = "\ue000", "\ue001"


class Token(NamedTuple):
    """One word or operator and its line."""

    text: str
    line: int
    is_operator: bool = False
    is_bare: bool = True  # no part of the word was quoted


def tokens(text: str, line: int = 1) -> list[Token]:
    """All tokens of a script that begins in this line. What is not finished is read as far as it goes."""
    taking, position = _Taking(line), 0
    while position < len(text):
        if text[position] == "#" and not taking.parts:
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        match = _PART.match(text, position)
        if match is None:  # a lone backslash at the very end
            break
        taking.take(match)
        position = match.end()
    taking.finish()
    return taking.tokens


def plain(text: str) -> str:
    """A word's text after its variables have been replaced: what was quoted is as it was."""
    return text.replace(_PLAIN_DOLLAR, "$").replace(_PLAIN_BACKTICK, "`")


class _Taking:
    """The tokens up to here, and the word that is being put together."""

    def __init__(self, line: int) -> None:
        self.tokens: list[Token] = []
        self.parts: list[str] = []
        self.line = self.begun = line
        self.is_bare = True

    def take(self, match: re.Match[str]) -> None:
        if match["blank"] is not None:
            self.finish()
            if "\n" in match[0]:
                self.tokens.append(Token(NEW_LINE, self.line, is_operator=True))
        elif match["redirect"] is not None or match["operator"] is not None:
            self.finish()
            self.tokens.append(Token(match["operator"] or REDIRECT, self.line, is_operator=True))
        elif match[0] != "\\\n":
            self.begun = self.begun if self.parts else self.line
            self.parts.append(_unquote_match(match))
            self.is_bare = self.is_bare and (match["plain"] is not None or match["command"] is not None)
        self.line += match[0].count("\n")

    def finish(self) -> None:
        if self.parts:
            self.tokens.append(Token("".join(self.parts), self.begun, False, self.is_bare))
            self.parts, self.is_bare = [], True


def _unquote_match(match: re.Match[str]) -> str:
    if match["single"] is not None:
        return _quote_text(match[0][1:].removesuffix("'"))
    if match["double"] is not None:
        inner = match[0][1:-1] if match[0].endswith('"') and len(match[0]) > 1 else match[0][1:]
        # A continued line stays one, for its number.
        return re.sub(r'\\(\n|["\\$`])', lambda escaped: _quote_text(escaped[1]), inner)
    return _quote_text(match["escaped"]) if match["escaped"] else match[0]


def _quote_text(text: str) -> str:
    return text.replace("$", _PLAIN_DOLLAR).replace("`", _PLAIN_BACKTICK)
