"""What `mstxkit.pth` starts in an interpreter that was asked: wait for a framework to be imported, and join then.

Nothing of mstxkit is loaded until then: `mstxkit.pth` runs this file by its path. So a process joins the run at its
first import of mstxkit, of Ray, or of a framework that MSTXKIT_AUTOPATCH asks for. Helper processes import none of
these (pip, multiprocessing's trackers), or are Ray's own daemons, which are told by the script that they run.

Standard library only. Nothing here raises or prints while the interpreter starts.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as type checkers take it: `typing` would be a third of what this costs at interpreter start
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

RUN_VARIABLE, PATCH_VARIABLE = "MSTXKIT_RUN", "MSTXKIT_AUTOPATCH"
# `mstxkit run` leaves this file in the run folder; the first interpreter that comes here takes it away.
UNREACHED = ".unreached"
RAY = "ray"
# Everybody imports these: a process that does takes no part in a training for it.
_NO_REASON = {"__main__", "concurrent"}
_EVERY, _EXTRA, _YAML = ("all", "1"), "+extra", (".yaml", ".yml")
_PATCHES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "patches")
# Source: Ray 2.42.1 and 2.60.0, `ray/_private/ray_constants.py` and the raylet's command lines: of the scripts in
# Ray's package only this one runs the job's tasks and actors.
_RAY_WORKER = os.path.join("_private", "workers", "default_worker.py")


def boot() -> None:
    """Get this interpreter ready, as its environment says. Never raises; a second call does nothing."""
    try:
        run, asked = os.environ.get(RUN_VARIABLE), os.environ.get(PATCH_VARIABLE, "")
        try:
            if run:
                os.unlink(os.path.join(run, UNREACHED))
        except OSError:
            pass  # another interpreter was first, or this run was not started by `mstxkit run`
        # By name: this file may have been run by its path and imported as well.
        there = {(type(finder).__module__, type(finder).__name__) for finder in sys.meta_path}
        if asked and (__name__, Waiting.__name__) not in there:
            finder = Waiting(_split_names(asked))
            sys.meta_path.insert(0, finder)
            for name in finder.names & set(sys.modules):  # another .pth file has imported it
                finder.arrives(name, getattr(sys.modules[name], "__spec__", None))
    except Exception:
        pass  # there is nobody to tell yet, and the program is none of our business


class Waiting:
    """A finder that finds nothing itself: it sees the first import of one of `names`, and joins before that is run.

    Who only asks whether a framework is installed (`importlib.util.find_spec`) does not join.

    Cost: one look-up in a set for each module that is not loaded yet. No lock: a second framework that is imported by
    another thread in the same moment is patched a little later than it could have been.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """None, or what the other finders say, with a loader that joins before it runs the module."""
        if fullname not in self.names:
            return None
        for finder in [finder for finder in sys.meta_path if finder is not self]:
            find: Callable[..., Any] | None = getattr(finder, "find_spec", None)
            spec = None if find is None else find(fullname, path, target)
            if spec is not None:
                if not self._is_noticed_at_its_loader(fullname, spec):
                    self.arrives(fullname, spec)
                return spec
        return None

    def _is_noticed_at_its_loader(self, name: str, spec: Any) -> bool:
        """Only a loader object is this import's own; a namespace package has none, or one without attributes."""
        loader = spec.loader
        run = getattr(loader, "exec_module", None)
        if run is None or isinstance(loader, type) or not hasattr(loader, "__dict__"):
            return False

        def join_and_run(module: Any) -> None:
            loader.__dict__.pop("exec_module", None)
            self.arrives(name, spec)
            run(module)

        loader.__dict__["exec_module"] = join_and_run
        return True

    def arrives(self, name: str, spec: Any) -> None:
        """This is being imported: join, if that is a reason to."""
        if spec is None or name not in self.names:
            return
        folder = os.path.realpath(next(iter(spec.submodule_search_locations or ()), ""))
        if name == RAY and _is_part_of_ray(folder):
            self.names -= {name}
            return
        self.names = frozenset()
        join(is_ray_worker=name == RAY and _find_script() == os.path.join(folder, _RAY_WORKER))


def join(is_ray_worker: bool = False) -> None:
    """Capture and patch here as the environment says. Never raises: what is wrong is logged once. `is_ray_worker`: also
    hear of classes that arrive by value, which no import shows.
    """
    try:
        # The package itself starts to capture, where MSTXKIT_RUN is set.
        from mstxkit.bootstrap import activation, ray_job

        activation.autopatch_from_environment()
        if is_ray_worker:
            ray_job.arrange_ray("worker")  # not `setup`: it runs the job's own hook as well, whose time has not come
    except Exception as exc:
        import logging

        logging.getLogger("mstxkit").warning("mstxkit: cannot be loaded, so nothing is patched here", exc_info=exc)


def _split_names(asked: str) -> frozenset[str]:
    """Import roots to wait for. A name that does not exist waits for all: the process that joins says so."""
    # As `patching.registry.list_frameworks`.
    frameworks = {name[:-3] for name in os.listdir(_PATCHES) if name.endswith(".py") and not name.startswith("_")}
    roots = {RAY}
    for name in filter(None, (part.strip() for part in asked.split(","))):
        if name in _EVERY:
            roots |= set(filter(is_default, frameworks))
        elif name.endswith(_YAML):
            import re

            # First parts of what looks like `package.module:name`; none where the file cannot be read.
            roots |= set(re.findall(r"(?<![\w.])([A-Za-z_]\w*)(?:\.\w+)*:[A-Za-z_*]", _read_text(name))) or frameworks
        else:
            root = name[: -len(_EXTRA)] if name.endswith(_EXTRA) else name
            roots |= {root} if root in frameworks else frameworks
    return frozenset(roots - _NO_REASON)


def is_default(framework: str) -> bool:
    """Is it among what `all` asks for? Read from its patch file's text: to load that would load mstxkit."""
    return "default=False" not in _read_text(os.path.join(_PATCHES, framework + ".py"))


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def _is_part_of_ray(folder: str) -> bool:
    """Is this one of Ray's daemons (dashboard, agents, monitors), or its command line?"""
    script = _find_script()
    if script.startswith(folder + os.sep):
        return script != os.path.join(folder, _RAY_WORKER)
    if os.path.basename(script) == RAY:
        return True
    if not getattr(sys, "argv", None) or sys.argv[0] != "-m":
        return False
    # What follows `-m`, while Python is still looking for it. Python 3.9 has no `orig_argv`.
    words = iter(getattr(sys, "orig_argv", None) or _read_text("/proc/self/cmdline").split("\0"))
    return next((next(words, "") for word in words if word == "-m"), "").split(".")[0] == RAY


def _find_script() -> str:
    """Full path of the script that this process runs; sys.argv is complete before the first import of the program."""
    return os.path.realpath(sys.argv[0]) if getattr(sys, "argv", None) else ""
