"""What a process does about requests, as `capture` was told."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import SettingError
from ...store.limits import ACTS, OBSERVE, Policy

_POLICY = Policy()
_ENTRIES_FROM, _ENTRIES_TO = 16, 65_536
_OF_POLICY = ("cooldown_s", "session_s", "hour_s", "run_s", "agreement_s", "transport_s")
_SIZES = ("run_bytes", "profiles_mb_s", "profiles_host_bytes", "profiles_run_bytes", "incidents_bytes")


class DutySettings(NamedTuple):
    """What a process does about requests."""

    poll_every_s: float = 0.25  # seconds between two looks at the control folder; 0: this process takes no requests
    light: str | None = None  # schedule of light capture, "every 100 steps, 1 step"; None: none
    # cooldown_s, session_s, hour_s, run_s, agreement_s, transport_s: as in `store.limits.Policy`
    cooldown_s: float = _POLICY.cooldown_s
    session_s: float = _POLICY.session_s
    hour_s: float = _POLICY.hour_s
    run_s: float = _POLICY.run_s
    agreement_s: float = _POLICY.agreement_s
    transport_s: float = _POLICY.transport_s
    run_bytes: int = 0  # raw data of all sessions of this rank in a run; 0: no limit
    planned: int = 0  # 1: windows are planned in this run, of which the first step may be one
    judge: int = 1  # 0: no process and no actor that judges the job is started from here
    # "local:/a/folder": raw data are written there, on each host's own disk; None: into the run.
    profiles: str | None = None
    profiles_mb_s: float = 50.0  # from `profiles` they go into the run, so many megabytes a second; 0: they stay
    # profiles_host_bytes, profiles_run_bytes: so much is kept on each host, and in the run; 0: no limit. Beyond it the
    # oldest finished data are removed, never the newest of a request.
    profiles_host_bytes: int = 0
    profiles_run_bytes: int = 0
    # 1: torch's flight-recorder rings are switched on, as long as nobody else has decided (`ring_variables`); a larger
    # number: of so many entries.
    rings: int = 0
    # How long a range may stay open without progress at least before it is a hang; 0: nobody watches.
    hang_s: float = 30.0
    incidents: int = 20  # so many are kept in a run, the first and the newest
    incidents_bytes: int = 256 << 20  # what they may take there
    act: str = OBSERVE  # "observe": verdicts are said, and no more; "escalate": they may ask for profiles
    metrics: str | None = None  # where figures of the job go besides the run; None: "auto" (`store/metrics_setting.py`)
    # flops_per_token, peak_flops: for MFU: a number, or stage to number; of one token, and of one rank's devices
    flops_per_token: Any = None
    peak_flops: Any = None


def policy_of(settings: DutySettings) -> Policy:
    """What a rank does not exceed."""
    return Policy(run_bytes=settings.run_bytes or None, **{field: getattr(settings, field) for field in _OF_POLICY})


def check_settings(settings: DutySettings) -> DutySettings:
    """The same. Raises SettingError: one of them cannot be; ConfigError: the schedule of light capture is none."""
    for field, least_s, most_s in (("poll_every_s", 0.02, 60), ("hang_s", 0.5, 86400)):
        value = getattr(settings, field)
        if not isinstance(value, (int, float)) or not (value == 0 or least_s <= value <= most_s):
            raise SettingError(field, repr(value), f"seconds from {least_s} to {most_s} are needed, or 0 for never")
    for field in (*_OF_POLICY, *_SIZES):
        value = getattr(settings, field)
        if not isinstance(value, (int, float)) or not 0 <= value < 1e15:
            raise SettingError(field, repr(value), "a number from 0 is needed")
    if settings.judge not in (0, 1):
        raise SettingError("judge", repr(settings.judge), "True or False is needed")
    rings: Any = settings.rings
    if not isinstance(rings, int) or not (rings in (0, 1) or _ENTRIES_FROM <= rings <= _ENTRIES_TO):
        entries = f"a number of entries from {_ENTRIES_FROM} to {_ENTRIES_TO}"
        raise SettingError("rings", repr(rings), f"True, False or {entries} is needed")
    incidents: Any = settings.incidents
    if not isinstance(incidents, int) or not 1 <= incidents <= 1000:
        raise SettingError("incidents", repr(incidents), "a whole number from 1 to 1000 is needed")
    if settings.act not in ACTS:
        raise SettingError("act", repr(settings.act), f"one of {', '.join(ACTS)} is needed")
    if settings.profiles:
        from ...store import local_place

        local_place.given_in(settings.profiles)
    of_metrics(settings)
    if settings.light is not None:
        from ...profiling.schedule import Schedule

        Schedule.parse(settings.light)
    return settings


def of_metrics(settings: DutySettings) -> str:
    """Where figures go, and for MFU, as `store.metrics_setting.of_word` reads it; "" where nobody says.
    Raises SettingError: one of them cannot be.
    """
    words = settings.metrics, settings.flops_per_token, settings.peak_flops
    if not any(word not in (None, "", 0) for word in words):
        return ""
    from ...store import metrics_setting

    metrics_setting.check_metrics(*words)
    return metrics_setting.as_word(*words)
