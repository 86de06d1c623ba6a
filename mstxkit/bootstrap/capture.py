"""`capture`: record this process, and arrange it for the processes that it starts and for the workers of a Ray job.

It is configuring: what it is told wrongly raises `CaptureError`. Everything after that only counts faults.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from .. import faults
from ..errors import CaptureError, ConfigError, MstxkitError
from ..host import environment, identity, imports, interpreters, launch
from ..host.slow_folder import BEGINS_WITHIN_S, SlowFolder
from ..store import run_file

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..store.arguments import CaptureSettings

# The run that is named from outside of this program: by `mstxkit run`, or by who has set MSTXKIT_RUN.
_named_outside: list[str] = []
# The same in each capture of this process.
_job = f"{launch.DRAWN}{os.urandom(4).hex()}"


class Capture:
    """A running capture. A context manager; `stop` may be called more than once. `capture` makes it.

    Args:
        run: The run folder; None with MSTXKIT_OFF=1 and in a sub-interpreter.
        joins: Did this process record into it already? Then the end of a `with` leaves that to whoever began it.

    Example:
        >>> import mstxkit
        >>> running = mstxkit.capture("runs/exp7")
        >>> running.run.name
        'exp7'
        >>> running.stop()
    """

    def __init__(self, run: Path | None, joins: bool = False) -> None:
        self.run, self._joins = run, joins

    def stop(self) -> None:
        """Stop recording in this process, whoever began it, and seal what it has. Its children go on by themselves."""
        self._stop(None)

    def _stop(self, exc: BaseException | None) -> None:
        if self.run is not None:
            from .. import capturing

            capturing.stop_recording(self.run, exc)

    def __enter__(self) -> Capture:
        if self.run is not None:
            from .. import capturing

            if not capturing.records_into(self.run):
                faults.say_once(f"{self} has ended, so nothing is recorded in this block: call capture() anew")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._joins:
            self._stop(exc)

    def __repr__(self) -> str:
        return f"Capture({str(self.run)!r})"


def capture(
    run: str | os.PathLike[str] | None = None, *, config: Any = None, **overrides: Unpack[CaptureSettings]
) -> Capture:
    """Start the always-on recorder in this process, and by way of MSTXKIT_RUN in the children it starts from now on.

    Args:
        run: The run folder; made if it is missing. Default, also for "": MSTXKIT_RUN, else in the folder that the
            configuration names for its data, else `mstxkit-runs/<time>` here, of torchrun's start for its ranks.
        config: A file, a dict or a `Config` of any system: its windows become requests, which begin at their steps.
            Default: the file that MSTXKIT_CONFIG names. Also a dict of limits by name, as in `overrides`.
        overrides: Limits and settings, each also as MSTXKIT_<NAME> in the environment; `docs/guide/settings.md` has
            all, with their defaults. `act="escalate"`: verdicts may ask for profiles, and not only say who makes the
            others wait. `rings=True`: torch's rings of collectives are on, by which late ranks are found behind
            barriers; before the process group is made. `hang_s=30`: so long a range may stay open without progress at
            least before it is a hang; 0: nobody watches.

    Raises:
        CaptureError: the folder or a limit cannot be used, or this process captures into another run already.
        ConfigError: the configuration is wrong, or names what no session of mstxkit's can record.

    Where this process records already, as by `mstxkit run` or an MSTXKIT_RUN that it was started with, this joins that
    run, whatever folder is named here, and raises nothing for it: it is logged. The end of a `with` stops nothing then,
    and limits stay as they are, which is logged where others are asked for here.

    Cost: once, 4 ms of CPU, 40 where nothing of it was imported yet (`benchmarks --only footprint`); a thread of ours
        then faults the live file's pages in.

    Example:
        >>> import mstxkit
        >>> with mstxkit.capture("runs/exp7", seal_every_s=5) as capture:
        ...     with mstxkit.stage("reward"):
        ...         pass
        >>> capture.run.name
        'exp7'
    """
    if environment.is_off():
        return Capture(None)
    if not interpreters.is_main():
        faults.warn_once("capture in a sub-interpreter", "a sub-interpreter is not recorded: the main interpreter is")
        return Capture(None)
    if run not in (None, "") and _named_outside and os.environ.get(environment.RUN):
        return _join_run(run, config, overrides)
    from .. import capturing
    from . import settings

    base, configured = _read_configuration(config)
    asked = _asked_folder(run, "" if configured is None else configured.path)
    limits, of_requests = settings.resolve_settings(base, overrides)
    folder, slow = _resolve_run(asked, limits)
    if capturing.records_into(folder):
        _tell_of_what_stays({**base, **overrides}, {**limits._asdict(), **of_requests._asdict()})
        if configured is not None:
            configured.leave_in(folder)
            capturing.expect_plans()
        return Capture(folder, joins=True)
    job = os.environ.get(environment.JOB) or _job
    own = {environment.RUN: str(folder), environment.JOB: job, **settings.as_variables(base, overrides)}
    if of_requests.rings:
        from ..recorder import torch_rings

        own.update(torch_rings.pick_variables(of_requests.rings, os.environ))
    if slow is not None:
        capturing.start_late(slow, of_requests, own)
        planned = "" if configured is None else "; nothing is planned by this configuration"
        faults.say_once(
            f"{folder} has not answered for {BEGINS_WITHIN_S:g} s: the program goes on, and is recorded once it "
            f"does{planned}"
        )
        return Capture(folder)
    own[environment.RUN_ID] = run_file.likely_id(asked)
    if configured is not None:
        run_file.open_run_folder(folder, own[environment.RUN_ID])
        configured.leave_in(folder)
        own.update(configured.variables(overrides))
    if capturing.start_recording(folder, limits, of_requests, own):
        _tell_of_twin()
        capturing.when_stopped[:] = [_leave_ray]
        imports.when_imported("ray", _reach_workers)
    return Capture(folder)


def _reach_workers(_: ModuleType) -> None:
    """Those of a Ray job are no children of this process: `ray.init` reaches them."""
    from . import ray_job

    for note in ray_job.arrange_ray("capture"):
        faults.warn_once("capture and Ray", note)


def _leave_ray() -> None:
    imports.forget_hook("ray", _reach_workers)
    if (ray_job := sys.modules.get(f"{__package__}.ray_job")) is not None:
        ray_job.restore_ray("capture")


def _join_run(run: Any, config: Any, overrides: CaptureSettings) -> Capture:
    """The run that is there, and not the one that is named here. A program that works without us goes on."""
    from . import settings

    there = os.environ[environment.RUN]
    settings.resolve_settings({}, overrides)  # what is wrong with these is wrong anywhere
    try:
        if os.path.realpath(there) != os.path.realpath(run):
            named = "`mstxkit run` or MSTXKIT_RUN"
            faults.say_once(f"capture({os.fspath(run)!r}) joins the run that {named} names: {there}")
        return capture(config=config, **overrides)
    except (CaptureError, TypeError, ValueError) as exc:
        faults.warn_once("capture", f"nothing is recorded: {exc}")
        return Capture(None)


def _tell_of_what_stays(asked: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Say which limits are not taken, by a process that records already by others."""
    from .. import capturing

    stay = {name: value for name, value in capturing.in_force().items() if name in asked and value != wanted[name]}
    for name, value in sorted(stay.items()):
        faults.say_once(
            f"capture({name}={asked[name]!r}) comes too late: this process records already, by {name}={value!r}; "
            f"set MSTXKIT_{name.upper()} for `mstxkit run`, or say it in the first capture()"
        )


def _tell_of_twin() -> None:
    """Say that ranges cost a hundred times as much here, and how not; quietly, where that was asked for."""
    from ..engine import choose

    why = choose.why_twin()
    if why is not None:
        is_asked_for = os.environ.get(choose.VARIABLE) == "0"
        faults.say_once(f"recording on the Python twin, a range costs a hundred times as much: {why}", is_asked_for)


def _read_configuration(config: Any) -> tuple[dict[str, Any], Any]:
    """Settings, and the `Configured` that they are from; none where no configuration of any system is given."""
    from . import settings

    if isinstance(config, dict) and set(config) <= set(settings.DEFAULTS):
        return config, None
    if isinstance(config, (list, tuple)):
        raise CaptureError(f"config={config!r} (of capture): a file, a dict or a Config is needed")
    source = os.environ.get("MSTXKIT_CONFIG") if config is None else config
    if not source or (config is None and os.environ.get("MSTXKIT_PLANNED")):  # by whoever started this process
        return {}, None
    from .configured import configure_from

    ready = configure_from(source)
    return ready.settings, ready


def _asked_folder(run: str | os.PathLike[str] | None, path: str) -> str | os.PathLike[str]:
    named = os.environ.get(environment.RUN) if run is None or run == "" else run
    if named is not None and named != "":
        return named
    folder = Path(path or "mstxkit-runs") / time.strftime("%Y%m%d-%H%M%S", time.localtime(identity.launched_s()))
    if identity.has_others():
        faults.say_once(
            f"no run was named: others of this job may not record into {folder}; name one, by capture('runs/exp7')"
        )
    return folder


def _resolve_run(run: str | os.PathLike[str], limits: Any) -> tuple[Path, SlowFolder | None]:
    """The folder, and what waits for it where it has not answered."""
    from .. import capturing

    try:
        slow = None if capturing.is_begun() else SlowFolder(run, limits)
        if slow is not None and not slow.answers(BEGINS_WITHIN_S):
            return Path(os.path.abspath(run)), slow
        if capturing.is_begun(late=True):
            return Path(os.path.abspath(run)), None
        os.access(run, os.F_OK)  # a null byte is an error to it on Python 3.9 too
        return Path(os.path.realpath(run)), None
    except (TypeError, ValueError) as exc:
        raise CaptureError(f"run={run!r} (of capture or {environment.RUN}) is no path: {exc}") from exc


def start_from_environment() -> None:
    """Capture into MSTXKIT_RUN, if it is set. Never raises: a bad folder is logged, and the program runs unrecorded."""
    if not os.environ.get(environment.RUN) or environment.is_off():
        return
    _named_outside[:] = [os.environ[environment.RUN]]
    try:
        try:
            capture()
        except ConfigError as exc:
            if not os.environ.get("MSTXKIT_CONFIG"):
                raise
            faults.warn_once("MSTXKIT_CONFIG", f"nothing is planned: {exc}")
            capture(config={})
    except MstxkitError as exc:
        faults.warn_once("capture from the environment", f"nothing is recorded: {exc}")
    except Exception as exc:
        faults.note_fault("capture from the environment", exc)
