"""torch_npu's one folder for the results of a process: borrowed for a session of ours, and put back as it was.

A user's profiler that waits has set it already, and looks it up when it begins.

Source: torch_npu 2.7.1 and 2.13.0 `profiler/_profiler_path_creator.py`: one object for each process, set by
`tensorboard_trace_handler`, read by `create_prof_dir`. `delete_export_only_prof` removes `_prof_path` in export mode.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_SET = ("_dir_path", "_worker_name", "_export_only_mode")
_MADE = "_prof_path"


class BorrowedPath:
    """What torch_npu's folder was before a session: make it before the session's handler, give it back after all."""

    def __init__(self, folder: Path) -> None:
        interface: Any = sys.modules.get("torch_npu.profiler.profiler_interface")
        self._creator = interface.ProfPathCreator() if hasattr(interface, "ProfPathCreator") else None
        self._folder = folder.resolve()
        self._before = self._values(*_SET, _MADE)

    def give_back(self) -> None:
        """Once is enough. What the user has set meanwhile stays."""
        creator = self._creator
        if creator is None:
            return
        made = getattr(creator, _MADE, None) or ""
        is_ours_made = Path(made).parent == self._folder
        if getattr(creator, "is_prof_inited", False) and is_ours_made:
            creator.is_prof_inited = False  # what `finalize_trace` leaves undone when it cannot write
        is_ours_set = getattr(creator, "_dir_path", None) == str(self._folder)
        for name, value in self._before.items():
            if is_ours_set if name in _SET else is_ours_made:
                setattr(creator, name, value)

    def _values(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self._creator, name) for name in names if hasattr(self._creator, name)}
