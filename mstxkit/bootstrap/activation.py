"""`autopatch`, `unpatch`, `patch_report`: patch this process, and arrange it for the processes that it starts.

Children get MSTXKIT_AUTOPATCH in their environment and act on it at their start (`pth.py`, `ray.py`,
`entry_points.py`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .. import faults
from ..errors import PatchError
from ..host import environment, interpreters
from ..marking import ranges
from ..patching import registry
from ..patching.declare import Patch
from ..patching.report import SKIPPED, PatchReport, Reason, TargetState
from ..patching.targets import as_patches
from . import patch_record, ray_job

VARIABLE = environment.AUTOPATCH
EVERY = "all"
_YAML = (".yaml", ".yml")


class _HandedOn:
    """How this process hands on what is on here."""

    # What MSTXKIT_AUTOPATCH is to say, part by part, each with the frameworks that it stands for.
    specification: dict[str, set[str]] = {}
    notes: list[str] = []
    variable_before: str | None = None
    off: list[tuple[Patch, bool]] = []


_ways = _HandedOn()


def autopatch(*frameworks_named: str, targets: Any = None) -> PatchReport:
    """Make the key functions of these frameworks ranges, in this process and in those that it starts.

    May be called before or after a framework is imported, and any number of times.

    Args:
        frameworks_named: Import roots, "mindspeed_rl" say; "mindspeed_rl+extra" adds the tier that is off by default.
            None given, and no targets: every known framework, each when it is imported.
        targets: Your own: a YAML file's path, a `Patch`, or `Target`s.

    Returns:
        Every target with its state: applied, waiting for its import, skipped or failed, each with a reason.

    Raises:
        PatchError: a framework is unknown, or the targets are malformed. Nothing has been patched then.

    Example:
        >>> import mstxkit
        >>> report = mstxkit.autopatch(targets=mstxkit.Target("textwrap:shorten", stage="reward"))
        >>> import textwrap  # from here on each call of shorten is an occurrence of the stage
        >>> mstxkit.unpatch()
    """
    named: tuple[Any, ...] = frameworks_named
    for name in named:
        if not isinstance(name, str) or name.endswith(_YAML):
            raise PatchError(f"{name!r} is no framework's name; targets of your own go into targets=")
    wanted = [] if targets is not None and not frameworks_named else registry.choose_patches(frameworks_named)
    if targets is not None:
        wanted += [(patch, True) for patch in as_patches(targets)]
    if ranges.is_off:
        _ways.off += [pair for pair in wanted if pair not in _ways.off]
        return patch_report()
    registry.install_patches(wanted)
    patch_record.keep_record()
    _hand_on(frameworks_named, targets, wanted)
    ray_job.arrange_ray()
    return patch_report()


def _hand_on(names: tuple[str, ...], targets: Any, wanted: list[tuple[Patch, bool]]) -> None:
    """Let children of this process patch the same."""
    parts = {name: {registry.root_of(name)} for name in names}
    rest = {patch.framework for patch, _ in wanted[len(names) :]}
    if not names and targets is None:
        parts[EVERY] = rest
    elif isinstance(targets, (str, os.PathLike)):
        parts[str(Path(targets).resolve())] = rest
    elif targets is not None:
        note = "targets given as Python objects stay in this process; a YAML file of them reaches the others too"
        _ways.notes += [note] if note not in _ways.notes else []
    if not _ways.specification:
        _ways.variable_before = os.environ.get(VARIABLE)
    _ways.specification.update(parts)
    if _ways.specification:
        os.environ[VARIABLE] = specify_autopatch()


def specify_autopatch() -> str:
    """What is on here, as MSTXKIT_AUTOPATCH says it to other processes."""
    return ",".join(_ways.specification)


def unpatch(*frameworks_named: str) -> None:
    """Put back what `autopatch` has replaced, the very objects; of every framework where none is named.

    Processes that run already keep their patches. Those that this one starts from now on patch what is left; of a file
    of targets for several frameworks that is all of it, until none of these is left.

    Args:
        frameworks_named: Import roots, as `autopatch` takes them.

    Raises:
        PatchError: a framework is unknown, and no targets of that name are on.

    Example:
        >>> import mstxkit
        >>> report = mstxkit.autopatch("trl")
        >>> mstxkit.unpatch("trl")
        >>> len(mstxkit.patch_report().targets)
        0
    """
    gone = set(map(registry.root_of, frameworks_named))
    for name in gone.difference(registry.frameworks_on()):
        registry.load_patch(name)
    registry.remove_patches(tuple(gone))
    _ways.off = [pair for pair in _ways.off if gone and pair[0].framework not in gone]
    left = bool(registry.frameworks_on())
    if gone & _ways.specification.get(EVERY, set()):
        _ways.specification.update({name: {name} for name in sorted(_ways.specification.pop(EVERY))})
    _ways.specification = {part: roots for part, roots in _ways.specification.items() if left and roots - gone}
    if not left:
        patch_record.leave_off()
        ray_job.restore_ray()
        _ways.notes.clear()
    environment.put_back({VARIABLE: specify_autopatch() if _ways.specification else _ways.variable_before})


def patch_report() -> PatchReport:
    """Every target of the frameworks that are on in this process, with its state and reason.

    It looks at each place: a target that somebody else has replaced since is failed, "replaced since"; `calls` says how
    often the others were called while something recorded. What a module that was executed again has is patched again.

    Example:
        >>> import mstxkit
        >>> report = mstxkit.autopatch(targets=mstxkit.Target("textwrap:shorten", stage="reward"))
        >>> import textwrap
        >>> [(target.path, target.state) for target in mstxkit.patch_report().targets]
        [('textwrap:shorten', 'applied')]
        >>> mstxkit.unpatch()
    """
    if ranges.is_off:
        pairs = [(patch.framework, target) for patch, _ in _ways.off for target in patch.targets]
        return PatchReport(tuple(TargetState.of(name, target, SKIPPED, Reason.OFF) for name, target in pairs))
    report = registry.report_targets()
    return report._replace(notes=(*report.notes, *_ways.notes, *ray_job.list_unreachable()))


def autopatch_from_environment() -> None:
    """Do what MSTXKIT_AUTOPATCH says. Never raises: what is wrong in it is logged, and the rest of it is done."""
    if ranges.is_off or not interpreters.is_main():  # others are not recorded, nor can every module be loaded there
        return
    for name in filter(None, (part.strip() for part in os.environ.get(VARIABLE, "").split(","))):
        try:
            if name.endswith(_YAML):
                autopatch(targets=name)
            else:
                autopatch(*([] if name in (EVERY, "1") else [name]))
        except PatchError as exc:
            faults.warn_once(f"{VARIABLE}={name}", f"{VARIABLE}={name}: {exc}")
        except Exception as exc:
            faults.note_fault(f"{VARIABLE}={name}", exc)
