"""The environment variables that switch mstxkit on and off in a process and in the children it starts."""

from __future__ import annotations

import os
from typing import Mapping

RUN, AUTOPATCH, OFF = "MSTXKIT_RUN", "MSTXKIT_AUTOPATCH", "MSTXKIT_OFF"
# The id of the run in the folder that MSTXKIT_RUN names, for hosts that do not see the folder.
RUN_ID = "MSTXKIT_RUN_ID"
# A name of the job, the same on all its hosts. Where there is none, one is drawn by whoever captures first, and
# inherited by what it starts: which processes belong to one start of a job.
JOB = "MSTXKIT_JOB"


def is_off() -> bool:
    """Is mstxkit switched off for the life of this process (MSTXKIT_OFF=1)?"""
    return os.environ.get(OFF, "0") not in ("", "0")


def put_back(before: Mapping[str, str | None]) -> None:
    """Set each of these variables to what it was; one that was None, to nothing."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
