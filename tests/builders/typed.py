"""A command as it is typed, run in this process: for tests of what it says, which need no process of its own."""

from __future__ import annotations

import contextlib
import io
from typing import NamedTuple

from mstxkit.cli import build_application


class Typed(NamedTuple):
    """How a command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def typed(*words: object) -> Typed:
    """Run `mstxkit` with these words. What typer does on its own, such as usage errors, is as in a process."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            build_application(str(words[0]))([str(word) for word in words], prog_name="mstxkit")
        except SystemExit as ended:
            code = ended.code
    return Typed(int(code or 0), out.getvalue(), err.getvalue())  # type: ignore[call-overload]
