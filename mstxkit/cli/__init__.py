"""The command line: one module a verb in this folder, each with one function of the verb's name, or several COMMANDS.

Exit codes: 0 done, 1 found something wrong, 2 wrong use, 74 the output cannot be written. `mstxkit --help` loads no
torch and no polars.
"""

from __future__ import annotations

import errno
import functools
import importlib
import io
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from ..errors import ConfigError, MissingPackageError, MstxkitError, ReadError
from ..host import listing
from ..reading.report.escape import for_terminal
from ..store import run_file

if TYPE_CHECKING:
    import typer

DONE, FOUND_WRONG, WRONG_USE, UNWRITABLE = 0, 1, 2, 74
_BY_CLI = ("typer", "rich")  # what `mstxkit[cli]` brings
_HELP = """Mark, capture, find, read: tracing for RL post-training.

Exit codes: 0 done, 1 found something wrong, 2 wrong use, 74 the output cannot be written.
"""


def main() -> None:
    """Run the verb that the command line names."""
    capturing = sys.modules.get("mstxkit.capturing")
    if capturing is not None:  # loaded for MSTXKIT_RUN: a look at a run must not become part of it
        capturing.discard_recording()
    activation = sys.modules.get("mstxkit.bootstrap.activation")
    if activation is not None:  # loaded for MSTXKIT_AUTOPATCH: that is meant for what we run, not for us
        activation.unpatch()
    if sys.stdout is None:  # whoever called has closed it
        sys.stdout = _ClosedOutput()
    for stream in (sys.stdout, sys.stderr):
        # A name that this terminal's encoding lacks is shown escaped instead of ending the command.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt_once)
        sys.unraisablehook = _not_interrupted
    try:
        try:
            build_application(sys.argv[1] if len(sys.argv) > 1 else None)(prog_name="mstxkit")
        finally:
            sys.stdout.flush()
    except ModuleNotFoundError as exc:
        if exc.name not in _BY_CLI:
            raise
        sys.stderr.write(f"mstxkit: the command line needs {exc.name}: pip install 'mstxkit[cli]'\n")
        raise SystemExit(FOUND_WRONG) from None
    except KeyboardInterrupt:  # while modules were loaded: later typer takes it
        raise SystemExit(128 + signal.SIGINT) from None
    except OSError as exc:
        if exc.filename is not None:
            raise
        _end_without_output(exc)


class _ClosedOutput(io.StringIO):
    """A word too many is an error, as where a disk is full: who reads its status must not take it for written."""

    def write(self, text: str) -> int:
        """Never done."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _interrupt_once(*_: object) -> None:
    """Ctrl-C; a second one would interrupt what tidies up after the first."""
    # No SIG_IGN: where one is just being handled, Python says on standard error that it was "ignored".
    signal.signal(signal.SIGINT, lambda *_: None)
    raise KeyboardInterrupt


def _not_interrupted(lost: sys.UnraisableHookArgs) -> None:
    """Where Python tidies up by itself it drops an interruption, and would print it: then the next Ctrl-C counts."""
    if lost.exc_type is KeyboardInterrupt:
        signal.signal(signal.SIGINT, _interrupt_once)
    else:
        sys.__unraisablehook__(lost)


def _end_without_output(exc: OSError) -> None:
    """Who reads a pipe no longer wants no word of it; of anything else, a full disk, there is one line."""
    if isinstance(exc, BrokenPipeError):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    sys.stderr.write(f"mstxkit: the output cannot be written: {exc.strerror or exc}\n")
    os._exit(UNWRITABLE)  # what is left in the buffer would be tried again, and fail again


def find_run(run: Path) -> tuple[Path, str]:
    """The folder of a run, resolved, and the run's id. Raises: ReadError where it is none, or a damaged one without an
    id.
    """
    folder = run.resolve()
    run_id = run_file.id_of(folder)
    if run_id is None:
        raise ReadError(run_file.why_none(run))
    return folder, run_id


def list_verbs() -> list[str]:
    """All verbs, by listing this folder."""
    return listing.modules_in(__path__)


def build_application(word: str | None = None) -> typer.Typer:
    """The typer application with every verb; with that one alone if `word` names one: the others take 0.1 s to load."""
    import typer

    from ._help import VerbCommand, VerbsInOrder, take_options

    # As wide as the terminal is: typer's own limit is 80 columns.
    settings: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": sys.maxsize}
    app = typer.Typer(
        help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, cls=VerbsInOrder,
        context_settings=settings,
    )  # fmt: skip
    app.callback()(take_options)
    every = list_verbs()
    for verb in [verb for verb in every if _name_command(verb) == word] or every:
        module = importlib.import_module(f"{__name__}.{verb}")
        if hasattr(module, "COMMANDS"):
            summary = (module.__doc__ or "").partition("\n")[0].partition(": ")[2]
            group = typer.Typer(help=summary, no_args_is_help=True)  # of several commands: `mstxkit config show`
            for command in module.COMMANDS:
                group.command(command.__name__, cls=VerbCommand)(_with_plain_errors(command))
            app.add_typer(group, name=_name_command(verb))
            continue
        own = getattr(module, "CONTEXT_SETTINGS", None)
        function = _with_plain_errors(getattr(module, verb))
        app.command(_name_command(verb), cls=VerbCommand, context_settings=own)(function)
    return app


def _name_command(verb: str) -> str:
    return verb.rstrip("_").replace("_", "-")  # `import_`: a verb that is a keyword of Python


def _with_plain_errors(verb: Callable[..., None]) -> Callable[..., None]:
    """Errors that mstxkit raises on purpose, and those of files, end a command with their message and no traceback."""

    @functools.wraps(verb)
    def run(*args: Any, **kwargs: Any) -> None:
        import typer

        try:
            verb(*args, **kwargs)
        except BrokenPipeError as exc:
            _end_without_output(exc)
        except (MstxkitError, OSError, ModuleNotFoundError) as exc:
            if isinstance(exc, OSError) and exc.filename is None:
                raise  # of standard output: `main` says it
            if isinstance(exc, ModuleNotFoundError):
                # Of a package that an extra brings; what else is not found is a fault, with all that Python says of it.
                name = (exc.name or "").partition(".")[0]
                if name not in MissingPackageError.EXTRAS:
                    raise exc
                exc = MissingPackageError(name)
            message = "\n".join(map(for_terminal, str(exc).splitlines()))
            typer.echo(f"mstxkit: {message}", err=True)
            # About what the user typed, a run that cannot be read, say; or nothing was found as nothing was looked for.
            is_wrong_use = isinstance(exc, (ReadError, MissingPackageError))
            is_wrong_use |= isinstance(exc, ConfigError) and bool(exc.problems)
            raise typer.Exit(WRONG_USE if is_wrong_use else FOUND_WRONG) from None

    return run
