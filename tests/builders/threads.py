"""What a test does on other threads."""

from __future__ import annotations

import threading
from typing import Callable


def elsewhere(work: Callable[..., object], *arguments: object) -> None:
    """On another thread, to its end."""
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    thread.join()


def on_threads(count: int, work: Callable[[int], object]) -> None:
    """`work(number)` on so many threads at once, all to their end."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
