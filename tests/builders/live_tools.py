"""Live tools that write down what they are told: in Python, and by C addresses as mstx is."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from builders.written_banks import Written


class Sink:
    """A tool that writes down what it is told, and takes time for it on the fake clock."""

    def __init__(self, recorded: Written | None = None, ticks: int = 0, has_stream: bool = True) -> None:
        self.told: list[Any] = []
        self._recorded, self._ticks, self._has_stream = recorded, ticks, has_stream
        self._count = 0

    def on(self, engine: Any, index: int = 0) -> Sink:
        rest = (self.mark, self.begin_stream) if self._has_stream else ()
        engine.set_sink(index, self.begin, self.end, *rest)
        return self

    def begin(self, message: str, domain: str) -> Any:
        return self._next("begin", message, domain)

    def begin_stream(self, message: str, stream: Any, domain: str) -> Any:
        return self._next("begin_stream", message, stream, domain)

    def _next(self, *what: Any) -> Any:
        self._spend()
        self._count += 1
        self.told.append((*what, self._count))
        return self._count

    def end(self, token: Any, domain: str) -> None:
        self._spend()
        self.told.append(("end", token, domain))

    def mark(self, message: str, stream: Any, domain: str) -> None:
        self._spend()
        self.told.append(("mark", message, stream, domain))

    def _spend(self) -> None:
        if self._recorded is not None:
            self._recorded.tick(self._ticks)

    @property
    def open(self) -> set[Any]:
        """Tokens that were begun and not ended; an end that was never begun fails the test."""
        left: set[Any] = set()
        for kind, *rest in self.told:
            if kind == "end":
                left.remove(rest[0])
            elif kind != "mark":
                left.add(rest[-1])
        return left


class Mstx:
    """The seven functions of mstx as C callbacks that write down how they are called."""

    def __init__(self, first_id: int = 1) -> None:
        self.told: list[Any] = []
        self._next = first_id
        text, handle, number = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64
        kinds: list[tuple[Any, ...]] = [
            (None, text, handle), (number, text, handle), (None, number), (handle, text),
            (None, handle, text, handle), (number, handle, text, handle), (None, handle, number),
        ]  # fmt: skip
        names = ["mark", "start", "end", "domain", "domain_mark", "domain_start", "domain_end"]
        self._kept = [ctypes.CFUNCTYPE(*kind)(self._teller(name)) for kind, name in zip(kinds, names)]

    def _teller(self, name: str) -> Callable[..., Any]:
        def tell(*args: Any) -> Any:
            self.told.append((name, *args))
            if name == "domain":
                return 0x1000 + len(self.told)
            if not name.endswith("start"):
                return None
            self._next += 1
            return self._next - 1

        return tell

    @property
    def addresses(self) -> tuple[int, ...]:
        found = [ctypes.cast(function, ctypes.c_void_p).value for function in self._kept]
        return tuple(address or 0 for address in found)
