"""`mstxkit run -- CMD …`: capture and patch whatever CMD starts, with no edit of its code."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Optional

import typer

from ..bootstrap.activation import EVERY, VARIABLE
from ..bootstrap.pth import UNREACHED
from ..errors import MstxkitError
from ..host import environment
from ..host.slow_folder import BEGINS_WITHIN_S, SlowFolder
from ..marking.ranges import is_off
from ..store import documents, layout, run_file, sealed_place
from . import _requests, _show
from ._checks import problem_with

if TYPE_CHECKING:
    from ..bootstrap.configured import Configured

# The first word that is no option of ours begins CMD, whose options are its own: `--` may be left out.
CONTEXT_SETTINGS = {"allow_interspersed_args": False}
NOT_EXECUTABLE, NOT_FOUND = 126, 127
_SCRIPT = "; a script needs its interpreter before it, python or bash say"
FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
# A terminal sends its signals (Ctrl-C) to the whole process group, so that CMD has had them: sent by the kernel.
_BY_KERNEL = 0x80
# What Python ignores, and a program does not expect to find ignored.
_PUT_BACK = [signal.SIGPIPE, signal.SIGXFSZ]
# How long what was begun may live on after the command; what stays seals itself, or is collected by whoever comes next.
_STRAGGLE_S, _LOOKS_EVERY_S = 2.0, 0.5
_RUN_HELP = "The run's folder. Default: MSTXKIT_RUN, else mstxkit-runs/<time> here."
_PATCH_HELP = (
    "Frameworks to patch: import roots, name+extra, .yaml files, all, none. Default: MSTXKIT_AUTOPATCH, else all."
)
_CONFIG_HELP = (
    "A configuration of any system (mstxkit config --help): its windows are recorded. Default: MSTXKIT_CONFIG."
)
_PROCESS = re.compile(r"(.+-\d+-[0-9a-f]+)\.")


def run(
    command: list[str] = typer.Argument(..., metavar="CMD", help="The command, after --.", show_default=False),
    run: Optional[str] = typer.Option(None, "--run", metavar="PATH", help=_RUN_HELP),
    config: Optional[Path] = typer.Option(None, "--config", metavar="FILE", help=_CONFIG_HELP),
    autopatch: Optional[str] = typer.Option(None, "--autopatch", metavar="NAMES", help=_PATCH_HELP),
) -> None:
    """Run CMD, and record every Python process that it starts.

    Its code needs no edit. Where the run lies, and how many processes it has, is said on standard error; CMD's own
    output stays as it is. Signals are passed on, and the exit status is CMD's.

    Example: mstxkit run -- torchrun --nproc-per-node 8 train.py
    """
    asked, planned, file = _autopatch_value(autopatch), None, config or os.environ.get("MSTXKIT_CONFIG")
    if file:  # a wrong one is refused here, where somebody is there to read the message
        from ..bootstrap.configured import configure_from

        planned = configure_from(str(file))
    default = Path((planned and planned.path) or "mstxkit-runs") / time.strftime("%Y%m%d-%H%M%S")
    wanted = Path(run or os.environ.get(environment.RUN) or default)
    if not SlowFolder(wanted).answers(BEGINS_WITHIN_S):
        _show.say_line(f"{wanted} does not answer: CMD is started all the same, and recorded once it does")
        variables = {**os.environ, environment.RUN: os.path.abspath(wanted), VARIABLE: asked}
        raise typer.Exit(_run_command(command, variables))
    is_new = not os.path.lexists(wanted)
    folder = run_file.open_run_folder(wanted)[0]
    _show.say_line(f"recording into {folder}")
    variables = _left_in(folder, planned)
    before, unreached = _list_recorded(folder), folder / UNREACHED
    # Whatever becomes of the run's disk, CMD is started, and its status is ours.
    _try_work(unreached.touch)
    try:
        status = _run_command(command, {**os.environ, environment.RUN: str(folder), VARIABLE: asked, **variables})
    finally:
        was_reached = not os.path.lexists(unreached)
        _try_work(lambda: unreached.unlink(missing_ok=True))
        _try_work(lambda: _collect_run(folder))
        count = len(_list_recorded(folder) - before)
        if is_new and not count:
            run_file.remove_empty(folder)
    processes = "1 process" if count == 1 else f"{count} processes"
    how_to_read = f"{processes} recorded; read them: mstxkit report {folder}"
    _show.say_line(how_to_read if count else f"nothing was recorded: {_explain_nothing(asked, was_reached)}")
    raise typer.Exit(status)


def _left_in(folder: Path, planned: Configured | None) -> dict[str, str]:
    """Leave its requests in the run, and say so. Returns: what the command is told in its environment."""
    if planned is None:
        return {}
    planned.leave_in(folder)
    for request in planned.plan.requests:
        _show.say_line(f"planned: {_requests.write_request(request)}")
    for note in planned.plan.notes:
        _show.say_line(note)
    return planned.variables({})


def _collect_run(folder: Path) -> None:
    """Seal what ended without a word, as Ray's workers do at the end of a job. What just ends is waited for."""
    from ..recorder import adopt  # it loads the engine
    from ..store import process_pointer

    until = time.monotonic() + _STRAGGLE_S
    adopt.collect_dead(folder)
    while process_pointer.all_here(folder) and time.monotonic() < until:
        time.sleep(0.1)
        adopt.collect_dead(folder)


def _try_work(work: Callable[[], object]) -> None:
    """Do it, or say why it could not be done."""
    try:
        work()
    except (OSError, MstxkitError) as exc:
        _show.say_line(str(exc))


def _autopatch_value(option: str | None) -> str:
    """What MSTXKIT_AUTOPATCH becomes. Names are checked here, where somebody is there to read the message."""
    if option == "none":
        return ""
    asked = option or os.environ.get(VARIABLE) or EVERY
    names = [name.strip() for name in asked.split(",") if name.strip()]
    for problem in filter(None, map(problem_with, names)):
        raise typer.BadParameter(problem)
    return ",".join(os.path.abspath(name) if name.endswith((".yaml", ".yml")) else name for name in names)


def _run_command(command: list[str], environment: dict[str, str]) -> int:
    """Run it in this process group, with the signal mask that we were started with; its status as a shell has it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    try:
        pid = os.posix_spawnp(command[0], command, environment, setsigmask=mask, setsigdef=_PUT_BACK)
        code = _await_child(pid)
    except OSError as exc:
        _show.say_line(f"{command[0]}: {exc.strerror}{_SCRIPT if os.path.isfile(command[0]) else ''}")
        raise typer.Exit(NOT_FOUND if isinstance(exc, FileNotFoundError) else NOT_EXECUTABLE) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return code if code >= 0 else 128 - code


def _await_child(pid: int) -> int:
    """Pass signals on until this child ends; its exit code, or minus the signal that ended it."""
    while True:
        # Another thread of this process, one that hangs in a folder, say, takes a SIGCHLD that comes before we wait.
        received = signal.sigtimedwait(FORWARDED | {signal.SIGCHLD}, _LOOKS_EVERY_S)
        if received is not None and received.si_signo != signal.SIGCHLD:
            if received.si_code != _BY_KERNEL:
                os.kill(pid, received.si_signo)
            continue
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)


def _list_recorded(folder: Path) -> set[str]:
    """Names of the processes that have left something in the run, or are writing."""
    here = sealed_place.on_this_host(folder, run_file.id_of(folder) or "")
    names = (
        name for part in (folder / layout.LIVE, folder / layout.SEALED, *here) for name in documents.names_in(part)
    )
    return {match[1] for name in names if (match := _PROCESS.match(name))}


def _explain_nothing(asked: str, was_reached: bool) -> str:
    if is_off:
        return "MSTXKIT_OFF is set"
    if was_reached:
        return f"no process imported mstxkit{f' or what is to be patched ({asked})' if asked else ''}"
    return (
        "no Python that reads mstxkit.pth was started (an environment without mstxkit? python -S?); "
        "`python -m mstxkit doctor`, by that Python, says what it lacks"
    )
