"""What a report is to be of: steps, ranks, stages, ranges. What none of a run answers to is an error, not silence."""

from __future__ import annotations

import difflib
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Iterable, NamedTuple, Sequence

from ...errors import CaptureError, ReadError
from ...stages import canonical_key
from ...store import metrics_setting
from ...store.metrics_setting import NOTHING_KNOWN, Flops

if TYPE_CHECKING:
    import polars as pl

_LISTED = 12
_FAR = (1 << 63) - 1
# Of an option the first, what parts it from the last, and the last; and what may be given.
_FORMS = {
    "--steps": (
        re.compile(r"\s*(\d{0,18})\s*(:?)\s*(\d{0,18})\s*", re.ASCII),
        "one step (5), or the first and the last (5:10, 5:, :10)",
    ),
    "--ranks": (re.compile(r"(\d{1,9})(?:(-)(\d{1,9}))?", re.ASCII), "ranks and spans of ranks (0,3-5)"),
}


class Bounds(NamedTuple):
    """Whole numbers, both ends included."""

    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return str(self.first)
        return f"{self.first} to {self.last}" if self.last < _FAR else f"from {self.first} on"


class ReportChoice(NamedTuple):
    """What was asked for; None: everything. Stages, in any system's words, and ranges are names or patterns with `*`;
    `top`: so many ranges of each stage.
    """

    steps: Bounds | None = None
    ranks: tuple[Bounds, ...] | None = None
    stages: tuple[str, ...] | None = None
    ranges: tuple[str, ...] | None = None
    top: int | None = None

    def rows(self) -> pl.Expr:
        """Which rows of a table with `step` and `rank` are of the steps and ranks that were asked for."""
        import polars as pl

        is_wanted = pl.lit(True)
        if self.steps is not None:
            is_wanted = is_wanted & pl.col("step").is_between(*self.steps).fill_null(False)
        if self.ranks is not None:
            of_ranks = [pl.col("rank").is_between(*span) for span in self.ranks]
            is_wanted = is_wanted & pl.any_horizontal(of_ranks).fill_null(False)
        return is_wanted

    def __str__(self) -> str:
        """`steps 5 to 7, ranks 0, 3 to 5`; "" where everything is asked for."""
        steps = self.steps and (self.steps,)
        asked = {"steps": steps, "ranks": self.ranks, "stages": self.stages, "ranges": self.ranges}
        return "; ".join(f"{word} {', '.join(map(str, of_it))}" for word, of_it in asked.items() if of_it)

    def as_json(self) -> dict[str, Any]:
        """For the report's JSON; bounds are a list of two, the last null where there is no end."""
        steps = self.steps and [self.steps.first, self.steps.last if self.steps.last < _FAR else None]
        ranks = self.ranks and [list(span) for span in self.ranks]
        names = {"stages": self.stages, "ranges": self.ranges}
        return {"steps": steps, "ranks": ranks, **{key: value and list(value) for key, value in names.items()}}


EVERYTHING = ReportChoice()


class Supposed(NamedTuple):
    """What no run knows, and a report can reckon with: an async job with so many trainers and rollouts (None: as many
    as there are); what a token takes, and what a rank can do, for the MFU.
    """

    trainers: int | None = None
    rollouts: int | None = None
    flops: Flops = NOTHING_KNOWN


NOTHING_SUPPOSED = Supposed()


def read_supposed(
    trainers: int | None, rollouts: int | None, flops_per_token: str | None, peak_flops: str | None
) -> Supposed:
    """From the forms of the command line; the last two as `capture` takes them, and only together.
    Raises ReadError: one of them is in no such form, or alone.
    """
    if (flops_per_token is None) != (peak_flops is None):
        raise ReadError("--flops-per-token and --peak-flops are given together")
    try:
        return Supposed(trainers, rollouts, metrics_setting.check_metrics(None, flops_per_token, peak_flops).flops)
    except CaptureError as exc:
        of_both = f"--flops-per-token {flops_per_token!r}, --peak-flops {peak_flops!r}"
        advice = "give numbers above 0 (3.5e14), or one for each stage (actor_update=6e9,…)"
        raise ReadError(f"{of_both}: {advice}") from exc


def read_choice(
    steps: str | None = None, ranks: str | None = None, stages: str | None = None, ranges: str | None = None
) -> ReportChoice:
    """From the forms of the command line: `5:10`, `0,3-5`, `actor_update,ref*`, and `10` or names.
    Raises ReadError: one of them is in no such form.
    """
    is_count = ranges is not None and re.fullmatch(r"\d{1,9}", ranges, re.ASCII) is not None
    return ReportChoice(
        None if steps is None else _read_bounds("--steps", steps),
        None if ranks is None else tuple(_read_bounds("--ranks", part) for part in _split_parts(ranks, "--ranks")),
        None if stages is None else _split_parts(stages, "--stages"),
        None if ranges is None or is_count else _split_parts(ranges, "--ranges"),
        int(ranges) if ranges is not None and is_count else None,
    )


def _read_bounds(option: str, text: str) -> Bounds:
    pattern, forms = _FORMS[option]
    match = pattern.fullmatch(text)
    if match is None or not (match[1] or match[3]):
        raise ReadError(f"{option} {text!r}: give {forms}")
    first = int(match[1] or 0)
    bounds = Bounds(first, int(match[3] or _FAR) if match[2] else first)
    if bounds.first > bounds.last:
        raise ReadError(f"{option} {text!r}: the last is before the first")
    return bounds


def _split_parts(text: str, option: str) -> tuple[str, ...]:
    parts = tuple(filter(None, (part.strip() for part in text.split(","))))
    if not parts:
        raise ReadError(f"{option} {text!r}: give at least one")
    return parts


def names_of(what: str, wanted: Sequence[str], there: Iterable[str]) -> set[str]:
    """The stages (`what` "stage") or names of ranges ("range") that are asked for, of those that are there.
    Raises ReadError: one that is asked for is none of them.
    """
    names, answering = list(there), set[str]()
    keys = {name: canonical_key(name) for name in names} if what == "stage" else {}
    for name in wanted:
        same = {each for each in names if each == name or keys.get(each) == canonical_key(name)}
        alike = same or {each for each in names if "*" in name and fnmatchcase(each, name.replace("[", "[[]"))}
        if not alike:
            near = difflib.get_close_matches(name, names, n=1)
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            listed = ", ".join(sorted(names)[:_LISTED]) + more
            advice = f"did you mean {near[0]}?" if near else f"there: {listed or 'none'}"
            raise ReadError(f"no {what} {name!r} in what was asked for; {advice}")
        answering |= alike
    return answering


def check_choice(choice: ReportChoice, ranks: Iterable[int | None], first: int | None, last: int | None) -> None:
    """Raises ReadError: a run of these ranks and of the steps from the first to the last has nothing of the choice."""
    if choice.steps is not None:
        if first is None or last is None:
            raise ReadError(f"this run has no step {choice.steps}: none of its ranges is in a step")
        if choice.steps.last < first or last < choice.steps.first:
            raise ReadError(f"this run has no step {choice.steps}; it has steps {Bounds(first, last)}")
    there = sorted({rank for rank in ranks if rank is not None})
    for span in choice.ranks or ():
        if not any(span.first <= rank <= span.last for rank in there):
            its = f"it has ranks {there[0]} to {there[-1]}" if there else "none of its processes has a rank"
            raise ReadError(f"no process of this run has rank {span}; {its}")
