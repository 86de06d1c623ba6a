"""Options among the words of a command line: `--name`, `--name=value`, `--name value value`."""

from __future__ import annotations

import os
from typing import Any, Container, Iterable, Mapping

from ...errors import Problem
from .. import shell
from ..sources import Source, Word
from . import Reading


def commands_of(program: str, words: Iterable[Word]) -> list[list[Word]]:
    """Words of the commands that start this program, command by command."""
    commands: list[list[Word]] = [[]]
    for word in words:
        if word.text == shell.END:
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command and os.path.basename(command[0].text) == program]


def gather_options(
    words: Iterable[Word], name: str, prefix: str, names: Mapping[str, str], flags: Container[str] = ()
) -> Reading:
    """Options among the words of a source that begin with the prefix, each with the list of words behind it; of an
    option given twice the last holds. One of which something is not known is a problem, and left out. `names` has the
    key by the option as it is spelled; behind `flags`, which take no value, all belongs to others.
    """
    behind_of: dict[str, list[Word]] = {}
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
            behind = behind_of[names[option]] = [word._replace(text=value)] if equals else []
            problems += shell.list_unknown(word, name)
            lines.update({(names[option],): word.line} if word.line is not None else {})
        elif behind is not None:
            behind.append(word)
    certain: dict[str, list[str]] = {}
    for key, behind in behind_of.items():
        doubts = [problem for word in behind for problem in shell.list_unknown(word, name) if key not in flags]
        problems += doubts
        certain.update({} if doubts else {key: [word.text for word in behind]})
    spelled = {key: option for option, key in names.items()}.get
    return Reading(Source(name, certain, lines), from_text=True, spelled=spelled, problems=problems)


def one_word(behind: list[str]) -> Any:
    """The word behind an option; None where there is none, and all of them where there are several: both are wrong."""
    return behind[0] if len(behind) == 1 else behind or None
