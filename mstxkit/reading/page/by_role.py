"""What a section says of each role: all of it is in the page, and the script hides what is not of the chosen one."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from .document import named, nothing


def parts(of_each: Sequence[str], tag: str = "div") -> str:
    """HTML of each role, of which the first role's is shown at first; once where all is the same."""
    if len(set(of_each)) == 1:
        return of_each[0]
    return "".join(
        f'<{tag} data-role="{at}"{" hidden" if at else ""}>{body}</{tag}>' for at, body in enumerate(of_each)
    )


def or_nothing(roles: Sequence[dict[str, Any]], has: Callable[[dict[str, Any]], bool], none: str) -> str:
    """Of each role that has not what is drawn that it has not, and which roles have.

    Args:
        roles: As `figures.of_run` gives them.
        has: Is there something to draw of a role?
        none: A sentence with `{role}` in it.
    """
    having = [named(role["role"]) for role in roles if has(role)]
    other = f' Choose <a href="#role">another role</a> to see it of {" or ".join(having)}.' if having else ""
    bodies = ("" if has(role) else nothing(none.format(role=named(role["role"])) + other) for role in roles)
    return parts(list(bodies))
