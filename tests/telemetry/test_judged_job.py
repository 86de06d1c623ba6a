"""Real ranks, the process that judges them, and its page: from `capture(metrics=…)` to a scrape, and to the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import pytest
from builders.waiting import until

pytest.importorskip("prometheus_client")

RANK = Path(__file__).resolve().parents[1] / "builders" / "handing_rank.py"
ROOT, RANKS, STEPS, STEP_MS = RANK.parents[2], 2, 16, 250


class Seen(NamedTuple):
    """What was to be seen while the job ran, and after.

    Args:
        page: That was scraped.
        command_lines: Of all processes of this user then.
        figures: What `metrics()` gave each rank at its end.
    """

    run: Path
    page: str
    token: str
    command_lines: str
    figures: list[dict[str, float]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("judged")
    run, live = folder / "exp7", folder / "live"
    live.mkdir(mode=0o700)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
    env = {
        **kept, "PYTHONPATH": str(ROOT), "WORLD_SIZE": str(RANKS), "MSTXKIT_METRICS": "0.0.0.0:0",
        "MSTXKIT_FLOPS_PER_TOKEN": "actor_generate=1e9", "MSTXKIT_PEAK_FLOPS": "1e12",
    }  # fmt: skip
    words = [str(run), str(time.monotonic_ns() + 10**9), str(STEPS), str(STEP_MS), "-1", str(live)]
    ranks = [
        subprocess.Popen([sys.executable, str(RANK), *words], env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(RANKS)
    ]
    try:
        targets = run / "metrics/targets.json"
        until(targets.exists)
        port = json.loads(targets.read_text())[0]["targets"][0].rpartition(":")[2]
        token = (run / "metrics/token").read_text().strip()
        page = until(lambda: scraped(port, token))
        command_lines = " ".join(map(words_of, Path("/proc").glob("[0-9]*")))
        figures = [json.loads(rank.communicate(timeout=120)[0]) for rank in ranks]
        until(lambda: not targets.exists())
        yield Seen(run, page, token, command_lines, figures)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait(30)


def scraped(port: str, token: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        page = str(answer.read().decode())
    return page if "mstxkit_stage_mfu_ratio{" in page else ""


def words_of(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
    except OSError:
        return ""


def test_who_judges_serves_the_figures_of_all_ranks(seen: Seen) -> None:
    assert 'mstxkit_members{role="",run="exp7-' in seen.page
    assert "mstxkit_stage_seconds_max{" in seen.page


def test_no_token_is_in_a_process_list_or_in_a_file_that_others_read(seen: Seen) -> None:
    readable = [file for file in seen.run.rglob("*") if file.is_file() and file.name != "token"]

    assert "judge_process" in seen.command_lines
    assert seen.token not in seen.command_lines
    assert not [file for file in readable if seen.token.encode() in file.read_bytes()]


def test_the_trainers_own_logger_gets_them_too_with_mfu(seen: Seen) -> None:
    names = set().union(*seen.figures)

    assert {"mstxkit/wait_ratio", "mstxkit/verdicts", "mstxkit/tokens_per_s/actor_generate"} <= names
    assert {f"mstxkit/time_s/actor_update/{kind}" for kind in ("max", "median", "slowest_rank")} <= names
    assert "mstxkit/mfu/actor_generate" in names
    assert "mstxkit/mfu/actor_update" not in names, "what a token costs there, nobody has said"


def test_mfu_is_the_flops_of_all_tokens_over_what_all_devices_can_do_in_that_time(seen: Seen) -> None:
    figures = next(of_rank for of_rank in seen.figures if of_rank)
    tokens_per_s, mfu = figures["mstxkit/tokens_per_s/actor_generate"], figures["mstxkit/mfu/actor_generate"]

    assert mfu == pytest.approx(tokens_per_s * 1e9 / (1e12 * RANKS))


def test_the_job_is_over_for_top_too(seen: Seen) -> None:
    def said_by_top() -> dict[str, Any]:
        command = [sys.executable, "-m", "mstxkit", "top", str(seen.run), "--json"]
        return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True).stdout))

    until(lambda: said_by_top()["judged_by"] == "over")  # the judge leaves once it serves nothing any more
    document = said_by_top()

    assert document["job"]["roles"][0]["step"] == STEPS - 1
    assert document["job"]["ended"] == document["job"]["hosts"] == 1


def test_a_process_that_trains_loads_nothing_of_it_and_opens_nothing(tmp_path: Path) -> None:
    code = f"""
import sys, mstxkit
with mstxkit.capture({str(tmp_path / "run")!r}, metrics=":0,textfile", judge=False):
    with mstxkit.stage("reward"):
        pass
    mstxkit.metrics()
never = "mstxkit.telemetry", "mstxkit.judging", "prometheus", "http"
print([name for name in sys.modules if name.startswith(never)])
"""
    env = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
    done = subprocess.run([sys.executable, "-c", code], env={**env, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE)

    assert done.stdout.strip() == b"[]"
    assert not (tmp_path / "run/metrics").exists()
