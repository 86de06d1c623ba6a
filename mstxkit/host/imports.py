"""Post-import hooks: run a function once a module has been imported, without importing it.

Nothing heavy is loaded until a watched module is looked up: a finder of ours only compares names. It then loads
`wrapt`, whose post-import hooks do the rest. A hook of ours never breaks somebody's import, and an import that fails
raises its own error.
"""

from __future__ import annotations

import _frozen_importlib
import os
import sys
from _frozen_importlib import ModuleSpec  # importlib.machinery has it too, and loads five modules
from _thread import RLock, get_ident
from _weakref import ref
from functools import partial
from types import ModuleType
from typing import Any, Callable, Sequence

from .. import faults

Hook = Callable[[ModuleType], object]


def own_lock() -> Any:
    """A lock that is free in a forked child, unless its forking thread holds it: other holders are not there."""
    lock: Any = RLock()
    os.register_at_fork(after_in_child=lambda: lock._is_owned() or lock._at_fork_reinit())
    return lock


_lock = own_lock()
_at_the_end: list[Callable[[], object]] = []
_registered: list[Callable[[], object]] = []
_waiting: dict[str, list[Hook]] = {}
# Every (module, hook) ever asked for and not undone, so that a second call is one call.
_known: set[tuple[str, Hook]] = set()
# The locks of imports that were under way when their module was first watched.
_under_way: dict[str, Any] = {}
# Names for which wrapt calls `_run_hooks` at the end of their import.
_handed_over: set[str] = set()


def when_imported(module_name: str, hook: Hook) -> Callable[[], None]:
    """Run `hook(module)` once: now if the module is imported already, else at the end of its import.

    A hook that raises is a counted fault. The same hook for the same module is taken once.

    Returns:
        An undo: a hook that has not run yet will not run, and may be registered again.

    Threads: may be called from any; the hook runs in the importing thread.
    """
    with _lock:
        if (module_name, hook) in _known:
            return lambda: forget_hook(module_name, hook)
        _known.add((module_name, hook))
        module = sys.modules.get(module_name)
        wait = module is None or _tell_when_loaded(module)
        if wait:
            _waiting.setdefault(module_name, []).append(hook)
            # Never taken out again while the program runs: another thread may be walking over sys.meta_path.
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)
            _tell_when_over(module_name)
    if not wait and module is not None:
        _run_hook(hook, module_name, module)
    return lambda: forget_hook(module_name, hook)


def forget_hook(module_name: str, hook: Hook) -> None:
    """Undo one `when_imported`; nothing if there was none."""
    with _lock:
        _known.discard((module_name, hook))
        left = [other for other in _waiting.pop(module_name, ()) if other is not hook]
        if left:
            _waiting[module_name] = left


def _run_hook(hook: Hook, name: str, module: ModuleType) -> None:
    try:
        hook(module)
    except Exception as exc:
        faults.note_fault(f"the hook on the import of {name}", exc)


def _run_hooks(name: str, module: ModuleType) -> None:
    """A watched module has been executed: run what waits for it."""
    with _lock:
        _handed_over.discard(name)
        hooks = _waiting.pop(name, [])
    for hook in hooks:
        _run_hook(hook, name, module)


class _Finder:
    """Finds nothing itself: hands watched names over to wrapt."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """What wrapt's finder gives for a watched module, whose hooks wrapt calls; None for every other one."""
        if fullname not in _waiting:
            return None
        with _lock:
            try:
                from wrapt import importer  # type: ignore[attr-defined]
            except ImportError as exc:
                _waiting.clear()
                faults.note_fault("the post-import hooks, which need the package wrapt", exc)
                return None
            if fullname not in _handed_over:
                _handed_over.add(fullname)
                importer.register_post_import_hook(partial(_run_hooks, fullname), fullname)
        finder = next((finder for finder in sys.meta_path if isinstance(finder, importer.ImportHookFinder)), None)
        return None if finder is None else finder.find_spec(fullname, path, target)


_finder = _Finder()


def _tell_when_loaded(module: ModuleType) -> bool:
    """Is this module still being imported? Then `_run_hooks` is called at the end of that.

    It is too late for a finder here. The import machinery sets `_initializing` of the module's spec to False when it is
    through, whether that went well or not.
    """
    if not is_loading(module):
        return False
    spec = held_in(module)["__spec__"]
    if type(spec) is ModuleSpec:
        spec.__class__ = _LoadingSpec
    # Asked again: the import may have ended in another thread just before the class was changed.
    return isinstance(spec, _LoadingSpec) and spec._initializing


def _tell_when_over(name: str) -> None:
    """Another thread may be importing it, past the finders, not yet in `sys.modules`: that import's lock goes with it.

    Source: CPython 3.9 to 3.13, `importlib/_bootstrap.py`, `_module_locks`: a weak reference to the lock of each import
    that is under way, by the name of its module. Who begins after this has seen the finder.
    """
    lock = getattr(_frozen_importlib, "_module_locks", {}).get(name, lambda: None)()
    if lock is not None and name not in _under_way:
        _under_way[name] = ref(lock, partial(_is_over, name))


def _is_over(name: str, _: object) -> None:
    """An import has ended, well or not, that may not have met our finder."""
    _under_way.pop(name, None)
    module = sys.modules.get(name)
    if module is not None and not is_loading(module):
        _run_hooks(name, module)


def is_loading(module: object) -> bool:
    """Is this module still being imported? What is no module is not: anything can be put into `sys.modules`."""
    spec = held_in(module).get("__spec__")
    return issubclass(type(spec), ModuleSpec) and bool(getattr(spec, "_initializing", False))


def _forget_interrupted() -> None:
    """In a forked child: what a thread of ours was importing, which is not there any more, can be imported anew.

    Its locks would be held for ever, or, by a new thread with its number, what is half there be taken for whole.
    Source: CPython 3.9 to 3.13, `importlib/_bootstrap.py`, `_ModuleLock.owner`.
    """
    locks: dict[str, Any] = getattr(_frozen_importlib, "_module_locks", {})
    owners = {name: getattr(lock(), "owner", None) for name, lock in list(locks.items())}
    ours = {owner for name, owner in owners.items() if name.startswith(f"{__name__.partition('.')[0]}.")}
    for name in [name for name, owner in owners.items() if owner in ours - {None, get_ident()}]:
        locks.pop(name, None)
        if is_loading(sys.modules.get(name)):
            del sys.modules[name]


os.register_at_fork(after_in_child=_forget_interrupted)


def being_imported() -> list[ModuleType]:
    """The modules in the middle of an import, in whatever thread.

    By `_module_locks`, as `_tell_when_over`: to look at each module that there is takes 10 ms where torch and Ray are.
    """
    names = getattr(_frozen_importlib, "_module_locks", sys.modules)
    modules = [sys.modules.get(name) for name in list(names)]
    return [module for module in modules if module is not None and is_loading(module)]


def call_at_the_end(call: Callable[[], object]) -> None:
    """Call this, which must not raise, at the end of the interpreter: after the program's own exit handlers, where
    atexit, which calls in the opposite order of registration, was there as mstxkit was imported.
    """
    import atexit  # not for the import of mstxkit

    _at_the_end.append(call)
    if not _registered:
        _registered.append(atexit.register(_at_the_end_now))


def _at_the_end_now() -> None:
    while _at_the_end:
        _at_the_end.pop()()


if "atexit" in sys.modules:  # who has registered a handler of his own by now, or will with what is loaded
    _registered.append(sys.modules["atexit"].register(_at_the_end_now))


def held_in(module: object) -> dict[str, Any]:
    """What a module holds; {} for what is none. `vars` would wake one that is loaded at the first look at it."""
    return (_NAMES.__get__(module) or {}) if issubclass(type(module), ModuleType) else {}


_NAMES: Any = vars(ModuleType)["__dict__"]


class _LoadingSpec(ModuleSpec):
    """The spec of a module that is being imported by somebody further up."""

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__["_initializing"])

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__dict__["_initializing"] = value
        if not value:
            self.__class__ = ModuleSpec  # type: ignore[assignment]
            if (module := sys.modules.get(self.name)) is not None:
                _run_hooks(self.name, module)
