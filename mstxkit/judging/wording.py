"""What a verdict says in words: who waits for whom, and what to do next."""

from __future__ import annotations

import shlex
from typing import Iterable, Sequence

from ..store.request import WHOLE_STEPS
from ..store.values import write_spans
from .cutting import BEFORE
from .evidence import Peer
from .findings import Finding, Seen
from .measuring import BEHIND_GAP

_RUNS_AT_MOST = 8
# Of a group whose link is slow, so many ranks are profiled.
GROUP_AT_MOST = 8


def spans_in_words(ranks: Iterable[int]) -> str:
    """`0,2-7`: of 8 ranks in the form that commands take; of more no more than 8 of such pieces, then `...`."""
    pieces = write_spans(ranks)
    return ",".join(pieces[:_RUNS_AT_MOST]) + (",..." if len(pieces) > _RUNS_AT_MOST else "")


def waits_for(finding: Finding, members: Sequence[Peer], seen: Seen | None) -> str:
    """`ranks 0,2-7 wait for rank 1 in actor_update`; "" where nobody waits for anybody."""
    if finding.place < 0 or seen is None or not seen.waits_in:
        return ""
    rank = members[finding.place].rank
    others = [peer.rank for place, peer in enumerate(members) if place != finding.place and peer.rank is not None]
    if rank is None or not others:
        return ""
    who = f"rank {others[0]} waits" if len(others) == 1 else f"ranks {spans_in_words(others)} wait"
    return f"{who} for rank {rank} {'before' if seen.waits_before else 'in'} {seen.waits_in}"


def next_step(finding: Finding, members: Sequence[Peer], run: str) -> str:
    """A command, or a switch. Time that is lost before a stage is in none: steps are profiled as a whole then."""
    key, quoted = finding.key, shlex.quote(run)
    is_between = key.where in (BEFORE, BEHIND_GAP)
    stage = WHOLE_STEPS if is_between else shlex.quote(key.stage)
    if finding.is_hidden:
        return (
            "capture(rings=True), where it is not on, or TORCH_FR_BUFFER_SIZE=512 (TORCH_HCCL_TRACE_BUFFER_SIZE on an "
            f"NPU), shows who is late inside; or: mstxkit escalate {quoted} --stage {stage} --ranks all --preset light"
        )
    if key.kind == "imbalance":
        by_length = "share the work out by its length (tokens, responses), not by its count"
        return by_length if "is_work_told" in finding.evidence else "let all go through it as often"
    if key.kind in ("link", "communication"):
        own = [members[finding.place].rank] if finding.place >= 0 else []
        ranks = spans_in_words([rank for rank in (*own, *finding.group) if rank is not None][:GROUP_AT_MOST])
        return f"mstxkit escalate {quoted} --stage {stage}{f' --ranks {ranks}' if ranks else ''} --preset comm"
    if "cpu_wait_ratio" in finding.evidence:
        return "see what else runs on its host (top): it waits for a CPU, longer than others; or bind ranks to cores"
    rank = members[finding.place].rank if finding.place >= 0 else None
    some = next((str(peer.rank) for peer in members if peer.rank is not None), "all")
    peers = [peer for peer in members if peer.rank not in (None, rank)] if rank is not None else []
    # With one to compare it with: of another host where there is one.
    peers = sorted(peers, key=lambda peer: peer.host == members[finding.place].host)[:1]
    ranks = some if rank is None else ",".join(str(each) for each in [rank, *(peer.rank for peer in peers)])
    place = f"the time is lost before {key.stage}, in no stage: " if is_between else ""
    return f"{place}mstxkit escalate {quoted} --stage {stage} --ranks {ranks}"
