"""A shell script read without running it: the words of its commands, what it assigns, and their lines.

Quotes, comments, continued lines, conditions and variables are understood, as far as launch scripts use them. Variables
that the script does not set are this environment's. What a command would yield (`$(...)`) stays as it is written. A
word of which something is not known is in doubt and says why: whoever takes a meaning from it asks `require_text` or
`list_unknown` first.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Iterable, Mapping, NamedTuple

from ..errors import ConfigError, Problem
from .shell_commands import BranchChoice, Command, Doubt, Token, commands_in, plain_text, tokens_in

# Stands between the words of two commands.
END = ";"
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_DECLARING = ("export", "readonly", "local", "declare", "typeset")
_WHOLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_EXPANSION = re.compile(
    r"""\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?:(?P<how>:?[-=+?])(?P<other>(?:[^{}]|\{[^{}]*\})*))?\}
    |(?P<command>\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))|(?P<odd>\{[^}]*\}|[0-9@*\#?!$-]))|`(?P<old>[^`]*)`""",
    re.VERBOSE | re.DOTALL,
)


class Word(NamedTuple):
    """One word of a command line or one variable's text, unquoted, its line, and what is not known of it."""

    text: str
    line: int | None = None
    doubts: tuple[Doubt, ...] = ()


def split_commands(
    text: str, chosen: Iterable[BranchChoice] = (), environment: Mapping[str, str] | None = None, line: int = 1
) -> tuple[list[Word], dict[str, Word]]:
    """Words of all commands, in order, `END` between two, and the variables that are assigned before or with them.
    Raises: ConfigError where a chosen line is in no branch.
    """
    reading = _Script(os.environ if environment is None else environment)
    for command in commands_in(text, line, chosen):
        reading.take(command)
    return reading.words, reading.variables


def list_unknown(word: Word, name: str) -> list[Problem]:
    """All that is not known of a word of this source."""
    return [Problem(name, doubt.line, doubt.key, None, doubt.why) for doubt in word.doubts]


def require_text(word: Word, name: str) -> str:
    """A word's text. Raises: ConfigError with all that is not known of it."""
    if word.doubts:
        raise ConfigError.of(list_unknown(word, name))
    return word.text


@dataclass
class _Script:
    """The words and variables up to here."""

    environment: Mapping[str, str]
    words: list[Word] = field(default_factory=list)
    variables: dict[str, Word] = field(default_factory=dict)

    def take(self, command: Command) -> None:
        doubts = tuple(arm.fork.doubt for arm in command.arms if arm.is_chosen is None)
        if command.loop is not None:
            line, named = command.loop.line, f"${command.loop.text}"
            why = "the variable of a loop has several values: write the one that is meant"
            self.variables[command.loop.text] = Word(named, line, (Doubt(line, named, why),))
        is_beginning = True  # nothing but assignments yet
        for token in command.words:
            match = None if token.is_operator or not is_beginning else _ASSIGNED.fullmatch(token.text)
            if match is not None:
                word, before = self.expanded(match[3], token.line, doubts), self.variables.get(match[1])
                if match[2] and before is not None:  # `NAME+=more`
                    word = Word(before.text + word.text, token.line, (*before.doubts, *word.doubts))
                self.variables[match[1]] = word
            elif token.is_operator:
                is_beginning = True
            elif not (is_beginning and token.text in _DECLARING):
                self.words += [Word(END, token.line)] if is_beginning and self.words else []
                self.words += self.as_words(token, doubts)
                is_beginning = False

    def as_words(self, token: Token, doubts: tuple[Doubt, ...]) -> list[Word]:
        """A word; several where it is a variable that holds arguments, as in `torchrun train.py $PROFILE_ARGS`."""
        whole = _WHOLE.fullmatch(token.text)
        name = (whole[1] or whole[2]) if whole and token.is_bare else ""
        held = self.variables.get(name) or (Word(self.environment[name]) if name in self.environment else None)
        if not name or held is None:
            return [self.expanded(token.text, token.line, doubts)]
        parts = [part for part in tokens_in(held.text, held.line or token.line) if not part.is_operator]
        return [Word(plain_text(part.text), part.line, (*doubts, *held.doubts)) for part in parts]

    def expanded(self, text: str, line: int, doubts: tuple[Doubt, ...] = ()) -> Word:
        whole = list(doubts)

        def value(match: re.Match[str]) -> str:
            word = self.value(match, line)
            whole.extend(word.doubts)
            return word.text

        return Word(plain_text(_EXPANSION.sub(value, text)), line, tuple(whole))

    def value(self, match: re.Match[str], line: int) -> Word:
        name, how = match["name"] or match["braced"], match["how"] or ""
        if name is None:
            why = "mstxkit does not work this out: write its value instead, or set a plain variable"
            if match["command"] is not None or match["old"] is not None:
                why = "what this command yields is known only when it runs: write its value instead"
            elif match[0][1:] in "0123456789@*#":
                why = "an argument of the script is not known before it runs: write its value instead"
            return Word(match[0], line, (Doubt(line, match[0], why),))
        held = self.variables.get(name) or (Word(self.environment[name], line) if name in self.environment else None)
        is_there = held is not None and (bool(held.text) or ":" not in how)
        if how.endswith("+"):
            return self.expanded(match["other"], line) if is_there else Word("", line)
        if held is not None and (is_there or not how.endswith(("-", "="))):
            return held
        if how.endswith(("-", "=")):
            return self.expanded(match["other"], line)
        why = (
            "this variable is set neither in the file nor in this environment: set it for mstxkit, as in "
            f"`{name}=… mstxkit config show …`, or write its value into the file"
        )
        return Word(match[0], line, (Doubt(line, match[0], why),))
