"""What `capture()` brings into a training process: modules and lines of ours, and nothing that it does without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import mstxkit

# Counts, unlike milliseconds, repeat: `python -m benchmarks --only footprint` has those.
MODULES_AT_MOST, LINES_AT_MOST = 60, 10_000
STANDING_BY_MODULES_AT_MOST, STANDING_BY_LINES_AT_MOST = 80, 10_000
SEALED_LINES_AT_MOST, IN_STEPS_LINES_AT_MOST = 12_000, 12_500
# What a plain `pip install mstxkit` does not bring, and what recording does without.
NOT_INSTALLED = ("pydantic", "typer", "rich", "numpy", "polars", "zstandard")

COUNTS = """
    import json, os, sys, time
    from pathlib import Path

    import mstxkit

    def loaded():
        files = {m.__file__ for name, m in list(sys.modules.items()) if name.split(".")[0] == "mstxkit"}
        ours = [file for file in files if str(file).endswith(".py")]
        return len(ours), sum(Path(file).read_text(encoding="utf-8").count("\\n") for file in ours)

    def until(is_so):
        deadline = time.monotonic() + 60
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.05)

    counts = {}
    run = sys.argv[1]
    with mstxkit.capture(run, seal_every_s=2):
        with mstxkit.stage("actor_update"), mstxkit.mstx_range("rollout", prompts=8):
            pass
        counts["at once"] = loaded()
        until(lambda: os.listdir(run + "/control/acks") if os.path.isdir(run + "/control/acks") else [])
        standing = mstxkit.capturing._beside
        until(lambda: standing.keeper.made)
        counts["standing by"] = loaded()
        until(lambda: os.listdir(run + "/sealed"))
        counts["a minute later"] = loaded()
        mstxkit.step()
        until(lambda: "mstxkit.cluster.agent" in sys.modules)
        time.sleep(1)
        counts["in steps"] = loaded()
    names = sorted({name.split(".")[0] for name in sys.modules})
    print(json.dumps({"counts": counts, "names": names}))
"""


def result_of(program: str, folder: Path) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MSTXKIT_RUN", "MSTXKIT_JOB"))}
    environment = {**kept, "RANK": "0", "WORLD_SIZE": "1", "PYTHONPATH": str(Path(mstxkit.__file__).parents[1])}
    command = [sys.executable, "-c", textwrap.dedent(program), str(folder / "run")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=folder)
    assert done.stderr == ""
    result: dict[str, Any] = json.loads(done.stdout.split("\n")[-2])
    return result


def test_a_process_that_records_loads_little_and_no_more_while_nobody_asks_for_anything(tmp_path: Path) -> None:
    result = result_of(COUNTS, tmp_path)
    (modules, lines), standing_by = result["counts"]["at once"], result["counts"]["standing by"]

    assert modules <= MODULES_AT_MOST and lines <= LINES_AT_MOST, result["counts"]
    assert standing_by[0] <= STANDING_BY_MODULES_AT_MOST and standing_by[1] <= STANDING_BY_LINES_AT_MOST
    assert result["counts"]["a minute later"][1] <= SEALED_LINES_AT_MOST, result["counts"]
    assert result["counts"]["in steps"][1] <= IN_STEPS_LINES_AT_MOST, result["counts"]
    # Sealed files are compressed with zstandard where it is there.
    spared = {*NOT_INSTALLED, "dataclasses", "inspect", "asyncio", "multiprocessing"} - {"zstandard"}
    assert not spared & set(result["names"])


BLOCKED = """
    import json, os, sys
    from importlib.abc import MetaPathFinder

    class NotInstalled(MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {names!r}:
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

    sys.meta_path.insert(0, NotInstalled())
    import mstxkit
    with mstxkit.capture(sys.argv[1]):
        mstxkit.step(1)
        with mstxkit.stage("actor_update"):
            pid = os.fork()
        if not pid:
            with mstxkit.stage("reward"):
                pass
            sys.exit()
        os.waitpid(pid, 0)
    print(json.dumps(mstxkit.status().faults))
"""


def test_what_a_plain_install_brings_records_forks_and_seals(tmp_path: Path) -> None:
    faults = result_of(BLOCKED.format(names=NOT_INSTALLED), tmp_path)
    ranges = mstxkit.open_run(tmp_path / "run").ranges()

    assert faults == {}
    assert sorted(ranges["name"]) == ["actor_update", "reward"]
    assert mstxkit.open_run(tmp_path / "run").processes()["state"].to_list() == ["ended", "ended"]


def test_a_configuration_names_what_it_needs_where_that_is_not_installed(tmp_path: Path) -> None:
    program = (
        BLOCKED.partition("import mstxkit")[0].format(names=NOT_INSTALLED)
        + """
    import mstxkit
    try:
        mstxkit.capture(sys.argv[1], config={"mstxkit": {"enabled": True}})
    except mstxkit.errors.ConfigError as exc:
        print(json.dumps({"refused": str(exc)}))
    """
    )

    assert "pip install 'mstxkit[cli]'" in result_of(program, tmp_path)["refused"]
