"""Ranks that hand activations on: pipelines, interleaved ones, and grids of tensor and data parallel groups.

Ranks go tensor first, then data, then pipeline, as Megatron's do: a place is a block of ranks in order.
"""

from __future__ import annotations

from typing import ClassVar, Mapping, NamedTuple, Sequence

import numpy as np

from mstxkit.judging.evidence import Peer
from mstxkit.testing.simulator.processes import Parcel
from mstxkit.testing.simulator.simulation import Steps

from .shape import Shape

_FORWARD, _BACKWARD = 1.0, 2.0


class Turn(NamedTuple):
    """What a place does next: a micro-batch of one of its chunks, forward or backward."""

    place: int
    is_forward: bool
    micro: int
    chunk: int

    def beside(self, places: int, chunks: int, step: int) -> Turn | None:
        """The same micro-batch where it goes next (1), or where it was before (-1); None: nowhere."""
        along = step if self.is_forward else -step
        place, chunk = self.place + along, self.chunk
        if not 0 <= place < places:
            place, chunk = place % places, chunk + along
        return self._replace(place=place, chunk=chunk) if 0 <= chunk < chunks else None


def turns_of(place: int, places: int, micros: int, chunks: int) -> list[Turn]:
    """In which order a place does what: one forward, one backward, after as many forwards as keep the others busy."""

    def turn(number: int, is_forward: bool) -> Turn:
        if chunks == 1:
            return Turn(place, is_forward, number, 0)
        chunk = number % (places * chunks) // places
        micro = number // (places * chunks) * places + number % places
        return Turn(place, is_forward, micro, chunk if is_forward else chunks - 1 - chunk)

    behind, total = places - place - 1, micros * chunks
    ahead = min(total, behind if chunks == 1 else 2 * behind + (chunks - 1) * places)
    turns = [turn(number, True) for number in range(ahead)]
    for number in range(total - ahead):
        turns += [turn(ahead + number, True), turn(number, False)]
    return turns + [turn(number, False) for number in range(total - ahead, total)]


def in_order(places: int, micros: int, chunks: int) -> list[Turn]:
    """All turns of all places, each after what it needs."""
    waiting = [turns_of(place, places, micros, chunks) for place in range(places)]
    order: dict[Turn | None, None] = {None: None}
    while any(waiting):
        for turns in waiting:
            while turns and turns[0].beside(places, chunks, -1) in order:
                order[turns.pop(0)] = None
    return [turn for turn in order if turn is not None]


class Pipeline(Shape):
    """1F1B over four places, a rank each or several; sends and receives are always recorded, and places are known."""

    at: ClassVar[Mapping[str, tuple[str, str]]] = {
        **dict.fromkeys(("rank", "host", "place", "two", "intermittent", "drifting", "moving", "link"), ("actor", "")),
        "input": ("actor", "load_batch"), "behind": ("actor", "optimizer"),
    }  # fmt: skip
    places: ClassVar[int] = 4
    chunks: ClassVar[int] = 1
    tensor: ClassVar[int] = 1
    micros: ClassVar[int] = 8
    knows_places: ClassVar[bool] = True
    # Which stages forwards and backwards are.
    stages: ClassVar[tuple[str, str]] = "forward", "backward"

    def build(self) -> None:
        """One role; places differ a little by what layers they have."""
        ranks = np.arange(self.shape.ranks)
        self.blocks, width = ranks.reshape(self.places, -1), len(ranks) // self.places
        names = [f"pp{place}" for place in ranks // width] if self.knows_places else ()
        self.actors, self.order = self.team("actor", len(ranks), places=names), in_order(
            self.places, self.micros, self.chunks
        )  # fmt: skip
        self.layers = self.random.uniform(0.9, 1.1, self.places)
        # Numbers of groups: all ranks are 0, then come tensor groups, then data groups of each place.
        self.tensor_groups = 1 + ranks // self.tensor
        self.data_groups = 1 + len(ranks) + ranks // width * self.tensor + ranks % self.tensor

    def linked(self, rank: int) -> tuple[int, ...]:
        """It and who has the next place, or the place before."""
        width = self.shape.ranks // self.places
        return (rank, rank + width) if rank + width < self.shape.ranks else (rank - width, rank)

    def beside(self, rank: int, name: str, peers: Sequence[Peer]) -> tuple[int, ...]:
        """A place has its ranks, also where nobody has told of it."""
        block = next(block for block in self.blocks.tolist() if rank in block)
        return tuple(block) if name == "place" else super().beside(rank, name, peers)

    def play(self) -> Steps:
        """A step."""
        actors, step_s = self.actors, self.shape.step_s
        actors.compute("load_batch", 0.04 * step_s, "input")
        parcels: dict[Turn, Parcel] = {}
        if self.stages[0] == self.stages[1]:
            with actors.stage(self.stages[0]):
                for turn in self.order:
                    self._take(turn, self.stages[0], parcels)
        else:
            for turn in self.order:
                stage = self.stages[not turn.is_forward]
                with actors.stage(stage, self.blocks[turn.place]):
                    self._take(turn, stage, parcels)
        with actors.stage("optimizer"):
            if self.shape.ranks > self.places * self.tensor:
                actors.meet("optimizer", self.data_groups, 0.02 * step_s)
            actors.meet("optimizer", None, 0.002 * step_s)
            actors.work("optimizer", 0.06 * step_s, "behind")
        yield actors, actors.close()

    def _take(self, turn: Turn, stage: str, parcels: dict[Turn, Parcel]) -> None:
        """Receive, compute, send on."""
        actors, members = self.actors, self.blocks[turn.place]
        before, after = (turn.beside(self.places, self.chunks, step) for step in (-1, 1))
        if before is not None:
            actors.receive(stage, parcels.pop(before))
        # A place works for some two thirds of a step; the rest is bubbles.
        turn_s = 0.6 * self.shape.step_s / (_FORWARD + _BACKWARD) / self.micros / self.chunks
        took_s = turn_s * (_FORWARD if turn.is_forward else _BACKWARD) * self.layers[turn.place]
        actors.work(stage, took_s, "inside", members)
        if self.tensor > 1:
            actors.meet(stage, self.tensor_groups, 0.02 * took_s, members)
        if after is not None:
            parcels[turn] = actors.send(stage, members, self.blocks[after.place], 0.05 * turn_s)


class BlindPipeline(Pipeline):
    """The same; nothing is known of places, and nothing of sends and receives."""

    knows_places = False


class InterleavedPipeline(Pipeline):
    """Two chunks of the model on each of four places, all of a step in one stage."""

    chunks = 2
    stages = "forward_backward", "forward_backward"


class Grid(Pipeline):
    """Tensor, data and pipeline parallel at once, all groups known."""

    at = {**Pipeline.at, "inside": ("actor", "forward")}
    tensor = 2
    micros = 4
