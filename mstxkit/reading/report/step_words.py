"""Where a run's steps go, in words: a line each for the terminal, and the sentences that the page has too."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Iterable, Mapping, Sequence

from rich.console import RenderableType

from .escape import escape_name
from .number_table import indent_lines, write_percent
from .sentences import list_texts
from .units import write_duration

# As `tables` has them, which load polars: `mstxkit --help` loads this here.
_DISPATCH, _SPLIT = "dispatch", "split"
_LEAST_SHARE = 0.01
_SAME_WORK = 0.05  # of the mean, more or less
KNOWN_BY = {"flight_recorder": " by its rings", "device": " by its device"}
WHERE = {"inside": "inside of", "in": "in", "before": "before"}
_IFS = {
    "straggler": "{who} as fast as the others {where} {stage}", "alone": "without what {who} alone does in {stage}",
    "bubble": "nobody waits {where} {stage}",
    "link": "the collectives of ranks {group} in {stage} as fast as others",
    "tail": "no rank longer in {stage} than the one in the middle",
    "change": "all as fast {where} {stage} as in other steps",
    "split": "{trainers} trainers and {rollouts} rollouts",
}  # fmt: skip


def render_steps(summary: Mapping[str, Any], everything: bool = False) -> list[RenderableType]:
    """A line for each that there is something to say of; of long lists the first ones, and how many more there are.
    `everything`: also what the headline is made of, of which it tells one figure an effect.
    """
    waiting = f"{describe_waits(summary)} of a rank’s time" if summary["wait_ratio"] else ""
    parts = [("time", _tell_path(summary["critical_path"])), ("waiting", waiting)]
    is_asked = summary["supposed"]["trainers"] or summary["supposed"]["rollouts"]
    if everything:
        # For sure: by more than clocks may err.
        late = [row for row in summary["lateness"] if row["late_ns"] > row["error_ns"]]
        parts += [
            ("held up", _tell_rows(summary, summary["held_up_by"], held_up)),
            ("late", _tell_rows(summary, late, describe_late)),
            ("tail", _tell_rows(summary, summary["tails"], describe_tail, 1, "tails of other stages: {}")),
        ]  # fmt: skip
    if everything or is_asked:
        parts.append(("what if", _tell_rows(summary, list_changes(summary), describe_saving)))
    parts += [
        ("samples", "; ".join(map(describe_sample, summary["samples"]["longest_alone"][:1]))),
        ("tokens/s", _tell_rows(summary, summary["throughput"], write_rate, 4)),
        ("resharding", _tell_rows(summary, summary["resharding"], write_cost, 4)),
    ]
    return indent_lines(parts)


def describe_waits(summary: Mapping[str, Any]) -> str:
    """What ranks wait for others, of all their time: "at least" where stages may hide more of it."""
    return ("at least " if summary["hides_waits"] else "") + write_percent(summary["wait_ratio"])


def _tell_rows(
    summary: Mapping[str, Any], rows: Iterable[dict[str, Any]], words: Callable[[Any], str], count: int = 2,
    what: str = "{} more",
) -> str:  # fmt: skip
    return list_texts([f"{of_role(summary, row)}{words(row)}" for row in rows], "; ", count, what)


def of_role(summary: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """`rollout: `, whose rank or stage it is; "" in a run of one role: of several each may have that rank and stage."""
    return f"{escape_name(row['role'])}: " if roles_of(summary) > 1 and row["role"] else ""


def roles_of(summary: Mapping[str, Any]) -> int:
    """How many roles a run has."""
    return len({path["role"] for path in summary["critical_path"]})


def _tell_path(rows: Sequence[dict[str, Any]]) -> str:
    roles: dict[str, list[str]] = {}
    for row in rows:
        if row["ratio"] >= _LEAST_SHARE:
            roles.setdefault(row["role"], []).append(f"{write_percent(row['ratio'])} {name_place(row)}")
    named = [f"{escape_name(role) + ': ' if len(roles) > 1 else ''}{', '.join(words)}" for role, words in roles.items()]
    return list_texts(named, "; ", 4, "other roles: {}")


def name_place(row: Mapping[str, Any]) -> str:
    """`actor_update`, or `before reward`."""
    return ("before " if row["where"] == "before" else "") + escape_name(row["stage"])


def describe_slow(row: Mapping[str, Any]) -> str:
    """Of a row of what-if: `rank 3 takes longer than the others in actor_generate`; who is alone; few slow steps."""
    stage = escape_name(row["stage"])
    if row["kind"] == "change":
        what = f"{stage} takes" if row["where"] == "in" else f"the time before {stage} is"
        return f"{what} longer than in other steps"
    takes, alone = ("take", "alone are") if row["group"] else ("takes", "alone is")
    if row["kind"] == "alone":
        return f"{row['who']} {alone} in {stage}, and all wait"
    return f"{row['who']} {takes} longer than the others {WHERE[row['where']]} {stage}"


def held_up(row: Mapping[str, Any]) -> str:
    """`all together 31.2 s a step for rank 3, late in actor_generate in 48 of 50 steps`."""
    why = f"late in {escape_name(row['stage'])} in {row['steps']} of {row['of_steps']} steps"
    return f"all together {write_duration(row['wait_ns'])} a step for rank {row['rank']}, {why}"


def describe_late(row: Mapping[str, Any]) -> str:
    """`rank 3 enters actor_update 4.20 s after the first (± 100 µs)`; by device ranges, or rings, where these tell."""
    error = f" (± {write_duration(row['error_ns'])})" if row["error_ns"] else ""
    by = KNOWN_BY.get(row["source"], "")
    stage, late = escape_name(row["stage"]), write_duration(row["late_ns"])
    return f"rank {row['rank']} enters {stage} {late} after the first{error}{by}"


def describe_tail(row: Mapping[str, Any]) -> str:
    """Of one stage, as a sentence that begins small."""
    share, idle_ns = write_percent(row["tail_ratio"]), row["idle_ns"]
    return "; ".join((
        f"in {escape_name(row['stage'])} the last rank goes on for {share} of its time after the one in "
        "the middle is done",
        *([] if idle_ns is None else [f"all ranks together wait {write_duration(idle_ns)} a step for it"]),
        *filter(None, [whose_tail(row)]),
    ))  # fmt: skip


def whose_tail(row: Mapping[str, Any]) -> str:
    """`it has 1.40 times the mean’s tokens; rank 3 is last most often, in 5 of 40 steps`."""
    longer = row["longer_ratio"]
    is_same = longer is None or abs(longer - 1) <= _SAME_WORK
    work = "no more tokens than the mean" if is_same else f"{longer:.2f} times the mean’s tokens"
    return "; ".join((
        *([f"it has {work}"] if longer is not None else []),
        *(f"rank {rank} is last most often, in {count} of {row['steps']} steps" for rank, count in row["often"][:1]),
    ))  # fmt: skip


def describe_sample(row: Mapping[str, Any]) -> str:
    """`one of rank 3 in step 7 went on alone for 40.2 ms, of 60.6 ms that it took`."""
    whose = "" if row["rank"] is None else f" of rank {row['rank']}"
    alone, took = write_duration(row["alone_ns"]), write_duration(row["duration_ns"])
    return f"one{whose} in step {row['step']} went on alone longest, for {alone} of the {took} that it took"


def write_rate(row: Mapping[str, Any]) -> str:
    """`actor_generate 12,300, over the step 5,100`."""
    mfu = "" if row["mfu_ratio"] is None else f", MFU {write_percent(row['mfu_ratio'])}"
    own, over_step = (write_number(row[name]) for name in ("tokens_per_s", "step_tokens_per_s"))
    return f"{escape_name(row['stage'])} {own}, over the step {over_step}{mfu}"


def write_number(value: float | None) -> str:
    """12,345: no space in it at which a line could end."""
    return "–" if value is None else f"{value:,.0f}"


def write_cost(row: Mapping[str, Any]) -> str:
    """`weight_sync 1.20 s a step for the last rank (6 %)`, `dispatch of reward 12.0 ms a step …`."""
    what = f"dispatch of {escape_name(row['stage'])}" if row["kind"] == _DISPATCH else escape_name(row["stage"])
    return f"{what} {write_duration(row['last_ns'])} a step for the last rank ({write_percent(row['step_ratio'])})"


def describe_change(row: Mapping[str, Any]) -> str:
    """What one row of what-if changes."""
    values = {**row, "where": WHERE.get(row["where"] or "", "in"), "stage": escape_name(row["stage"])}
    return _IFS[row["kind"]].format(**values)


def list_changes(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The split that is asked for, whatever it saves, then each row of what-if that saves a thousandth or more."""
    numbers = {(key, summary["supposed"][key]) for key in ("trainers", "rollouts") if summary["supposed"][key]}
    splits = [row for row in summary["what_if"] if row["kind"] == _SPLIT]
    asked = [row for row in splits if numbers and numbers <= row.items()]
    if len(asked) > 1:  # by one number; another one moves some from one side to the other, as all do but that
        totals = Counter(row["trainers"] + row["rollouts"] for row in splits)
        asked = [row for row in asked if totals[row["trainers"] + row["rollouts"]] == 1]
    others = [row for row in summary["what_if"] if row not in asked]
    return asked + [row for row in others if row["saved_ratio"] is not None and row["saved_ratio"] >= 0.001]


def describe_saving(row: Mapping[str, Any]) -> str:
    """With what that saves: `…: 11 % less (± 9 %)`, or more, of the length of a step."""
    than = "less" if row["saved_ratio"] >= 0 else "more"
    return f"{describe_change(row)}: {write_percent(abs(row['saved_ratio']))} {than}{write_error(row)}"


def write_error(row: Mapping[str, Any]) -> str:
    """How far off what is saved may be, where that is known; with a space before it."""
    return f" (± {write_percent(row['error_ratio'])})" if row["error_ratio"] else ""
