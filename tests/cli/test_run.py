"""`mstxkit run -- CMD`: what CMD's processes are given, what comes back of CMD, and what the user is told."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from builders import interpreters
from builders.interpreters import USES_IT, Program
from builders.mounts import Mount, mount  # noqa: F401
from builders.ray_jobs import NO_LESS_THAN_OTHERS

import mstxkit

pytest.importorskip("polars")
pytest.importorskip("typer")

pytestmark = pytest.mark.days("odd")

SHOWS = "import os; print(os.environ['MSTXKIT_RUN'], os.environ['MSTXKIT_AUTOPATCH'])"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interpreters.make(tmp_path_factory.mktemp("python") / "venv")


@pytest.fixture
def program(python: Path, tmp_path: Path) -> Program:
    found = Program(python, tmp_path)
    interpreters.write(found.folder, {"work.py": USES_IT, "shows.py": SHOWS})
    return found


def unasked(program: Program, **variables: str) -> dict[str, str]:
    """The environment of a user who has set nothing, but `variables`."""
    environment = program.environment()
    return {**{k: v for k, v in environment.items() if k not in ("MSTXKIT_RUN", "MSTXKIT_AUTOPATCH")}, **variables}


def run(program: Program, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """`mstxkit run` with these words, in a shell where `variables` are set."""
    command = [str(program.python), "-m", "mstxkit", "run", *map(str, words)]
    return subprocess.run(
        command, env=unasked(program, **variables), cwd=program.folder, capture_output=True, text=True, timeout=60
    )


def test_every_process_is_recorded_without_a_line_in_the_program(program: Program) -> None:
    targets = program.folder / "targets.yaml"
    done = run(program, "--run", program.run_folder, "--autopatch", targets, "--", program.python, "work.py")

    assert (done.returncode, done.stdout) == (0, "")
    assert program.recorded() == [("Trainer.fit", 1)]
    assert done.stderr.splitlines() == [
        f"mstxkit: recording into {program.run_folder}",
        f"mstxkit: 1 process recorded; read them: mstxkit report {program.run_folder}",
    ]


def test_the_two_dashes_may_be_left_out(program: Program) -> None:
    asked = ("--run", program.run_folder, "--autopatch", "none")
    done = run(program, *asked, program.python, "-c", "import sys; print(sys.argv)", "--run", "-h")

    assert (done.returncode, done.stdout) == (0, "['-c', '--run', '-h']\n")


@pytest.mark.parametrize("launcher", ["bash -c '$PYTHON work.py & $PYTHON work.py; wait'", "$PYTHON launch.py"])
def test_any_launcher_will_do(program: Program, launcher: str) -> None:
    launch = "import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, 'work.py'], check=True)\n"
    interpreters.write(program.folder, {"launch.py": launch})
    asked = ("--run", program.run_folder, "--autopatch", "targets.yaml")
    done = run(program, *asked, "--", "bash", "-c", launcher, PYTHON=str(program.python))

    assert done.returncode == 0
    assert program.recorded() == [("Trainer.fit", 1)] * 2
    assert "2 processes recorded" in done.stderr


def test_without_options_everything_known_is_patched_and_the_run_gets_a_folder_of_its_own(program: Program) -> None:
    done = run(program, "--", program.python, "shows.py")
    folder, asked = done.stdout.split()

    assert Path(folder).parent == program.folder / "mstxkit-runs"
    assert not Path(folder).exists(), "nothing was recorded into it"
    assert asked == "all"


def test_what_the_environment_says_holds_and_what_an_option_says_holds_more(program: Program) -> None:
    said = {"MSTXKIT_RUN": "of-environment", "MSTXKIT_AUTOPATCH": "verl"}
    options = ("--run", "of-option", "--autopatch", "mindspeed_rl+extra, targets.yaml")
    of_environment = run(program, "--", program.python, "shows.py", **said).stdout.split()
    of_option = run(program, *options, "--", program.python, "shows.py", **said).stdout.split()

    assert of_environment == [str(program.folder / "of-environment"), "verl"]
    assert of_option == [str(program.folder / "of-option"), f"mindspeed_rl+extra,{program.folder / 'targets.yaml'}"]


def test_none_records_and_patches_nothing(program: Program) -> None:
    done = run(program, "--run", program.run_folder, "--autopatch", "none", "--", program.python, "shows.py")

    assert done.stdout == f"{program.run_folder} \n"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["no-such-command-anywhere"], 127),
        (["/"], 126),
    ],
)
def test_the_status_is_that_of_the_command(program: Program, command: list[str], status: int) -> None:
    assert run(program, "--run", program.run_folder, "--", *command).returncode == status


def test_a_command_that_cannot_be_started_leaves_no_run_behind(program: Program) -> None:
    """Also a script without its interpreter: that it is there is not the question."""
    script = run(program, "work.py")
    nothing = run(program, "--run", program.run_folder, "no-such-command-anywhere")

    assert "mstxkit: work.py: No such file or directory; a script needs its interpreter before it" in script.stderr
    assert nothing.stderr.splitlines()[1:] == ["mstxkit: no-such-command-anywhere: No such file or directory"]
    assert list(program.folder.glob("mstxkit-runs/*")) == []
    assert not program.run_folder.exists()


def test_an_empty_name_of_a_run_is_none(program: Program) -> None:
    """`--run "$RUN"`, where nobody has set RUN, does not record into the current folder."""
    done = run(program, "--run", "", "--", program.python, "shows.py")

    assert Path(done.stdout.split()[0]).parent == program.folder / "mstxkit-runs"
    assert not (program.folder / "run.json").exists()


def test_the_output_and_the_input_are_those_of_the_command(program: Program) -> None:
    command = [str(program.python), "-m", "mstxkit", "run", "--", "cat"]
    done = subprocess.run(command, env=unasked(program), cwd=program.folder, input=b"\x00\xff", capture_output=True)

    assert done.stdout == b"\x00\xff"


TELLS = """
import os, signal, sys

numbers = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", os.getpgrp(), os.getppid(), flush=True)
caught = []
while signal.SIGTERM not in caught:
    caught.append(signal.sigwait(numbers))
    print("caught", int(caught[-1]), flush=True)
print("in all", len(caught), flush=True)
sys.exit(40)
"""


@pytest.fixture
def started(program: Program) -> Iterator[subprocess.Popen[str]]:
    """`mstxkit run` around a program that tells of each signal, ready for them."""
    interpreters.write(program.folder, {"tells.py": TELLS})
    command = [str(program.python), "-m", "mstxkit", "run", "--", str(program.python), "tells.py"]
    process = subprocess.Popen(
        command, env=unasked(program), cwd=program.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_signals_are_passed_on_and_the_command_decides_what_they_mean(started: subprocess.Popen[str]) -> None:
    ready = line(started)
    told = []
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        started.send_signal(number)
        told.append(line(started))
    started.send_signal(signal.SIGTERM)
    out, _ = started.communicate(timeout=60)

    assert ready == f"ready {os.getpgrp()} {started.pid}"
    assert told == [f"caught {number}" for number in (1, 2, 3, 10, 12)]
    assert out == "caught 15\nin all 6\n"
    assert started.returncode == 40


def test_what_a_terminal_sends_to_all_reaches_the_command_once(program: Program) -> None:
    """Ctrl-C goes to the whole process group: it must not be passed on as well."""
    interpreters.write(program.folder, {"tells.py": TELLS, "terminal.py": TERMINAL})
    command = [str(program.python), "terminal.py", *words(program.python, "tells.py")]
    terminal = subprocess.Popen(
        command, env=unasked(program), cwd=program.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    shown = until(terminal, b"ready")
    (run_pid,) = [int(line.split()[2]) for line in shown.splitlines() if line.startswith(b"ready")]
    for _ in range(20):  # one that is passed on often meets its twin on the way, and becomes one with it
        type_in(terminal, b"\x03")
        until(terminal, b"caught 2")
    os.kill(run_pid, signal.SIGTERM)
    rest, _ = terminal.communicate(timeout=60)

    assert b"in all 21\r\n" in rest
    assert terminal.returncode == 40


# A terminal of its own for a command: what is typed into it is what this process reads.
TERMINAL = "import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))\n"


def words(python: Path, script: str) -> list[str]:
    return [str(python), "-m", "mstxkit", "run", "--", str(python), script]


def type_in(terminal: subprocess.Popen[bytes], text: bytes) -> None:
    assert terminal.stdin is not None
    terminal.stdin.write(text)
    terminal.stdin.flush()


def until(terminal: subprocess.Popen[bytes], text: bytes) -> bytes:
    """What a terminal shows, to the end of the line that holds `text`."""
    assert terminal.stdout is not None
    shown = b""
    while text not in shown:
        line = terminal.stdout.readline()
        assert line, f"ended without {text!r}: {shown!r}"
        shown += line
    return shown


# A thread beside the command's, as one that hangs in a folder is; the command ends before we wait for it.
BESIDE = """
import os, sys, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
spawn = os.posix_spawnp
def spawned(*words, **options):
    pid = spawn(*words, **options)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    time.sleep(0.2)
    return pid
os.posix_spawnp = spawned
from mstxkit.cli import main
sys.argv = ["mstxkit", "run", "--", "true"]
main()
"""


def test_it_ends_although_another_thread_was_told_that_the_command_has_ended(program: Program) -> None:
    command = [str(program.python), "-c", BESIDE]
    done = subprocess.run(command, env=unasked(program), cwd=program.folder, timeout=30)

    assert done.returncode == 0


def test_the_command_gets_the_signals_as_we_were_given_them(program: Program) -> None:
    done = run(program, "--", "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")
    blocked, ignored = (int(one.split()[1], 16) for one in done.stdout.splitlines())

    assert blocked == 0
    assert not ignored >> (signal.SIGPIPE - 1) & 1


def test_an_unknown_framework_is_refused_before_anything_starts(program: Program) -> None:
    done = run(program, "--run", program.run_folder, "--autopatch", "verll", "--", "touch", "started")

    assert done.returncode == 2
    assert "did you mean verl" in " ".join(done.stderr.split())
    assert not (program.folder / "started").exists()


# It goes on once its rank has said what it knows of.
CONFIGURED = """
import os, pathlib, time
import mstxkit

def knows():
    return any('"first_step": 3' in word.read_text() for word in words.glob("*.json"))

words, deadline = pathlib.Path(os.environ["MSTXKIT_RUN"], "control/acks"), time.monotonic() + 60
for number in range(1, 5):
    mstxkit.step(number)
    with mstxkit.stage("actor_update"):
        pass
    while not knows() and time.monotonic() < deadline:
        time.sleep(0.01)
"""


def test_a_configuration_is_planned_before_the_command_starts_and_known_to_its_processes(program: Program) -> None:
    interpreters.write(program.folder, {
        "configured.py": CONFIGURED,
        "config.yaml": "mstxkit: {enabled: true, stages: [actor_update], window: {first_step: 3}, ranks: [0]}\n",
    })  # fmt: skip
    words = ("--run", program.run_folder, "--config", program.folder / "config.yaml")
    done = run(program, *words, "--", program.python, "configured.py")
    (row,) = mstxkit.open_run(program.run_folder).escalations().to_dicts()

    assert done.returncode == 0, done.stderr
    assert "planned: from step 3 on 1 step of actor_update, options of its own, on rank 0" in done.stderr
    assert (row["stage"], row["rank"], row["first_step"]) == ("actor_update", 0, 3)
    assert row["state"] != "queued"  # failed where no profiler is installed


def test_a_wrong_configuration_is_refused_before_anything_starts(program: Program) -> None:
    interpreters.write(program.folder, {"config.yaml": "mstxkit: {enabled: true, level: level9}\n"})
    done = run(program, "--run", program.run_folder, "--config", "config.yaml", "--", "touch", "started")

    assert done.returncode == 2
    assert "config.yaml:1: mstxkit.level='level9'" in " ".join(done.stderr.split())
    assert not (program.folder / "started").exists()
    assert not program.run_folder.exists()


def test_a_run_folder_that_cannot_be_used_is_refused_before_anything_starts(program: Program) -> None:
    (program.folder / "file").touch()
    done = run(program, "--run", "file", "--", "touch", "started")

    assert done.returncode == 1
    assert "cannot be used" in done.stderr or "not a folder" in done.stderr
    assert not (program.folder / "started").exists()


def test_no_command_is_wrong_use(program: Program) -> None:
    assert run(program).returncode == 2


def test_an_interpreter_without_the_pth_file_is_named_as_the_reason_for_nothing(program: Program) -> None:
    program.run_folder.mkdir()
    unreached = run(program, "--run", program.run_folder, "--", program.python, "-S", "-c", "pass")
    reached = run(program, "--run", program.run_folder, "--", program.python, "-c", "pass")

    assert "no Python that reads mstxkit.pth was started" in unreached.stderr
    assert "no process imported mstxkit or what is to be patched (all)" in reached.stderr
    assert sorted(path.name for path in program.run_folder.iterdir()) == ["live", "run.json", "sealed"], "it was there"


def test_off_is_named_as_the_reason_for_nothing(program: Program) -> None:
    done = run(program, "--run", program.run_folder, "--", program.python, "work.py", MSTXKIT_OFF="1")

    assert done.returncode == 0
    assert "nothing was recorded: MSTXKIT_OFF is set" in done.stderr


def test_what_was_killed_is_sealed_and_counted(program: Program) -> None:
    dies = "import os, signal, mstxkit\nwith mstxkit.mstx_range('last'):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    interpreters.write(program.folder, {"dies.py": dies})
    done = run(program, "--run", program.run_folder, "--", program.python, "dies.py")
    rows = mstxkit.open_run(program.run_folder).ranges().to_dicts()

    assert done.returncode == 137
    assert "1 process recorded" in done.stderr
    assert [(row["name"], row["open"]) for row in rows] == [("last", True)]
    assert not list((program.run_folder / "live").iterdir())


def test_only_what_this_command_recorded_is_counted(program: Program) -> None:
    asked = ("--run", program.run_folder, "--autopatch", "targets.yaml", "--", program.python)
    run(program, *asked, "work.py")
    again = run(program, *asked, "-c", "pass")

    assert "nothing was recorded" in again.stderr


def test_a_command_that_removes_the_run_folder_keeps_its_status(program: Program) -> None:
    done = run(program, "--run", program.run_folder, "--", "sh", "-c", f"rm -r {program.run_folder}; exit 5")

    assert done.returncode == 5


def test_a_disk_that_takes_nothing_more_costs_neither_the_command_nor_its_status(
    program: Program,
    mount: Mount,  # noqa: F811
) -> None:
    disk = mount("disk", "size=1m")
    words = ("--run", disk / "run", "--", "sh", "-c")
    first = run(program, *words, f"mount -o remount,ro {disk}; exit 5")
    again = run(program, *words, "echo started; exit 6")

    assert (first.returncode, again.returncode, again.stdout) == (5, 6, "started\n")
    assert "Traceback" not in first.stderr + again.stderr
    assert f"Read-only file system: '{disk}/run/.unreached'" in again.stderr


def test_run_is_no_process_of_the_run_even_inside_another(program: Program) -> None:
    inner = ["--", str(program.python), "-m", "mstxkit", "run", "--", str(program.python), "work.py"]
    done = run(program, "--run", program.run_folder, "--autopatch", "targets.yaml", *inner)

    assert done.returncode == 0
    assert len(program.pids()) == 1


DRIVER = """
import os, ray, toyrl

@ray.remote
class Actor(toyrl.Trainer):
    pass

@ray.remote
def task():
    return toyrl.Trainer().fit()

ray.init("local", num_cpus=3, include_dashboard=False)
actors = [Actor.options(runtime_env={"env_vars": {"NUMBER": str(n)}}).remote() for n in range(2)]
assert ray.get([actor.fit.remote() for actor in actors]) == [42, 42]
assert ray.get(task.remote()) == 42
ray.shutdown()
"""


@pytest.mark.ray
def test_ray_workers_are_recorded_without_a_line_in_the_driver(program: Program) -> None:
    """Idle workers and the driver take part as well, and record nothing; of Ray's daemons none does."""
    interpreters.write(program.folder, {"driver.py": DRIVER})
    asked = ("--run", program.run_folder, "--autopatch", "targets.yaml")
    of_ray = {"RAY_AUTH_MODE": "disabled", **NO_LESS_THAN_OTHERS}
    done = run(program, *asked, "--", program.python, "-W", "ignore", "driver.py", **of_ray)
    opened = mstxkit.open_run(program.run_folder)
    roles = {row["pid"]: row["role"] for row in opened.processes().to_dicts()}
    found = [(row["name"], roles[row["pid"]]) for row in opened.ranges().to_dicts()]

    assert done.returncode == 0, done.stderr
    assert sorted(found, key=str) == [("Trainer.fit", "Actor")] * 2 + [("Trainer.fit", None)]
    assert len({row["pid"] for row in opened.ranges().to_dicts()}) == 3
