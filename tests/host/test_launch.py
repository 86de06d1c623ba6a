"""One id for a run on all hosts of a job: from what its launcher says and the folder, and from nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mstxkit
from mstxkit.host import launch
from mstxkit.store import run_file

LAUNCHERS = {
    "a name of the user's": {"MSTXKIT_JOB": "exp7"},
    "torchrun": {"TORCHELASTIC_RUN_ID": "exp7", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"},
    "torchrun, static": {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"},
    "Slurm": {"SLURM_JOB_ID": "4711", "SLURM_CLUSTER_NAME": "a", "SLURM_STEP_ID": "0"},
    "a heterogeneous job of Slurm": {"SLURM_JOB_ID": "4712", "SLURM_HET_JOB_ID": "4711"},
    "Ray": {"RAY_ADDRESS": "10.0.0.1:6379", "RAY_JOB_ID": "01000000"},
    "Open MPI 5": {"PMIX_NAMESPACE": "prterun-n1-77@1"},
    "Open MPI 4": {"OMPI_MCA_ess_base_jobid": "3184787457"},
    "msrun": {"MS_SCHED_HOST": "10.0.0.1", "MS_SCHED_PORT": "8118"},
}
OF_LAUNCHERS = {name for variables in LAUNCHERS.values() for name in variables}
OF_LAUNCHERS |= {"SLURM_JOBID", "SLURM_RESTART_COUNT", "MSTXKIT_RUN", "MSTXKIT_RUN_ID"}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "ray._private.worker", raising=False)


def start(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name in OF_LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_hosts_of_a_job_agree_and_other_jobs_and_folders_are_other_runs(
    monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    start(monkeypatch, LAUNCHERS[launcher])
    ids = [launch.run_id(folder) for folder in ("/data/a", "/data/a", "/data/b", "/other/a")]

    assert all(map(run_file.is_run_id, ids))
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    for name in LAUNCHERS[launcher]:
        start(monkeypatch, {**LAUNCHERS[launcher], name: f"{LAUNCHERS[launcher][name]}9"})
        assert launch.run_id("/data/a") in (None, *ids) or launch.run_id("/data/a") not in ids


@pytest.mark.parametrize(
    "variables",
    [
        {}, {"MSTXKIT_JOB": "~0badcafe"}, {"TORCHELASTIC_RUN_ID": "none"}, {"RAY_JOB_ID": "ffffffff"},
        {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}, {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"},
        {"MASTER_ADDR": "10.0.0.1"}, {"MS_SCHED_HOST": "::1", "MS_SCHED_PORT": "8118"},
    ],
)  # fmt: skip
def test_what_says_nothing_to_other_hosts_is_no_job(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    start(monkeypatch, variables)

    assert launch.run_id("/data/a") is None
    assert launch.start_id() is None


def test_what_starts_torchrun_under_slurm_and_its_ranks_are_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, LAUNCHERS["Slurm"])
    outside = launch.run_id("/data/a")
    start(monkeypatch, {**LAUNCHERS["Slurm"], **LAUNCHERS["torchrun"]})

    assert launch.run_id("/data/a") == outside


def test_a_requeue_is_the_same_run_and_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, LAUNCHERS["Slurm"])
    before = launch.run_id("/data/a"), launch.start_id()
    start(monkeypatch, {**LAUNCHERS["Slurm"], "SLURM_RESTART_COUNT": "1"})

    assert launch.run_id("/data/a") == before[0]
    assert launch.start_id() not in (before[1], None)


def test_rays_cluster_is_known_by_what_is_loaded_and_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node:
        gcs_address = "10.0.0.1:6379"

        def __getattr__(self, name: str) -> None:
            raise AssertionError(f"{name} was asked for")

    monkeypatch.setitem(sys.modules, "ray._private.worker", SimpleNamespace(_global_node=Node()))  # type: ignore[arg-type]
    loaded = launch.run_id("/data/a")
    start(monkeypatch, {"RAY_ADDRESS": "10.0.0.1:6379"})
    monkeypatch.delitem(sys.modules, "ray._private.worker")

    assert loaded == launch.run_id("/data/a") is not None


@given(
    value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=50),
    times=st.sampled_from([1, 2000]),
)
def test_no_value_of_a_launcher_gets_into_a_path(value: str, times: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        start(monkeypatch, {"SLURM_JOB_ID": value * times, "MSTXKIT_JOB": os.fsdecode(b"\xff\xfe") + value})

        assert run_file.is_run_id(launch.run_id("/data/a"))
        assert len(launch.start_id() or "") == 16


CAPTURES = "import mstxkit, sys; c = mstxkit.capture(sys.argv[1]); c.stop()"


def captured(host: Path, variables: dict[str, str], folder: str = "run") -> str:
    """The id of the run that a host of a job makes in a folder of its own, at the same path for each."""
    environ = {k: v for k, v in os.environ.items() if k not in OF_LAUNCHERS and not k.startswith("MSTXKIT_")}
    environ.update(variables, PYTHONPATH=str(Path(mstxkit.__file__).parents[1]))
    script = 'mount --bind "$1" /mnt && exec "$2" -c "$3" "/mnt/$4"'
    host.mkdir(exist_ok=True)
    words = [
        "unshare",
        "-mu",
        "sh",
        "-c",
        f"hostname {host.name} && {script}",
        "-",
        str(host),
        sys.executable,
        CAPTURES,
    ]
    done = subprocess.run([*words, folder], env=environ, capture_output=True, text=True, timeout=60)
    if done.returncode and not (host / folder).exists():
        pytest.skip(f"no namespaces here: {done.stderr}")
    return str(run_file.id_of(host / folder))


def test_two_hosts_with_disks_of_their_own_agree_without_talking(tmp_path: Path) -> None:
    job = LAUNCHERS["Slurm"]
    first, second = (captured(tmp_path / name, job) for name in ("node1", "node2"))
    other = captured(tmp_path / "node1", job, "other")
    of_nobody = {captured(tmp_path / name, {}, "alone") for name in ("node1", "node2")}

    assert first == second
    assert other != first
    assert len(of_nobody) == 2


def test_what_a_driver_hands_on_is_believed_where_its_folder_is_not_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Path
) -> None:
    with mstxkit.capture(run):
        handed_on = {name: os.environ[name] for name in ("MSTXKIT_RUN", "MSTXKIT_RUN_ID")}
    run_id = run_file.id_of(run)
    os.rename(run, tmp_path / "elsewhere")  # as on another host, where the same path is another folder
    for name, value in handed_on.items():
        monkeypatch.setenv(name, value)
    with mstxkit.capture():
        pass
    another = run_file.open_run_folder(tmp_path / "another")[1]

    assert run_file.id_of(run) == run_id
    assert another != run_id


def test_a_folder_that_is_a_run_keeps_its_id_whatever_is_handed_on(monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    before = run_file.open_run_folder(run)[1]
    start(monkeypatch, {**LAUNCHERS["Slurm"], "MSTXKIT_RUN": str(run), "MSTXKIT_RUN_ID": "ab" * 16})
    with mstxkit.capture(run):
        handed_on = os.environ["MSTXKIT_RUN_ID"]

    assert handed_on == before
