"""Whatever was recorded, tables of time are made of it: ranks that are missing or there twice, negative and zero times,
clocks an hour apart, one step, one stage.
"""

from __future__ import annotations

import random
import warnings

import pytest

pl = pytest.importorskip("polars")

import numpy as np  # noqa: E402
from builders import soak  # noqa: E402
from builders.simulated_steps import verdicts_of  # noqa: E402

from mstxkit.judging.evidence import Peer, RoleStep, Work  # noqa: E402
from mstxkit.reading import role_runs  # noqa: E402
from mstxkit.reading.page import figures  # noqa: E402
from mstxkit.reading.report import step_means  # noqa: E402
from mstxkit.reading.report.step_words import describe_tail, held_up, name_place, write_rate  # noqa: E402
from mstxkit.reading.tables import (  # noqa: E402
    bubbles,
    critical_path,
    lateness,
    stragglers,
    tails,
    throughput,
    what_if,
)
from mstxkit.reading.tables import steps as step_tables  # noqa: E402
from mstxkit.store.metrics_setting import NOTHING_KNOWN  # noqa: E402

MODULES = (bubbles, critical_path, step_tables, stragglers, tails, throughput, what_if)
NO_LATENESS = {
    "rank": pl.Int32, "stage": pl.String, "source": pl.String, "late_ns": pl.Int64, "error_ns": pl.Int64,
    "step": pl.Int64, "role": pl.String,
}  # fmt: skip
EXTREMES = (0.0, -5.0, 1e-9, 3600.0, -3600.0, 1e9)


def odd_steps(chance: random.Random) -> list[RoleStep]:
    draw = np.random.default_rng(chance.getrandbits(32))
    peers = [Peer(chance.choice([None, 0, 1, place]), "h", f"p{place}") for place in range(chance.choice([1, 2, 5]))]
    stages = tuple(f"s{place}" for place in range(chance.choice([1, 3])))
    return [_odd_step(chance, draw, peers, stages, step) for step in range(chance.choice([1, 2, 12]))]


def _odd_step(
    chance: random.Random, draw: np.random.Generator, peers: list[Peer], stages: tuple[str, ...], step: int
) -> RoleStep:
    members = tuple(peer for peer in peers if chance.random() < 0.9) or tuple(peers[:1])
    shape = len(members), len(stages)
    entered = step * 10 + np.cumsum(draw.random(shape), axis=1)
    took = np.where(draw.random(shape) < 0.2, draw.choice(EXTREMES, shape), draw.random(shape))
    entered[draw.random(shape) < 0.2] = np.nan
    entered += chance.choice([0.0, 3600.0]) * draw.integers(0, 2, (len(members), 1))
    total = np.where(np.isnan(entered), np.nan, np.maximum(0.0, took))
    tokens = np.where(draw.random(shape) < 0.5, np.nan, draw.integers(-1, 100, shape).astype(float))
    return RoleStep(
        chance.choice(["", "a"]), step * chance.choice([1, 3]), members, stages, entered, entered + took, total,
        np.isfinite(entered).astype(float), Work(tokens, tokens, tokens), np.full(len(members), 1e-6),
    )  # fmt: skip


@pytest.mark.parametrize("number", range(soak.rounds(400, 25)))
def test_odd_steps_give_tables(number: int) -> None:
    chance = random.Random(f"{soak.seed()}/{number}")
    steps = odd_steps(chance)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runs = role_runs.of_steps(steps)
        tables = {module: module.table(runs) for module in MODULES}
        tables |= {module: module.table(runs, verdicts_of(runs)) for module in (stragglers, what_if)}
        means = {
            "critical_path": step_means.critical_path(tables[critical_path]),
            "lateness": step_means.mean_lateness(pl.DataFrame(schema=NO_LATENESS), runs),
            "held_up_by": step_means.held_up_by(tables[bubbles]), "tails": step_means.mean_tails(tables[tails]),
            "throughput": step_means.mean_throughput(tables[throughput], NOTHING_KNOWN),
        }  # fmt: skip
        for run in runs:
            of_role = (tables[module].filter(role=run.role) for module in (critical_path, tails, throughput))
            figures._of_role(run, figures.DETAILS[0], means, *of_role)
        words = {"critical_path": name_place, "held_up_by": held_up, "tails": describe_tail, "throughput": write_rate}
        assert all(word(row) for key, word in words.items() for row in means[key])
        assert step_tables.rank_table(runs).columns == list(step_tables.RANK_SCHEMA)
        assert lateness.link_table(runs).columns == list(lateness.LINK_SCHEMA)

    assert all(table.columns == list(module.SCHEMA) for module, table in tables.items())
    assert (tables[bubbles]["wait_ns"].drop_nulls() >= 0).all()
