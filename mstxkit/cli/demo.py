"""`mstxkit demo`: train with GRPO on the CPU in several processes under capture, then show what was recorded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import typer

from . import FOUND_WRONG, _opening, _show

if TYPE_CHECKING:
    from ..demo.escalating import Escalated
    from ..demo.launch import DemoOutcome

_NOBODY = -1
_RUN_HELP = "The run's folder; a new one.  [default: mstxkit-runs/demo-TIME]"
_SLOW_HELP = "This rank generates slowly; -1: none does.  [default: 1, if there is one]"
_HIDDEN_HELP = "It is slow before the gradients meet instead, where all ranks take equally long."


def demo(
    ranks: int = typer.Option(2, help="Processes that train together."),
    steps: int = typer.Option(120, help="Training steps."),
    seed: int = typer.Option(0, help="Of weights, prompts and samples.", hidden=True),
    run: Optional[Path] = typer.Option(None, help=_RUN_HELP, hidden=True),
    slow_rank: Optional[int] = typer.Option(None, help=_SLOW_HELP, hidden=True),
    kill_rank: Optional[int] = typer.Option(None, help="This rank is killed on the way."),
    hang_rank: Optional[int] = typer.Option(None, help="This rank hangs on the way: an incident says where."),
    hidden: bool = typer.Option(False, "--hidden", help=_HIDDEN_HELP),
    escalate: bool = typer.Option(True, help="Verdicts ask for profiles by themselves.", hidden=True),
    json: bool = typer.Option(False, "--json", help="Outcome and report as one JSON object, and no progress."),
) -> None:
    """Train a small policy with GRPO, and see who is slow, and why.

    It is captured, and judged while it runs: the verdict asks for a profile of the slow rank and of a healthy peer.
    Then show the report and the traces to open. Ends with 1 if a profile that was asked for was not recorded, or the
    rank that hangs left no incident.

    Example: mstxkit demo --steps 40
    """
    from ..demo.launch import DemoPlan, PlanError, run_ranks
    from ..reading.exporters import load
    from ..reading.page import writing
    from ..reading.report import summary
    from ..reading.run import open_run

    folder = run or Path("mstxkit-runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    slow = (1 if ranks > 1 else None) if slow_rank is None else slow_rank
    slow = None if slow == _NOBODY else slow
    try:
        every = 0 if json else 10
        outcome = run_ranks(DemoPlan(folder, ranks, steps, seed, slow, kill_rank, every, escalate, hang_rank, hidden))
    except PlanError as exc:
        raise typer.BadParameter(str(exc)) from None
    opened = open_run(folder)
    report = summary.summarise(opened)
    perfetto = load("perfetto")
    trace, page = Path(opened.path) / f"trace{perfetto.suffix}", Path(opened.path) / "report.html"
    perfetto.write_to(opened, trace)
    writing.write(opened, report, page)
    if json:
        _show.as_json({**_facts(outcome), "trace": str(trace), "page": str(page), "report": report})
    else:
        _show_all(outcome, report, trace)
        typer.echo(f"The page: {page}\n{report['headline']['verdict']}")
    has_no_incident = hang_rank is not None and outcome.incident is None
    if has_no_incident or (outcome.escalated is not None and outcome.escalated.has_failed):
        raise typer.Exit(FOUND_WRONG)


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


def _show_all(outcome: DemoOutcome, report: dict[str, Any], trace: Path) -> None:
    """The outcome in words, the report, and where the timeline is."""
    from ..reading.report import text

    for line in _in_words(outcome):
        typer.echo(line)
    typer.echo()
    _show.console().print(text.render(report, False))
    for line in _of_escalation(outcome.escalated) if outcome.escalated is not None else ():
        typer.echo(line)
    if outcome.escalated is not None and any(profiled.folder for profiled in outcome.escalated.profiles):
        request = outcome.escalated.verdict.request if outcome.escalated.verdict else ""
        typer.echo("\n".join(_opening.lines(outcome.plan.run, "", [request])))
    typer.echo(f"\nThe report again: mstxkit report {outcome.plan.run}")
    typer.echo(f"The timeline: open {trace} in {_opening.PERFETTO}")


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


def _in_words(outcome: DemoOutcome) -> list[str]:
    plan, learning = outcome.plan, outcome.learning
    rewards = f"{learning.first_reward:.3f} at first, {learning.final_reward:.3f} at last ({learning.ratio:.1f} times)"
    lines = [f"Ranks: {plan.ranks}, steps: {learning.steps}, {outcome.seconds:.1f} s. Mean reward: {rewards}."]
    if plan.slow_rank is not None:
        where = "actor_update, before the gradients of all ranks meet" if plan.hidden else "actor_generate"
        lines.append(f"Rank {plan.slow_rank} was made slow in {where} (--slow-rank -1: none).")
    if plan.kill_rank is not None:
        killed = f"Rank {plan.kill_rank} was killed (SIGKILL) in step {plan.fatal_step}, as asked."
        lines.append(f"{killed} The others noticed,")
        lines.append("their open ranges closed with `error`, and they ended cleanly, with exit code 0.")
    if plan.hang_rank is not None:
        incident = outcome.incident
        left = "No incident was written." if incident is None else f"The incident:\n  {plan.run / incident.page}"
        lines.append(f"Rank {plan.hang_rank} hung in step {plan.fatal_step}, as asked. {left}")
    return lines
