"""The commands of a shell script, each with the branches of conditions that it stands in."""

from __future__ import annotations

from typing import NamedTuple

from .shell_forks import Arm, Fork
from .shell_tokens import NEW_LINE, REDIRECT, Token

_TESTS = ("[", "[[", "test")
_SKIPPED = ("{", "}", "!", "time", "do", "done", "while", "until")
_CONDITION, _SUBJECT, _PATTERN, _BODY = "condition", "subject", "pattern", "body"


class Command(NamedTuple):
    """One command: its words and redirections, the branches around it, and the variable of the loop that begins."""

    words: tuple[Token, ...]
    arms: tuple[Arm, ...] = ()
    loop: Token | None = None


class _Frame:
    """An `if` or a `case` that is open, and what of it is being read."""

    def __init__(self, fork: Fork, reading: str) -> None:
        self.fork, self.reading, self.label = fork, reading, "then"
        self.pattern: list[str] = []


def commands(tokens: list[Token], forks: list[Fork]) -> list[Command]:
    """All commands in order; `forks` gets every condition."""
    reading = _Commands(forks)
    for token in tokens:
        reading.take(token)
    reading.finish()
    return reading.found


class _Commands:
    """The commands up to here, the one that is being put together, and the conditions around it."""

    def __init__(self, forks: list[Fork]) -> None:
        self.forks = forks
        self.found: list[Command] = []
        self.words: list[Token] = []
        self.frames: list[_Frame] = []  # innermost last
        self.chain: Fork | None = None  # of `test && command || command`
        self.joint = ""  # `&&` or `||` before the command that is being put together
        self.test: tuple[str, ...] = ()  # the words of the command before that, where it was a test
        self.loop = ""  # "name": the next word is the loop's variable; "head": what follows it, up to `do`

    @property
    def reading(self) -> str:
        """What of the innermost condition is being read."""
        return self.frames[-1].reading if self.frames else _BODY

    def take(self, token: Token) -> None:
        if self.loop:
            self.head_of_loop(token)
        elif self.reading in (_SUBJECT, _PATTERN):
            self.head_of_case(token)
        elif token.is_operator:
            self.operator(token)
        elif self.words or not token.is_bare or not self.keyword(token):
            self.words.append(token)

    def head_of_loop(self, token: Token) -> None:
        """`for NAME in …; do`."""
        if self.loop == "name" and not token.is_operator:
            self.found.append(Command((), self.arms(), token))
        self.loop = "" if token.text == "do" and not token.is_operator else "head"

    def head_of_case(self, token: Token) -> None:
        """`case WORD in`, and each `PATTERN)`."""
        frame = self.frames[-1]
        if frame.reading == _SUBJECT:
            if token.text == "in" and token.is_bare:
                frame.reading = _PATTERN
            elif not token.is_operator:
                frame.fork.condition.append(token.text)
        elif token.text == "esac":
            self.frames.pop()
        elif not token.is_operator:
            frame.pattern.append(token.text)
        elif token.text == ")":
            frame.fork.arms.append(Arm(frame.fork, "|".join(frame.pattern), token.line))
            frame.reading, frame.pattern = _BODY, []

    def operator(self, token: Token) -> None:
        """A redirection stays in the command; all else ends it."""
        if token.text == REDIRECT:
            self.words.append(token)
            return
        is_going_on = token.text == NEW_LINE and bool(self.joint) and not self.words
        self.finish()
        if token.text in ("&&", "||"):
            self.join(token)
        elif token.text not in ("|", "|&", "(", ")") and not is_going_on:
            self.chain, self.joint, self.test = None, "", ()
        if token.text.startswith(";") and len(token.text) > 1 and self.frames and self.frames[-1].fork.kind == "case":
            self.frames[-1].reading = _PATTERN

    def join(self, token: Token) -> None:
        """The next command depends on the one before, where that is a test."""
        if self.chain is None and self.test:
            self.chain = self.fork("", token.line)
            self.chain.condition += self.test
        if self.chain is not None and self.joint != token.text:
            self.chain.arms.append(Arm(self.chain, token.text, token.line))
        self.joint = token.text

    def fork(self, kind: str, line: int) -> Fork:
        arms = self.arms()
        self.forks.append(Fork(kind, line, arms[-1] if arms else None))
        return self.forks[-1]

    def arms(self) -> tuple[Arm, ...]:
        """The branches around this place, from the outermost."""
        forks = [frame.fork for frame in self.frames if frame.reading == _BODY]
        forks += [] if self.chain is None else [self.chain]
        return tuple(fork.arms[-1] for fork in forks if fork.arms)

    def keyword(self, token: Token) -> bool:
        """Is it a word of the shell's own grammar? Then take it."""
        word, frame = token.text, self.frames[-1] if self.frames else None
        if word in ("if", "case"):
            self.frames.append(_Frame(self.fork(word, token.line), _CONDITION if word == "if" else _SUBJECT))
        elif word in ("for", "select"):
            self.loop = "name"
        elif frame is not None and frame.fork.kind == "if" and word in ("then", "elif", "else", "fi"):
            self.branch(frame, token)
        elif frame is not None and frame.fork.kind == "case" and word == "esac":
            self.frames.pop()
        else:
            return word in _SKIPPED
        return True

    def branch(self, frame: _Frame, token: Token) -> None:
        if token.text == "fi":
            self.frames.pop()
        elif token.text == "elif":
            frame.reading, frame.label = _CONDITION, "elif"
        else:
            label = frame.label if token.text == "then" else "else"
            frame.fork.arms.append(Arm(frame.fork, label, token.line))
            frame.reading = _BODY

    def finish(self) -> None:
        if not self.words:
            return
        arms, words = self.arms(), tuple(self.words)
        for arm in arms:
            arm.hold(words[0].line, words[-1].line)
        if self.reading == _CONDITION and not self.frames[-1].fork.arms:
            self.frames[-1].fork.condition += [word.text for word in words]
        self.found.append(Command(words, arms))
        self.test = tuple(word.text for word in words) if words[0].text in _TESTS or self.test and self.joint else ()
        self.words = []
