"""The dashboard on a real Prometheus: it finds who judges by `file_sd`, scrapes, and answers each panel's query."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders.shown_job import ShownJob, role, verdict

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed: pip install 'mstxkit[metrics]'")

from mstxkit.store.job_file import JobState
from mstxkit.store.metrics_setting import check_metrics
from mstxkit.telemetry import outlets
from mstxkit.telemetry.outlets import Outlets

PANELS = json.loads(Path(outlets.__file__).with_name("grafana.json").read_text(encoding="utf-8"))["panels"]
UNPACKED = Path(__file__).resolve().parents[2] / ".venvs/debian/prometheus/usr/bin/prometheus"
PROMETHEUS = shutil.which("prometheus") or shutil.which(str(UNPACKED))
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="no prometheus on this machine: Debian has it as the package `prometheus`"
)
BLAMED, STEP_S = 0.24, 5.0


class Prometheus:
    """One of ours, on loopback; it scrapes once a second what its file_sd names.

    Args:
        folder: For its data and configuration.
        files: Of targets.
        more: Lines of the scrape configuration.
    """

    def __init__(self, folder: Path, files: str, more: str = "") -> None:
        assert PROMETHEUS is not None
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: mstxkit\n"
            f"  file_sd_configs: [{{files: ['{files}'], refresh_interval: 1s}}]\n{more}"
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        words += [f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error"]
        self.process = subprocess.Popen([PROMETHEUS, *words], cwd=folder, stderr=subprocess.DEVNULL)

    def ask(self, path: str, **fields: str) -> Any:
        """The data that it answers with; None while it does not."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(fields)}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def query(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series."""
        data = self.ask("query", query=query)
        return [(row["metric"], float(row["value"][1])) for row in data["result"]] if data else []

    def until(self, query: str, count: int = 1, within_s: float = 60.0) -> list[tuple[dict[str, str], float]]:
        """As soon as there are so many series."""
        deadline = time.monotonic() + within_s
        while len(answer := self.query(query)) < count:
            assert time.monotonic() < deadline, f"{query}: {answer}"
            time.sleep(0.2)
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Two jobs on one host that ask for the same port, and who scrapes both."""
    folder = tmp_path_factory.mktemp("scraped")
    jobs = [ShownJob(folder, name) for name in ("exp7", "exp8")]
    (folder / "targets").mkdir()
    asked = check_metrics(f"127.0.0.1:39464,targets:{folder}/targets")
    served = [Outlets(job.run, job.run_id, asked) for job in jobs]
    for of_job in served:
        of_job.show(state(41), [verdict()])
    prometheus = Prometheus(folder, f"{folder}/targets/*.json")
    try:
        prometheus.until("mstxkit_step", 4)
        for of_job in served:
            of_job.show(state(43), [verdict()])
        prometheus.until("mstxkit_step >= 43", 4)
        prometheus.until("deriv(mstxkit_step[5m]) > 0", 4)
        yield prometheus
    finally:
        prometheus.close()
        for of_job in served:
            of_job.close()


def state(step: int) -> JobState:
    return JobState(
        (role(step=step), role("rollout", step + 1)), 4, 1, 1, ("node-9",), 7, 2, int((time.time() - 1) * 1e9)
    )


@needs_prometheus
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panels_query_is_answered_by_a_real_prometheus(scraped: Prometheus, panel: dict[str, Any]) -> None:
    (target,) = panel["targets"]
    answer = scraped.query(target["expr"].replace("$run", "exp7-.*"))

    assert answer
    assert all(labels.get("run", "").startswith("exp7-") for labels, _ in answer)
    assert WANTED[panel["title"]](answer), answer


def _values(answer: list[tuple[dict[str, str], float]], *labels: str) -> dict[Any, float]:
    return {tuple(of[label] for label in labels): value for of, value in answer}


WANTED = {
    "Step": lambda a: _values(a, "role") == {("actor",): 43, ("rollout",): 44},
    "Verdicts that hold": lambda a: [value for _, value in a] == [1],
    "Hosts": lambda a: _values(a, "state") == {("reporting",): 2, ("silent",): 1, ("ended",): 1},
    "Age of these figures": lambda a: all(0 < value < 300 for _, value in a),
    "Who makes the others wait": lambda a: (
        _values(a, "kind", "role", "stage", "rank") == {("compute", "actor", "actor_generate", "3"): BLAMED}
    ),
    "Who is late": lambda a: set(_values(a, "rank", "stage").values()) == {0.32},
    "Length of a step": lambda a: set(_values(a, "role").values()) == {STEP_S},
    "Steps a minute": lambda a: all(value > 0 for _, value in a),
    "Time in stages, median": lambda a: _values(a, "role", "stage")["actor", "reward"] == pytest.approx(1.2),
    "Time in stages, longest": lambda a: _values(a, "role", "stage")["actor", "reward"] == 1.5,
    "Longest over median": lambda a: _values(a, "role", "stage")["actor", "reward"] == pytest.approx(0.25),
    "Waiting": lambda a: _values(a, "role")["actor",] == 0.12,
    "Slowest rank": lambda a: set(_values(a, "role", "stage").values()) == {3},
    "Verdicts by kind": lambda a: _values(a, "kind")["compute",] == 1 and _values(a, "kind")["link",] == 0,
    "Tokens a second": lambda a: _values(a, "role", "stage")["rollout", "actor_generate"] == 12_000,
    "MFU": lambda a: _values(a, "role", "stage")["rollout", "actor_generate"] == 0.41,
    "Members": lambda a: _values(a, "role")["actor",] == 16,
    "Profiles that verdicts asked for": lambda a: [value for _, value in a] == [0],
    "Sums that never came": lambda a: [value for _, value in a] == [7],
    "Batches that the run folder did not take": lambda a: [value for _, value in a] == [2],
    "Samples that were too many": lambda a: [value for _, value in a] == [0],
}


@needs_prometheus
def test_two_jobs_on_one_host_do_not_meet(scraped: Prometheus) -> None:
    """They asked for one port; each is found where it is, with a name of its own."""
    runs = {labels["run"] for labels, _ in scraped.query("mstxkit_step")}
    instances = {labels["instance"] for labels, _ in scraped.query("up == 1")}

    assert sorted(run.partition("-")[0] for run in runs) == ["exp7", "exp8"]
    assert len(instances) == 2


@needs_prometheus
def test_beyond_loopback_a_scraper_needs_the_token_of_the_run(tmp_path: Path) -> None:
    job = ShownJob(tmp_path)
    outlets = Outlets(job.run, job.run_id, check_metrics("0.0.0.0:0"))
    outlets.show(state(41), [])
    (target,) = json.loads((job.run / "metrics/targets.json").read_text())[0]["targets"]
    (tmp_path / "here.json").write_text(json.dumps([{"targets": [f"127.0.0.1:{target.rpartition(':')[2]}"]}]))
    more = f"  authorization: {{credentials_file: '{job.run}/metrics/token'}}\n"
    prometheus = Prometheus(tmp_path, f"{tmp_path}/here.json", more)
    try:
        assert prometheus.until("mstxkit_step")
    finally:
        prometheus.close()
        outlets.close()


def test_every_panel_has_an_expectation_and_a_name_of_its_own() -> None:
    assert sorted(WANTED) == sorted(panel["title"] for panel in PANELS)
