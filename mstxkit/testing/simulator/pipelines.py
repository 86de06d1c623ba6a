"""Shapes in which ranks hand activations on: pipelines, interleaved ones, and grids of tensor and data parallel groups.

Ranks go tensor first, then data, then pipeline, as Megatron's do: a place is a block of ranks in order.
"""

from __future__ import annotations

from typing import ClassVar, Iterator, NamedTuple

import numpy as np

from ...judging.evidence import RoleStep
from .processes import Parcel, Processes
from .simulation import Simulation

_FORWARD_S, _BACKWARD_S = 1.0, 2.0


class Turn(NamedTuple):
    """What a place does next: a micro-batch of one of its chunks, forward or backward."""

    place: int
    is_forward: bool
    micro: int
    chunk: int

    def needs(self, places: int, chunks: int) -> Turn | None:
        """What has to be done elsewhere before it; None: nothing."""
        place, chunk = self.place + (-1 if self.is_forward else 1), self.chunk
        if not 0 <= place < places:
            chunk += -1 if self.is_forward else 1
            place %= places
        return self._replace(place=place, chunk=chunk) if 0 <= chunk < chunks else None


def turns_of(place: int, places: int, micros: int, chunks: int) -> list[Turn]:
    """In which order a place does what: one forward, one backward, after as many forwards as keep the others busy."""
    total, round_of = micros * chunks, places * chunks
    ahead = places - place - 1 if chunks == 1 else (places - place - 1) * 2 + (chunks - 1) * places

    def turn(number: int, is_forward: bool) -> Turn:
        if chunks == 1:
            return Turn(place, is_forward, number, 0)
        chunk = number % round_of // places
        micro = number // round_of * places + number % places
        return Turn(place, is_forward, micro, chunk if is_forward else chunks - 1 - chunk)

    ahead = min(ahead, total)
    turns = [turn(number, True) for number in range(ahead)]
    for number in range(total - ahead):
        turns += [turn(ahead + number, True), turn(number, False)]
    return turns + [turn(number, False) for number in range(total - ahead, total)]


def in_order(places: int, micros: int, chunks: int) -> list[Turn]:
    """All turns of all places, each after what it needs."""
    waiting = [turns_of(place, places, micros, chunks) for place in range(places)]
    order, over = list[Turn](), set[Turn]()
    while any(waiting):
        for turns in waiting:
            while turns and (turns[0].needs(places, chunks) is None or turns[0].needs(places, chunks) in over):
                order.append(turns.pop(0))
                over.add(order[-1])
    return order


class Pipeline(Simulation):
    """1F1B over four places, a rank each or several; sends and receives are always recorded, and places are known."""

    at = {
        **dict.fromkeys(("rank", "host", "place", "two", "intermittent", "drifting", "moving"), ("actor", "")),
        "link": ("actor", ""), "input": ("actor", "load_batch"), "behind": ("actor", "optimizer"),
    }  # fmt: skip
    places: ClassVar[int] = 4
    chunks: ClassVar[int] = 1
    tensor: ClassVar[int] = 1
    micros: ClassVar[int] = 8
    knows_places: ClassVar[bool] = True

    def build(self) -> None:
        """One role; places differ a little by what layers they have."""
        ranks, blocks = self.shape.ranks, np.arange(self.shape.ranks).reshape(self.places, -1)
        names = [f"pp{place}" for place, block in enumerate(blocks) for _ in block] if self.knows_places else ()
        self.actors, self.blocks = self.team("actor", ranks, places=names), blocks
        self.order = in_order(self.places, self.micros, self.chunks)
        self.layers = self.random.uniform(0.9, 1.1, self.places)
        width = ranks // self.places
        # Numbers of groups: of all ranks 0, then tensor groups, then data groups of each place.
        self.tensor_groups = 1 + np.arange(ranks) // self.tensor
        self.data_groups = 1 + ranks + np.arange(ranks) // width * self.tensor + np.arange(ranks) % self.tensor

    def linked(self, rank: int) -> tuple[int, ...]:
        """It and who has the next place, or the place before."""
        width = self.shape.ranks // self.places
        return (rank, rank + width) if rank + width < self.shape.ranks else (rank - width, rank)

    def play(self) -> Iterator[tuple[Processes, RoleStep]]:
        """A step."""
        actors, step_s = self.actors, self.shape.step_s
        actors.compute("load_batch", 0.04 * step_s, "input")
        # A place works for two thirds of a step; the rest is bubbles.
        self.turn_s = 0.6 * step_s / (_FORWARD_S + _BACKWARD_S) / self.micros / self.chunks
        self.go_through()
        with actors.stage("optimizer"):
            if self.shape.ranks > self.places * self.tensor:
                actors.meet("optimizer", self.data_groups, 0.02 * step_s)
            actors.meet("optimizer", None, 0.002 * step_s)
            actors.work("optimizer", 0.06 * step_s, "behind")
        yield actors, actors.close()

    def go_through(self) -> None:
        """All turns, forward and backward, each a stage of its own."""
        parcels: dict[Turn, Parcel] = {}
        for turn in self.order:
            stage = "forward" if turn.is_forward else "backward"
            with self.actors.stage(stage, self.blocks[turn.place]):
                self.take_turn(turn, stage, parcels)

    def take_turn(self, turn: Turn, stage: str, parcels: dict[Turn, Parcel]) -> None:
        """Receive, compute, send on."""
        actors, members, needed = self.actors, self.blocks[turn.place], turn.needs(self.places, self.chunks)
        if needed is not None:
            actors.receive(stage, parcels.pop(needed))
        took_s = self.turn_s * (_FORWARD_S if turn.is_forward else _BACKWARD_S) * self.layers[turn.place]
        actors.work(stage, took_s, "inside", members)
        if self.tensor > 1:
            actors.meet(stage, self.tensor_groups, 0.02 * took_s, members)
        place, chunk = turn.place + (1 if turn.is_forward else -1), turn.chunk
        if not 0 <= place < self.places:
            chunk += 1 if turn.is_forward else -1
        if 0 <= chunk < self.chunks:
            parcels[turn] = actors.send(stage, members, self.blocks[place % self.places], 0.01 * self.turn_s)


class BlindPipeline(Pipeline):
    """The same; nothing is known of places, and nothing of sends and receives."""

    knows_places = False


class InterleavedPipeline(Pipeline):
    """Two chunks of the model on each of four places, all of a step in one stage."""

    chunks = 2

    def go_through(self) -> None:
        """All turns in one stage."""
        parcels: dict[Turn, Parcel] = {}
        with self.actors.stage("forward_backward"):
            for turn in self.order:
                self.take_turn(turn, "forward_backward", parcels)


class Grid(Pipeline):
    """Tensor, data and pipeline parallel at once, all groups known."""

    at = {**Pipeline.at, "inside": ("actor", "forward")}
    tensor = 2
    micros = 4
