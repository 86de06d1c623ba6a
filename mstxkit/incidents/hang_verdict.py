"""What is said of a hang as a verdict, so that it stands among the others of the job. Pure."""

from __future__ import annotations

from ..store import verdicts
from ..store.incidents import Incident
from ..store.verdicts import Verdict


def of_hang(incident: Incident, now_ns: int) -> Verdict:
    """Of an incident that is a hang; withdrawn where it is over. `now_ns`: wall clock."""
    steps = (range_.get("step") for range_ in incident.details.get("inside") or ())
    step = next((step for step in steps if step is not None), None)
    return Verdict(
        f"hang-{incident.incident}", now_ns, step, verdicts.HANG, incident.stage or None, incident.rank,
        incident.role, step, 1.0, waits_for=incident.waits_for, evidence=_evidence(incident),
        next=f"read {incident.page} in the run folder", withdrawn=str(incident.details.get("over") or ""),
    )  # fmt: skip


def _evidence(incident: Incident) -> dict[str, str]:
    missing = (incident.details.get("missing") or {}).get("words", "")
    texts = {"range": incident.range, "reason": incident.reason}
    texts["missing"] = missing if missing not in incident.reason else ""
    return {name: text for name, text in texts.items() if text}
