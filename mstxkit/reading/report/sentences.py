"""What a verdict says, as a sentence. Names in it are escaped; needs no table and no terminal."""

from __future__ import annotations

from typing import Any, Sequence

from ...store import verdicts as kinds
from .escape import shown
from .units import ranks_in_words

_RANK_WORDS = {
    kinds.COMPUTE: "{who} computes more slowly than the others{where}",
    kinds.INPUT: "{who} gets its input more slowly than the others{where}",
    kinds.COMMUNICATION: "{who} communicates more slowly than the others{where}",
    kinds.LINK: "the link of {who} is slow{where}",
    kinds.IMBALANCE: "{who} has more work than the others{where}; it is not slower at it",
    kinds.JITTER: "{who} is held up now and then by something beside the training{where}",
    kinds.HANG: "{who} hangs{where}",
    kinds.ALL_SLOW: "all are slower than before{where}",
    kinds.SERIAL: "{who} alone is{where}, and all wait",
}
_GROUP_WORDS = {
    kinds.COMPUTE: "some compute more slowly{where}",
    kinds.INPUT: "input is slow{where}",
    kinds.COMMUNICATION: "{group} communicate slowly{where}, though all come in time",
    kinds.LINK: "a link of {group} is slow{where}",
    kinds.IMBALANCE: "work is uneven{where}; no machine is slow",
    kinds.JITTER: "{group} are held up now and then by something beside the training{where}",
    kinds.HANG: "{group} hang{where}",
    kinds.ALL_SLOW: "all are slower than before{where}; nobody makes the others wait",
    kinds.SERIAL: "{group} alone are{where}, and all wait",
}
# Where of a stage it is, as the judge says it, in words.
_PLACES = {"before": "before", "behind_gap": "before", "inside": "inside of"}


def blames(verdict: dict[str, Any]) -> bool:
    """Does it name a cause?"""
    return verdict["kind"] in kinds.BLAMING


def sentence(verdict: dict[str, Any]) -> str:
    """`rank 1 gets its input more slowly than the others in reference`."""
    stage = verdict["stage"]
    where = f" {_PLACES.get(verdict['evidence'].get('where'), 'in')} {shown(stage)}" if stage else ""
    if not blames(verdict):
        return f"there is not enough evidence to say who makes the others wait{where}"
    words = _GROUP_WORDS if verdict["rank"] is None else _RANK_WORDS
    who = f"rank {verdict['rank']}" + (f" {shown(verdict['role'])}" if verdict["role"] else "")
    group = ranks_in_words(verdict["group"]) if verdict["group"] else "the ranks"
    return words[verdict["kind"]].format(who=who, where=where, group=group)


def begun(words: str) -> str:
    """The words with a capital at their beginning."""
    return words[:1].upper() + words[1:]


def listed(texts: Sequence[str], between: str, at_most: int, what: str = "{} more") -> str:
    """The first of them, and how many more there are."""
    more = [f"{what.format(len(texts) - at_most)} (--json lists all)"] if len(texts) > at_most else []
    return between.join([*texts[:at_most], *more])


def not_come(why: str) -> str:
    """What follows on a profile that a verdict has asked for: that it did not come, and why; "" where it did."""
    return f", which did not come: {why}" if why else ""
