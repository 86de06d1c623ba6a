"""May a verdict ask for a profile: of whom, of what, how deep; or why not. Of values alone: no clock, no file.

A profile is asked for where it can show the cause: of the rank that is blamed and of a healthy peer, in the stage that
was named. What ranks do about the request is their own affair: `escalation/machine`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Collection, Iterable, NamedTuple, Sequence

from ..host.parallel import MODEL_DIMENSIONS
from ..store import layout
from ..store import verdicts as kinds
from ..store.fate import LATE_S, Heard
from ..store.groups import DATA
from ..store.limits import ESCALATE
from ..store.report import DONE, Report
from ..store.request import WHOLE_STEPS
from ..store.verdicts import Verdict
from ..triggers._declare import setting
from .wording import GROUP_AT_MOST, spans_in_words

# What shows the cause: `full` has operators and kernels, `comm` collectives with their sizes and groups.
PRESETS = {
    kinds.COMPUTE: "full", kinds.INPUT: "full", kinds.ALL_SLOW: "full", kinds.SERIAL: "full",
    kinds.COMMUNICATION: "comm", kinds.LINK: "comm",
}  # fmt: skip
NO_PROFILE = {
    kinds.IMBALANCE: "no profile shows more: its work explains its time",
    kinds.JITTER: "no profile is likely to meet it: it comes and goes",
    kinds.HANG: "no profile begins where no stage does: see the incident",
    kinds.NOT_ENOUGH_EVIDENCE: "there is nobody to profile yet",
}
# A verdict that costs so many times as much as the one before need not wait for its turn.
_OUTWEIGHS = 4.0
# Time that is lost between two stages is in none: steps are recorded as a whole.
_BETWEEN = ("before", "behind_gap")
_ID, _OCCASION = re.compile("[0-9a-f]{16}"), re.compile("verdict ([0-9a-f]{16}) ([0-9a-f]{8})")
_NS, _DAY_NS = 10**9, 86_400 * 10**9


@dataclass(frozen=True)
class Acting:
    """How often verdicts may ask for profiles, beside what each rank allows by itself."""

    every_s: float = setting(300.0, 0.0, 1e9, "Seconds from one profile that a verdict asks for to the next.")
    same_s: float = setting(3600.0, 0.0, 1e9, "Seconds until the same cause may ask again, in another verdict.")
    a_day: int = setting(12, 0, 10_000, "Profiles that verdicts may ask for in 24 hours.")
    a_job: int = setting(48, 0, 10_000, "Profiles that verdicts may ask for in a job.")
    peer_s: float = setting(20.0, 0.0, 3600.0, "Seconds that a verdict waits for ranks that said nothing yet.")
    impact: float = setting(0.02, 0.0, 1.0, "Share of a step that a verdict must cost before it asks.")


class Wish(NamedTuple):
    """A profile that is asked for.

    Args:
        occasion: Of the request: of a verdict it says which that is, and of which cause.
        stage: Its key, or `all`, the steps as a whole.
        ranks: Whom, in order.
        preset: How deep.
        reason: For people.
    """

    occasion: str
    stage: str
    ranks: tuple[int, ...]
    preset: str
    reason: str


class NotAsked(NamedTuple):
    """Why a verdict asks for nothing.

    Args:
        why: In words; "" where the job only observes.
        is_final: Will nothing change that?
        may_soon: Is it worth waiting for, and no cheaper verdict comes first meanwhile?
    """

    why: str
    is_final: bool = False
    may_soon: bool = False


class Earlier(NamedTuple):
    """A profile that a verdict has asked for.

    Args:
        id: Of the request.
        verdict, cause: Of which verdict, and of which cause.
        asked_ns: Wall clock.
        is_open: Has it not ended yet?
        names_rank: Does the verdict blame a rank? True where that is not known.
        mute: Peers that never answered, by which it came to nothing.
        impact_ratio: What the verdict cost then; 1 where that is not known.
    """

    id: str
    verdict: str
    cause: str
    asked_ns: int
    is_open: bool = False
    names_rank: bool = True
    mute: tuple[int, ...] = ()
    impact_ratio: float = 1.0


class Peers(NamedTuple):
    """Ranks that are there, and of which none is the cause, beside those that were heard.

    Args:
        blamed: By this or other verdicts: none of them is healthy.
        unheard: Have said nothing of themselves yet.
        mute: Have never answered a request of this verdict.
        may_wait: Is there time yet until one of the unheard says something?
    """

    blamed: Collection[int] = ()
    unheard: Sequence[int] = ()
    mute: Collection[int] = ()
    may_wait: bool = False


OBSERVES, NO_PEERS = NotAsked(""), Peers()


def cause_of(verdict: Verdict) -> str:
    """The same for each verdict on one thing: 8 hexadecimal digits."""
    parts = (verdict.kind, verdict.role, verdict.stage, verdict.rank, verdict.group)
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()[:8]


def asked_by(verdict: Verdict, id: str, asked_ns: int) -> Earlier:
    """The request `id` of a verdict, which is open as far as anybody knows."""
    names_rank = verdict.rank is not None
    return Earlier(id, verdict.id, cause_of(verdict), asked_ns, True, names_rank, (), verdict.impact_ratio)


def verdict_in(occasion: str) -> tuple[str, str] | None:
    """Id and cause of the verdict that a request is from; None where it is from none."""
    match = _OCCASION.fullmatch(occasion)
    return (match[1], match[2]) if match else None


def refused_by_itself(verdict: Verdict, limits: Acting) -> NotAsked | None:
    """Why it is none to act on, whoever could be asked; None where it is."""
    if verdict.kind not in PRESETS:
        return NotAsked(NO_PROFILE.get(verdict.kind, "there is no profile for it"), is_final=True)
    if not verdict.stage or not _ID.fullmatch(verdict.id):
        return NotAsked("it names no stage", is_final=True)
    if verdict.impact_ratio < limits.impact:
        return NotAsked(f"it costs less than {limits.impact:.1%} of a step (acting.impact)")
    return None


def refused_by_others(verdict: Verdict, earlier: Sequence[Earlier], limits: Acting, now_ns: int) -> NotAsked | None:
    """Why it is not its turn, by what was asked for before; None where it is.

    One that blames nobody (everybody is slow) does not hold up one that blames a rank, once its request has ended, nor
    one that costs little one that costs several times as much. The words name no time that passes, as what is said of a
    verdict is written down whenever it changes.
    """
    cause, ages_ns = cause_of(verdict), {each.id: abs(now_ns - each.asked_ns) for each in earlier}
    if len(earlier) >= limits.a_job:
        return NotAsked(f"verdicts may ask for {limits.a_job} profiles in a job (acting.a_job)")
    if sum(age_ns < _DAY_NS for age_ns in ages_ns.values()) >= limits.a_day:
        return NotAsked(f"verdicts may ask for {limits.a_day} profiles in 24 hours (acting.a_day)")
    same = [each.id for each in earlier if each.cause == cause and not each.mute]
    same = [id for id in same if ages_ns[id] < limits.same_s * _NS]
    if same:
        lately = f"less than {limits.same_s:g} s ago (acting.same_s)"
        return NotAsked(f"request {same[-1]} was for the same cause, {lately}")
    still_open = next((each.id for each in earlier if each.is_open), "")
    if still_open:
        return NotAsked(f"request {still_open}, of another verdict, comes first")
    before = [each for each in earlier if each.names_rank or verdict.rank is None]
    before = [each for each in before if verdict.impact_ratio < _OUTWEIGHS * each.impact_ratio]
    if any(ages_ns[each.id] < limits.every_s * _NS for each in before):
        return NotAsked(f"verdicts may ask for one profile in {limits.every_s:g} s (acting.every_s)")
    return None


def wish_of(
    verdict: Verdict, heard: Sequence[Heard], now_ns: int, shared: Collection[int] = (), peers: Peers = NO_PEERS
) -> Wish | NotAsked:
    """The profile that a verdict asks for, which is not refused by itself. `heard`: what processes said of themselves,
    nearest to the rank first. `shared`: ranks that several processes have.
    """
    able: dict[int, Heard] = {}
    for speaker in heard:
        if not find_hindrance(speaker, verdict, now_ns):
            able.setdefault(speaker.rank, speaker)
    ranks = _choose_ranks(verdict, able, {*peers.blamed, *peers.mute})
    if not ranks:
        return _why_nobody(verdict, heard, now_ns, peers.may_wait)
    is_short = len(ranks) == 1 or (verdict.rank is None and bool(verdict.group))
    if is_short and peers.unheard and peers.may_wait:
        why = f"{name_ranks(peers.unheard)} said nothing yet (acting.peer_s)"
        return NotAsked(f"it waits for a healthy peer: {why}", may_soon=True)
    stage = str(verdict.stage)
    if verdict.evidence.get("where") in _BETWEEN and not set(ranks) & set(shared):
        stage = WHOLE_STEPS
    whose = f"rank {verdict.rank}" if verdict.rank is not None else "no single rank"
    unheard = f"{name_ranks(peers.unheard)} said nothing yet" if peers.unheard else "no healthy one is there"
    why_alone = f"{name_ranks(peers.mute)} never answered" if peers.mute else unheard
    alone = f", without a peer: {why_alone}" if len(ranks) == 1 else ""
    # It is read for as long as there is a run, which says by then what the verdict costs in the end.
    reason = f"{verdict.kind} of {whose}: by step {verdict.step} it cost {verdict.impact_ratio:.0%} of each{alone}"
    occasion = f"verdict {verdict.id} {cause_of(verdict)}"
    return Wish(occasion, stage, tuple(sorted(ranks)), PRESETS[verdict.kind], reason)


def find_hindrance(speaker: Heard, verdict: Verdict, now_ns: int) -> str:
    """Why it cannot be asked; "" where it can."""
    role = layout.role_in_names(verdict.role)
    role_there = speaker.acknowledgement.role
    if role and role_there and role_there != role:
        return f"it is of the role {role_there}"
    if speaker.is_alive is False:
        return "it has ended"
    if speaker.is_alive is None and now_ns - speaker.acknowledgement.written_ns > LATE_S * _NS:
        return "nothing is heard of it any more"  # of a run that was copied, or whose host is gone
    if speaker.standing.act != ESCALATE:
        return "it observes"
    if verdict.stage not in speaker.keys:
        return _says_nothing_of(verdict)
    if speaker.standing.backend is None:
        reasons = "; ".join(f"{name}: {why}" for name, why in speaker.standing.why_no_backend.items())
        return f"no profiler can record there: {reasons}"[:300]
    return ""


def only_observes(speakers: Sequence[Heard]) -> bool:
    """Is there anybody, and nobody that may be asked by a verdict?"""
    return bool(speakers) and all(speaker.standing.act != ESCALATE for speaker in speakers)


def _choose_ranks(verdict: Verdict, able: dict[int, Heard], blamed: Collection[int]) -> list[int]:
    """Those of its group where none is blamed; else that rank, and one of its group: with the same part of the model
    where that is known, of another host where there is one.
    """
    if verdict.rank is None:
        some = [rank for rank in verdict.group if rank in able][:GROUP_AT_MOST] if verdict.group else list(able)[:2]
        return some if len(some) > 1 or not verdict.group else []
    if verdict.rank not in able:
        return []
    own = able[verdict.rank]
    group = set(verdict.group) if verdict.rank in verdict.group else set(able)
    healthy = [rank for rank in able if rank in group and rank != verdict.rank and rank not in blamed]
    alike = [rank for rank in healthy if _part_of(able[rank]) == _part_of(own)] or healthy
    elsewhere = [rank for rank in alike if able[rank].acknowledgement.host != own.acknowledgement.host]
    return [verdict.rank, *(elsewhere or alike)[:1]]


def name_ranks(ranks: Collection[int]) -> str:
    """`rank 2`, `ranks 2,4-7`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {spans_in_words(ranks)}"


def what_failed(reports: Iterable[Report]) -> str:
    """Of a request that has ended: on which ranks not all of it was recorded, and why; "" where it was on all."""
    alike: dict[str, list[int]] = {}
    for report in reports:
        if report.state != DONE:
            alike.setdefault(report.state + (f": {report.reason}" if report.reason else ""), []).append(report.rank)
    return "; ".join(f"{name_ranks(ranks)} {words}" for words, ranks in alike.items())[:300]


def _part_of(speaker: Heard) -> tuple[int, ...]:
    """Which part of the model it has; () where it does not say."""
    places = speaker.standing.groups
    return tuple(places.get(dimension, (0, 1))[0] for dimension in MODEL_DIMENSIONS) if DATA in places else ()


def _why_nobody(verdict: Verdict, heard: Sequence[Heard], now_ns: int, may_wait: bool) -> NotAsked:
    asked = [speaker for speaker in heard if verdict.rank in (None, speaker.rank)]
    if only_observes(asked):
        return OBSERVES
    if not asked:
        who = "anybody" if verdict.rank is None else f"rank {verdict.rank}"
        why = f"nothing was heard yet of {who}: a process takes requests from its first stage on"
        return NotAsked(why, may_soon=may_wait)
    why = find_hindrance(asked[0], verdict, now_ns) or "no other rank of its group can be"
    # It was in the stage, or there was no verdict: it will say so.
    may_soon = may_wait and why == _says_nothing_of(verdict)
    return NotAsked(f"rank {asked[0].rank} cannot be asked: {why}", may_soon=may_soon)


def _says_nothing_of(verdict: Verdict) -> str:
    return f"it says nothing of {verdict.stage}"
