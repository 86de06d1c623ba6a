"""Which calls are pieces of a stage (micro-batch, mini-batch, decode step), and which stages cannot be counted in them.

Patching says so of call sites, by `declare_site` and `forbid_pieces`. A request is checked against what this process
can count by `explain_refusal`. All of it is of this process, and may be asked from any thread.

The hooks of the engine do not ask here: `edges.enter_call` and `edges.leave_call` say what begins and ends with a call,
stages and pieces alike, which may be several or none.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Callable

from .. import stages
from ..engine.choose import engine
from ..host import imports, names
from .kinds import KINDS, PieceRole

# Role and number of holders, by id of the site, which is for the life of the process. Two declarations of one site are
# one with two holders.
_declared: dict[int, tuple[PieceRole, int]] = {}
# What cannot be counted: by (id of the site, kind) why; by (stage, kind) in which site's calls that was found, and why.
_forbidden: dict[tuple[int, str], list[str]] = {}
_mixed: dict[tuple[str | None, str], tuple[int, str]] = {}
_lock = imports.own_lock()  # a signal's handler of the program may interrupt a thread that holds it


def declare_site(site: Any, per: str | PieceRole) -> Callable[[], None]:
    """Say what the calls of a site are, pieces of a kind or a whole role; returns what takes it back. The first
    declaration of a site holds.
    """
    role = PieceRole(per) if isinstance(per, str) else per
    engine.watch_site(site)
    with _lock:
        first_role, holders = _declared.get(site.id, (role, 0))
        _declared[site.id] = first_role, holders + 1

    def withdraw() -> None:
        with _lock:
            first_role, holders = _declared[site.id]
            if holders > 1:
                _declared[site.id] = first_role, holders - 1
                return
            del _declared[site.id]
            for key in [key for key, (owner, _) in _mixed.items() if owner == site.id]:
                del _mixed[key]

    return _call_once(withdraw)


def forbid_pieces(site: Any, per: str, why: str) -> Callable[[], None]:
    """Say that inside calls of a site pieces of that kind cannot be counted, and why; returns what takes it back."""
    with _lock:
        _forbidden.setdefault((site.id, per), []).append(why)

    def undo() -> None:
        with _lock:
            reasons = _forbidden[site.id, per]
            reasons.remove(why)
            if not reasons:
                del _forbidden[site.id, per]

    return _call_once(undo)


def _call_once(undo: Callable[[], None]) -> Callable[[], None]:
    once = ExitStack()
    once.callback(undo)
    return once.close


def stage_of(site: Any) -> str | None:
    """Canonical key of a site's own stage; None where it has none."""
    return None if site.stage is None else stages.canonical_key(names.as_text(site.stage))


def role_of(site: Any) -> PieceRole | None:
    """What was declared of a site; None for nothing. Cost: one look-up."""
    role, _ = _declared.get(site.id, (None, 0))
    return role


def list_kinds() -> tuple[str, ...]:
    """The kinds of pieces that calls in this process may be."""
    there = {kind for role, _ in list(_declared.values()) for kind in (role.per, role.within)}
    return tuple(kind for kind in KINDS if kind in there)


def note_mixed(site: Any, stage: str | None, per: str, why: str | None) -> None:
    """A call of this site in this stage has shown that it mixes pieces of that kind, and why; None: it does not."""
    if why is None and (stage, per) not in _mixed:
        return
    with _lock:
        _mixed.pop((stage, per), None)
        if why is not None and site.id in _declared:
            _mixed[stage, per] = site.id, why


def explain_refusal(stage: str, per: str) -> str | None:
    """Why this process cannot sample that stage by pieces of that kind; None where it can, as far as is known.

    What has not run yet cannot be known to fail: then an occurrence without such pieces says so at its end.
    """
    mixed = _mixed.get((stage, per))
    if mixed is not None:
        return f"{stage} cannot be sampled by {per} here: {mixed[1]}"
    for site, calls, *_ in engine.site_costs() if _forbidden else ():
        reasons = _forbidden.get((site.id, per))
        if calls and reasons and stage_of(site) in (None, stage):
            return f"{stage} cannot be sampled by {per} here: {reasons[0]}"
    if per in list_kinds():
        return None
    there = ", ".join(list_kinds()) or "none of any kind"
    return f"no patched function of this process is called once per {per} (autopatch; there are: {there})"
