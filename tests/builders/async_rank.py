"""A rank with coroutines and generators that run interleaved: `async_rank.py RUN`.

Each range says who it is, and inside of whom it is drawn: "" for nothing around it. A coroutine or generator that is
not awaited by another one begins a line of its own.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any, AsyncIterator, Iterator

import mstxkit

SAMPLES, PIECES, STEPS = 6, 3, 4


def drawn(inside: str, who: str, domain: str = "default") -> Any:
    return mstxkit.mstx_range(who.split()[0], domain=domain, who=who, inside=inside)


def named(inside: str, name: str, domain: str = "default") -> Any:
    """A decorator; the decorated is called with what it is called by."""

    def attributes(by: str) -> dict[str, str]:
        return {"who": f"{name} {by}", "inside": inside and f"{inside} {by}"}

    return mstxkit.mstx_timer(name, domain=domain, attributes=attributes)


@named("", "sample", domain="rollout")
async def sample(by: str) -> None:
    with drawn(f"sample {by}", f"prompt {by}"):
        await asyncio.sleep(0)
        with drawn(f"prompt {by}", f"tokenize {by}", domain="tokens"):
            mstxkit.mark("tokens", who=f"mark {by}", inside=f"tokenize {by}")
        await asyncio.sleep(0.001)
    await reward(by)
    await reward(f"{by} again")


@mstxkit.mstx_timer("reward", attributes=lambda by: {"who": f"reward {by}", "inside": f"sample {by.partition(' ')[0]}"})
async def reward(by: str) -> None:
    await asyncio.sleep(0)
    async for piece in stream(by):
        with drawn(f"reward {by}", f"score {by}.{piece}"):
            await asyncio.sleep(0)


@named("", "stream")
async def stream(by: str) -> AsyncIterator[int]:
    for piece in range(PIECES):
        with drawn(f"stream {by}", f"fetch {by}.{piece}"):
            await asyncio.sleep(0)
        yield piece


@named("", "rollout")
async def rollout(by: str) -> None:
    async with drawn(f"rollout {by}", f"gather {by}"):
        await asyncio.gather(*(sample(f"{by}-{number}") for number in range(SAMPLES)))


@named("", "batches")
def batches(by: str) -> Iterator[int]:
    for number in range(STEPS):
        with drawn(f"batches {by}", f"load {number}"), drawn(f"load {number}", f"decode {number}"):
            pass
        yield number


def upload(by: str, both: threading.Barrier) -> None:
    with drawn("", f"upload {by}"), drawn(f"upload {by}", f"send {by}"):
        both.wait()


def train(run: str) -> None:
    with mstxkit.capture(run):
        loader = batches("all")
        for number in range(STEPS):
            mstxkit.step(number)
            with drawn("", f"step {number}"):
                next(loader)
                asyncio.run(rollout(str(number)))
                with drawn(f"step {number}", f"update {number}"), drawn(f"update {number}", f"backward {number}"):
                    pass
        assert not list(loader)
        both = threading.Barrier(2)
        threads = [threading.Thread(target=upload, args=(name, both), name=f"uploader {name}") for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    train(sys.argv[1])
