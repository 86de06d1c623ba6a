"""How long ranks wait in collectives for one that a profiler holds up: HCCL's time-outs, as processes have them.

Each rank says what its own environment sets; nobody else can know. A session may take half of that, with the seconds
that its start and stop take.

Source: CANN 8.5.0, environment variables of HCCL. HCCL_EXEC_TIMEOUT: seconds a collective waits for a device that is
not there yet (0: for ever; at most 1091 where algorithms run on the AI Vector). HCCL_CONNECT_TIMEOUT: seconds for the
first connection.
"""

from __future__ import annotations

import math
import os
from typing import Mapping, NamedTuple

EXEC, CONNECT = "HCCL_EXEC_TIMEOUT", "HCCL_CONNECT_TIMEOUT"
DEFAULTS_S = {EXEC: 1836, CONNECT: 120}
NEAR_RATIO = 0.5
# The profiler of processes that have no HCCL: their process groups have time-outs of their own.
WITHOUT_HCCL = "torch"
# A session that may take less than this is not worth its start and stop.
LEAST_S = 1.0
_DIGITS_AT_MOST = 12


class Patience(NamedTuple):
    """How long the other ranks wait for one."""

    seconds: float  # infinite: for ever
    source: str  # which variable says so, and where it is from, in words
    # Preset to how long start and stop of a session with it took together, the longest.
    pauses_s: Mapping[str | None, float] = {}

    def bound_s(self, preset: str | None) -> float:
        """How long a session with this preset may take, besides its start and stop."""
        return NEAR_RATIO * self.seconds - self.pauses_s.get(preset, 0.0)

    def why(self, preset: str | None) -> str:
        """Whence that bound is."""
        pause_s = self.pauses_s.get(preset, 0.0)
        less = f", less {pause_s:.2g} s for its start and stop" if pause_s else ""
        return f"other ranks wait {self.seconds:g} s at most ({self.source}), and it may take half of that{less}"

    def refusal(self, preset: str | None) -> str:
        """Why no session with this preset may begin without force; empty where one may."""
        if self.bound_s(preset) >= LEAST_S:
            return ""
        held = f"start and stop of a session alone took {self.pauses_s.get(preset, 0.0):.2g} s"
        return f"{held}, and other ranks wait {self.seconds:g} s at most ({self.source}): --force records all the same"


def set_here(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Those of the variables that an environment has."""
    return {name: environment[name][:_DIGITS_AT_MOST] for name in DEFAULTS_S if name in environment}


def read_seconds(variables: Mapping[str, str], name: str) -> float | None:
    """What one of the variables is set to; None where it is not, or to no number of seconds."""
    text = variables.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < _DIGITS_AT_MOST):
        return None
    return float(text) or (math.inf if name == EXEC else None)


def find_patience(
    variables: Mapping[str, str], where: str, is_connecting: bool, pauses_s: Mapping[str | None, float]
) -> Patience:
    """The patience of ranks with these variables, which are set there, in words.
    `is_connecting`: the first step has not ended: first connections may still be made, with less patience.
    """
    names = (EXEC, CONNECT) if is_connecting else (EXEC,)
    shortest_s, name = min((read_seconds(variables, name) or DEFAULTS_S[name], name) for name in names)
    source = where if read_seconds(variables, name) is not None else "CANN's default"
    return Patience(shortest_s, f"{name}, {source}", pauses_s)
