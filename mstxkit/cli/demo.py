"""`mstxkit demo`: train with GRPO on the CPU in several processes under capture, then show what was recorded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import typer

from . import _show

if TYPE_CHECKING:
    from ..demo.launch import Outcome

_PERFETTO = "https://ui.perfetto.dev"


def demo(
    ranks: int = typer.Option(2, help="Processes that train together."),
    steps: int = typer.Option(120, help="Training steps."),
    seed: int = typer.Option(0, help="Of weights, prompts and samples."),
    run: Optional[Path] = typer.Option(  # noqa: UP045
        None, help="The run's folder; a new one.  [default: mstxkit-runs/demo-TIME]"
    ),
    slow_rank: Optional[int] = typer.Option(None, help="This rank generates slowly."),  # noqa: UP045
    kill_rank: Optional[int] = typer.Option(None, help="This rank is killed on the way."),  # noqa: UP045
    json: bool = typer.Option(False, "--json", help="Outcome and report as one JSON object, and no progress."),
) -> None:
    """Train a small policy with GRPO under capture, show the report, name the trace to open in Perfetto."""
    from ..demo.launch import Plan, PlanError, run_ranks
    from ..reader import open_run
    from ..report import summary

    folder = run or Path("mstxkit-runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    try:
        outcome = run_ranks(Plan(folder, ranks, steps, seed, slow_rank, kill_rank, every=0 if json else 10))
    except PlanError as exc:
        raise typer.BadParameter(str(exc)) from None
    trace = _export(folder)
    found = summary.summarise(open_run(folder))
    if json:
        _show.as_json({**_facts(outcome), "trace": str(trace), "report": found})
    else:
        _show_all(outcome, found, trace)


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
    }


def _show_all(outcome: Outcome, found: dict[str, Any], trace: Path) -> None:
    """The outcome in words, the report, and where the timeline is."""
    from ..report import text

    for line in _in_words(outcome):
        typer.echo(line)
    typer.echo()
    _show.console().print(text.render(found, False))
    typer.echo(f"\nThe report again: mstxkit report {outcome.plan.run}\nThe timeline: open {trace} in {_PERFETTO}")


def _in_words(outcome: Outcome) -> list[str]:
    plan, learning = outcome.plan, outcome.learning
    rewards = f"{learning.first_reward:.3f} at first, {learning.final_reward:.3f} at last ({learning.ratio:.1f} times)"
    lines = [f"Ranks: {plan.ranks}, steps: {learning.steps}, {outcome.seconds:.1f} s. Mean reward: {rewards}."]
    if plan.slow_rank is not None:
        lines.append(f"Rank {plan.slow_rank} was made slow in actor_generate, as asked.")
    if plan.kill_rank is not None:
        lines.append(
            f"Rank {plan.kill_rank} was killed (SIGKILL) in step {plan.fatal_step}, as asked. The others noticed,"
        )
        lines.append("their open ranges closed with `error`, and they ended cleanly, with exit code 0.")
    return lines
