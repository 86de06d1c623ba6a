"""The engine in Python, for where the C engine cannot be built: same names, same behaviour, same bytes.

It is plain, and meant to be read as what the C engine does; there is one way through for every range:

    hot.py              the engine's names; steps; what attaches it to a live file, and hands its banks over
    ranges.py           a range begins and ends; marks; `Range`, `Span` and `Driven`, as a program sees them
    tracks.py           who is inside what: what is open (`Opened`) on each thread and in each context
    sites.py            names, interned; which of their calls are added up instead of recorded; what each costs
    stages.py           stages, interned, and what they add up to
    banks.py            the live file: records and texts in banks, open slots, counters; time, the heartbeat
    listeners.py        what is on; profilers and hooks that are told
    interruptions.py    what the program raises in the middle of all that

Its price is in `benchmarks/budgets.toml`. `capture` says once that it is the twin, and how to get the C engine.
"""
