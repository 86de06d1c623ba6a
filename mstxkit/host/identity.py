"""Who this process is: host, pid, rank, role, part. The one place that reads launcher variables; rank, role and part
may be learnt late.

Source of the variables: torchrun and MindSpeed-LLM (RANK, WORLD_SIZE), Open MPI (OMPI_COMM_WORLD_RANK), Slurm
(SLURM_PROCID, SLURM_NTASKS), msrun of MindSpore 2.10 (RANK_ID, RANK_SIZE); of a rollout replica: verl 0.9.1
`vllm_async_server.py` (VERL_REPLICA_RANK), vLLM 001f69f8b `envs.py` (VLLM_DP_RANK). Restarts: torchrun of torch 2.13
(TORCHELASTIC_RESTART_COUNT; also TORCHELASTIC_RUN_ID, LOCAL_WORLD_SIZE), Slurm's requeueing (SLURM_RESTART_COUNT).
"""

from __future__ import annotations

import os
import re
import sys
import time
from operator import index
from typing import Any, Callable, Mapping

from .. import faults
from . import environment, launch, parts, proc_files

_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "RANK_ID")
_WORLD_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "RANK_SIZE")
_REPLICA_VARIABLES = ("VERL_REPLICA_RANK", "VLLM_DP_RANK")
# A replica of verl's may have data-parallel ranks of vLLM's: then both say which one this is.
_DATA_PARALLEL_VARIABLE = "VLLM_DP_RANK"
# A role longer than this is cut, and a part: the identity has to fit its place in the live file, in ASCII.
ROLE_LIMIT = 100
_WIDE_PART_LIMIT = 16
# How often the launcher has started its processes anew: torchrun, Slurm.
_RESTART_VARIABLES = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
# In this order; what a comparison of two runs would ask for first.
FRAMEWORKS = (
    "torch", "torch_npu", "mindspore", "verl", "mindspeed_rl", "mindspeed_llm", "mindspeed", "megatron", "vllm",
    "vllm_ascend", "sglang", "transformers", "trl", "ray", "numpy",
)  # fmt: skip
_TEXT_AT_MOST, _ALL_AT_MOST = 40, 400
_learnt: dict[str, Any] = {}
_inherited: dict[str, int | None] = {}  # the parent's rank, once asked for
_of_group: dict[str, int] = {}  # what torch's process group has said: it is destroyed before a program ends
# Set by `capturing` while a recorder runs, so that what `identify` learns survives a kill in the very next moment.
on_learnt: Callable[[], None] | None = None


def identify(
    *, rank: int | None = None, role: str | None = None, world_size: int | None = None, part: str | None = None
) -> None:
    """Say who this process is, where no launcher variable says it. Holds for all its ranges, those before too.

    Args:
        rank: Global rank.
        role: What it works as, "actor" or "reference", say.
        world_size: Number of ranks.
        part: What it is to its rank, "tokenizer 2", say; a forked child does not inherit it.

    What is no number, or no text, is counted as a fault and left out.

    Example:
        >>> import mstxkit
        >>> mstxkit.identify(rank=3, world_size=8, role="actor")
    """
    try:
        fields = {
            "rank": _number_of(rank),
            "role": _cut_text(role),
            "world_size": _number_of(world_size),
            "part": _fit_part(part),
        }
    except TypeError as exc:
        faults.note_fault("identify", exc)
        return
    _learnt.update({key: value for key, value in fields.items() if value is not None})
    if on_learnt is not None:
        on_learnt()


def _number_of(value: Any) -> int | None:
    """An int of any kind (numpy has its own) as one that JSON takes; what is below 0 says that there is none."""
    return None if value is None or index(value) < 0 else index(value)


def _cut_text(value: object) -> str | None:
    return None if value is None else str(value)[:ROLE_LIMIT]


def _fit_part(part: object) -> str | None:
    text = _cut_text(part)
    return text if text is None or text.isascii() else text[:_WIDE_PART_LIMIT]


def has_role() -> bool:
    """Has this process a role?"""
    return "role" in _learnt or bool(os.environ.get("MSTXKIT_ROLE"))


def forget_learnt() -> None:
    """Drop what has been learnt, for tests."""
    for remembered in (_learnt, _inherited, _of_group):
        remembered.clear()
    parts.forget_parts()


def forget_part() -> None:
    """In a forked child: it has its parent's rank and role until it learns its own, never its part. Never raises."""
    try:
        _inherited["rank"] = _read_numbers()["rank"]
        _learnt.pop("part", None)
        _of_group.clear()
        parts.forget_parent()
    except Exception as exc:
        faults.note_fault("identity.forked", exc)


def learn_actor() -> None:
    """Learn which actor of Ray's this process is. Only in a thread that runs a task of Ray's. Never raises."""
    try:
        parts.learn_actor()
    except Exception as exc:
        faults.note_fault("identity.actor", exc)


def read_current() -> dict[str, Any]:
    """What can change: rank, role, world size, part, what it works under, and versions of the frameworks that it has
    loaded; None where it is not known yet.
    """
    numbers = _read_numbers()
    own = {"role": _cut_text(os.environ.get("MSTXKIT_ROLE")), "versions": versions_loaded()}
    return {**own, **numbers, **_read_part(numbers["rank"]), **_learnt}


def versions_loaded() -> str | None:
    """`torch 2.13.0, ray 2.60.0`, of what this process has loaded; None: nothing. Two runs are compared by it.
    *Cost*: a look into `sys.modules` for each name.
    """
    named = [f"{name} {version}" for name in FRAMEWORKS if (version := _read_version(name))]
    while len(", ".join(named)) > _ALL_AT_MOST:
        named.pop()
    return ", ".join(named) or None


def _read_version(name: str) -> str:
    """As the module itself says; "" where it does not, by what is there already: `getattr` would wake lazy modules."""
    try:
        version = vars(sys.modules[name]).get("__version__")
    except (KeyError, TypeError):
        return ""
    text = str.__str__(version) if isinstance(version, str) else ""
    return text[:_TEXT_AT_MOST] if text.isascii() and text.isprintable() else ""


def _read_numbers() -> dict[str, int | None]:
    numbers = {"rank": _from_environment(_RANK_VARIABLES), "world_size": _from_environment(_WORLD_VARIABLES)}
    try:
        if has_process_group():
            distributed: Any = sys.modules["torch.distributed"]
            of_group = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
            numbers_of = {key: _number_of(value) for key, value in of_group.items()}
            _of_group.update({key: value for key, value in numbers_of.items() if value is not None})
    except Exception as exc:
        faults.note_fault("identity.torch_distributed", exc)
    return {**numbers, **_of_group, **{key: _learnt[key] for key in numbers if key in _learnt}}


def _read_part(rank: int | None) -> dict[str, str | None]:
    try:
        part = parts.find_part(rank, _inherited_rank, _read_replica())
    except Exception as exc:
        faults.note_fault("identity.part", exc)
        part = parts.Part()
    # "" and not None, which would replace nothing: a child that turns out to be a trainer works under nobody.
    return {"part": _fit_part(part.text), "under": part.under or ("" if part.text else None)}


def _read_replica() -> str | None:
    """`2`; `2 dp 1` for one of several in a replica of verl's."""
    replica = _from_environment(_REPLICA_VARIABLES)
    rank_in_it = _from_environment((_DATA_PARALLEL_VARIABLE,))
    if replica is None or rank_in_it is None or not os.environ.get(_REPLICA_VARIABLES[0]):
        return None if replica is None else str(replica)
    return f"{replica} dp {rank_in_it}"


def _inherited_rank() -> int | None:
    """The rank that this process was started with, which is its parent's."""
    if "rank" not in _inherited:
        _inherited["rank"] = _from_environment(_RANK_VARIABLES, _environment_at_start())
    return _inherited["rank"]


def _environment_at_start() -> dict[str, str]:
    try:
        lines = proc_files.read_content("/proc/self/environ", 8 << 20).split(b"\0")
        return {name: value for name, _, value in (os.fsdecode(line).partition("=") for line in lines)}
    except OSError:
        return dict(os.environ)


def renew_identity(identity: dict[str, Any]) -> dict[str, Any]:
    """An identity with what is current. None replaces nothing: a process group is destroyed before a program ends."""
    place = None
    if may_have_groups():
        from . import parallel

        place = parallel.part_of_model() or None
    now = {**read_current(), "place": place}
    return {**identity, **{key: value for key, value in now.items() if value is not None}}


def _from_environment(variables: tuple[str, ...], environment: Mapping[str, str] = os.environ) -> int | None:
    for variable in variables:
        value = environment.get(variable, "")
        if value.isdecimal() and len(value) < 10:
            return int(value)
    return None


def may_have_groups() -> bool:
    """Is anything loaded here that has parallel groups (`host/parallel.py`)?"""
    return "torch.distributed" in sys.modules or "megatron.core.parallel_state" in sys.modules


def has_process_group() -> bool:
    """Has this process one of torch's? Never imports torch."""
    # Missing where torch has no distributed, and while another thread is still importing it.
    is_initialized = getattr(sys.modules.get("torch.distributed"), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def of_life() -> dict[str, Any]:
    """What `life.is_alive` needs to tell this process from any other, on this host or another, now or later."""
    pid = os.getpid()
    return {
        "host": name_host(),
        "boot": boot_id(),
        "pid": pid,
        "pid_start": pid_start(pid),
        "pidns": read_namespace("pid"),
    }


def of_process(run_id: str, native: bool, version: str) -> dict[str, Any]:
    """All that stays the same for the life of this process, with its rank, role and part so far."""
    learn_actor()
    return {
        "run": run_id, **of_life(), "ppid": os.getppid(),
        "job": _fit_part(os.environ.get(environment.JOB)), "launch": launch.start_id(),
        "restart": _from_environment(_RESTART_VARIABLES),
        "start": f"{time.time_ns():x}{os.urandom(2).hex()}", "start_ns": time.time_ns(),
        "timens": read_namespace("time"),
        "native": native, "python": sys.version.partition(" ")[0], "mstxkit": version, **read_current(),
    }  # fmt: skip


def name_host() -> str:
    """This host's name, fit for a file name."""
    return re.sub(r"[^0-9A-Za-z_.]", "_", os.uname().nodename)[:64] or "host"


def process_name(identity: dict[str, Any]) -> str:
    """`<host>-<pid>-<start>`: unique over the life of a run."""
    return f"{identity['host']}-{identity['pid']}-{identity['start']}"


def boot_id() -> str:
    """The kernel's id of this boot: processes that share it share CLOCK_MONOTONIC."""
    return proc_files.read_text("/proc/sys/kernel/random/boot_id").strip()


def pid_start(pid: int) -> int | None:
    """When a process started, in the kernel's ticks since boot; None when it is gone (a zombie is gone too)."""
    try:
        fields = proc_files.stat_of(f"/proc/{pid}")
        return None if fields[0] in ("Z", "X") else int(fields[19])
    except (IndexError, ValueError):
        return None


def launched_s() -> int | None:
    """When the torchrun of this rank began, in Unix seconds, the same for all that it started; None without one."""
    ticks = pid_start(os.getppid()) if os.environ.get("TORCHELASTIC_RUN_ID") else None
    booted = re.search(r"^btime (\d+)", proc_files.read_text("/proc/stat"), re.MULTILINE)
    return None if ticks is None or booted is None else int(booted[1]) + ticks // os.sysconf("SC_CLK_TCK")


def has_others() -> bool:
    """Are there processes of this job that do not work out the same `launched_s`?"""
    now, here = read_current(), _from_environment(("LOCAL_WORLD_SIZE",)) if launched_s() else 1
    return (now["world_size"] or 1) > (here or 1) or now["under"] in (parts.RAY, *parts.BESIDE)


def read_namespace(kind: str) -> int:
    """The number of this process's namespace of a kind, "pid" or "time"; 0 where the kernel has none."""
    try:
        return os.stat(f"/proc/self/ns/{kind}").st_ino
    except OSError:
        return 0
