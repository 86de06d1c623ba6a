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

from . import FOUND_WRONG, _show

if TYPE_CHECKING:
    from ..demo.launch import DemoOutcome

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
    from ..reading.report import summary, text
    from ..reading.run import open_run

    folder = run or Path("mstxkit-runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    slow = (1 if ranks > 1 else None) if slow_rank is None else slow_rank
    slow = None if slow == _NOBODY else slow
    every = 10 if verbose and not json else 0
    plan = DemoPlan(folder, ranks, steps, seed, slow, kill_rank, every, escalate, hang_rank, hidden)
    try:
        plan.check()
        if not json:
            where = "actor_update, before the gradients of all ranks meet" if hidden else "actor_generate"
            slow_one = "none is slow" if slow is None else f"rank {slow} is made slow in {where}"
            trained = f"A small policy is trained with GRPO on {ranks} CPU ranks, {steps} steps; {slow_one}."
            typer.echo(f"{trained} Recorded into {folder}.")
        with nullcontext() if verbose or json else _show.show_progress("Training"):
            outcome = run_ranks(plan)
    except PlanError as exc:
        raise typer.BadParameter(str(exc)) from None
    opened = open_run(folder)
    report = summary.summarise_run(opened)
    page = Path(opened.path) / "report.html"
    writing.write_page(opened, report, page)
    if json:
        _show.as_json({**_list_facts(outcome), "page": str(page), "report": report})
    elif verbose:
        typer.echo("\n".join(_tell_done(outcome)))
        _show.open_console().print("", text.render_report(report, False), "")
    else:
        head = report["headline"]
        words = (f"  {head[key]}" for key in ("cost", "why", "advice") if head[key])
        typer.echo("\n".join([*_tell_done(outcome), f"\nVerdict: {head['verdict']}", *words, ""]))
    for line in () if json else _tell_further(outcome, report, page):
        typer.echo(line)
    has_no_incident = hang_rank is not None and outcome.incident is None
    profiles = outcome.escalated.profiles if outcome.escalated else ()
    if has_no_incident or any(profile["state"] != "done" for profile in profiles):
        raise typer.Exit(FOUND_WRONG)


def _tell_further(outcome: DemoOutcome, report: dict[str, Any], page: Path) -> Iterator[str]:
    """That a profile was taken by itself, or why there is none, the page, and three commands to try next."""
    escalated = outcome.escalated
    if escalated is not None and escalated.verdict is None:
        yield f"No profile was asked for: {escalated.reason}."
    elif escalated is not None and escalated.verdict is not None:
        yield f"While it trained, the verdict asked for a profile by itself, request {escalated.verdict.request}:"
        for profile in escalated.profiles:
            whose = "" if profile["rank"] == escalated.verdict.rank else ", a healthy peer"
            is_done = profile["state"] == "done"
            what = f"taken in step {profile['step']}" if is_done else f"{profile['state']}: {profile['reason']}"
            yield f"  rank {profile['rank']}{whose}: {what}"
    yield f"The page: {page}\n\nTry next:"
    # How this command is called from here: by its path, where the shell would find another one, or none.
    own, on_path = os.path.join(os.path.dirname(sys.executable), "mstxkit"), shutil.which("mstxkit")
    program = f"{shlex.quote(sys.executable)} -m mstxkit"
    if os.path.exists(own):
        is_first = on_path is not None and os.path.samefile(on_path, own)
        program = "mstxkit" if is_first else shlex.quote(os.path.relpath(own))
    run = shlex.quote(str(outcome.plan.run))
    advised = report["headline"]["next"] or f"mstxkit status {run}"
    for command in dict.fromkeys((advised, f"mstxkit report {run}", f"mstxkit report {run} --open")):
        yield f"  {command.replace('mstxkit ', f'{program} ', 1)}"


def _list_facts(outcome: DemoOutcome) -> dict[str, Any]:
    plan, learning, escalated = outcome.plan, outcome.learning, outcome.escalated
    verdict = escalated and escalated.verdict and escalated.verdict._asdict()
    return {
        "run": str(plan.run), "ranks": plan.ranks, "seed": plan.seed, "slow_rank": plan.slow_rank,
        "hidden": plan.hidden, "killed_rank": plan.kill_rank, "hung_rank": plan.hang_rank,
        "incident": outcome.incident and str(plan.run / outcome.incident.page), "exit_codes": list(outcome.exit_codes),
        "seconds": outcome.seconds,
        "steps": learning.steps, "first_reward": learning.first_reward, "final_reward": learning.final_reward,
        "reward_ratio": learning.ratio, "escalated": escalated and {**escalated._asdict(), "verdict": verdict},
    }  # fmt: skip


def _tell_done(outcome: DemoOutcome) -> Iterator[str]:
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
