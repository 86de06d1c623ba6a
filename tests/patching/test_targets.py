"""A user's own targets, in Python and YAML: the same patch from both, and every mistake told with line and field."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mstxkit
from mstxkit import faults
from mstxkit.errors import PatchError
from mstxkit.patching import sheet, targets
from mstxkit.patching.declare import Patch, Seam, Target
from mstxkit.testing import captured

FULL = """\
framework: acme_rl
versions: 1.20
notes: [first, second]
roles: {RolloutActor: rollout}
seam: {path: "acme_rl.marks:timer", code_name: wrapper, file: acme_rl/marks.py}
targets:
  - acme_rl.trainer:Trainer.save
  - path: acme_rl.trainer:Trainer.fit
    name: fit
    stage: train_step
    step: self.iteration
    attributes: {prompts: len(batch), phase: "'train'", constant: 4}
    role: trainer
    process_role: trainer
    waits: true
    tier: extra
    coalesce: yes
    max_depth: 2
    max_per_s: 100
    boundary: mini_batch
    dummy: len(batch) == 0
    unless: acme_rl.new:Trainer
    domain: training
  - {path: "acme_rl.flags:ENABLED", kind: value, value: "my_marks:ON"}
  - {path: acme_rl.trainer:Trainer.end_step, step_after: step, max_depth: null}
  - {path: acme_rl.timing:timer, kind: context, waits: [gen, update]}
  - {path: "acme_rl.timing:block", kind: context, leaves_out: [profile]}
"""


def written(folder: Path, text: str | bytes, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problems(folder: Path, text: str | bytes) -> list[str]:
    """What is told of a file, a line each, without the file's name."""
    path = written(folder, text)
    with pytest.raises(PatchError) as caught:
        targets.read_patch(path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith((f"{path}:", "and ")) for line in lines)
    return [line[len(f"{path}:") :] if line.startswith(str(path)) else line for line in lines]


def test_a_file_has_the_fields_of_patch_and_target(tmp_path: Path) -> None:
    patch = targets.read_patch(written(tmp_path, FULL))

    assert patch == Patch(
        framework="acme_rl",
        versions="1.20",
        notes=("first", "second"),
        roles={"RolloutActor": "rollout"},
        seam=Seam("acme_rl.marks:timer", "wrapper", "acme_rl/marks.py"),
        targets=(
            Target("acme_rl.trainer:Trainer.save"),
            Target(
                "acme_rl.trainer:Trainer.fit",
                name="fit",
                stage="train_step",
                step="self.iteration",
                attributes={"prompts": "len(batch)", "phase": "'train'", "constant": "4"},
                role="trainer",
                process_role="trainer",
                waits=True,
                tier="extra",
                coalesce=True,
                max_depth=2,
                max_per_s=100,
                boundary="mini_batch",
                dummy="len(batch) == 0",
                unless="acme_rl.new:Trainer",
                domain="training",
            ),
            Target("acme_rl.flags:ENABLED", kind="value", value="my_marks:ON"),
            Target("acme_rl.trainer:Trainer.end_step", step_after="step"),
            Target("acme_rl.timing:timer", kind="context", waits=("gen", "update")),
            Target("acme_rl.timing:block", kind="context", leaves_out=("profile",)),
        ),
    )


@pytest.mark.parametrize(("kind", "read"), [(Patch, targets._PATCH_FIELDS), (Target, targets._TARGET_FIELDS)])
def test_every_field_of_the_declarations_can_be_given_in_a_file(kind: Any, read: dict[str, object]) -> None:
    assert {field.name for field in dataclasses.fields(kind)} - {"targets", *targets._PYTHON_ONLY} == set(read)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ("waits: [gen]", "names of contexts go with kind context only"),
        ("waits: workers", "choose one of true, false"),
        ("waits: {gen: true}", "a list is needed"),
    ],
)
def test_what_waits_is_yes_or_no_or_names_of_contexts(tmp_path: Path, fields: str, told: str) -> None:
    (line,) = problems(tmp_path, f"targets:\n  - {{path: 'acme.a:f', {fields}}}\n")

    assert told in line and "waits" in line


@pytest.mark.parametrize("fields", [{"leaves_out": ("gen",)}, {"kind": "context", "leaves_out": "gen"}])
def test_what_is_left_out_are_names_of_contexts(fields: dict[str, Any]) -> None:
    with pytest.raises(PatchError, match="a tuple of names of contexts, with kind context only"):
        Target("acme.a:f", **fields)


def test_what_waits_is_checked_in_python_too() -> None:
    with pytest.raises(PatchError, match="True, False, or a tuple of names of contexts"):
        Target("acme.a:f", kind="context", waits="gen")  # type: ignore[arg-type]


def test_the_framework_is_the_import_root_of_the_first_target_unless_it_is_named(tmp_path: Path) -> None:
    assert targets.read_patch(written(tmp_path, "targets: [acme.a.b:f, other:g]")).framework == "acme"


def test_every_mistake_of_a_file_is_told_at_once_with_line_field_and_what_is_allowed(tmp_path: Path) -> None:
    text = """\
framwork: acme
targets:
  - path: acme.trainer.Trainer.fit
    stage: train
  - path: acme.trainer:Trainer.fit
    kind: rnge
    max_depth: 0
    coalesce: maybe
    step: self.step()
    attributes:
      rows: len(batch
  - name: save
  - [1, 2]
"""

    assert problems(tmp_path, text) == [
        "1: framwork: unknown field: did you mean framework? "
        "allowed are framework, versions, targets, seam, roles, default, notes",
        "3: targets[0].path: path='acme.trainer.Trainer.fit': a target is written package.module:Class.method",
        "6: targets[1].kind='rnge': did you mean range? choose one of range, context, delegate, value",
        "7: targets[1].max_depth='0': an int from 1 to 999999999 is needed",
        "8: targets[1].coalesce='maybe': choose one of true, false",
        "9: targets[1].step: 'self.step()': a Call is no part of this language: "
        "parameters, .attribute, [index] with an int or a str, len(x), ints and strs",
        "11: targets[1].attributes.rows: 'len(batch': '(' was never closed"
        if "never closed" in str(problems(tmp_path, text))
        else "11: targets[1].attributes.rows: 'len(batch': unexpected EOF while parsing",
        "12: targets[2].path: missing: package.module:Class.method",
        "13: targets[3]: a mapping is needed, not a list",
    ]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "the file is empty"),
        ("# nothing\n", 1, "the file is empty"),
        ("targets: [\n", 2, "not YAML: "),
        ("targets: a\nb: : c\n", 2, "not YAML: "),
        ("a: 1\n---\nb: 2\n", 2, "not YAML: but found another document"),
        ("x: \x07\n", 1, "not YAML: special characters are not allowed"),
        ("- a.b:f\n", 1, "the file: a mapping is needed, not a list"),
        ("just text\n", 1, "the file: a mapping is needed, not 'just text'"),
        ("framework: acme\n", 1, "targets: missing"),
        ("targets: []\n", 1, "targets: there are none"),
        ("targets:\n", 1, "targets: a list is needed, not nothing"),
        ("targets: a.b:f\n", 1, "targets: a list is needed, not 'a.b:f'"),
        ("targets: [a.b:f]\nframework: x\nframework: y\n", 3, "framework: given twice, first in line 2"),
        ("targets: [a.b:f]\nframework: a-b\n", 2, "framework='a-b': the import root is needed"),
        ("targets:\n- path: a.b:f\n  path: a.b:g\n", 3, "targets[0].path: given twice, first in line 2"),
        ("targets:\n- path: a.b:f\n  name: on\n", 3, "targets[0].name=on: YAML takes it for true or false"),
        ("targets:\n- path:\n", 2, "targets[0].path: missing"),
        ("targets:\n- path: a.b:f\n  stage: ' '\n", 3, "targets[0].stage: empty"),
        ("targets:\n- path: a.b:f\n  attributes: {n: }\n", 3, "targets[0].attributes.n: empty"),
        ("targets:\n- path: a.b:f\n  max_depth: 1.5\n", 3, "an int from 1"),
        ("targets:\n- path: a.b:f\n  max_depth: '2'\n", 3, "an int from 1"),
        ("targets:\n- path: a.b:f\n  value: a.b:g\n", 2, "goes with kind value, around or wrap, and only these"),
        ("targets:\n- path: a.b:f\n  unless: nothing\n", 3, "a symbol is written package.module:name"),
        ("targets:\n- path: a.b:f*.g\n", 2, "only the last part may hold *"),
        ("targets:\n- path: a.b:f\n  ? [a]\n  : 1\n", 3, "the name of a field: a text is needed"),
        ("targets: [a.b:f]\nseam: {path: 'a.b:f'}\n", 2, "seam.code_name: missing"),
        ("targets: [a.b:f]\nroles: [a]\n", 2, "roles: a mapping is needed, not a list"),
        ("targets: [a.b:f]\n<<: {framework: x}\n", 2, "a tag is not allowed here"),
        ("targets: [!!python/name:os.system a.b:f]\n", 1, "a tag is not allowed here: tag:yaml.org,2002:python"),
        ("!!python/object/apply:os.system ['touch x']\n", 1, "a mapping is needed"),
        ("!!python/object:os.X {targets: [a.b:f]}\n", 1, "the file: a tag is not allowed here"),
        ("targets: [a.b:f]\n!!python/name:os.system framework: x\n", 2, "a tag is not allowed here"),
        ("targets: [!mine a.b:f]\n", 1, "a tag is not allowed here: !mine"),
        ("targets: &t [*t]\n", 1, "targets[0]: a mapping is needed, not a list"),
        ("targets: [*unknown]\n", 1, "not YAML: found undefined alias 'unknown'"),
        ("targets: " + "[" * 5000, 1, "nested too deeply"),
        (b"targets: [a.b:f]\nversions: \xff\n", 2, "this is not UTF-8"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_with_its_line(tmp_path: Path, text: str | bytes, line: int, says: str) -> None:
    assert any(one.startswith(f"{line}: ") and says in one for one in problems(tmp_path, text))


def test_a_file_that_is_all_wrong_ends_after_a_readable_number_of_problems(tmp_path: Path) -> None:
    found = problems(tmp_path, "targets:\n" + "- wrong\n" * 100)

    assert len(found) == sheet.MOST_PROBLEMS + 1
    assert found[-1] == "and 50 more"


def test_a_few_bytes_that_stand_for_many_targets_are_limited(tmp_path: Path) -> None:
    aliases = "x: &a {path: a.b:f}\ntargets: [" + "*a, " * (targets.MOST_TARGETS + 1) + "]\n"

    assert any("targets: more than 2000 entries" in one for one in problems(tmp_path, aliases))


def test_a_file_too_large_missing_or_none_at_all_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    large = written(tmp_path, "#" * (sheet.LARGEST_BYTES + 1), "large.yaml")

    for path, says in (
        (large, "larger than 1048576 bytes"),
        (tmp_path / "missing.yaml", "No such file"),
        (tmp_path / "pipe.yaml", "this is no file"),
        (tmp_path, "ends in .yaml"),
    ):
        with pytest.raises(PatchError, match=says):
            targets.read_patch(path)


def test_a_file_with_a_byte_order_mark_and_windows_lines_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbftargets:\r\n- acme.a:f\r\n", "mine.yml")

    assert targets.read_patch(path).targets == (Target("acme.a:f"),)


@given(st.text(alphabet="ab:-[]{}&*!'\"#|>? \n,=<.\t\\%@0", max_size=60))
@settings(
    max_examples=soak.rounds(2000, 60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_text_is_a_patch_or_a_patch_error(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, "targets: [a.b:f]\n" + text)

    try:
        told = str(targets.read_patch(path).targets)
    except PatchError as exc:
        told = str(exc)

    assert str(path) in told or "a.b:f" in told


ONE, TWO = Target("acme.a:f"), Target("other.b:g", stage="reward")
PATCH = Patch("acme", "", (ONE,))


@pytest.mark.parametrize(
    ("given_targets", "expected"),
    [
        (PATCH, [PATCH]),
        (ONE, [PATCH]),
        ([PATCH, PATCH], [PATCH, PATCH]),
        ([ONE, TWO], [Patch("acme", "", (ONE, TWO))]),
        ((TWO, "acme.a:f"), [Patch("other", "", (TWO, ONE))]),
        ((one for one in [PATCH, TWO]), [PATCH, Patch("other", "", (TWO,))]),
        ([], []),
    ],
)
def test_python_objects_become_patches_and_loose_targets_one_patch(given_targets: Any, expected: list[Patch]) -> None:
    assert targets.as_patches(given_targets) == expected


def test_files_are_patches_too_alone_and_in_a_list(tmp_path: Path) -> None:
    path = written(tmp_path, "targets: [acme.a:f]")

    assert targets.as_patches(path) == targets.as_patches(str(path)) == [PATCH]
    assert targets.as_patches([str(path), TWO]) == [PATCH, Patch("other", "", (TWO,))]


@pytest.mark.parametrize(
    ("given_targets", "says"),
    [
        (5, "give a Patch, Targets, or the path of a YAML file"),
        ({"path": "a.b:f"}, "give a Patch, Targets, or the path of a YAML file"),
        ([5], "5 is no target"),
        (["a.b.f"], "a target is written package.module:Class.method"),
        ("acme.a:f", r"single targets go into a list: targets=\['acme.a:f'\]"),
        (Patch("acme", "", ("acme.a:f",)), "'acme.a:f' is no target"),
        ([Target("acme.a:f", step="x + 1")], "a BinOp is no part of this language"),
        ([Target("acme.a:f", attributes={"n": "f()"})], "a Call is no part of this language"),
        ([Target("acme.a:f", attributes=["n"])], "names to expressions, or a callable"),  # type: ignore[arg-type]
        ([Target("acme.a:f", attributes={"n": 5})], "an expression is a str, not 5"),  # type: ignore[dict-item]
    ],
)
def test_what_is_no_target_is_refused_before_anything_is_patched(given_targets: Any, says: str) -> None:
    with pytest.raises(PatchError, match=says):
        targets.as_patches(given_targets)


def test_attributes_may_be_a_callable_in_python() -> None:
    target = Target("acme.a:f", attributes=lambda self: {"n": 1})

    assert targets.as_patches(target)[0].targets == (target,)


LOOP = """
class Trainer:
    iteration = 0
    def fit(self, batch):
        self.iteration += 1
        return [self.move_one(x) for x in batch]
    def move_one(self, x): return x
    def move_all(self, xs): return xs
    def _move(self): return 1
    @property
    def busy(self): raise RuntimeError("asked")
"""
LOOP_TARGETS = """
targets:
  - path: ACME.trainer:Trainer.fit
    stage: train_step
    step: self.iteration
    attributes: {rows: len(batch), busy: self.busy, kind: "'loop'"}
  - ACME.trainer:Trainer.move_*
  - path: ACME.trainer:Trainer.gone
"""


def test_a_framework_of_ones_own_is_recorded_with_steps_and_attributes(acme: Any) -> None:
    """What cannot be read (a property) is counted, and the range is recorded without it."""
    acme.write("trainer", LOOP)
    path = written(acme.folder, LOOP_TARGETS.replace("ACME", acme.name))

    report = mstxkit.autopatch(targets=path)
    with captured() as recorded:
        acme.load("trainer").Trainer().fit([1, 2])
    mstxkit.unpatch(acme.name)

    assert [one.reason for one in report.targets] == ["its module is not imported yet"] * 3
    fit = next(one for one in recorded.ranges if one.name == "Trainer.fit")
    assert (fit.stage, fit.step, fit.attributes) == ("train_step", 0, {"rows": 2, "kind": "loop"})
    assert [one.name for one in recorded.ranges].count("Trainer.move_one") == 2
    assert any("busy" in where for where in faults.counts)


def test_the_example_in_the_documents_is_right(tmp_path: Path) -> None:
    page = Path(targets.__file__).parents[2] / "docs" / "guide" / "autopatch.md"
    example = page.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]

    patch = targets.read_patch(written(tmp_path, example))

    assert [target.qualname for target in patch.targets] == [
        "Trainer.save",
        "Trainer.fit_step",
        "Engine.generate",
        "move_*",
    ]


def test_every_field_is_in_the_documents() -> None:
    page = Path(targets.__file__).parents[2] / "docs" / "guide" / "autopatch.md"
    rows = "".join(
        line.partition(" | ")[0] for line in page.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"
    )

    assert [name for name in targets._TARGET_FIELDS if f"`{name}`" not in rows] == []
