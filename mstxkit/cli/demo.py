"""`mstxkit demo`: train with GRPO on the CPU in several processes under capture, then show what was recorded."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Optional

import typer

from . import FOUND_WRONG, _opening, _show
from ._progress import progress

if TYPE_CHECKING:
    from ..demo.escalating import Escalated
    from ..demo.launch import DemoOutcome, DemoPlan

_NOBODY = -1
_RUN_HELP = "The run's folder; a new one.  [default: mstxkit-runs/demo-TIME]"
_SLOW_HELP = "This rank generates slowly; -1: none does.  [default: 1, if there is one]"
_HIDDEN_HELP = "It is slow before the gradients meet instead, where all ranks take equally long."


def demo(
    ranks: int = typer.Option(2, help="Processes that train together."),
    steps: int = typer.Option(80, help="Training steps."),
    seed: int = typer.Option(0, help="Of weights, prompts and samples.", hidden=True),
    run: Optional[Path] = typer.Option(None, help=_RUN_HELP, hidden=True),
    slow_rank: Optional[int] = typer.Option(None, help=_SLOW_HELP, hidden=True),
    kill_rank: Optional[int] = typer.Option(None, help="This rank is killed on the way."),
    hang_rank: Optional[int] = typer.Option(None, help="This rank hangs on the way: an incident says where."),
    hidden: bool = typer.Option(False, "--hidden", help=_HIDDEN_HELP),
    escalate: bool = typer.Option(True, help="Verdicts ask for profiles by themselves.", hidden=True),
    verbose: bool = typer.Option(False, "--verbose", help="Rewards as it trains, then the whole report."),
    json: bool = typer.Option(False, "--json", help="Outcome and report as one JSON object, and no progress."),
) -> None:
    """Train a small policy with GRPO, and see who is slow, and why.

    It is captured, and judged while it runs: the verdict asks for a profile of the slow rank and of a healthy peer.
    It says so in twenty lines, with the page to open. Ends with 1 if a profile that was asked for was not recorded, or
    the rank that hangs left no incident.

    Example: mstxkit demo --steps 40
    """
    from ..demo.launch import DemoPlan, PlanError, run_ranks
    from ..reading.page import writing
    from ..reading.report import summary
    from ..reading.run import open_run

    folder = run or Path("mstxkit-runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    slow = (1 if ranks > 1 else None) if slow_rank is None else slow_rank
    slow = None if slow == _NOBODY else slow
    every = 10 if verbose and not json else 0
    plan = DemoPlan(folder, ranks, steps, seed, slow, kill_rank, every, escalate, hang_rank, hidden)
    try:
        plan.check()
        if not json:
            typer.echo(f"{_planned(plan)} Recorded into {folder}.")
        with nullcontext() if verbose or json else progress("Training"):
            outcome = run_ranks(plan)
    except PlanError as exc:
        raise typer.BadParameter(str(exc)) from None
    opened = open_run(folder)
    report = summary.summarise(opened)
    page = Path(opened.path) / "report.html"
    writing.write(opened, report, page)
    if json:
        _show.as_json({**_facts(outcome), "page": str(page), "report": report})
    elif verbose:
        _show_all(outcome, report)
        typer.echo(f"The page: {page}\n{report['headline']['verdict']}")
    else:
        for line in _in_short(outcome, report, page):
            typer.echo(line)
    has_no_incident = hang_rank is not None and outcome.incident is None
    if has_no_incident or (outcome.escalated is not None and outcome.escalated.has_failed):
        raise typer.Exit(FOUND_WRONG)


def _planned(plan: DemoPlan) -> str:
    where = "actor_update, before the gradients of all ranks meet" if plan.hidden else "actor_generate"
    slow = "none is slow" if plan.slow_rank is None else f"rank {plan.slow_rank} is made slow in {where}"
    return f"A small policy is trained with GRPO on {plan.ranks} CPU ranks, {plan.steps} steps; {slow}."


def _in_short(outcome: DemoOutcome, report: dict[str, Any], page: Path) -> Iterator[str]:
    """What a first look needs, in twenty lines: what was done, the verdict, the profile, where the rest is."""
    head = report["headline"]
    yield from _done(outcome)
    yield f"\nVerdict: {head['verdict']}"
    yield from (f"  {head[key]}" for key in ("cost", "why", "saves") if head.get(key))
    yield ""
    yield from _taken(outcome.escalated) if outcome.escalated is not None else ()
    yield f"The page: {page}\n\nTry next:"
    run = shlex.quote(str(outcome.plan.run))
    has_profile = outcome.escalated is not None and outcome.escalated.profiles
    commands = (f"report {run}", f"report {run} --open", f"{'profiles' if has_profile else 'status'} {run}")
    yield from (f"  {_program()} {command}" for command in commands)


def _program() -> str:
    """How this command is called from here: by its path, where the shell would find another one, or none."""
    own, found = os.path.join(os.path.dirname(sys.executable), "mstxkit"), shutil.which("mstxkit")
    if not os.path.exists(own):
        return f"{shlex.quote(sys.executable)} -m mstxkit"
    return "mstxkit" if found is not None and os.path.samefile(found, own) else shlex.quote(os.path.relpath(own))


def _taken(escalated: Escalated) -> Iterator[str]:
    """That the profile was taken by itself, or why there is none."""
    if escalated.verdict is None:
        yield f"No profile was asked for: {escalated.reason}."
        return
    steps = {profiled.step for profiled in escalated.profiles if profiled.step is not None}
    when = f" in step {min(steps)}" if steps else ""
    ranks = " and ".join(str(profiled.rank) for profiled in escalated.profiles)
    yield f"While it trained, the verdict had a full profile taken by itself, of ranks {ranks}{when}."
    failed = (profiled for profiled in escalated.profiles if profiled.state != "done")
    yield from (f"  rank {profiled.rank}: {profiled.state}: {profiled.reason}" for profiled in failed)


def _facts(outcome: DemoOutcome) -> dict[str, Any]:
    plan, learning = outcome.plan, outcome.learning
    return {
        "run": str(plan.run), "ranks": plan.ranks, "seed": plan.seed, "slow_rank": plan.slow_rank,
        "hidden": plan.hidden, "killed_rank": plan.kill_rank, "hung_rank": plan.hang_rank,
        "incident": outcome.incident and str(plan.run / outcome.incident.page), "exit_codes": list(outcome.exit_codes),
        "seconds": outcome.seconds,
        "steps": learning.steps, "first_reward": learning.first_reward, "final_reward": learning.final_reward,
        "reward_ratio": learning.ratio, "escalated": outcome.escalated and outcome.escalated.as_json(),
    }  # fmt: skip


def _show_all(outcome: DemoOutcome, report: dict[str, Any]) -> None:
    """The outcome in words, the report, and how to open the profiles."""
    from ..reading.report import text

    for line in _done(outcome):
        typer.echo(line)
    typer.echo()
    _show.console().print(text.render(report, False))
    for line in _of_escalation(outcome.escalated) if outcome.escalated is not None else ():
        typer.echo(line)
    if outcome.escalated is not None and any(profiled.folder for profiled in outcome.escalated.profiles):
        request = outcome.escalated.verdict.request if outcome.escalated.verdict else ""
        typer.echo("\n".join(_opening.lines(outcome.plan.run, "", [request])))
    typer.echo(f"\nThe report again: mstxkit report {outcome.plan.run}; with --open the page, and the timeline")


def _of_escalation(escalated: Escalated) -> list[str]:
    """The verdict, the request that it made, and the profiles that came of it."""
    from ..reading.report.sentences import sentence

    verdict = escalated.verdict
    if verdict is None:
        return [f"\nNo profile was asked for: {escalated.reason}"]
    lines = [f"\nCaught in the act: while it trained, the verdict was that {sentence(verdict._asdict())}."]
    lines += [f"It asked for a profile by itself, request {verdict.request}. By hand the same is:"]
    lines.append(f"  {escalated.command}")
    for profiled in escalated.profiles:
        who = f"rank {profiled.rank}, {'which is blamed' if profiled.rank == verdict.rank else 'a healthy peer'}"
        if profiled.state != "done":
            lines.append(f"  {who}: {profiled.state}: {profiled.reason}")
            continue
        lines.append(f"  {who}, in step {profiled.step}: {profiled.trace.path if profiled.trace else profiled.folder}")
        if profiled.trace is not None:
            times = "once" if profiled.trace.ranges == 1 else f"{profiled.trace.ranges} times"
            lines.append(f"    {profiled.trace.events} events, {verdict.stage} {times} among them")
    return lines


def _done(outcome: DemoOutcome) -> Iterator[str]:
    plan, learning = outcome.plan, outcome.learning
    rewards = f"{learning.first_reward:.3f} at first, {learning.final_reward:.3f} at last ({learning.ratio:.1f} times)"
    yield f"Done: {learning.steps} steps in {outcome.seconds:.1f} s; mean reward {rewards}."
    if plan.kill_rank is not None:
        killed = f"Rank {plan.kill_rank} was killed (SIGKILL) in step {plan.fatal_step}, as asked"
        yield f"{killed}; the others noticed, and ended cleanly."
    if plan.hang_rank is not None:
        incident = outcome.incident
        left = "No incident was written." if incident is None else f"The incident: {plan.run / incident.page}"
        yield f"Rank {plan.hang_rank} hung in step {plan.fatal_step}, as asked. {left}"
