"""One table of profiler options: what each means, what may be given for it and where, and what each profiler calls it.

Presets, requests, configurations and backends read this table and repeat nothing of it: a new option is one entry in
`OPTIONS`. The table is in `store` and not in `profiling` because a request file names options, and everybody who reads
requests checks them, also the reader after the run, who must not load what training needs. It imports nothing.

Source: torch_npu 2.7.1 and 2.13.0 `profiler/experimental_config.py:86-358` and `profiler/profiler.py:202-218`;
mindspore 2.10.0 `profiler/experimental_config.py:183-195` and `profiler/profiler.py`; torch 2.13.0
`profiler/profiler.py`. Versions are told apart by their signatures, never by their numbers: `profiling.backends` drops
what a signature lacks, with a note.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

PRESET, REQUEST, CONFIG = "preset", "request", "config"
EVERYWHERE = (PRESET, REQUEST, CONFIG)
# What kind of value an option has; SOME_OF and NAMES are lists.
FLAG, ONE_OF, SOME_OF, NAMES, NUMBER = "flag", "one of", "some of", "names", "number"
# Which call of a profiler takes an option.
PROFILE, DEEP = "profile", "_ExperimentalConfig"
# AI Core metrics exist at these levels only: torch_npu drops them below (experimental_config.py:178), MindSpore too
# (common/profiler_parameters.py:248), and takes PipeUtilization for none at these.
METRIC_LEVELS = ("level1", "level2")

_ALLOWED = {FLAG: "true, false", NAMES: "a list of names", NUMBER: "a number from 0, null"}


class Term(NamedTuple):
    """What a profiler calls an option."""

    name: str  # its parameter
    call: str = DEEP  # which call has this parameter: PROFILE or DEEP
    words: Mapping[str, Any] = {}  # its words for our values; a value that is not here is the same there
    # The enumeration in the profiler's module that has these words as members; empty: they are plain values.
    enum: str = ""
    before: str = ""  # the parameter of versions that do not have `name` yet

    def translated(self, value: Any) -> Any:
        """A value of ours in the profiler's words; a tuple becomes a list."""
        if isinstance(value, tuple):
            return [self.words.get(name, name) for name in value]
        return self.words.get(value, value) if isinstance(value, str) else value


class Lacking(NamedTuple):
    """A profiler has no such option."""

    why: str  # what the note on a lost value says; empty: nothing is lost
    name: str = ""  # what the note calls the option, where not by our name
    always: bool = False  # is the default value noted, too?


class Option(NamedTuple):
    """One option, as presets, requests and configurations name it, and what each profiler calls it."""

    name: str
    meaning: str
    torch_npu: Term | Lacking = Lacking("torch_npu has no such option")
    mindspore: Term | Lacking = Lacking("MindSpore has no such option")
    torch: Term | Lacking = Lacking("torch.profiler has no such option")
    kind: str = FLAG  # FLAG, ONE_OF, SOME_OF, NAMES or NUMBER (from 0, or null)
    values: tuple[str, ...] = ()  # the allowed words; empty where any, or none, is
    default: Any = False  # in a configuration. A list that is not empty here may not be empty anywhere
    preset_default: Any = None  # in a preset, where it differs
    where: tuple[str, ...] = (CONFIG,)  # who may set it
    needs_cpu: bool = False  # is it about operators on the host, so that it needs the activity cpu?
    short: Mapping[Any, Any] = {}  # what people write for a value, besides the value itself

    @property
    def preset_value(self) -> Any:
        """The default of a preset."""
        return self.default if self.preset_default is None else self.preset_default

    @property
    def is_list(self) -> bool:
        """Is its value a list?"""
        return self.kind in (SOME_OF, NAMES)

    @property
    def allowed(self) -> str:
        """What may be given, for a message."""
        if self.kind == SOME_OF:
            return f"{', '.join(self.values)}, {'both' if len(self.values) == 2 else 'all'}"
        return _ALLOWED.get(self.kind) or ", ".join(self.values)

    def meant(self, value: Any) -> Any:
        """What a short form stands for; any other value as it is."""
        return self.short.get(value, value) if type(value) in (int, str) else value

    def read(self, text: str) -> Any:
        """A value as a command line has it: `true`, `1`, `cpu,npu`, an empty list as nothing. What is none of these is
        the text itself, for `takes` to refuse.
        """
        if self.kind == FLAG:
            return {"true": True, "false": False}.get(text.lower(), text)
        if self.kind == NUMBER:
            return None if text == "null" else int(text) if text.isdecimal() else text
        if self.is_list:
            return tuple(name.strip() for name in text.split(",")) if text else ()
        return self.meant(text)

    def takes(self, value: Any) -> bool:
        """May this be its value? An empty list is left to the caller."""
        if self.kind == FLAG:
            return type(value) is bool
        if self.kind == NUMBER:
            return value is None or (type(value) in (int, float) and 0 <= value < float("inf"))
        if self.kind == ONE_OF:
            return isinstance(value, str) and value in self.values
        return isinstance(value, (list, tuple)) and all(
            isinstance(name, str) and name and (not self.values or name in self.values) for name in value
        )


def list_settable(where: str) -> tuple[Option, ...]:
    """All options that may be set there: PRESET, REQUEST or CONFIG."""
    return tuple(option for option in OPTIONS if where in option.where)


def find_option(name: str) -> Option:
    """The option of this name."""
    return next(option for option in OPTIONS if option.name == name)


def list_terms(profiler: str) -> dict[str, Term]:
    """What `torch_npu`, `mindspore` or `torch` has, by our names."""
    terms = ((option.name, getattr(option, profiler)) for option in OPTIONS)
    return {name: term for name, term in terms if isinstance(term, Term)}


def _name_alike(name: str) -> tuple[Term, Term, Term]:
    """A flag that all three profilers call the same."""
    return (Term(name, PROFILE),) * 3


_LEVELS = ("none", "level0", "level1", "level2")
_METRICS = (
    "none", "PipeUtilization", "ArithmeticUtilization", "Memory", "MemoryL0", "MemoryUB", "ResourceConflictRatio",
    "L2Cache", "MemoryAccess",
)  # fmt: skip
_HOST_SYSTEMS = ("cpu", "mem", "disk", "network", "osrt", "numa")
_SIDES = Term("activities", PROFILE, {"cpu": "CPU", "npu": "NPU"}, "ProfilerActivity")
_NO_METRICS = {"none": "AiCoreNone"}

OPTIONS: tuple[Option, ...] = (
    Option("level",
        "Depth on the device: `none` is mstx ranges alone, level0 kernels and their times, level1 adds AscendCL calls, "
        "communication operators and AI Core metrics, level2 adds runtime calls and AI CPU.",
        Term("profiler_level", DEEP, dict(zip(_LEVELS, ("Level_none", "Level0", "Level1", "Level2"))), "ProfilerLevel"),
        Term("profiler_level", DEEP, dict(zip(_LEVELS, ("LevelNone", "Level0", "Level1", "Level2"))), "ProfilerLevel"),
        Lacking("torch.profiler has no levels", always=True),
        kind=ONE_OF, values=_LEVELS, default="level0", where=EVERYWHERE,
        short={number: f"level{number}" for digit in range(3) for number in (digit, str(digit))}),
    Option("activities",
        "Sides that are recorded: framework operators on the host, the device. Never empty: each system takes an empty "
        "list for something else.",
        _SIDES, _SIDES, _SIDES._replace(words={"cpu": "CPU", "npu": "CUDA"}),
        kind=SOME_OF, values=("cpu", "npu"), default=("cpu", "npu"), where=EVERYWHERE),
    Option("mstx", "Are mstx ranges recorded? Always so at level none.",
        Term("mstx", before="msprof_tx"),  # before CANN 7.2
        Term("mstx"),
        Lacking(""),  # ranges show as `record_function` does: `sinks/torch.py`
        preset_default=True, where=EVERYWHERE),
    Option("domains_include", "mstx domains that are recorded, no others; empty: all.",
        Term("mstx_domain_include"), Term("mstx_domain_include"), Lacking("all ranges show"), kind=NAMES, default=()),
    Option("domains_exclude",
        "mstx domains that are left out; torch_npu's own for collectives is `communication`.",
        Term("mstx_domain_exclude"), Term("mstx_domain_exclude"), Lacking("all ranges show"),
        kind=NAMES, default=(), where=EVERYWHERE),
    Option("memory", "Allocations on the device (`profile_memory`).", *_name_alike("profile_memory"), where=EVERYWHERE),
    Option("shapes", "Shapes of operator inputs (`record_shapes`); needs the activity cpu.",
        *_name_alike("record_shapes"), where=EVERYWHERE, needs_cpu=True),
    Option("stacks", "Python call stacks of operators (`with_stack`); needs the activity cpu.",
        *_name_alike("with_stack"), where=EVERYWHERE, needs_cpu=True),
    Option("modules", "Call stacks by module (`with_modules`, cheaper than stacks); needs the activity cpu.",
        Term("with_modules", PROFILE), Lacking("MindSpore has no such option", "with_modules"),
        Term("with_modules", PROFILE), where=EVERYWHERE, needs_cpu=True),
    Option("flops", "Floating point operations of operators (torch_npu `with_flops`).",
        Term("with_flops", PROFILE), torch=Term("with_flops", PROFILE)),
    Option("l2_cache", "L2 cache hit rates per kernel.", Term("l2_cache"), Term("l2_cache")),
    Option("sys_io", "NIC and RoCE counters, at 100 Hz.", Term("sys_io"), Term("sys_io")),
    Option("sys_interconnection", "HCCS, PCIe and inter-chip counters, at 50 Hz.",
        Term("sys_interconnection"), Term("sys_interconnection")),
    Option("host_sys", "Host system counters. disk needs iotop, osrt perf and ltrace; numa is torch_npu's alone.",
        Term("host_sys", words={name: name for name in _HOST_SYSTEMS}),
        Term("host_sys", words={name: name for name in _HOST_SYSTEMS if name != "numa"}),
        kind=SOME_OF, values=_HOST_SYSTEMS, default=()),
    Option("op_attr", "Attributes of operators (torch_npu); needs the db export.", Term("op_attr")),
    Option("record_op_args", "Arguments of operators, for a later dump (torch_npu).", Term("record_op_args")),
    Option("gc_detect_threshold_ms",
        "Garbage collections that last at least so many milliseconds, 0 for all (torch_npu); null: not looked for.",
        Term("gc_detect_threshold"), kind=NUMBER, default=None, needs_cpu=True),
    Option("aic_metrics", "Counters of the AI Core; the device records them at level1 and level2 only.",
        # Its own default is PipeUtilization since 26.0, none before.
        Term("aic_metrics", DEEP, _NO_METRICS, "AiCMetrics"),
        Term("aic_metrics", DEEP, _NO_METRICS, "AicoreMetrics"),
        Lacking("there is no AI Core"), kind=ONE_OF, values=_METRICS, default="none", where=EVERYWHERE),
    Option("export", "What an analysis makes of raw data: text (JSON and CSV), db (SQLite), both.",
        Term("export_type", words={"both": ["text", "db"]}),  # a list since 7.0
        Term("export_type", DEEP, {"text": ["Text"], "db": ["Db"], "both": ["Text", "Db"]}, "ExportType"),
        Lacking("the trace is Chrome JSON"),
        kind=ONE_OF, values=("text", "db", "both"), default="text", preset_default="db", where=EVERYWHERE),
    Option("analysis",
        "When raw data is parsed: off (later, apart), sync (the rank waits, peers with it), async (in a child).",
        kind=ONE_OF, values=("off", "sync", "async"), default="off"),
    Option("data_simplification", "Delete what an analysis no longer needs.",
        Term("data_simplification"), Term("data_simplification"), default=True),
)  # fmt: skip
