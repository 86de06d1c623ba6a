"""All ways out of one job: what is opened, what is told, what is left when the job is over, and what never stands."""

from __future__ import annotations

import json
import os
import stat
import sys
import types
import urllib.request
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders.mounts import Mount, mount  # noqa: F401
from builders.shown_job import ShownJob, role, verdict

from mstxkit.errors import MstxkitError
from mstxkit.judging.run_judge import RunJudge
from mstxkit.store import verdicts
from mstxkit.store.job_file import JobState
from mstxkit.store.metrics_setting import check_metrics
from mstxkit.telemetry import discovery, outlets, samples
from mstxkit.telemetry.outlets import Outlets

pytest.importorskip("prometheus_client")

STATE = JobState((role(),), 1)


class Going:
    """A job's ways out, closed at the end."""

    def __init__(self, job: ShownJob) -> None:
        self.job, self.opened = job, list[Outlets]()

    def __call__(self, setting: str, state: JobState = STATE, **more: Any) -> Outlets:
        made = Outlets(self.job.run, self.job.run_id, check_metrics(setting), **more)
        self.opened.append(made)
        made.show(state, [verdict()])
        return made


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Going]:
    made = Going(ShownJob(tmp_path))
    yield made
    for opened in made.opened:
        opened.close()


def page(opened: Outlets) -> str:
    with urllib.request.urlopen(opened.served, timeout=20) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("setting", ["", "auto", "off"])
def test_nothing_is_opened_unless_it_is_asked_for(going: Going, setting: str) -> None:
    opened = going(setting)

    assert (opened.served, opened.notes()) == ("", ())
    assert not (going.job.run / "metrics").exists()


def test_a_page_shows_the_newest_state_and_is_told_in_the_run(going: Going) -> None:
    opened = going("127.0.0.1:0")
    opened.show(JobState((role(step=43),), 1), [])
    (entry,) = json.loads((going.job.run / "metrics/targets.json").read_text())

    assert 'mstxkit_step{role="actor"' in page(opened)
    assert "} 43.0" in page(opened)
    assert f"http://{entry['targets'][0]}/metrics" == opened.served
    assert opened.notes() == (f"metrics at {opened.served}",)


def test_when_the_job_is_over_nothing_is_left_that_would_be_taken_for_true(going: Going, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "sd").mkdir()
    opened = going(f"127.0.0.1:0,textfile,textfile:{tmp_path}/node,targets:{tmp_path}/sd")
    before = [len(list(folder.iterdir())) for folder in (going.job.run / "metrics", tmp_path / "node", tmp_path / "sd")]
    opened.close()

    assert before == [2, 1, 1]
    assert not any([*(tmp_path / "node").iterdir(), *(tmp_path / "sd").iterdir()])
    assert not any((going.job.run / "metrics").iterdir())


def test_a_judge_that_another_one_has_replaced_takes_nothing_of_it_along(going: Going, tmp_path: Path) -> None:
    """It learns of that late: by then the other has told where its own page is."""
    for name in ("node", "sd"):
        (tmp_path / name).mkdir()
    setting = f"127.0.0.1:0,textfile,textfile:{tmp_path}/node,targets:{tmp_path}/sd"
    first, second = going(setting), going(setting)
    first.close()
    told = [going.job.run / "metrics/targets.json", *(tmp_path / "sd").iterdir()]

    assert [f"http://{json.loads(file.read_text())[0]['targets'][0]}/metrics" for file in told] == 2 * [second.served]
    assert [*(tmp_path / "node").iterdir()]
    assert (going.job.run / "metrics/mstxkit.prom").exists()


def test_a_textfile_is_there_as_a_whole_and_may_be_read_by_the_node_exporter(going: Going, tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    going(f"textfile:{folder}")
    (file,) = folder.iterdir()

    assert file.name == f"mstxkit-{going.job.run_id[:12]}.prom"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert file.read_text().endswith("\n")


def test_a_hang_holds_in_the_metrics_as_long_as_its_host_says_so(tmp_path: Path) -> None:
    job, hang = ShownJob(tmp_path), verdict(kind=verdicts.HANG, impact_ratio=1.0)
    counts = []
    for withdrawn in ("", "it went on"):
        job.blame(hang._replace(withdrawn=withdrawn), who="hang-node-0")
        out = Outlets(job.run, job.run_id, check_metrics("textfile"))
        run_judge = RunJudge(job.run, job.run_id, "controller", outlets=out)
        run_judge.look()
        lines = (job.run / "metrics" / "mstxkit.prom").read_text().splitlines()
        counts.append([line.rpartition(" ")[2] for line in lines if line.startswith('mstxkit_verdicts{kind="hang"')])
        run_judge.close()

    assert counts == [["1.0"], ["0.0"]]


def test_a_folder_that_is_not_there_is_told_and_ends_nothing(going: Going, tmp_path: Path) -> None:
    opened = going(f"textfile:{tmp_path}/nowhere,127.0.0.1:0")

    assert any("nowhere is no folder" in note for note in opened.notes())
    assert page(opened)


def test_a_folder_that_takes_no_file_is_told_once_and_what_lies_elsewhere_goes_with_the_job(
    going: Going, mount: Mount, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    folder = mount("read-only", "ro")
    monkeypatch.setattr(outlets, "TEXTFILE_EVERY_S", 0.0)
    opened = going(f"textfile:{folder},127.0.0.1:0,targets:{folder}")
    for _ in range(5):
        opened.show(STATE, ())
    assert (going.job.run / "metrics/targets.json").exists()
    opened.close()

    assert [note for note in opened.notes() if "Read-only" in note] == [f"{folder}: Read-only file system"]
    assert not (going.job.run / "metrics/targets.json").exists()


def test_a_port_that_is_taken_is_told(going: Going) -> None:
    first = going("127.0.0.1:0")
    port = int(first.served.rpartition(":")[2].partition("/")[0])
    second = going(f"127.0.0.1:{port}")

    assert second.served != first.served
    assert any(f"port {port} could not be had" in note for note in second.notes())


def test_an_address_that_this_host_has_not_is_told(going: Going) -> None:
    opened = going("203.0.113.7:0")

    assert opened.served == ""
    assert len(opened.notes()) == 1


def test_without_the_library_it_is_said_what_to_install(going: Going, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "has_prometheus", lambda: False)

    assert going("127.0.0.1:0").notes() == (samples.MISSING,)


def test_beyond_loopback_there_is_a_token_that_only_its_user_can_read_and_that_nobody_is_told(going: Going) -> None:
    opened = going("0.0.0.0:0")
    file = going.job.run / "metrics/token"
    token = file.read_text().strip()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(token) > 40
    assert token not in " ".join(opened.notes())
    assert token not in (going.job.run / "metrics/targets.json").read_text()
    assert token not in Path("/proc/self/cmdline").read_bytes().decode("utf-8", "replace")
    with pytest.raises(urllib.request.HTTPError):  # type: ignore[attr-defined]
        page(opened)


def test_a_judge_that_is_cut_off_as_it_draws_the_token_leaves_none(
    going: Going, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty one stood in the way of every later judge."""

    def full(descriptor: int, content: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk, pytest.raises(OSError, match="No space"):
        disk.setattr(os, "write", full)
        discovery.make_token(going.job.run)

    assert len(discovery.make_token(going.job.run)) > 40
    assert [path.name for path in (going.job.run / "metrics").iterdir()] == ["token"]


def test_a_token_is_kept_over_the_next_judge_of_the_run(going: Going) -> None:
    assert discovery.make_token(going.job.run) == discovery.make_token(going.job.run)


@pytest.mark.parametrize("spoil", ["readable", "short", "link"])
def test_a_token_that_others_may_know_serves_nothing(going: Going, spoil: str) -> None:
    discovery.make_token(going.job.run)
    file = going.job.run / "metrics/token"
    if spoil == "readable":
        file.chmod(0o644)
    elif spoil == "short":
        file.write_text("abc\n")
    else:
        file.rename(file.with_name("other"))
        file.symlink_to("other")

    with pytest.raises(MstxkitError, match="remove it"):
        discovery.make_token(going.job.run)
    assert going("0.0.0.0:0").served == ""


class FakeGauge:
    """As Ray's: it remembers what was set."""

    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] = ()) -> None:
        self.name, self.tag_keys = name, tag_keys

    def set(self, value: float, tags: dict[str, str]) -> None:
        assert sorted(tags) == sorted(self.tag_keys)
        FakeGauge.values[self.name, tuple(sorted(tags.items()))] = value


@pytest.fixture
def gauges(monkeypatch: pytest.MonkeyPatch) -> dict[Any, float]:
    FakeGauge.values = {}
    metrics = types.ModuleType("ray.util.metrics")
    metrics.Gauge = FakeGauge  # type: ignore[attr-defined]
    for name in ("ray", "ray.util"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "ray.util.metrics", metrics)
    return FakeGauge.values


def test_under_ray_its_own_metrics_are_set_unasked(going: Going, gauges: dict[Any, float]) -> None:
    going("", is_in_ray=True)

    assert {name for name, _ in FakeGauge.values} > {"mstxkit_step", "mstxkit_stage_seconds_max", "mstxkit_verdicts"}


def test_what_ray_was_told_and_is_gone_becomes_0(
    going: Going, gauges: dict[Any, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlets, "_RAY_EVERY_S", 0.0)
    opened = going("ray", is_in_ray=True)
    opened.show(STATE, [])
    impact = [value for (name, _), value in FakeGauge.values.items() if name == "mstxkit_verdict_impact_ratio"]

    assert impact == [0.0]


def test_rays_metrics_elsewhere_are_told_to_be_impossible(going: Going) -> None:
    assert "not judged by an actor of Ray's" in going("ray").notes()[0]


def test_another_ray_that_knows_no_such_metrics_ends_nothing(going: Going, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.util", types.ModuleType("ray.util"))
    monkeypatch.setitem(sys.modules, "ray.util.metrics", types.ModuleType("ray.util.metrics"))
    opened = going("auto,127.0.0.1:0", is_in_ray=True)

    assert any("AttributeError" in note for note in opened.notes())
    assert page(opened)


def test_files_are_no_wider_than_the_run_allows(going: Going) -> None:
    going("127.0.0.1:0,textfile")
    folder = going.job.run / "metrics"

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(os.stat(folder / name).st_mode) for name in os.listdir(folder)} == {0o640}
