"""What a verdict says, as a sentence. Names in it are escaped; needs no table and no terminal."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ...store import incidents
from ...store import verdicts as kinds
from ...store.whereabouts import write_span
from .escape import escape_name
from .units import ranks_in_words

_RANK_WORDS = {
    kinds.COMPUTE: "{who} takes longer than the others{where}",
    kinds.INPUT: "{who} gets its input more slowly than the others{where}",
    kinds.COMMUNICATION: "{who} communicates more slowly than the others{where}",
    kinds.LINK: "the link of {who} is slow{where}",
    kinds.IMBALANCE: "{who} has more work than the others{where}; it is not slower at it",
    kinds.JITTER: "{who} takes far longer now and then{where}",
    kinds.HANG: "{who} hangs{where}",
    kinds.ALL_SLOW: "{everybody} longer{where} than earlier",
    kinds.SERIAL: "{who} alone is{where}, and all wait",
}
_GROUP_WORDS = {
    kinds.COMPUTE: "{group} take longer than the others{where}",
    kinds.INPUT: "{group} get their input more slowly than the others{where}",
    kinds.COMMUNICATION: "{group} communicate slowly{where}, though all come in time",
    kinds.LINK: "a link of {group} is slow{where}",
    kinds.IMBALANCE: "work is uneven{where}; no machine is slow",
    kinds.JITTER: "{group} take far longer now and then{where}",
    kinds.HANG: "{group} hang{where}",
    kinds.ALL_SLOW: "{everybody} longer{where} than earlier",
    kinds.SERIAL: "{group} alone are{where}, and all wait",
}
_INCIDENT_WORDS = {
    incidents.HANG: "hung", incidents.KILLED: "was killed", incidents.SIGNAL: "was killed",
    incidents.EXCEPTION: "raised what nobody caught", incidents.REQUEST: "was looked at, as asked",
}  # fmt: skip
_WAITED_FOR = {"left": "has ended in order, and others wait for it", "gone": "is gone, and others wait for it"}
# Where of a stage it is, as the judge says it, in words.
_PLACES = {"before": "before", "behind_gap": "before", "inside": "inside of"}


def blames_cause(verdict: Mapping[str, Any]) -> bool:
    """Does it name a cause?"""
    return verdict["kind"] in kinds.BLAMING


def write_sentence(verdict: Mapping[str, Any]) -> str:
    """`rank 1 gets its input more slowly than the others in reference`."""
    stage, evidence, kind = verdict["stage"], verdict["evidence"], verdict["kind"]
    place = evidence.get("where")
    where = f" {_PLACES.get(place, 'in')} {escape_name(stage)}" if stage else ""
    where += f", {escape_name(evidence['also_in'])}" if where and evidence.get("also_in") else ""
    of_role = f" of {escape_name(verdict['role'])}" if verdict["role"] else ""
    everybody = f"the process{of_role} takes" if evidence.get("members") == 1 else f"all{of_role} take"
    if not blames_cause(verdict) and verdict["group"]:
        several = _GROUP_WORDS[kinds.COMPUTE].format(group=_name_group(verdict), where=where)
        return f"{several}, and are done at once: one of them may keep the others waiting"
    if not blames_cause(verdict):
        return f"{everybody} longer{where} than earlier: nothing tells whether they wait for one of them"
    is_of_one = verdict["rank"] is not None or bool(verdict["process"])
    name = escape_name(verdict["process"]) or f"rank {verdict['rank']}"
    who = f"{name} {escape_name(verdict['role'])}" if verdict["role"] else name
    if kind == kinds.JITTER and "cpu_wait_ratio" in evidence and is_of_one:
        return f"{who} is held up by something beside the training: it waits for a CPU{where}"
    if kind == kinds.ALL_SLOW and "of_role" in evidence:
        begins = f"who begins {escape_name(stage)}, a controller or another role, takes it"
        if "of_stage" in evidence:
            begins = f"the controller takes it in {escape_name(evidence['of_stage'])}"
        return f"the time{where} in which no rank does anything is longer than before: {begins}"
    if kind == kinds.COMPUTE and _PLACES.get(place) == "before" and is_of_one:
        return f"{who} comes later than the others to {escape_name(stage)}"
    words = (_RANK_WORDS if is_of_one else _GROUP_WORDS)[kind]
    if kind == kinds.COMPUTE and is_of_one and evidence.get("is_work_told"):
        words = "{who} computes more slowly than the others{where}"
    also = f"; {escape_name(evidence['waited_for_by'])} waits for that" if evidence.get("waited_for_by") else ""
    return words.format(who=who, where=where, group=_name_group(verdict), everybody=everybody) + also


def of_incident(incident: Mapping[str, Any]) -> str:
    """`rank 1 actor hung in score of reward for 34 s, in step 7`: who did what where, and of a hang for how long; as
    `tables.findings.describe_incidents` has it.
    """
    kind = incident["kind"]
    who = "the job" if kind == incidents.REQUEST else escape_name(incident["who"]) or "everybody"
    place = " of ".join(dict.fromkeys(filter(None, (escape_name(incident["range"]), escape_name(incident["stage"])))))
    since_ns, time_ns = incident["since_ns"] or 0, incident["time_ns"] or 0
    is_since = kind == incidents.HANG and 0 < since_ns <= time_ns
    since = f" for {write_span((time_ns - since_ns) / 1e9)}" if is_since else ""
    how = incident.get("how") or (f"by {incident['signal']}" if incident["signal"] else "")
    how = f"({how.removeprefix('by ')})" if how and kind == incidents.EXCEPTION else how
    did = (kind == incidents.HANG and _WAITED_FOR.get(incident.get("held") or "")) or _INCIDENT_WORDS[kind]
    words = (who, did, escape_name(how), "as memory ran out" if incident["oom_kills"] else "")
    step = f", in step {incident['step']}" if incident["step"] is not None else ""
    return " ".join(filter(None, words)) + (f" in {place}{since}" if place else "") + step


def _name_group(verdict: Mapping[str, Any]) -> str:
    """`host node3 (ranks 24-31)`, `ranks 0,4`; where it names none `ranks of host node3`, or `the ranks`."""
    evidence = verdict["evidence"]
    named = [f"{name} {escape_name(evidence[name])}" for name in ("host", "place") if name in evidence]
    some = f"ranks of {named[0]}" if named else "the ranks"
    ranks = ranks_in_words(verdict["group"]) if verdict["group"] else some
    return f"{named[0]} ({ranks})" if named and verdict["kind"] in (kinds.COMPUTE, kinds.INPUT) else ranks


def begin_sentence(words: str) -> str:
    """The words with a capital at their beginning."""
    return words[:1].upper() + words[1:]


def list_texts(texts: Sequence[str], between: str, at_most: int, what: str = "{} more") -> str:
    """The first of them, and how many more there are."""
    more = [f"{what.format(len(texts) - at_most)} (--json lists all)"] if len(texts) > at_most else []
    return between.join([*texts[:at_most], *more])
