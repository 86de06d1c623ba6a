"""Judges a job step by step: who made the others wait, in which stage, and why. No clock, no file; of values alone.

judge = JobJudge(settings.default_settings(), run="runs/exp7")
judged = judge.close(step, time.time_ns())
"""

from __future__ import annotations

from itertools import compress
from typing import Iterable, Iterator, Sequence

from ..store.verdicts import ALL_SLOW, Verdict
from ..triggers import every_n, on_request
from .cutting import Piece
from .evidence import Peer, RoleStep
from .findings import Finding, RoleFound
from .gates import Gates
from .inherited import EXPLAINED, OF_NOBODY, InheritedVerdicts
from .judged import LIGHT, RINGS, Judged, Want
from .links import LINK
from .losses import JobLosses
from .measuring import INSIDE
from .roles import RoleHistory
from .settings import JudgeSettings, default_settings
from .shaping import StepCounts, TakingStages, pick_compared
from .standing import StandingVerdict, share_out

# Rings that are asked for: of so many steps back and ahead; not again for so many steps, which become twice as many
# each time, up to a limit; and in vain so many times.
_RINGS_BACK, _RINGS_AHEAD, _RINGS_EVERY, _RINGS_EVERY_AT_MOST, _IN_VAIN = 4, 2, 5, 100, 2
_ROLES_AT_MOST, _VERDICTS_AT_MOST = 256, 256
PART_OF_ANOTHER = "part of what another verdict tells of"


class _Asked:
    """When a role's rings may be asked for again, and how often they were, of late."""

    def __init__(self) -> None:
        self.times, self._last = 0, -_RINGS_EVERY_AT_MOST

    def is_time(self, step: int, is_promising: bool) -> bool:
        """May they be asked for in this step? Then they are; soon again where the last ones were nearly enough."""
        waited = step - self._last
        if is_promising or waited >= 2 * _RINGS_EVERY_AT_MOST:
            self.times = 0
        is_time = waited >= min(_RINGS_EVERY_AT_MOST, _RINGS_EVERY << max(0, min(self.times, 10) - 2))
        if is_time:
            self.times, self._last = self.times + 1, step
        return is_time


class JobJudge:
    """What is remembered of a job, bounded whatever its length, and what has been judged of it.

    Args:
        settings: May be set anew between steps (`judge.settings = changed(judge.settings, name, text)`).
        run: The run's folder as a person would name it, for the commands in `Verdict.next`.
        standing: Verdicts that an earlier judge of this job has left, of which none is withdrawn.
        ended: Verdicts of an attempt at the job that is over: they are withdrawn with the first step of the next.

    Attributes:
        settings: In force from the next step on.
        counts: Who counts its steps otherwise than the others, and is not compared with them.
    """

    def __init__(
        self,
        settings: JudgeSettings | None = None,
        run: str = "RUN",
        standing: Iterable[Verdict] = (),
        ended: Iterable[Verdict] = (),
    ) -> None:
        self.settings = settings or default_settings()
        self._run = run
        self._job, self._taking, self.counts = JobLosses(), TakingStages(), StepCounts()
        self._roles: dict[str, RoleHistory] = {}
        self._asked: dict[str, _Asked] = {}
        self._standing: list[StandingVerdict] = []
        self._left, self._ended = InheritedVerdicts(standing), list(ended)

    def close(self, step: RoleStep, now_ns: int = 0) -> Judged:
        """Judge one step of one role, once all its members have handed it over, or nobody waits for them any more.

        A step that was closed before may be closed again with `collectives`, when its rings have come later; only what
        they tell is added then. Others are closed in their order. `now_ns`: what becomes `Verdict.time_ns`.
        """
        if step.role not in self._roles and len(self._roles) >= _ROLES_AT_MOST:
            return Judged()
        step = self._taking.tell_waits(step)
        history = self._roles.get(step.role) or self._roles.setdefault(step.role, RoleHistory(step.role, self._job))
        before = history.cutter.last_step if history.holding.steps else None
        is_late = before is not None and step.step <= before
        if not is_late:
            self.counts.learn(step)
        as_told, step = step, pick_compared(step, self.counts.off[step.role])
        self._job.feeds.closed(step if step.members else as_told)
        verdicts = self._end_with_attempt(step, history.members, now_ns)
        shown = history.close(step, self.settings, self._explained(step.role))
        verdicts += self._follow_step(step, shown, now_ns, is_late) if shown.is_evidence else ()
        if shown.is_evidence and history.holding.steps > self.settings.of(Gates).warm_up:
            explained = self._explained(step.role)
            verdicts += self._left.follow(step, history, shown.has_rings, is_late, explained, now_ns)
        wants = [] if is_late else list(self._find_wants(step, shown, before))
        return Judged(tuple(verdicts), tuple(wants))

    def is_of_next_attempt(self, step: RoleStep) -> bool:
        """Do other processes than those before, several of them, count from an earlier step on?"""
        history = self._roles.get(step.role)
        before = () if history is None or step.step > history.cutter.last_step else history.members
        return _are_others(step.members, before)

    def of_next_attempt(self) -> JobJudge:
        """Who judges another attempt at the job, which counts its steps anew: with histories of its own."""
        return JobJudge(self.settings, self._run, ended=self.standing())

    def standing(self) -> list[Verdict]:
        """The verdicts that hold now, those too that an earlier judge has left and nobody has refuted."""
        return [*(standing.verdict for standing in self._standing), *self._left.verdicts()]

    def judged_steps(self) -> dict[str, tuple[int, int]]:
        """Role to how many of its steps were closed, and how many of these could lead to a verdict."""
        return {role: (history.holding.steps, history.judged_steps) for role, history in self._roles.items()}

    def modes(self, role: str) -> dict[Piece, int]:
        """Where members of this role wait for each other, as far as is known: `measuring.WAITS`, FREE or UNKNOWN."""
        return self._roles[role].norms.learned_modes() if role in self._roles else {}

    def wait_ratio(self, step: RoleStep) -> float:
        """Share of a step that was closed last of its role that a member waits for others in it, in the mean."""
        losses, step = self._job.roles.get(step.role), pick_compared(step, self.counts.off[step.role])
        return losses.wait_ratio(step) if losses is not None and len(step.members) > 1 and step.stages else 0.0

    def _explained(self, role: str) -> set[str]:
        """Stages of which it is known why they are slow."""
        own = [standing for standing in self._of_role(role) if standing.finding.key.kind not in OF_NOBODY]
        return {stage for standing in own for _, stage in standing.pieces}

    # Verdicts.

    def _end_with_attempt(self, step: RoleStep, before: Sequence[Peer], now_ns: int) -> list[Verdict]:
        """What was said of processes that are all gone, others being in their place: another attempt is going on."""
        ended, self._ended = self._ended, []
        for standing in self._of_role(step.role) if _are_others(step.members, before) else ():
            self._standing.remove(standing)
            ended.append(standing.verdict)
        return [
            verdict._replace(step=max(0, step.step), time_ns=now_ns, withdrawn="its attempt at the job is over")
            for verdict in ended
        ]

    def _follow_step(self, step: RoleStep, shown: RoleFound, now_ns: int, is_late: bool) -> Iterator[Verdict]:
        findings = {finding.key: finding for finding in shown.findings}
        own = self._of_role(step.role)
        seen_again = [findings.pop(standing.finding.key, None) for standing in own]
        # What came late tells of what rings show, and of nothing else that it is gone.
        is_told = [not is_late or standing.finding.key.where in (INSIDE, LINK) for standing in own]
        for standing, again in compress(zip(own, seen_again), is_told):
            standing.follow(step.step, again, shown.has_rings)
        share_out([standing for standing in own if standing.finding.blames_a_rank])
        for standing in compress(own, is_told):
            yield from self._said_again(standing, step, now_ns)
        gone = [standing for standing in own if standing not in self._standing]  # their tests have begun anew
        new = [finding for finding in findings.values() if not any(of.is_of_same_ranks(finding) for of in gone)]
        yield from self._say_new(step, new, shown, now_ns)

    def _say_new(self, step: RoleStep, findings: list[Finding], shown: RoleFound, now_ns: int) -> Iterator[Verdict]:
        """Verdicts of what was found and does not stand yet: sets first, of which single ranks are a part."""
        history = self._roles[step.role]
        for finding in sorted(findings, key=lambda finding: -len(finding.members)):
            if self._is_known_better(step.role, finding):
                continue
            others = self._standing if finding.is_of_controller else self._of_role(step.role)
            standing = next((other for other in others if other.is_of_same_ranks(finding)), None)
            if standing is not None and not standing.is_explained_by(finding):
                standing.join(finding)
                continue
            begun = StandingVerdict.begin(finding, step.role, step.step, history)
            is_full = len(self._standing) >= _VERDICTS_AT_MOST
            is_said = self._is_part_of_another(begun) or self._is_beside_another(begun)
            if is_full or is_said or self._is_nothing(begun, shown.findings):
                continue
            yield from self._withdraw_parts_of(begun, step, now_ns)
            yield self._begin_verdict(begun, step, now_ns)

    def _withdraw_parts_of(self, begun: StandingVerdict, step: RoleStep, now_ns: int) -> Iterator[Verdict]:
        """Single ranks named before it was seen that they are slow together with others, or inside of the stage."""
        for standing in self._of_role(step.role):
            is_larger = len(begun.finding.members) > 1 or standing.is_explained_by(begun.finding)
            if is_larger and begun.is_of_same_ranks(standing.finding):
                self._standing.remove(standing)
                yield standing.say(self._run, step.step, now_ns, PART_OF_ANOTHER)

    def _said_again(self, standing: StandingVerdict, step: RoleStep, now_ns: int) -> Iterator[Verdict]:
        why, key = "", standing.finding.key
        if standing.is_gone():
            why = standing.why_gone(step.step)
        elif key.kind in OF_NOBODY and key.stage in self._explained(step.role):
            why = EXPLAINED
        elif self._is_part_of_another(standing):
            why = PART_OF_ANOTHER
        elif self._is_known_better(step.role, standing.finding):
            why = "one of them is named, by another verdict"
        if why:
            self._standing.remove(standing)
            standing.history.forget(standing.finding)
            yield standing.say(self._run, step.step, now_ns, why)
        elif standing.is_news():
            yield standing.say(self._run, step.step, now_ns)

    def _of_role(self, role: str) -> list[StandingVerdict]:
        """All that stand in a role."""
        return [standing for standing in self._standing if standing.verdict.role == role]

    def _of_other_ranks(self, standing: StandingVerdict) -> list[StandingVerdict]:
        """Those in its role that blame other ranks."""
        others = [other for other in self._of_role(standing.verdict.role) if other.finding.blames_a_rank]
        return [other for other in others if not other.is_of_same_ranks(standing.finding)]

    def _is_known_better(self, role: str, finding: Finding) -> bool:
        """Of several that are done at once: is one of them named by now?"""
        named = (set(other.finding.part().members) for other in self._of_role(role) if other.finding.blames_a_rank)
        return finding.is_hidden and not all(map(set(finding.members).isdisjoint, named))

    def _is_part_of_another(self, standing: StandingVerdict) -> bool:
        pieces = (piece for other in self._of_role(standing.verdict.role) for piece in other.pieces.values())
        return any(standing.is_explained_by(piece.finding) for piece in pieces)

    def _is_beside_another(self, standing: StandingVerdict) -> bool:
        """Does nobody wait for it, as all wait for another one? Or is it known already, by whatever name?

        On a host with too few CPUs, say, who is through with a stage first shares them with those that are not.
        """
        is_left = self._left.has_same(standing.verdict, standing.finding.key.where)
        if is_left or any(other.is_of_same(standing) for other in self._of_role(standing.verdict.role)):
            return standing.finding.key.kind in OF_NOBODY
        others = self._of_other_ranks(standing)
        if standing.finding.blames_a_rank and others:
            standing.compare_with([part for other in others for part in other.parts()])
        is_other = bool(others) or self._left.blames_another(standing.verdict)
        return is_other and standing.finding.blames_a_rank and standing.costs_nothing

    def _is_nothing(self, standing: StandingVerdict, findings: Iterable[Finding]) -> bool:
        """Would next to nothing be won without it, also once other ranks that stand out, and hide what it costs, are
        gone? It stood out by more than what is asked for, and yet others came as late for one reason or another.
        """
        if not standing.costs_nothing or not standing.finding.blames_a_rank:
            return standing.costs_nothing
        own = standing.finding.part().members
        others = [other for other in findings if other.blames_a_rank and not set(other.part().members) <= set(own)]
        if not others:
            return not self._of_other_ranks(standing)
        standing.compare_with([other.part() for other in others])
        return standing.costs_nothing

    def _begin_verdict(self, standing: StandingVerdict, step: RoleStep, now_ns: int) -> Verdict:
        left = self._left.take(standing.verdict, standing.finding.key.where)
        if left is not None:  # an earlier judge has shown it already
            standing.verdict = standing.verdict._replace(id=left.id, since_step=left.since_step, request=left.request)
            standing.show_all(left.kind == ALL_SLOW)
        self._standing.append(standing)
        return standing.say(self._run, step.step, now_ns)

    # What else would be worth having.

    def _find_wants(self, step: RoleStep, shown: RoleFound, before: int | None) -> Iterator[Want]:
        asked = self._asked.setdefault(step.role, _Asked())
        if shown.asks and asked.is_time(step.step, shown.builds_up):
            in_vain = asked.times > _IN_VAIN and not self._roles[step.role].ring_steps
            stage = shown.asks[0]
            if in_vain:
                yield self._want(LIGHT, step, stage, f"{stage} has become slower, nobody stands out, and no ring is on")
            else:
                yield self._want(RINGS, step, stage, f"{stage} has become slower and nobody stands out")
        if every_n.is_turn(self.settings.of(every_n.EveryN), step.step):
            yield self._want(LIGHT, step, None, "every_n")
        if on_request.is_asked(self.settings.of(on_request.OnRequest), step.step, before):
            yield self._want(LIGHT, step, None, "on_request")

    def _want(self, kind: str, step: RoleStep, stage: str | None, why: str) -> Want:
        since = max(0, step.step - _RINGS_BACK) if kind == RINGS else step.step + 1
        until = step.step + _RINGS_AHEAD if kind == RINGS else step.step + 1
        return Want(kind, step.role, (), stage, since, until, why)


def _are_others(members: Sequence[Peer], before: Sequence[Peer]) -> bool:
    """Are several there now, and none of those that were there before?"""
    return len(members) > 1 and bool(before) and set(before).isdisjoint(members)
