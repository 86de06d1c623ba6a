"""`mstxkit demo`: train with GRPO on the CPU in several processes under capture, then show what was recorded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import typer

from . import FOUND_WRONG, _show

if TYPE_CHECKING:
    from ..demo.escalating import Escalated
    from ..demo.launch import Outcome

_PERFETTO = "https://ui.perfetto.dev"
_NOBODY = -1


def demo(
    ranks: int = typer.Option(2, help="Processes that train together."),
    steps: int = typer.Option(120, help="Training steps."),
    seed: int = typer.Option(0, help="Of weights, prompts and samples."),
    run: Optional[Path] = typer.Option(  # noqa: UP045
        None, help="The run's folder; a new one.  [default: mstxkit-runs/demo-TIME]"
    ),
    slow_rank: Optional[int] = typer.Option(  # noqa: UP045
        None, help="This rank generates slowly; -1: none does.  [default: 1, if there is one]"
    ),
    kill_rank: Optional[int] = typer.Option(None, help="This rank is killed on the way."),  # noqa: UP045
    escalate: bool = typer.Option(True, help="Profile the slow rank's slowest stage once, while it trains."),
    json: bool = typer.Option(False, "--json", help="Outcome and report as one JSON object, and no progress."),
) -> None:
    """Train a small policy with GRPO under capture, profile what is slow, show the report and the traces to open.

    Ends with 1 if the profile that was asked for was not recorded.
    """
    from ..demo.launch import Plan, PlanError, run_ranks
    from ..reader import open_run
    from ..report import summary

    folder = run or Path("mstxkit-runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    slow = (1 if ranks > 1 else None) if slow_rank is None else slow_rank
    slow = None if slow == _NOBODY else slow
    try:
        outcome = run_ranks(Plan(folder, ranks, steps, seed, slow, kill_rank, 0 if json else 10, escalate))
    except PlanError as exc:
        raise typer.BadParameter(str(exc)) from None
    trace = _export(folder)
    found = summary.summarise(open_run(folder))
    if json:
        _show.as_json({**_facts(outcome), "trace": str(trace), "report": found})
    else:
        _show_all(outcome, found, trace)
    if outcome.escalated is not None and outcome.escalated.has_failed:
        raise typer.Exit(FOUND_WRONG)


def _export(folder: Path) -> Path:
    """The run as a Chrome trace, inside its own folder."""
    from ..exporters import load
    from ..reader import open_run

    chrome = load("chrome")
    trace = folder / f"trace{chrome.suffix}"
    with trace.open("w", encoding="utf-8") as file:
        chrome.write(open_run(folder), file)
    return trace


def _facts(outcome: Outcome) -> dict[str, Any]:
    plan, learning = outcome.plan, outcome.learning
    return {
        "run": str(plan.run),
        "ranks": plan.ranks,
        "seed": plan.seed,
        "slow_rank": plan.slow_rank,
        "killed_rank": plan.kill_rank,
        "exit_codes": list(outcome.exit_codes),
        "seconds": outcome.seconds,
        "steps": learning.steps,
        "first_reward": learning.first_reward,
        "final_reward": learning.final_reward,
        "reward_ratio": learning.ratio,
        "escalated": outcome.escalated and outcome.escalated.as_json(),
    }


def _show_all(outcome: Outcome, found: dict[str, Any], trace: Path) -> None:
    """The outcome in words, the report, and where the timeline is."""
    from ..report import text

    for line in _in_words(outcome):
        typer.echo(line)
    typer.echo()
    _show.console().print(text.render(found, False))
    for line in _of_escalation(outcome.escalated) if outcome.escalated is not None else ():
        typer.echo(line)
    typer.echo(f"\nThe report again: mstxkit report {outcome.plan.run}\nThe timeline: open {trace} in {_PERFETTO}")


def _of_escalation(found: Escalated) -> list[str]:
    """What was asked for, and what it gave."""
    asked = found.suspect
    if asked is None:
        return [f"\nNo profile was asked for: {found.reason}"]
    lines = [f"\nRank {asked.rank} is slowest in {asked.stage}, and this was asked for while it ran:"]
    lines += [f"  {found.command}"]
    if found.state != "done":
        return [*lines, f"It is {found.state}: {found.reason}"]
    lines.append(f"It was recorded in step {found.step}, there alone:")
    if found.trace is None:
        return [*lines, f"  {found.folder}"]
    times = "once" if found.trace.ranges == 1 else f"{found.trace.ranges} times"
    return [*lines, f"  {found.trace.path}", f"  {found.trace.events} events, {asked.stage} {times} among them"]


def _in_words(outcome: Outcome) -> list[str]:
    plan, learning = outcome.plan, outcome.learning
    rewards = f"{learning.first_reward:.3f} at first, {learning.final_reward:.3f} at last ({learning.ratio:.1f} times)"
    lines = [f"Ranks: {plan.ranks}, steps: {learning.steps}, {outcome.seconds:.1f} s. Mean reward: {rewards}."]
    if plan.slow_rank is not None:
        lines.append(f"Rank {plan.slow_rank} was made slow in actor_generate (--slow-rank -1: none).")
    if plan.kill_rank is not None:
        lines.append(
            f"Rank {plan.kill_rank} was killed (SIGKILL) in step {plan.fatal_step}, as asked. The others noticed,"
        )
        lines.append("their open ranges closed with `error`, and they ended cleanly, with exit code 0.")
    return lines
