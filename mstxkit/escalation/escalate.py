"""`mstxkit.escalate()`: ask for a deeper profile of a stage, from inside a training program or beside it.

Asking is configuring: what is wrong raises, and nothing is begun. What becomes of the request later never does.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from .. import stages
from ..errors import ConfigError
from ..host import detached, environment, identity
from ..marking import ranges
from ..profiling import presets
from ..recorder import current as recording
from ..store.request import SUSPECT_AND_PEER, Known, Request, check_request
from . import asking
from .duty.post import own_rank

if TYPE_CHECKING:
    from ..store.arguments import OptionsOverPreset, PresetName, RanksInWords, SampleOfStage, StageKey

_SOURCE = "escalate()"
_RANKS_AT_MOST = 1 << 31
_SUSPECTS_WITHIN_S = 120


def escalate(
    stage: StageKey | str | Sequence[StageKey | str], *, ranks: RanksInWords | str | int | Sequence[int] | None = None,
    steps: int = 1, occurrences: int | None = None, preset: PresetName = "full", sample: SampleOfStage | None = None,
    options: OptionsOverPreset | None = None, run: str | os.PathLike[str] | None = None, limit_s: float | None = None,
    limit_bytes: int | None = None, reason: str = "", force: bool = False,
) -> Request:  # fmt: skip
    """Ask for a profile of a stage's next occurrences. Returns at once; `mstxkit status RUN` says what became of it.

    The same call in the same step is one request, from however many ranks, and however far apart. In another step it
    is another one. A program that counts no steps asks once for each thing; a caller from outside of the run asks anew.

    Args:
        stage: A name, any system's (`update_actor`), or several.
        ranks: Global ranks; `"all"`; `"suspect+peer"`: the rank that a verdict blames in the stage or before it, else
            the slowest one, and a healthy peer; groups: `"host:node7"`, `"role:actor"`, `"dp:3"`, `"tp:0"`,
            `"pp:last"`, `"peers:3"` (rank 3 and a data-parallel peer of it), several by commas, as the run's processes
            have said by now where they belong; None: this process's own rank, so that each rank that calls it makes a
            request for itself.
        steps: Every occurrence in so many steps in a row.
        occurrences: Instead: the next so many occurrences of each stage.
        preset: A preset's name.
        sample: A part of each occurrence: `{"per": "micro_batch", "skip": 2, "record": 1}`; also `mini_batch`,
            `decode_step`.
        options: Over the preset's: `{"level": 1, "memory": True}`. What of the preset they exclude gives way.
        run: The run folder; default: what this process captures into, else MSTXKIT_RUN.
        limit_s: Seconds after which a session is ended.
        limit_bytes: Bytes of raw data after which it is.
        reason: For people; up to 500 characters.
        force: Let sessions take their time also where that comes near HCCL's time-out on ranks that wait for these.

    Raises:
        ConfigError: an argument is wrong, or nobody listens; with what is allowed.
        MstxkitError: the request cannot be left in the run folder: a full disk, one that was removed.

    *Cost*: milliseconds; it reads and writes small files of the run. "suspect+peer" reads the run in another process,
    which takes seconds. With MSTXKIT_OFF=1 nothing is asked for, and the request is returned all the same.

    Example:
        >>> import mstxkit
        >>> mstxkit.identify(rank=0, world_size=1)
        >>> with mstxkit.capture("runs/exp7"):
        ...     request = mstxkit.escalate("actor_update", preset="kernels", limit_s=30, reason="slower than usual")
        >>> request.steps, request.ranks
        (1, (0,))
    """
    fields: dict[str, Any] = {
        "stages": _list_argument(stage),
        "ranks": _list_ranks(ranks),
        **({"steps": steps} if occurrences is None or steps != 1 else {}),
        **({"occurrences": occurrences} if occurrences is not None else {}),
        "preset": preset,
        "sample": dict(sample) if isinstance(sample, Mapping) else sample,
        **({"options": dict(options) if hasattr(options, "keys") else options} if options else {}),
        "limits": {"seconds": limit_s, "bytes": limit_bytes},
        "reason": reason,
        **({"force": True} if force else {}),
    }
    if environment.is_off():
        may_name = Known([str(stage) for stage in fields["stages"]], range(_RANKS_AT_MOST), presets.list_presets())
        return check_request(fields, may_name, _SOURCE)  # as far as that can be; it is left nowhere
    folder, is_own = _find_run(run)
    # Ranks of one program that ask in the same step ask for one thing; who looks at a run from outside asks anew.
    fields["occasion"] = f"step {ranges.current_step()}" if is_own else f"{time.time_ns()}"
    if ranks == SUSPECT_AND_PEER:
        suspects, why, fields["role"] = _ask_suspects(folder, fields["stages"])
        fields["reason"] = reason or why
    else:
        suspects = asking.find_ranks(folder, fields, _SOURCE)
    return asking.ask_ranks(folder, fields, suspects, _known_here() if is_own else None, _SOURCE)


def _list_argument(argument: Any) -> Any:
    """One, or several of any kind, as JSON has them; what is neither is refused by name later."""
    several = argument if isinstance(argument, Iterable) and not isinstance(argument, (str, bytes)) else [argument]
    # A whole number of any kind (numpy has its own) as one that JSON takes.
    return [index(name) if hasattr(name, "__index__") and not isinstance(name, bool) else name for name in several]


def _list_ranks(ranks: str | int | Sequence[int] | None) -> Any:
    if ranks is not None:
        return ranks if isinstance(ranks, str) else _list_argument(ranks)
    rank = own_rank()
    if rank is None:
        raise ConfigError(
            f"{_SOURCE}: it is not known which rank this process is; give ranks=, or say so: mstxkit.identify(rank=…)"
        )
    return [rank]


def _find_run(run: str | os.PathLike[str] | None) -> tuple[Path, bool]:
    """The run folder, and whether this process is one of the run's."""
    recorded = recording.recorded_process()
    here = None if recorded is None else recorded[0]
    named = run if run is not None else here or os.environ.get(environment.RUN)
    if not named:
        raise ConfigError(f"{_SOURCE}: this process captures into no run; call mstxkit.capture() first, or give run=")
    folder = Path(named).resolve()
    return folder, folder == here


def _known_here() -> Known:
    """What a process of the run knows by itself: it may be the first to ask, before anybody has said anything.

    Every rank must be told the same, whatever it has entered yet: so all names of stages that there are count.
    """
    from ..engine.choose import engine
    from ..patching import registry

    named = {target.stage for target in registry.list_states() if target.stage}
    size, rank = identity.read_current()["world_size"], own_rank()
    ranks = range(max(size or 0, 0 if rank is None else rank + 1))
    return Known({*engine.stages_seen(), *stages.BY_KEY, *named}, ranks, ())


def _ask_suspects(run: Path, keys: Sequence[str]) -> tuple[tuple[int, ...], str, str]:
    """Whom the tables suspect, a peer, why, their role: asked of another process: one that trains loads no tables."""
    # It finds this package, and records nothing.
    variables = {name: text for name, text in os.environ.items() if not name.startswith("MSTXKIT_")}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (detached.ROOT, variables.get("PYTHONPATH"))))
    try:
        command = [detached.find_python(), "-m", "mstxkit.reading.suspects", str(run), *map(str, keys)]
        process = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=_SUSPECTS_WITHIN_S)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ConfigError(f"{_SOURCE}: ranks={SUSPECT_AND_PEER}: the run's tables cannot be read: {exc}") from None
    if process.returncode:
        why = process.stderr.strip() if process.returncode == 2 else "the run's tables cannot be read"
        raise ConfigError(f"{_SOURCE}: ranks={SUSPECT_AND_PEER}: {why}")
    suspect, peer, why, role = json.loads(process.stdout)
    return (suspect, peer), why, role
