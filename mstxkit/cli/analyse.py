"""`mstxkit analyse RUN`: parse the raw NPU profiles of a run, in processes of their own, apart from training."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Optional

import typer

from . import FOUND_WRONG, _parsing, _run_folder, _show

_EXPORT_HELP = "What torch_npu writes.  [default: what each profile was recorded for]"
_REQUEST_HELP = "Only what this request recorded; the beginning of its id is enough."
_JOBS_HELP = "Profiles at a time.  [default: half the processors, at most 4]"
_LIMIT_HELP = "Seconds for one profile.  [default: as long as it takes]"


class Export(str, Enum):
    """What a parse writes."""

    TEXT = "text"
    DB = "db"
    BOTH = "both"


class Again(str, Enum):
    """What is parsed once more."""

    FAILED = "failed"
    ALL = "all"


def analyse(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    stage: Optional[list[str]] = typer.Option(None, "--stage", help="Only this stage; may be repeated."),
    rank: Optional[list[int]] = typer.Option(None, "--rank", min=0, help="Only this rank; may be repeated."),
    request: Optional[str] = typer.Option(None, "--request", help=_REQUEST_HELP),
    again: Optional[Again] = typer.Option(None, "--again", help="Once more: what failed, or all."),
    export: Optional[Export] = typer.Option(None, "--export", help=_EXPORT_HELP),
    jobs: Optional[int] = typer.Option(None, "--jobs", min=1, help=_JOBS_HELP),
    time_limit: Optional[float] = typer.Option(None, "--time-limit", min=0.1, help=_LIMIT_HELP),
    unfinished: bool = typer.Option(False, "--unfinished", help="Also what another host may still be recording."),
    json: bool = typer.Option(False, "--json", help="The table as JSON."),
) -> None:
    """Parse raw NPU profiles, apart from training.

    Run it again to go on where it was stopped: what is parsed is left as it is. Ends with 1 if one failed, or what
    parses is missing.

    Example: mstxkit analyse runs/exp7 --stage actor_update --rank 0
    """
    _run_folder.folder_of(run)
    wanted = _parsing.Wanted(tuple(stage or ()), tuple(rank or ()), request, again.value if again else None)
    words = {None: "", Export.BOTH: "text,db"}.get(export, export.value if export else "")
    done = _parsing.analysed(run, wanted, _parsing.plan_of(jobs, time_limit, words), unfinished, quiet=json)
    _show.as_json(_parsing.as_json(run, done)) if json else _parsing.show(run, done)
    raise typer.Exit(FOUND_WRONG if done.is_wrong else 0)
