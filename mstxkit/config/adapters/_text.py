"""How a written configuration looks: YAML with a mapping a line deeper, lists in one line."""

from __future__ import annotations

from typing import Any, Mapping


def yaml_of(values: Mapping[str, Any]) -> str:
    """A mapping as YAML, keys in the order given."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
            return super().represent_sequence(tag, sequence, flow_style=True)

    Dumper.add_representer(tuple, lambda dumper, value: dumper.represent_list(list(value)))
    return str(yaml.dump(dict(values), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=118))
