"""What `mstxkit top` shows: a job in as many lines as a terminal has, what matters first. Every name is escaped."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Iterator, NamedTuple, Sequence

from ..host.parts import TRAINER
from ..judging.sight import Judges, Sighting
from ..reading.report.escape import for_terminal, shown
from ..reading.report.sentences import sentence
from ..reading.report.units import duration, spans
from ..store.whereabouts import Whereabouts, span

if TYPE_CHECKING:
    from rich.text import Text

    from ..store.job_file import JobState, RoleFigures, StageFigures
    from ..store.verdicts import Verdict

RANKS_AT_MOST = 16
_VERDICTS_SHOWN, _LATE_SHOWN, _TEXT_AT_MOST = 3, 4, 300
_NAME_COLUMNS, _NUMBER_COLUMNS, _WHO_COLUMNS, _WORK_COLUMNS = 26, 8, 12, 26
_STALE_S, _WIDEST, _SMALL = 15.0, 32, 20
_NS = 1e9


class Paper(NamedTuple):
    """What is drawn on.

    Args:
        columns, rows: Of the terminal.
        is_ascii: Can it show nothing else?
        run: The run's name.
        folder: The run's folder, as it was given.
    """

    columns: int
    rows: int
    is_ascii: bool
    run: str
    folder: str

    @property
    def dot(self) -> str:
        """Between two things on a line."""
        return " - " if self.is_ascii else " · "


def lines(sighting: Sighting, paper: Paper) -> list[Text]:
    """The picture: no line is wider than the paper, and there are no more of them than it has rows."""
    head = [*_title(sighting, paper), *_of_verdicts(sighting, paper)]
    tail = list(_tail(sighting, paper))
    tail = [_text(), *tail] if tail and paper.rows > _SMALL else tail
    ranks = list(_of_ranks(sighting, paper))
    rest = paper.rows - len(head) - len(tail)
    stages = list(_of_roles(sighting, paper, max(3, rest - min(len(ranks), max(3, rest // 3)))))
    ranks = _cut(ranks, max(0, rest - len(stages)))
    whole = [*head, *stages, *ranks, *tail]
    for line in whole:
        line.truncate(paper.columns, overflow="crop" if paper.is_ascii else "ellipsis")
    return whole[: paper.rows]


def _text(text: str = "", style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style, no_wrap=True)


def _title(sighting: Sighting, paper: Paper) -> Iterator[Text]:
    state = sighting.state
    steps = sorted({role.step for role in state.roles}) if state is not None else []
    step = "" if not steps else f"step {steps[-1]:,}" if len(steps) == 1 else f"steps {steps[0]:,} to {steps[-1]:,}"
    hosts = "" if state is None else f"{_counted(_members(state), 'rank')} on {_counted(state.hosts, 'host')}"
    line = _text(shown(paper.run), "bold")
    for part in filter(None, (step, hosts, _judged(sighting))):
        line.append(f"{paper.dot}{part}", "not bold")
    yield line
    yield _text()


def _members(state: JobState) -> int:
    return sum(role.members for role in state.roles)


def _judged(sighting: Sighting) -> str:
    if sighting.by == Judges.OVER:
        return f"the job is over since {span(max(0.0, sighting.age_s))}"
    if sighting.by == Judges.NOBODY:
        return "nothing to judge yet"
    if sighting.by == Judges.HERE:
        return "judged here: nobody else does"
    return f"judged {span(max(0.0, sighting.age_s))} ago"


def _of_verdicts(sighting: Sighting, paper: Paper) -> Iterator[Text]:
    if sighting.state is None:
        yield _text("No process has handed over a stage of a step yet: as soon as one has, it is shown here.")
        yield _text(f"mstxkit status {for_terminal(paper.folder)} shows which processes there are.", "dim")
        yield _text()
        return
    if not sighting.verdicts:
        yield _text("nobody is blamed: no rank is seen to make others wait", "green")
        yield _text()
        return
    few = sighting.verdicts[: _VERDICTS_SHOWN if paper.rows >= 34 else 1]
    for verdict in few:
        yield from _of_verdict(verdict, paper)
    if len(sighting.verdicts) > len(few):
        yield _text(
            f"  and {_counted(len(sighting.verdicts) - len(few), 'more verdict')}: mstxkit watch RUN --once", "dim"
        )
    yield _text()


def _of_verdict(verdict: Verdict, paper: Paper) -> Iterator[Text]:
    fields = {**verdict._asdict(), "group": list(verdict.group)}
    lost = f"{100 * verdict.impact_ratio:.0f} % of each step is lost" if verdict.impact_ratio else ""
    since = f"since step {verdict.since_step:,}" if verdict.since_step is not None else ""
    blame = _text("! ", "bold red") if verdict.is_blaming else _text("? ", "bold yellow")
    yield blame.append(sentence(fields), "bold")
    asked = f"profile asked for: {for_terminal(verdict.request, 40)}" if verdict.request else ""
    about = filter(None, (lost, since, for_terminal(verdict.waits_for, _TEXT_AT_MOST), asked))
    yield from _wrapped(paper.dot.join(about), paper)
    if verdict.next:
        yield from _wrapped(f"next: {for_terminal(verdict.next, _TEXT_AT_MOST)}", paper, "cyan")


def _wrapped(text: str, paper: Paper, style: str = "") -> Iterator[Text]:
    """On two lines at most, indented."""
    for line in textwrap.wrap(
        text, max(10, paper.columns - 2), max_lines=2, placeholder=" ...", break_on_hyphens=False
    ):
        yield _text(f"  {line}", style)


def _of_roles(sighting: Sighting, paper: Paper, rows: int) -> Iterator[Text]:
    """Of each role its stages: as many as there are rows for, the longest of them."""
    roles = () if sighting.state is None else sighting.state.roles
    each = max(1, rows // len(roles) - 4) if roles else 0
    for number, role in enumerate(roles):
        if 5 * number >= rows:
            yield _text(f"and {_counted(len(roles) - number, 'more role')} (--json)", "dim")
            return
        yield from _of_role(role, paper, each, {v.rank for v in sighting.verdicts if v.is_blaming})
        yield _text()


def _of_role(role: RoleFigures, paper: Paper, rows: int, blamed: set[int | None]) -> Iterator[Text]:
    longest = sorted(role.stages, key=lambda stage: -stage.max_s)[:rows]
    kept = [stage for stage in role.stages if stage in longest]
    kept.sort(key=lambda stage: stage.begin_ns)
    has_work = paper.columns >= 96 and any(stage.tokens_per_s for stage in kept)
    took = duration(max(0, role.end_ns - role.begin_ns))
    waits = f"{paper.dot}up to {100 * role.wait_ratio:.0f} % of it is waiting" if role.wait_ratio >= 0.005 else ""
    head = f"{shown(role.role) or 'ranks'}{paper.dot}step {role.step:,}{paper.dot}{took}{waits}"
    bar = _bar_columns(paper, has_work)
    numbers = f"{'median':>{_NUMBER_COLUMNS}}{'longest':>{_NUMBER_COLUMNS + 1}}  slowest"
    yield _text(head, "bold")
    full, rest = _marks(paper)
    legend = f"  {_fitted(f'{full} median  {rest} to the longest', _NAME_COLUMNS + 1 + bar)} "
    yield _text(legend + numbers, "dim")
    scale_s = max((stage.max_s for stage in kept), default=0.0)
    for stage in kept:
        yield _of_stage(stage, paper, bar, scale_s, blamed, has_work)
    if len(role.stages) > len(kept):
        yield _text(f"  and {_counted(len(role.stages) - len(kept), 'shorter stage')}", "dim")
    late = [rank for rank in role.late if rank.late_s >= 0.01 * (role.end_ns - role.begin_ns) / _NS][:_LATE_SHOWN]
    if late:
        who = (f"rank {rank.rank} by {duration(rank.late_s * _NS)} in {shown(rank.stage)}" for rank in late)
        yield _text("  late: ", "yellow").append("; ".join(who), "not dim")


def _bar_columns(paper: Paper, has_work: bool) -> int:
    taken = 2 + _NAME_COLUMNS + 1 + 1 + 2 * _NUMBER_COLUMNS + 1 + _WHO_COLUMNS + (_WORK_COLUMNS if has_work else 0)
    return max(6, min(60, paper.columns - taken))


def _of_stage(
    stage: StageFigures, paper: Paper, bar: int, scale_s: float, blamed: set[int | None], has_work: bool
) -> Text:
    line = _text(f"  {_fitted(shown(stage.stage), _NAME_COLUMNS)} ")
    full, rest = _marks(paper)
    until = _columns(stage.max_s, scale_s, bar)
    solid = min(until, _columns(stage.median_s, scale_s, bar))
    line.append(full * solid, "cyan").append(rest * (until - solid), "yellow").append(" " * (bar - until + 1))
    times = (duration(stage.median_s * _NS), duration(stage.max_s * _NS))
    line.append(f"{times[0]:>{_NUMBER_COLUMNS}}{times[1]:>{_NUMBER_COLUMNS + 1}}")
    slowest = "" if stage.slowest_rank is None else f"rank {stage.slowest_rank}"
    is_alone = stage.members > 1
    line.append(
        f"  {_fitted(slowest if is_alone else '', _WHO_COLUMNS - 2)}", "red" if stage.slowest_rank in blamed else ""
    )
    if has_work and stage.tokens_per_s:
        mfu = "" if stage.mfu_ratio is None else f", MFU {100 * stage.mfu_ratio:.0f} %"
        line.append(f"{_short(stage.tokens_per_s)} tok/s{mfu}")
    return line


def _marks(paper: Paper) -> tuple[str, str]:
    """Of a bar: up to the median, and from there to the longest. They differ without colours."""
    return ("#", "-") if paper.is_ascii else ("█", "░")


def _columns(value: float, scale: float, columns: int) -> int:
    if not (scale > 0 and math.isfinite(value)):
        return 0
    return min(columns, max(1 if value > 0 else 0, round(columns * value / scale)))


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


class _Doing(NamedTuple):
    """What those do that do the same."""

    role: str
    stage: str


def _of_ranks(sighting: Sighting, paper: Paper) -> Iterator[Text]:
    """A line a rank; of more than 16, those that do the same together."""
    if sighting.by == Judges.OVER:
        return
    ranks = [
        w for w in sighting.where if w.rank is not None and w.part in ("", TRAINER) and (w.stage or w.step is not None)
    ]
    if not ranks:
        return
    from rich.cells import cell_len

    ranks.sort(key=lambda where: (where.rank or 0, where.role))
    yield _text("now", "bold").append(f"{paper.dot}as their hosts said a few seconds ago", "dim not bold")
    if len(ranks) <= RANKS_AT_MOST:
        groups = [[rank] for rank in ranks]
    else:
        by_doing: dict[_Doing, list[Whereabouts]] = {}
        for rank in ranks:
            by_doing.setdefault(_Doing(rank.role, rank.stage or ""), []).append(rank)
        groups = sorted(by_doing.values(), key=len)
    shown_groups = groups[:RANKS_AT_MOST]
    rows = [[_who(group), shown(group[0].role), _steps(group)] for group in shown_groups]
    widths = [min(_WIDEST, max(cell_len(row[column]) for row in rows)) for column in range(3)]
    for row, group in zip(rows, shown_groups):
        yield _of_group("  ".join(_fitted(text, width) for text, width in zip(row, widths) if width), group)
    if len(groups) > RANKS_AT_MOST:
        yield _text(f"  and {_counted(sum(map(len, groups[RANKS_AT_MOST:])), 'more rank')} (--json)", "dim")


def _steps(group: Sequence[Whereabouts]) -> str:
    steps = sorted({where.step for where in group if where.step is not None})
    return "" if not steps else f"step {steps[0]:,}" + (f" to {steps[-1]:,}" if len(steps) > 1 else "")


def _of_group(begin: str, group: Sequence[Whereabouts]) -> Text:
    longest_s = max(where.in_stage_s or 0.0 for where in group)
    first = group[0]
    up_to = "up to " if len(group) > 1 else ""
    stage = f"{shown(first.stage)} for {up_to}{span(longest_s)}" if first.stage else "between two stages"
    oldest = max((where.age for where in group), key=lambda age: age.seconds)
    line = _text(f"  {begin}  {stage}")
    return line.append(f"  seen {oldest.words}", "bold yellow") if oldest.seconds > _STALE_S else line


def _who(group: Sequence[Whereabouts]) -> str:
    if len(group) == 1:
        return f"rank {group[0].rank}"
    text = spans(where.rank or 0 for where in group)
    return f"{len(group):,} ranks: {text}"


def _tail(sighting: Sighting, paper: Paper) -> Iterator[Text]:
    """What was lost, who is silent, and where figures go."""
    state = sighting.state
    if state is None:
        return
    if state.silences:
        names = ", ".join(map(shown, state.silent[:4])) + (", …" if state.silences > 4 else "")
        yield _text(f"{_counted(state.silences, 'host')} silent for a minute or more: {names}", "bold red")
    lost = [_counted(state.missed_rows, "sum of stages", "sums of stages")] if state.missed_rows else []
    lost += [_counted(state.dropped_batches, "batch", "batches")] if state.dropped_batches else []
    if lost:
        yield _text(f"never reached who judges: {' and '.join(lost)}", "yellow")
    for note in state.notes:
        yield _text(for_terminal(note, _TEXT_AT_MOST), "dim")


def _fitted(text: str, columns: int) -> str:
    """As wide as that: cut, or filled up. Wide characters count twice."""
    line = _text(text)
    line.truncate(columns, overflow="ellipsis", pad=True)
    return line.plain


def _counted(count: int, what: str, several: str = "") -> str:
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def _cut(drawn: list[Text], rows: int) -> list[Text]:
    if len(drawn) <= rows:
        return drawn
    return [
        *drawn[: max(0, rows - 1)],
        _text(f"  and {_counted(len(drawn) - max(0, rows - 1), 'more line')} (--json)", "dim"),
    ][:rows]
