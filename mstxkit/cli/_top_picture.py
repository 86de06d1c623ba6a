"""What `mstxkit top` shows: a job in as many lines as a terminal has, what matters first. Every name is escaped."""

from __future__ import annotations

import math
import textwrap
import time
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Sequence

from ..judging.live_state import Judges, LiveState
from ..reading.report import no_verdict
from ..reading.report.account import Account
from ..reading.report.escape import escape_name, for_terminal
from ..reading.report.judged_so_far import in_words
from ..reading.report.no_verdict import HEALTHY
from ..reading.report.units import write_count, write_duration, write_spans
from ..store.incidents import HANG
from ..store.values import group_by
from ..store.whereabouts import Whereabouts, write_span

if TYPE_CHECKING:
    from rich.text import Text

    from ..store.job_file import RoleFigures, StageFigures

_MATTERS_SHOWN, _LATE_SHOWN, _TEXT_AT_MOST = 3, 4, 300
_NAME_COLUMNS, _NUMBER_COLUMNS, _WHO_COLUMNS, _WORK_COLUMNS = 26, 8, 12, 26
_BAR_LEAST, _BAR_MOST = 6, 60
# What a line of a stage has beside its name and its bar.
_BESIDE_COLUMNS = 2 + 1 + 1 + 2 * _NUMBER_COLUMNS + 1 + _WHO_COLUMNS
_SMALL = 20
_RANKS_AT_MOST, _STALE_S, _WIDEST = 16, 15.0, 32
# Of a bar, by whether all is ASCII: up to the median, and from there to the longest. They differ without colours.
_MARKS = {True: ("#", "-"), False: ("█", "░")}
_IN_ASCII = {ord("…"): "~", ord("µ"): "u", ord("·"): "-"}
_NS = 1e9
_SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


class Paper(NamedTuple):
    """A terminal, or a pipe, and whose job is drawn."""

    columns: int
    rows: int
    is_ascii: bool  # can it show nothing else?
    run: str  # the run's name
    folder: str  # the run's folder, as it was given

    @property
    def dot(self) -> str:
        """Between two things on a line."""
        return " - " if self.is_ascii else " · "


def draw_lines(live_state: LiveState, paper: Paper, matters: Sequence[dict[str, Any]]) -> list[Text]:
    """The picture: no line is wider than the paper, and there are no more of them than it has rows.
    `matters`: what is the matter, first what weighs most.
    """
    head = [*_draw_title(live_state, paper), *_of_matters(live_state, paper, matters)]
    tail = list(_draw_tail(live_state))
    tail = [_line_of(), *tail] if tail and paper.rows > _SMALL else tail
    ranks = list(_of_ranks(live_state, paper))
    rest = paper.rows - len(head) - len(tail)
    stages = list(_of_roles(live_state, paper, max(3, rest - min(len(ranks), max(3, rest // 3)))))
    left = max(0, rest - len(stages))
    if len(ranks) > left:
        kept = ranks[: max(0, left - 1)]
        more = _line_of(f"  and {write_count(len(ranks) - len(kept), 'more line')} (--json)", "dim")
        ranks = [*kept, more][:left]
    whole = [*head, *stages, *ranks, *tail]
    for line in whole:
        if paper.is_ascii:  # of as many characters, so that colours stay where they are
            line.plain = line.plain.translate(_IN_ASCII)
        line.truncate(paper.columns, overflow="crop" if paper.is_ascii else "ellipsis")
    return whole[: paper.rows]


def _draw_title(live_state: LiveState, paper: Paper) -> Iterator[Text]:
    state = live_state.state
    steps = sorted({role.step for role in state.roles}) if state is not None else []
    step = "" if not steps else f"step {steps[-1]:,}" if len(steps) == 1 else f"steps {steps[0]:,} to {steps[-1]:,}"
    members = 0 if state is None else sum(role.members for role in state.roles)
    hosts = "" if state is None else f"{write_count(members, 'rank')} on {write_count(state.hosts, 'host')}"
    ago = write_span(max(0.0, live_state.age_s))
    age = {
        Judges.OVER: f"the job is over since {ago}", Judges.NOBODY: "nothing to judge yet",
        Judges.HERE: "judged here: nobody else does",
    }.get(live_state.by, f"judged {ago} ago")  # fmt: skip
    parts = [part for part in (step, hosts, age) if part]
    rest = "".join(f"{paper.dot}{part}" for part in parts)
    if len(rest) + len(escape_name(paper.run)) > paper.columns:  # whether it is of now is never cut off
        rest = "".join(f"{paper.dot}{part}" for part in parts if part != hosts)
    name = _line_of(escape_name(paper.run))
    name.truncate(max(4, paper.columns - len(rest)), overflow="ellipsis")
    yield _line_of(name.plain, "bold").append(rest, "not bold")
    if live_state.by != Judges.OVER and (behind := in_words(state, live_state.where)):
        yield _line_of(behind, "bold yellow")
    yield _line_of()


def _of_matters(live_state: LiveState, paper: Paper, every: Sequence[dict[str, Any]]) -> Iterator[Text]:
    """What is the matter, first what weighs most; of a small terminal that alone."""
    if live_state.state is None and live_state.incident is None and live_state.by != Judges.OVER:
        yield _line_of("No process has handed over a stage of a step yet: once one has, it is shown.")
        yield _line_of(f"mstxkit status {for_terminal(paper.folder)} shows which processes there are.", "dim")
        yield _line_of()
        return
    few = every[: _MATTERS_SHOWN if paper.rows >= 34 else 1]
    for matter in few:
        style, mark = "green" if matter["kind"] == HEALTHY else "yellow", ""
        if matter["blames"]:
            style, mark = "bold red", "! "
        first, *rest = _wrap_text(mark + matter["words"], paper)
        yield _line_of(mark, style).append(first.strip()[len(mark) :], "bold" if mark else style)
        yield from (_line_of(line, "bold" if mark else style) for line in rest)
        profile = f"profile: {matter['profile']}" if matter["profile"] else ""
        about = filter(None, (matter["cost"], matter["why"], profile, "" if matter["next"] else matter["advice"]))
        yield from map(_line_of, _wrap_text(paper.dot.join(about), paper))
        if matter["next"]:
            yield from (_line_of(line, "cyan") for line in _wrap_text(f"next: {matter['next']}", paper))
    if more := len(every) - len(few):
        yield _line_of(f"  and {write_count(more, 'thing')} more: mstxkit report {for_terminal(paper.folder)}", "dim")
    yield _line_of()


def account_of(live_state: LiveState, folder: str) -> Account:
    """What is known of a run by a look at its files."""
    state, now_ns = live_state.state, time.time_ns()
    judged = no_verdict.judged_live(state.judged_steps if state else (), bool(state and state.roles))
    incident, is_running = live_state.incident, live_state.by != Judges.OVER
    if incident is not None and incident.kind == HANG and is_running:  # so long by now
        incident = incident._replace(time_ns=max(now_ns, incident.time_ns))
    return Account(
        folder, judged, [verdict.plain for verdict in live_state.verdicts],
        incidents=[] if incident is None else [incident.facts], is_running=is_running,
    )  # fmt: skip


def _wrap_text(text: str, paper: Paper) -> list[str]:
    """On two lines at most, indented."""
    how: Any = {"break_on_hyphens": False, "max_lines": 2, "placeholder": " ..."}
    return textwrap.wrap(text, max(12, paper.columns), initial_indent="  ", subsequent_indent="  ", **how)


def _of_roles(live_state: LiveState, paper: Paper, rows: int) -> Iterator[Text]:
    """Of each role its stages: as many as there are rows for, the longest of them."""
    roles = () if live_state.state is None else live_state.state.roles
    each = max(1, rows // len(roles) - 4) if roles else 0
    for number, role in enumerate(roles):
        if 5 * number >= rows:
            yield _line_of(f"and {write_count(len(roles) - number, 'more role')} (--json)", "dim")
            return
        blamed = {verdict.rank for verdict in live_state.verdicts if verdict.is_blaming and verdict.role == role.role}
        yield from _of_role(role, paper, each, blamed)
        yield _line_of()


def _of_role(role: RoleFigures, paper: Paper, rows: int, blamed: set[int | None]) -> Iterator[Text]:
    longest = sorted(role.stages, key=lambda stage: -stage.max_s)[:rows]
    kept = [stage for stage in role.stages if stage in longest]
    kept.sort(key=lambda stage: stage.begin_ns)
    has_work = paper.columns >= 96 and any(stage.tokens_per_s for stage in kept)
    took = write_duration(max(0, role.end_ns - role.begin_ns))
    waits = f"{paper.dot}up to {100 * role.wait_ratio:.0f} % of it is waiting" if role.wait_ratio >= 0.005 else ""
    name = escape_name(role.role) or ("ranks" if role.members else "driver")
    head = f"{name}{paper.dot}step {role.step:,}{paper.dot}{took}{waits}"
    taken = _BESIDE_COLUMNS + _name_columns(paper) + (_WORK_COLUMNS if has_work else 0)
    bar = max(_BAR_LEAST, min(_BAR_MOST, paper.columns - taken))
    numbers = f"{'median':>{_NUMBER_COLUMNS}}{'longest':>{_NUMBER_COLUMNS + 1}}  slowest"
    yield _line_of(head, "bold")
    full, rest = _MARKS[paper.is_ascii]
    legend = f"  {_fit_text(f'{full} median  {rest} to the longest', _name_columns(paper) + 1 + bar)} "
    yield _line_of(legend + numbers, "dim")
    scale_s = max((stage.max_s for stage in kept), default=0.0)
    for stage in kept:
        yield _of_stage(stage, paper, bar, scale_s, blamed, has_work)
    if len(role.stages) > len(kept):
        yield _line_of(f"  and {write_count(len(role.stages) - len(kept), 'shorter stage')}", "dim")
    late = [rank for rank in role.late if rank.late_s >= 0.01 * (role.end_ns - role.begin_ns) / _NS][:_LATE_SHOWN]
    if late:
        host = (escape_name(rank.host) for rank in late)
        names = [f"a process of {of}" if rank.rank is None else f"rank {rank.rank}" for of, rank in zip(host, late)]
        places = (f"{write_duration(rank.late_s * _NS)} in {escape_name(rank.stage)}" for rank in late)
        who = (f"{name} by {place}" for name, place in zip(names, places))
        yield _line_of("  late: ", "yellow").append("; ".join(who), "not dim")


def _name_columns(paper: Paper) -> int:
    """Of a stage: in a narrow terminal fewer, so that who is the slowest is not cut off."""
    return max(8, min(_NAME_COLUMNS, paper.columns - _BESIDE_COLUMNS - _BAR_LEAST))


def _of_stage(
    stage: StageFigures, paper: Paper, bar: int, scale_s: float, blamed: set[int | None], has_work: bool
) -> Text:
    line = _line_of(f"  {_fit_text(escape_name(stage.stage), _name_columns(paper))} ")
    full, rest = _MARKS[paper.is_ascii]
    until = _count_columns(stage.max_s, scale_s, bar)
    solid = min(until, _count_columns(stage.median_s, scale_s, bar))
    line.append(full * solid, "cyan").append(rest * (until - solid), "yellow").append(" " * (bar - until + 1))
    times = (write_duration(stage.median_s * _NS), write_duration(stage.max_s * _NS))
    line.append(f"{times[0]:>{_NUMBER_COLUMNS}}{times[1]:>{_NUMBER_COLUMNS + 1}}")
    slowest = f"rank {stage.slowest_rank}" if stage.slowest_rank is not None and stage.members > 1 else ""
    line.append(f"  {_fit_text(slowest, _WHO_COLUMNS - 2)}", "red" if stage.slowest_rank in blamed else "")
    if has_work and stage.tokens_per_s:
        mfu = "" if stage.mfu_ratio is None else f", MFU {100 * stage.mfu_ratio:.0f} %"
        scale, unit = next((of for of in _SCALES if stage.tokens_per_s >= of[0]), (1.0, ""))
        line.append(f"{stage.tokens_per_s / scale:.3g}{unit} tok/s{mfu}")
    return line


def _count_columns(value: float, scale: float, columns: int) -> int:
    if not (scale > 0 and math.isfinite(value)):
        return 0
    return min(columns, max(1 if value > 0 else 0, round(columns * value / scale)))


def _of_ranks(live_state: LiveState, paper: Paper) -> Iterator[Text]:
    """A line a rank; of more than 16, those that do the same together."""
    ranks = [where for where in live_state.where if where.is_at_work]
    if live_state.by == Judges.OVER or not ranks:
        return
    from rich.cells import cell_len

    ranks.sort(key=lambda where: (where.rank is None, where.rank or 0, where.role, where.called))
    yield _line_of("now", "bold").append(f"{paper.dot}as their hosts said a few seconds ago", "dim not bold")
    if len(ranks) <= _RANKS_AT_MOST:
        groups = [[rank] for rank in ranks]
    else:
        groups = sorted(group_by(ranks, lambda rank: (rank.role, rank.stage or "")).values(), key=len)
    shown_groups = groups[:_RANKS_AT_MOST]
    rows = [_list_cells(group) for group in shown_groups]
    widths = [min(_WIDEST, max(cell_len(row[column]) for row in rows)) for column in range(3)]
    for row, group in zip(rows, shown_groups):
        begin = "  ".join(_fit_text(text, width) for text, width in zip(row, widths) if width)
        in_stage = f"{'up to ' if len(group) > 1 else ''}{write_span(max(where.in_stage_s or 0.0 for where in group))}"
        stage = f"{escape_name(group[0].stage)} for {in_stage}" if group[0].stage else "between two stages"
        oldest = max((where.age for where in group), key=lambda age: age.seconds)
        line = _line_of(f"  {begin}  {stage}")
        yield line.append(f"  seen {oldest.words}", "bold yellow") if oldest.seconds > _STALE_S else line
    if len(groups) > _RANKS_AT_MOST:
        yield _line_of(f"  and {write_count(sum(map(len, groups[_RANKS_AT_MOST:])), 'more rank')} (--json)", "dim")


def _list_cells(group: Sequence[Whereabouts]) -> list[str]:
    """Who they are, their role and their steps."""
    who = f"{len(group):,} processes"
    if len(group) == 1:
        who = group[0].called
    elif all(where.rank is not None for where in group):
        who = f"{len(group):,} ranks: {write_spans(where.rank or 0 for where in group)}"
    steps = sorted({where.step for where in group if where.step is not None})
    last = f" to {steps[-1]:,}" if len(steps) > 1 else ""
    return [who, escape_name(group[0].role), f"step {steps[0]:,}{last}" if steps else ""]


def _draw_tail(live_state: LiveState) -> Iterator[Text]:
    """What was lost, who is silent, and where figures go."""
    state = live_state.state
    if state is None:
        return
    if state.silences:
        names = ", ".join(map(escape_name, state.silent[:4])) + (", …" if state.silences > 4 else "")
        yield _line_of(f"{write_count(state.silences, 'host')} silent for a minute or more: {names}", "bold red")
    lost = [write_count(state.missed_rows, "sum of stages", "sums of stages")] if state.missed_rows else []
    lost += [write_count(state.dropped_batches, "batch", "batches")] if state.dropped_batches else []
    if lost:
        yield _line_of(f"never reached who judges: {' and '.join(lost)}", "yellow")
    for note in state.notes:
        yield _line_of(for_terminal(note, _TEXT_AT_MOST), "dim")


def _line_of(text: str = "", style: str = "") -> Text:
    """A line of the picture; nothing in it is read as markup."""
    from rich.text import Text

    return Text(text, style, no_wrap=True)


def _fit_text(text: str, columns: int) -> str:
    """As wide as that: cut, or filled up. Wide characters count twice."""
    line = _line_of(text)
    line.truncate(columns, overflow="ellipsis", pad=True)
    return line.plain
