"""What a target reads of a call, and what it tells, as code in the generated wrapper itself.

Expressions come parsed and checked (`expressions.py`). What goes into code of them is the wrapper's own parameters,
and as literals the names and keys of paths: no text of a user's is compiled. A value is taken where it is a plain one,
or is plainly stored (`engine.stored`). For all else the entry is asked, one expression at a time, which reads it as
`expressions.py` does, and counts and logs what cannot be read.
"""

from __future__ import annotations

from typing import Mapping

from ..marking import signatures
from ..marking.signatures import Parameters, Prologue
from .expressions import Argument, Begin, Expression, KeywordRest, Literal, Rest


class Inlined:
    """Writes the code of one entry for a wrapper with these parameters; `names`: what it holds and its own variables
    are called in it, by role.
    """

    def __init__(self, parameters: Parameters, names: Mapping[str, str]) -> None:
        self._parameters, self._names, self._value = parameters, names, names["value"]
        positional = signatures.positional_of(parameters)
        keywords = [f"{name!r}: {name}" for name in parameters.keyword_only]
        keywords += [f"**{parameters.varkw}"] if parameters.varkw else []
        self.ended = f"{names['attributes']}.progress.next_step"  # not None where the end of a step has been told
        # As the methods of an entry take the call's own.
        self.arguments = f"({positional}{',' if positional else ''}), {{{', '.join(keywords)}}}"

    def step(self, expression: Expression, ends: bool) -> list[str]:
        """Tell the step that begins with the call, or ends with it, where there is one."""
        value = f"{self._value}_step"
        again = f"{value} = {self.call_entry('read_step', self.arguments)}"
        # A step that has ended is the latest no more.
        begins = [f"{self._names['step']}({value})", f"if {self.ended} is not None: {self.ended} = None"]
        return [
            f"{value} = {self._write_stored(expression)}",
            f"if {self._names['type']}({value}) is not {self._names['int']}: {again}",
            f"if {value} is not None and {value} >= 0:",
            *(f" {line}" for line in ([self.call_entry("step_ends", value)] if ends else begins)),
        ]

    def call_entry(self, method: str, arguments: str = "") -> str:
        """Call this method of the entry."""
        return f"{self._names['attributes']}.{method}({arguments})"

    def attributes(
        self, expressions: Mapping[str, Expression], fixed: Mapping[str, str], inherits_role: bool
    ) -> list[str]:
        """Leave a dict of the attributes that can be read in `value`, with `fixed` ones last, and the role of the stage
        that the call is in where that `inherits_role`. What it takes is measured in one call of many.
        """
        lines, pairs, tests = [], [], []
        for place, (name, expression) in enumerate(expressions.items()):
            value = f"{self._value}_{place}"
            if expression.is_literal:
                pairs.append(f"{name!r}: {self._write_stored(expression)}")
            elif name not in fixed:
                lines.append(f"{value} = {self._write_plain(expression)}")
                pairs.append(f"{name!r}: {value}")
                may_be_none = self._write_stored(expression) not in self._parameters.names
                tests += [f"{value} is {self._names['unread']}", *([f"{value} is None"] if may_be_none else [])]
        pairs += [f"{name!r}: {text!r}" for name, text in fixed.items()]
        lines.append(f"{self._value} = {{{', '.join(pairs)}}}")
        again = self.call_entry("read_again", f"{self._value}, {self.arguments}")
        lines += [f"if {' or '.join(tests)}: {again}"] if tests else []
        if inherits_role:
            role = f"{self._value}_role"
            lines.append(f"{role} = {self.call_entry('role_here')}")
            lines.append(f"if {role} is not None: {self._value}['role'] = {role}")
        began, turns = self._names["began"], f"{self._names['attributes']}.turns"
        begins = f"{began} = {self.call_entry('measure_from')} if {self._names['next']}({turns}) else 0"
        return [begins, *lines, f"if {began}: {self.call_entry('measured', began)}"]

    def whole(self, lines: list[str]) -> Prologue:
        """The code: an exception in it, which nobody expects, is a fault, and the range goes without attributes."""
        failed = f"{self._value} = {self.call_entry('failed', self._names['fault'])}"
        caught = "except {failure} as {fault}: ".format(**self._names) + failed
        return Prologue(("try:", *(f" {line}" for line in lines), caught), self._value)

    def _write_stored(self, expression: Expression) -> str:
        """Code for a parameter as it is, a literal, or what is stored; `unread` for what only the entry reads."""
        begin, path = expression.begin, expression.path
        if isinstance(begin, Literal) and not path:
            return repr(begin.value)
        parameter = self._parameter_of(begin)
        if parameter is None:
            return self._names["unread"]
        return f"{self._names['stored']}({parameter}, {path!r})" if path else parameter

    def _write_plain(self, expression: Expression) -> str:
        """The same for a plain value: a parameter that is none, or None, is `unread` too."""
        stored = self._write_stored(expression)
        if stored not in self._parameters.names:
            return stored
        kind, first, *others = (self._names[name] for name in ("kind", "int", "str", "float", "bool"))
        tests = [f"({kind} := {self._names['type']}({stored})) is {first}", *(f"{kind} is {other}" for other in others)]
        return f"{stored} if {' or '.join(tests)} else {self._names['unread']}"

    def _parameter_of(self, begin: Begin) -> str | None:
        """The parameter that holds what a path begins with; None: no single one of the wrapper's does."""
        own = self._parameters
        places = [*own.positional_only, *own.plain]
        if isinstance(begin, Argument):
            if begin.position is None:
                return begin.name if begin.name in own.keyword_only else None
            return begin.name if places[begin.position : begin.position + 1] == [begin.name] else None
        if isinstance(begin, Rest):
            return own.varargs if begin.start == len(places) else None
        if isinstance(begin, KeywordRest):
            return own.varkw if begin.taken == {*own.plain, *own.keyword_only} else None
        return None
