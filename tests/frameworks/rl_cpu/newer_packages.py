"""What Megatron's checkpoints, of core_v0.12.1, ask of a numpy and a torch that were there then."""

from __future__ import annotations

import functools

import numpy
from torch.distributed.checkpoint import filesystem


def answer_to_older_names() -> None:
    """numpy 2 has no `product`; torch 2.13 is told how an item is written."""
    numpy.product = numpy.prod  # type: ignore[attr-defined]
    how = filesystem.SerializationFormat.TORCH_SAVE
    filesystem._write_item = functools.partial(filesystem._write_item, serialization_format=how)
