"""The commands of a shell script, and where it decides by a condition: `if`, `case`, and `&&` or `||` behind a test.

Nothing is run, so which branch would be taken is not known. What stands in one is in doubt, until a user chooses it by
one of its lines (`--branch 4`) or rules it out (`--branch not:4`). A command is made of tokens: words with their quotes
taken off, operators, ends of lines; and where each stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Iterable, NamedTuple

from ..errors import ConfigError

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
_CHOICE = re.compile(r"(not:)?([1-9][0-9]{0,8})")
_TESTS = ("[", "[[", "test")
_SKIPPED = ("{", "}", "!", "time", "do", "done", "while", "until")
_CONDITION, _SUBJECT, _PATTERN, _BODY = "condition", "subject", "pattern", "body"


class Token(NamedTuple):
    """One word or operator and its line."""

    text: str
    line: int
    is_operator: bool = False
    is_bare: bool = True  # no part of the word was quoted


def tokens_in(text: str, line: int = 1) -> list[Token]:
    """All tokens of a script that begins in this line. What is not finished is read as far as it goes."""
    tokens: list[Token] = []
    parts: list[str] = []  # of the word that is being put together
    begun, is_bare, position = line, True, 0
    while position < len(text):
        if text[position] == "#" and not parts:
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        match = _PART.match(text, position)
        if match is None:  # a lone backslash at the very end
            break
        position = match.end()
        is_blank = match["blank"] is not None
        if is_blank or match["redirect"] is not None or match["operator"] is not None:
            tokens += [Token("".join(parts), begun, False, is_bare)] if parts else []
            parts = []
            if not is_blank or "\n" in match[0]:
                tokens.append(Token(NEW_LINE if is_blank else match["operator"] or REDIRECT, line, is_operator=True))
        elif match[0] != "\\\n":
            begun, is_bare = (begun, is_bare) if parts else (line, True)
            is_bare = is_bare and (match["plain"] is not None or match["command"] is not None)
            parts.append(_unquote_match(match))
        line += match[0].count("\n")
    return [*tokens, Token("".join(parts), begun, False, is_bare)] if parts else tokens


def plain_text(text: str) -> str:
    """A word's text after its variables have been replaced: what was quoted is as it was."""
    return text.replace(_PLAIN_DOLLAR, "$").replace(_PLAIN_BACKTICK, "`")


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


class BranchChoice(NamedTuple):
    """What a user says of the innermost branch that holds a line."""

    line: int
    is_taken: bool


def read_choices(texts: Iterable[Any]) -> tuple[BranchChoice, ...]:
    """Choices as they are spelled on a command line. Raises: ConfigError where one is no line."""
    taken = []
    for text in texts:
        match = _CHOICE.fullmatch(str(text))
        if match is None:
            what = "a line is needed: 4 for the branch that holds line 4, not:4 against it"
            raise ConfigError(f"branch {text!r}: {what}")
        taken.append(BranchChoice(int(match[2]), match[1] is None))
    return tuple(taken)


class Doubt(NamedTuple):
    """Why it is not known what a word is, or whether it is there at all."""

    line: int
    key: str
    why: str


class Arm:
    """One branch: how it begins (`then`, `else`, a pattern), its first and its last line."""

    def __init__(self, fork: Fork, label: str, line: int) -> None:
        self.fork, self.label = fork, label
        self.first = self.last = line
        self.is_empty = True
        self.is_chosen: bool | None = None


@dataclass(eq=False)
class Fork:
    """One condition, with all its branches; it stands in a branch of another, or in none."""

    kind: str
    line: int
    within: Arm | None
    condition: list[str] = field(default_factory=list)
    arms: list[Arm] = field(default_factory=list)
    reading: str = _BODY  # what of it is being read
    label: str = "then"  # label, pattern: of its next branch, an `if`'s or a `case`'s
    pattern: list[str] = field(default_factory=list)

    @property
    def has_else(self) -> bool:
        """Is one of the branches taken in any case?"""
        return any(arm.label in ("else", "*", "||") for arm in self.arms)

    @property
    def open(self) -> list[Arm]:
        """The branches of which nobody has said anything."""
        return [arm for arm in self.arms if arm.is_chosen is None]

    @cached_property
    def doubt(self) -> Doubt:
        """What to say of a word that stands in one of its branches, once all of them are read, and some are chosen."""
        begun = [f"line {arm.first} ({arm.label})" for arm in self.open]
        held = " or ".join(begun) if self.has_else else f"{', '.join(begun)} or none of it"
        choose = [f"--branch {arm.first}" for arm in self.open]
        if not self.has_else or len({arm.first for arm in self.open}) < len(self.open):
            choose = [*choose[:1], f"--branch not:{self.open[0].first}"] if len(choose) < 3 else choose
        why = f"what is configured depends on this condition: {held}; choose with {' or '.join(choose)}"
        return Doubt(self.line, plain_text(" ".join(filter(None, (self.kind, *self.condition)))), why)

    def choose(self, arm: Arm, is_taken: bool) -> None:
        """Settle it: one branch is taken and no other; or one is not, which leaves another."""
        arm.is_chosen = is_taken
        if is_taken:
            for other in (other for other in self.arms if other is not arm):
                other.is_chosen = False
        elif self.has_else and len(self.open) == 1:
            self.open[0].is_chosen = True
        if is_taken and self.within is not None:
            self.within.fork.choose(self.within, True)


class Command(NamedTuple):
    """One command: its words and redirections, the branches around it, and the variable of the loop that begins."""

    words: tuple[Token, ...]
    arms: tuple[Arm, ...] = ()
    loop: Token | None = None


def commands_in(text: str, line: int, chosen: Iterable[BranchChoice]) -> list[Command]:
    """The commands of a script that begins in this line, in order, but for those in branches that a user ruled out.
    Raises: ConfigError where no branch holds a chosen line.
    """
    reading = _Commands()
    for token in tokens_in(text, line):
        reading.take(token)
    reading.finish()
    arms = [arm for fork in reading.forks for arm in fork.arms]
    for at, is_taken in chosen:
        holding = [arm for arm in arms if arm.first <= at <= arm.last]
        if not holding:
            ranges = ", ".join(f"{arm.first} to {arm.last} ({arm.label})" for arm in arms) or "none"
            raise ConfigError(f"branch {at}: no branch holds this line; branches are in lines {ranges}")
        arm = min(holding, key=lambda arm: (arm.last - arm.first, -arm.first))
        arm.fork.choose(arm, is_taken)
    return [command for command in reading.commands if all(arm.is_chosen is not False for arm in command.arms)]


@dataclass
class _Commands:
    """The commands up to here, the one that is being put together, and the conditions around it."""

    forks: list[Fork] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    words: list[Token] = field(default_factory=list)
    around: list[Fork] = field(default_factory=list)  # each `if` and `case` that has begun, the innermost last
    chain: Fork | None = None  # of `test && command || command`
    joint: str = ""  # `&&` or `||` before the command that is being put together
    test: tuple[str, ...] = ()  # the words of the command before that, where it was a test
    loop: str = ""  # "name": the next word is the loop's variable; "head": what follows it, up to `do`

    @property
    def reading(self) -> str:
        """What of the innermost condition is being read."""
        return self.around[-1].reading if self.around else _BODY

    def take(self, token: Token) -> None:
        if self.loop:  # `for NAME in …; do`
            if self.loop == "name" and not token.is_operator:
                self.commands.append(Command((), self.arms(), token))
            self.loop = "" if token.text == "do" and not token.is_operator else "head"
        elif self.reading in (_SUBJECT, _PATTERN):
            self.head_of_case(token)
        elif token.is_operator:
            self.operator(token)
        elif self.words or not token.is_bare or not self.keyword(token):
            self.words.append(token)

    def head_of_case(self, token: Token) -> None:
        """`case WORD in`, and each `PATTERN)`."""
        fork = self.around[-1]
        if fork.reading == _SUBJECT:
            if token.text == "in" and token.is_bare:
                fork.reading = _PATTERN
            elif not token.is_operator:
                fork.condition.append(token.text)
        elif token.text == "esac":
            self.around.pop()
        elif not token.is_operator:
            fork.pattern.append(token.text)
        elif token.text == ")":
            fork.arms.append(Arm(fork, "|".join(fork.pattern), token.line))
            fork.reading, fork.pattern = _BODY, []

    def operator(self, token: Token) -> None:
        """A redirection stays in the command; all else ends it."""
        if token.text == REDIRECT:
            self.words.append(token)
            return
        is_going_on = token.text == NEW_LINE and bool(self.joint) and not self.words
        self.finish()
        if token.text in ("&&", "||"):  # the next command depends on the one before, where that is a test
            if self.chain is None and self.test:
                self.chain = self.fork("", token.line)
                self.chain.condition += self.test
            if self.chain is not None and self.joint != token.text:
                self.chain.arms.append(Arm(self.chain, token.text, token.line))
            self.joint = token.text
        elif token.text not in ("|", "|&", "(", ")") and not is_going_on:
            self.chain, self.joint, self.test = None, "", ()
        if token.text.startswith(";") and len(token.text) > 1 and self.around and self.around[-1].kind == "case":
            self.around[-1].reading = _PATTERN

    def fork(self, kind: str, line: int) -> Fork:
        arms = self.arms()
        self.forks.append(Fork(kind, line, arms[-1] if arms else None))
        return self.forks[-1]

    def arms(self) -> tuple[Arm, ...]:
        """The branches around this place, from the outermost."""
        forks = self.around if self.chain is None else [*self.around, self.chain]
        return tuple(fork.arms[-1] for fork in forks if fork.arms and fork.reading == _BODY)

    def keyword(self, token: Token) -> bool:
        """Is it a word of the shell's own grammar? Then take it."""
        word, fork = token.text, self.around[-1] if self.around else None
        kind = "" if fork is None else fork.kind
        if word in ("if", "case"):
            self.around.append(self.fork(word, token.line))
            self.around[-1].reading = _CONDITION if word == "if" else _SUBJECT
        elif word in ("for", "select"):
            self.loop = "name"
        elif (kind, word) in (("if", "fi"), ("case", "esac")):
            self.around.pop()
        elif fork is None or kind != "if" or word not in ("then", "elif", "else"):
            return word in _SKIPPED
        elif word == "elif":
            fork.reading, fork.label = _CONDITION, "elif"
        else:
            fork.arms.append(Arm(fork, fork.label if word == "then" else "else", token.line))
            fork.reading = _BODY
        return True

    def finish(self) -> None:
        if not self.words:
            return
        arms, words = self.arms(), tuple(self.words)
        for arm in arms:
            arm.first = words[0].line if arm.is_empty else arm.first
            arm.last = max(arm.last, words[-1].line)
            arm.is_empty = False
        if self.reading == _CONDITION and not self.around[-1].arms:
            self.around[-1].condition += [word.text for word in words]
        self.commands.append(Command(words, arms))
        self.test = tuple(word.text for word in words) if words[0].text in _TESTS or self.test and self.joint else ()
        self.words = []
