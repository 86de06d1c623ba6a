"""Options among the words of a command line: `--name`, `--name=value`, `--name value value`."""

from __future__ import annotations

import os
from typing import Any, Container, Iterable, Mapping

from ...errors import Problem
from .. import shell
from ..sources import Source, Word


def commands_of(program: str, words: Iterable[Word]) -> list[list[Word]]:
    """Words of the commands that start this program, command by command."""
    commands: list[list[Word]] = [[]]
    for word in words:
        if word.text == shell.END:
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command and os.path.basename(command[0].text) == program]


def section_of_words(
    words: Iterable[Word], name: str, prefix: str, names: Mapping[str, str], flags: Container[str] = ()
) -> tuple[Source, list[Problem]]:
    """Options among the words of a source that begin with the prefix, each with the list of words behind it; of an
    option given twice the last holds. One of which something is not known is a problem, and left out. `names` has the
    key by the option as it is spelled; behind `flags`, which take no value, all belongs to others.
    """
    values: dict[str, list[Word]] = {}
    lines: dict[tuple[str | int, ...], int] = {}
    problems: list[Problem] = []
    behind: list[Word] | None = None
    for word in words:
        option, equals, value = word.text.partition("=")
        if word.text == shell.END or word.text.startswith("--"):
            behind = None
        if option == prefix or (option.startswith(prefix) and (prefix == "--" or option[len(prefix) :][:1] in "-_")):
            if option not in names:
                problems.append(Problem(name, word.line, option, None, "unknown option", tuple(names)))
                continue
            behind = values[names[option]] = [word._replace(text=value)] if equals else []
            problems += shell.list_unknown(word, name)
            lines.update({(names[option],): word.line} if word.line is not None else {})
        elif behind is not None:
            behind.append(word)
    certain: dict[str, list[str]] = {}
    for key, words_behind in values.items():
        doubts = (
            [] if key in flags else [problem for word in words_behind for problem in shell.list_unknown(word, name)]
        )
        problems += doubts
        certain.update({} if doubts else {key: [word.text for word in words_behind]})
    return Source(name, certain, lines), problems


def one_word(behind: list[str]) -> Any:
    """The word behind an option; None where there is none, and all of them where there are several: both are wrong."""
    return behind[0] if len(behind) == 1 else behind or None
