"""Stand-in CANN libraries, built on demand, under which the real torch_npu runs on a machine with no NPU.

They are kept in the user's cache folder under the hash of their sources and compiler, built aside and moved into
place in one step, so that any number of processes may ask at once. What they imitate and what they do not:
`docs/guide/testing.md`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Sequence

from ..errors import StandInError

_SOURCES = Path(__file__).parent / "cann"
_FLAGS = ("-O2", "-shared", "-fPIC", "-w", "-fno-strict-aliasing")
# One library holds acl; these only have to exist and to lead to it.
_LEADING_TO_ACL = ("hccl", "acl_op_compiler", "ge_runner", "graph", "acl_tdt_channel", "ascend_hal")
# torch_npu checks that these are there when ASCEND_HOME_PATH is set: registry_manager.py:19-64.
_FOLDERS = ("lib64", "runtime", "compiler", "opp")


class Fail(NamedTuple):
    """A CANN call that is to go wrong.

    Args:
        call: Its name, any function of the stand-in libraries: `aclprofStart`, `aclrtSetDevice`, …
        code: What it returns then. For the mstx range starts this is the id: 0 is a failure.
        at: The n-th use fails, from 1; 0: every use.

    Example:
        >>> from mstxkit.testing import Fail, StandIn
        >>> StandIn.build().environment(fail=[Fail("aclprofStart", 507000)])["MSTXKIT_STANDIN_FAIL"]
        'aclprofStart:0:507000'
    """

    call: str
    code: int
    at: int = 0


@dataclass(frozen=True)
class StandIn:
    """Stand-in CANN libraries that are built: `build` makes them.

    Args:
        home: The folder that takes the place of `$ASCEND_HOME_PATH`.

    Example:
        >>> from mstxkit.testing import StandIn
        >>> (StandIn.build().libraries / "libascendcl.so").exists()
        True
    """

    home: Path

    @classmethod
    def build(cls, cache: Path | None = None) -> StandIn:
        """Build the libraries, unless they are in the cache already. About a second the first time.

        Args:
            cache: Folder to keep them in; default `$XDG_CACHE_HOME/mstxkit` or `~/.cache/mstxkit`.

        Raises:
            StandInError: there is no C compiler, or the cache folder cannot be used.
        """
        wanted = os.environ.get("CC", "gcc")
        compiler = shutil.which(wanted)
        if compiler is None:
            raise StandInError(f"no C compiler {wanted!r} to build the stand-in CANN libraries: install gcc, or set CC")
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = _private_folder(cache or caches / "mstxkit")
        home = folder / f"standin-{_digest_of(compiler)}"
        if not home.exists():
            _build_aside(compiler, home)
        return cls(home)

    @property
    def libraries(self) -> Path:
        """The folder to put in front of `LD_LIBRARY_PATH`."""
        return self.home / "lib64"

    @property
    def injection(self) -> Path:
        """A library for `MSTX_INJECTION_PATH`, which attaches a tool to mstx as a launcher such as msprof does."""
        return self.libraries / "libprofapi.so"

    def environment(
        self, *, log: Path | None = None, mstx: str = "profiler", rate: float = 0, start_bytes: int = 4096,
        fail: Sequence[Fail] = (),
    ) -> dict[str, str]:  # fmt: skip
        """Environment variables for a process that is to run under the stand-in.

        Args:
            log: File to which each mstx and aclprof call is appended, one JSON object a line.
            mstx: When mstx ranges are taken: "profiler" while a profiler session with mstx runs, "on" always, "off"
                never.
            rate: Bytes per second by which a `PROF_*` folder grows while a session runs.
            start_bytes: Bytes that a `PROF_*` folder holds from the start of its session; with 0, and no rate, nothing
                is recorded, and nobody says so.
            fail: Calls that are to go wrong.
        """
        settings = {
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(self.libraries), os.environ.get("LD_LIBRARY_PATH")])),
            "ASCEND_HOME_PATH": str(self.home), "ASCEND_OPP_PATH": str(self.home / "opp"),
            "MSTXKIT_STANDIN_MSTX": mstx, "MSTXKIT_STANDIN_RATE": repr(float(rate)),
            "MSTXKIT_STANDIN_START_BYTES": str(start_bytes),
            "MSTXKIT_STANDIN_FAIL": ";".join(f"{failure.call}:{failure.at}:{failure.code}" for failure in fail),
        }  # fmt: skip
        return settings if log is None else {**settings, "MSTXKIT_STANDIN_LOG": str(log)}


def _private_folder(path: Path) -> Path:
    """A folder from which it is safe to load code: it is there, ours, and only we can write to it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as exc:
        raise StandInError(f"cannot use the cache folder {path}: {exc}; set XDG_CACHE_HOME to another one") from exc
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StandInError(f"the cache folder {path} can be written to by others; chmod 700 it, or set XDG_CACHE_HOME")
    return path


def _digest_of(compiler: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    digest = hashlib.blake2b(platform.machine().encode() + version, digest_size=10)
    digest.update(repr(_FLAGS).encode())
    digest.update(Path(__file__).read_bytes())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()


def _build_aside(compiler: str, home: Path) -> None:
    """Build next to `home`, then move; a second process finds it there and drops its own."""
    aside = Path(tempfile.mkdtemp(prefix=".building-", dir=home.parent))
    try:
        for name in _FOLDERS:
            (aside / name).mkdir()
        _build_libraries(compiler, aside / "lib64")
        os.rename(aside, home)
    except OSError as exc:
        if not home.exists():
            raise StandInError(f"cannot keep the stand-in CANN libraries in {home}: {exc}") from exc
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _build_libraries(compiler: str, out: Path) -> None:
    names = (_SOURCES / "symbols.txt").read_text().split()
    functions = [f'long {name}(void) {{ return standin_answer("{name}", 0); }}\n' for name in names]
    answers = '#include "standin.h"\n' + "".join(functions)
    (out / "answers.c").write_text(answers)
    acl = [str(_SOURCES / "standin.c"), str(_SOURCES / "runtime.c"), str(out / "answers.c")]
    _link_library(compiler, out, "ascendcl", [*acl, "-lpthread"])
    _link_library(compiler, out, "ms_tools_ext", [str(_SOURCES / "ms_tools_ext.c"), "-ldl", "-lpthread"])
    _link_library(compiler, out, "profapi", [str(_SOURCES / "profapi.c")], needs=("ascendcl",))
    _link_library(compiler, out, "msprofiler", [], needs=("profapi", "ascendcl"))
    for name in _LEADING_TO_ACL:
        _link_library(compiler, out, name, [], needs=("ascendcl",))


def _link_library(compiler: str, out: Path, name: str, sources: Sequence[str], needs: Sequence[str] = ()) -> None:
    command = [compiler, *_FLAGS, f"-I{_SOURCES}", f"-Wl,-soname,lib{name}.so", "-o", str(out / f"lib{name}.so")]
    command += sources or ["-x", "c", "/dev/null", "-x", "none"]
    if needs:
        command += ["-Wl,--no-as-needed", f"-L{out}", *(f"-l{need}" for need in needs), "-Wl,-rpath,$ORIGIN"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StandInError(f"{compiler} could not build lib{name}.so:\n{done.stderr[-2000:]}")
