"""The history of one role, and what stands out in it after each step."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Iterable, Sequence

import numpy as np

from ..triggers import imbalance, jitter, slow_rank, slow_stage
from ..triggers.late_rank import LateRank, after_others, middle_of
from ..triggers.serial import Serial
from ..triggers.slow_link import SlowLink
from . import cutting, naming
from .columns import COLUMNS, Ranks, or_zero
from .cpu_waits import explains_loss, held_up
from .cutting import BEFORE, IN, Piece, StepPieces, are_of
from .everybody import AloneInStages, Everybody
from .evidence import Matrix, Peer, RoleStep, Truths
from .findings import LEFT_SHARE, Finding, Key, RoleFound, Seen, Surplus
from .gates import Gates, Holding
from .inside import Inside, measure_inside
from .lessons import RoleLessons, StepCutter
from .links import LINK, Links
from .losses import JobLosses, Losses, StepLoss
from .measuring import BEHIND, BEHIND_GAP, FED, FREE, IN_A_ROW, INSIDE, WAITS, MeasuredStep
from .settings import JudgeSettings
from .shaping import INPUT_STAGE, entered_stages, key_of, told_stages
from .stalls import Stalls

# Ranks that are found slow at once in one stage, at most: more of them are no exception.
_AT_MOST = 8
_USUAL_FOLLOWS = 0.1
# Who is done within this share of what they take longer was released together.
_TOGETHER = 0.04
# Whose excess varies from step to step by less than this share of it is slow all the time. Who is not costs more than
# others do: these take less than this share of it.
_STEADY, _OTHERS_RATIO = 0.75, 0.3
# Rings are asked for from this share on of what a rank must cost to be named.
_ASKS_SHARE = 0.75
# Who has been slow for more steps than this is not only late now and then.
_LASTS_STEPS = 5
# Rings of so many steps, or of two thirds of all in which something is slow, are of when it was slow.
_RECENT_STEPS = 8
_REMEMBERED = 256  # so many steps' numbers: some count by tens


class RoleHistory(RoleLessons):
    """What is remembered of a role: of the size of its members and pieces, whatever the number of steps.

    Attributes:
        members: Those that were compared last.
        judged_steps: So many steps of several members could lead to a verdict.
    """

    def __init__(self, role: str, job: JobLosses) -> None:
        super().__init__(role, job.feeds)
        self.cutter, self.judged_steps = StepCutter(), 0
        self.members: tuple[Peer, ...] = ()
        self.holding, self.links, self._stalls = Holding(), Links(), Stalls()
        self.ring_steps, self._judged = deque[int](maxlen=_REMEMBERED), deque[int](maxlen=_REMEMBERED)
        self._everybody, self._alone = Everybody(role, job.feeds), AloneInStages()
        self._losses = job.roles[role] = Losses(job, self.norms)
        self._keys: tuple[str, ...] = ()
        self._loads, self._works = Ranks(0), Ranks(0)
        self._usual_s = np.full(COLUMNS, np.nan)
        self._told: set[str] = set()  # stages of whose work something is told
        self._shown: list[MeasuredStep] = []
        self._builds_up, self._knows_work = tuple[str, ...](), False

    def close(self, step: RoleStep, settings: JudgeSettings, explained: Iterable[str] = ()) -> RoleFound:
        """One step more, without controllers. `explained`: stages whose slowness a verdict explains that stands."""
        self._shown = []
        if step.step <= self.cutter.last_step:
            return self._late_rings(step, settings)
        self._arrange(step, settings.of(Gates))
        pieces, before_s = self.cutter.cut(step)
        if not pieces.kinds:
            return RoleFound()
        is_evidence, may_judge = self.holding.is_judged(settings.of(Gates), entered_stages(step))
        base_s = self.base_s
        if not is_evidence or not self.follow(step, pieces):
            return RoleFound()
        self._everybody.levels.rebase(base_s, self.base_s)
        self._begin_anew_where_regrouped()
        tells = None if step.collectives is None else measure_inside(step, step.collectives)
        self._losses.closed(step, pieces, tells, before_s)
        self._told = told_stages(step)
        changed = self._everybody.changed_stages(settings.of(slow_stage.SlowStage), self.norms.columns)
        self.norms.suspected = {*explained, *changed}
        return self._judge(step, pieces, tells, settings, may_judge, set(explained))

    def _begin_anew_where_regrouped(self) -> None:
        for kind in self.norms.regrouped:
            self._everybody.levels.begin_anew(self.norms.columns.find(kind))

    def _judge(
        self, step: RoleStep, pieces: StepPieces, tells: Inside | None, settings: JudgeSettings, may_judge: bool,
        explained: set[str],
    ) -> RoleFound:  # fmt: skip
        measured = self._measure(step, pieces, tells)
        self._judged.append(step.step)
        self.judged_steps += may_judge and len(step.members) > 1
        findings = self._slow_ranks(measured, step, settings, may_judge)
        if may_judge:
            findings += self._alone.find(settings.of(Serial), measured, self._keys, self.step_s, self.lost)
        if tells is not None:
            self.ring_steps.append(step.step)
            findings = self._with_links(findings, step, tells, settings, may_judge)
        limits = settings.of(slow_stage.SlowStage)
        if not may_judge:
            self._everybody.learn(limits, measured, False, explained)
            return RoleFound(is_evidence=True, has_rings=tells is not None)
        explained |= {finding.key.stage for finding in findings}
        slower, inside_of = self._everybody.find(limits, measured, explained, self.step_s, self.base_s, self._may_hide)
        builds_up = [stage for stage in self._builds_up_inside(measured, settings) if stage not in explained]
        asks = dict.fromkeys([*inside_of, *builds_up])
        return RoleFound((*findings, *slower[:3]), tuple(asks), True, tells is not None, bool(builds_up))

    def _slow_ranks(
        self, measured: MeasuredStep, step: RoleStep, settings: JudgeSettings, may_judge: bool
    ) -> list[Finding]:
        limits, work_limits, at = settings.of(slow_rank.SlowRank), settings.of(imbalance.Imbalance), measured.at
        noise, is_settled = measured.noise, self.ranks.seen[:, at] >= settings.of(Gates).first
        findings: list[Finding] = []
        if may_judge:
            excess = np.where(is_settled, measured.excess - self.ranks.lowest_level(at), np.nan)
            sums = self.ranks.add(limits, at, excess, noise)
            fires = slow_rank.find_slow(limits, sums, excess.size) & self._stands_out(measured, sums, settings)
            lost_ratio = self._lost_s(measured, sums) / self.step_s
            fires &= naming.is_sure(measured, sums, lost_ratio, settings)
            findings = self._findings(measured, sums, fires & measured.is_comparable[None, :], limits, excess.size)
            findings += self._stalls_now(measured, sums, settings)
        self.ranks.learn(at, measured.learned, noise)
        if self._knows_work:
            work_noise = self._works.noise(at, measured.by_work)
            if may_judge:
                findings += self._imbalances(measured, work_noise, is_settled, limits, work_limits)
            self._works.learn(at, measured.by_work, work_noise)
            load = np.where(np.isfinite(measured.excess), measured.load, np.nan)
            self._loads.learn(at, load, np.ones(len(at))[None, :])
        return [held_up(finding, step.cpu, self.step_s) for finding in findings]

    def _stalls_now(self, measured: MeasuredStep, sums: slow_rank.AddedUp, settings: JudgeSettings) -> list[Finding]:
        """Who is late now and then; whoever is slow for several steps already is not."""
        limit = settings.of(slow_rank.SlowRank).threshold
        lasts = ((sums.steps > _LASTS_STEPS) & (sums.score > limit)).any(axis=1)
        more_s = self._more_s(measured, measured.excess)
        excess = np.where(measured.is_comparable[None, :], measured.excess, np.nan)
        return self._stalls.add(
            settings.of(jitter.Jitter), self.cutter.last_step, measured._replace(excess=excess), more_s, self.step_s,
            self.members, self._keys, np.asarray(lasts), self._losses.of_stall,
        )  # fmt: skip

    def _more_s(self, measured: MeasuredStep, excess: Matrix) -> Matrix:
        """(M, K) by how much longer it took than it would have without this excess."""
        return np.asarray((measured.took_s + self.base_s) * -np.expm1(-excess))

    def _lost_s(self, measured: MeasuredStep, sums: slow_rank.AddedUp) -> Matrix:
        """(M, K) by how much longer it takes than it should, as far as that was seen since it began."""
        usual_s = np.fmin(measured.usual_s, self._usual_s[measured.at]) + self.base_s
        own_s = (measured.took_s + self.base_s) * np.exp(-measured.excess)  # each row takes as long as it does
        return np.asarray(np.expm1(sums.mean) * np.where(measured.mode == IN_A_ROW, own_s, usual_s))

    def _stands_out(
        self, measured: MeasuredStep, sums: slow_rank.AddedUp, settings: JudgeSettings, share: float = 1.0
    ) -> Truths:
        """(M, K): by enough of the step or a share of that, apart from how ranks differ anyhow, and by more than more
        work may explain.
        """
        limits, at = settings.of(slow_rank.SlowRank), measured.at
        level = np.where(np.isfinite(measured.excess), self.ranks.level[:, at], np.nan)
        middle = middle_of(level)
        spread = 1.4826 * middle_of(np.abs(level - middle))
        is_apart = (np.isfinite(level).sum(axis=0) < 5) | (sums.mean - middle > limits.apart * spread)
        # Who is slow in some steps only is compared with who is next to the slowest: ranks may take turns.
        is_steady = self.ranks.variance[:, at] < (_STEADY * sums.mean) ** 2
        second = np.sort(np.where(np.isfinite(level), level, -np.inf), axis=0)[-2:][0]
        is_apart &= is_steady | (second < _OTHERS_RATIO * sums.mean)
        doubt = settings.of(imbalance.Imbalance).curvature * np.maximum(
            0.0, self._loads.level[:, at] - 0.5 * np.sqrt(middle_of(self._loads.variance[:, at]))
        )
        impact = np.where(are_of(measured.kinds, INSIDE), settings.of(LateRank).impact, limits.impact)
        is_enough = self._lost_s(measured, sums) >= share * impact * self.step_s
        return np.asarray(is_enough & is_apart & (sums.mean - doubt >= math.log1p(limits.effect)))

    def _findings(
        self, measured: MeasuredStep, sums: slow_rank.AddedUp, fires: Truths,
        limits: slow_rank.SlowRank, compared: int,
    ) -> list[Finding]:  # fmt: skip
        findings: list[Finding] = []
        tied = naming.find_tied(measured, sums, self.base_s) if fires.any() else fires
        threshold, rows = slow_rank.threshold_for(limits, compared), self.norms.rows.of_any()
        for piece in np.flatnonzero(fires.any(axis=0)).tolist():
            score = np.where(np.isfinite(measured.excess[:, piece]), sums.score[:, piece], np.nan)
            sets = naming.sets_in(fires[:, piece], score, sums.mean[:, piece], threshold, self.members, rows)
            for slow in sets:
                late_s = self._more_s(measured, measured.excess)[slow.places, piece]
                apart_s = np.nanstd(measured.done_s[slow.places, piece])
                # Are these done at once, as if one kept the others waiting in a group that nobody has told of?
                are_released = measured.mode[piece] != FREE and apart_s < _TOGETHER * np.nanmedian(late_s)
                if not (are_released if len(slow.places) > 1 else tied[slow.places[0], piece]):
                    findings.append(self._finding(measured, sums, piece, slow, threshold))
            # Those that are tied are named together: nothing tells whether one of them keeps the others waiting.
            is_any_tied = any(len(slow.places) == 1 and tied[slow.places[0], piece] for slow in sets)
            if is_any_tied and measured.mode[piece] == FREE and not self.ring_steps:
                several = naming.SlowSet(np.flatnonzero(tied[:, piece]))
                findings.append(self._finding(measured, sums, piece, several, threshold)._replace(is_hidden=True))
        return sorted(findings, key=lambda finding: -finding.certainty)[:_AT_MOST]

    def _finding(
        self, measured: MeasuredStep, sums: slow_rank.AddedUp, piece: int, slow: naming.SlowSet, threshold: float
    ) -> Finding:  # fmt: skip
        kind, places = measured.kinds[piece], slow.places
        is_input = kind.stage == INPUT_STAGE and kind.where not in (BEFORE, BEHIND_GAP)
        steps = int(np.median(sums.steps[places, piece]))
        mean = float(np.median(sums.mean[places, piece]))
        score = float(sums.score[places, piece].max())
        is_set = len(places) > 1
        ranks = tuple(sorted(peer.rank for at in places.tolist() if (peer := self.members[at]).rank is not None))
        return Finding(
            Key(
                "input" if is_input else "compute", kind.where, kind.stage,
                f"{slow.dimension}:{slow.name}" if is_set else self._keys[places[0]],
            ),
            -1 if is_set else int(places[0]), steps, math.expm1(mean),
            float(math.expm1(mean) * (measured.usual_s[piece] + self.base_s)), score / threshold,
            ranks if is_set else (),
            {
                "score": round(score, 2), "threshold": round(threshold, 2), "usual_s": float(measured.usual_s[piece]),
                **({slow.dimension: slow.name} if slow.dimension else {}),
                **({"is_work_told": True} if kind.where != BEFORE and kind.stage in self._told else {}),
            },
            owner=measured.owners[piece], members=tuple(self._keys[at] for at in places.tolist()) if is_set else (),
        )  # fmt: skip

    def _imbalances(
        self, measured: MeasuredStep, noise: Matrix, is_settled: Truths, limits: slow_rank.SlowRank,
        work_limits: imbalance.Imbalance,
    ) -> list[Finding]:  # fmt: skip
        # Work that falls to ranks by chance is no imbalance: how far apart they are in a step is what is usual.
        if len(measured.by_work) >= 5:
            noise = np.fmax(noise, 1.4826 * middle_of(np.abs(measured.by_work))[None, :])
        limits = replace(limits, clip=min(limits.clip, 2.0))
        by_work = np.where(is_settled, measured.by_work, np.nan)
        sums = self._works.add(limits, measured.at, by_work, noise)
        lost_s = np.expm1(sums.mean) * (measured.usual_s + self.base_s)[None, :]
        fires = (sums.score > slow_rank.threshold_for(limits, sums.score.size)) & (sums.steps >= work_limits.steps)
        fires &= (sums.mean >= math.log1p(work_limits.effect)) & (lost_s >= work_limits.impact * self.step_s)
        fires &= are_of(measured.kinds, IN, INSIDE)[None, :]
        findings = self._findings(measured, sums, fires, limits, sums.score.size)
        return [finding._replace(key=finding.key._replace(kind="imbalance")) for finding in findings]

    # Whose links are slow, and what has become slower for all.

    def _with_links(
        self, findings: list[Finding], step: RoleStep, tells: Inside, settings: JudgeSettings, may_judge: bool
    ) -> list[Finding]:
        """These and slow links; but for ranks that may be a little later by a link that is suspected."""
        assert step.collectives is not None
        links = self.links.add(settings.of(SlowLink), step, step.collectives, tells.groups, self.step_s)
        links = [each for each in links if may_judge and not explains_loss(step.cpu, each.lost_s, self.step_s)]
        return [each for each in findings if not self._may_be_a_link(each)] + links

    def _may_be_a_link(self, finding: Finding) -> bool:
        if finding.key.where != INSIDE:
            return False
        ranks = {self.members[self._keys.index(key)].rank for key in finding.part().members} - {None}
        return finding.lost_s < LEFT_SHARE * self.links.suspected_s(finding.key.stage, ranks)

    def _builds_up_inside(self, measured: MeasuredStep, settings: JudgeSettings) -> tuple[str, ...]:
        """Stages in which the last rings that told show that somebody may be late inside, and not yet for sure."""
        inside_at = [place for place, kind in enumerate(measured.kinds) if kind.where == INSIDE]
        if inside_at:
            sums = self.ranks.sums.of(measured.at)
            builds_up = sums.score > settings.of(slow_stage.SlowStage).asks_at
            builds_up &= self._stands_out(measured, sums, settings, _ASKS_SHARE)
            self._builds_up = tuple(measured.kinds[place].stage for place in inside_at if builds_up[:, place].any())
        return self._builds_up

    def _may_hide(self, kind: Piece, mode: int, steps: int) -> bool:
        """May somebody be late inside of a piece, not surely seen in so many steps, or may a link be slow in it?"""
        is_inside = len(self.members) > 1 and mode != FREE and kind.where in (IN, BEHIND)
        # Have there been rings of enough of the last so many steps? In the first of these it may not have begun.
        since = _first_of(self._judged, max(min(steps, _RECENT_STEPS), steps - steps // 3))
        has_rings = sum(step >= since for step in self.ring_steps) >= 3
        is_hidden = is_inside and (kind.stage in self._builds_up or not has_rings)
        return is_hidden or self.links.suspects(kind.stage)

    def since(self, finding: Finding) -> int:
        """The number of the first step in which it was seen, as far back as steps are remembered."""
        by_rings = finding.key.where in (INSIDE, LINK)
        return _first_of(self.ring_steps if by_rings else self._judged, finding.steps)

    def _late_rings(self, step: RoleStep, settings: JudgeSettings) -> RoleFound:
        """The collectives of a step that was closed before."""
        is_of_use = step.members == self.members and self.step_s > 0 and step.step not in self.ring_steps
        if step.collectives is None or not is_of_use:
            return RoleFound()
        tells = measure_inside(step, step.collectives)
        if not (np.isfinite(tells.own_s).sum(axis=0) > 1).any():
            return RoleFound()
        self.norms.learn_groups(step)
        self._begin_anew_where_regrouped()
        self._losses.rings_of(step, tells)
        measured = self._measure(step, cutting.no_pieces(len(step.members)), tells)
        may_judge = self.holding.steps > settings.of(Gates).warm_up
        self.ring_steps.append(step.step)
        findings = self._slow_ranks(measured, step, settings, may_judge)
        findings = self._with_links(findings, step, tells, settings, may_judge)
        self._builds_up_inside(measured, settings)
        return RoleFound(tuple(findings), (), True, True)

    def _measure(self, step: RoleStep, pieces: StepPieces, tells: Inside | None) -> MeasuredStep:
        measured = self.measure(step, pieces, tells)
        self._knows_work = self._knows_work or not np.isnan(step.work).all() or bool((step.occurrences > 1).any())
        for ranks in (self._loads, self._works):
            ranks.widen(len(self.norms.columns))
        self._shown.append(measured)
        # Time in the middle, as of late: what all wait for now and then, for a buffer say, nobody has made longer.
        before = self._usual_s[measured.at]
        before = np.where(np.isfinite(before), before, measured.usual_s)
        self._usual_s[measured.at] = before + _USUAL_FOLLOWS * or_zero(measured.usual_s - before)
        return measured

    @property
    def somebody_waits(self) -> bool:
        """Do members wait for each other somewhere, as far as the step that was closed last shows?"""
        shown = [kind for shown in self._shown for kind in zip(shown.mode.tolist(), shown.kinds)]
        return any(mode in (WAITS, FED, IN_A_ROW) or kind.where == INSIDE for mode, kind in shown)

    def seen(self, finding: Finding) -> Seen | None:
        """What the step that was closed last shows of it; None where it does not show."""
        kind, members = Piece(finding.key.where, finding.key.stage), finding.part().members
        measured = next((shown for shown in self._shown if kind in shown.kinds), None)
        places = [self._keys.index(key) for key in members if key in self._keys]
        if measured is None or not places:
            return None
        piece = measured.kinds.index(kind)
        values = (measured.by_work if finding.key.kind == "imbalance" else measured.excess)[places, piece]
        if not np.isfinite(values).any():
            return None
        excess, took_s = float(np.nanmedian(values)), float(np.nanmedian(measured.took_s[places, piece]))
        more_s = -math.expm1(-excess) * (took_s + self.base_s)
        return self._seen(measured, piece, excess, max(0.0, more_s))

    def took_s(self, where: str, stage: str, group: tuple[int, ...]) -> float | None:
        """What a piece has taken in the step that was closed last, or the collectives of a group in it; None where that
        does not show.
        """
        if where == LINK:
            return self.links.took_s(stage, group)
        kind = Piece(where, stage)
        measured = next((shown for shown in self._shown if kind in shown.kinds), None)
        took_s = math.nan if measured is None else float(measured.usual_s[measured.kinds.index(kind)])
        return took_s if math.isfinite(took_s) else None

    def _seen(self, measured: MeasuredStep, piece: int, excess: float, more_s: float) -> Seen:
        kind = measured.kinds[piece]
        later = np.flatnonzero((measured.mode == WAITS) & (np.arange(len(measured.mode)) > piece))
        if kind.where == INSIDE or not len(later):
            return Seen(excess, 1.0, kind.stage if kind.where == INSIDE else "")
        late_s = after_others(measured.came_s[:, later[0]]) - measured.error_s
        all_late_s = max(float(np.fmax.reduce(late_s)), more_s)
        where = measured.kinds[later[0]]
        return Seen(excess, more_s / all_late_s if all_late_s > 0 else 0.0, where.stage, where.where == BEHIND_GAP)

    def lost(self, parts: Sequence[Surplus]) -> StepLoss | None:
        """What the step that was closed last loses by some causes together; None where it does not show."""
        return next(iter(self.lost_lately(parts, 1)), None)

    def lost_lately(self, parts: Sequence[Surplus], steps: int) -> list[StepLoss]:
        """The same of each of the last so many steps."""
        return list(self._losses.lately(parts, self.base_s, steps))

    def forget(self, finding: Finding) -> None:
        """What was found is gone: tests begin anew, of a rank in all that it does."""
        key, members = finding.key, finding.part().members
        column = self.norms.columns.find(Piece(key.where, key.stage))
        if column >= 0 and not members:
            self._everybody.levels.forget(column)
        for member in set(members).intersection(self._keys):
            (self._works if key.kind == "imbalance" else self.ranks).forget(self._keys.index(member))

    def _arrange(self, step: RoleStep, gates: Gates) -> None:
        if step.members == self.members:
            return
        keys = tuple(map(key_of, step.members))
        before = {key: place for place, key in enumerate(self._keys)}
        places = np.array([before.get(key, -1) for key in keys], dtype=np.int64)
        if self._keys and set(keys) != set(self._keys):
            self.holding.resized(gates)
        self.norms.forget_groups()
        self._builds_up = ()
        for ranks in (self.ranks, self._loads, self._works):
            ranks.rearrange(places)
        self.members, self._keys = step.members, keys


def _first_of(numbers: deque[int], steps: int) -> int:
    """Of the last so many of these steps."""
    return numbers[-min(max(1, steps), len(numbers))]
