"""Whatever a user configures with is read with the lines of its keys, and refused where it is no such thing."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from mstxkit.config import documents, hydra, sources
from mstxkit.config.shell import END
from mstxkit.config.sources import Source, Word
from mstxkit.errors import ConfigError


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_yaml_values_know_their_lines() -> None:
    source = sources.from_yaml("a:\n  b: 1\n  c:\n  - yes\n  - ~\n  - 2026-01-02\nd: 'x'\n", "f.yaml")

    assert source.values == {"a": {"b": 1, "c": [True, None, "2026-01-02"]}, "d": "x"}
    assert source.place("a", "b") == ("f.yaml", 2, "a.b")
    assert source.place("a", "c", 1).line == 5
    assert source.place("a", "nothing").line == 1
    assert source.place("nothing").line is None


def test_merged_and_repeated_yaml_counts_as_given() -> None:
    source = sources.from_yaml("base: &b\n  x: 1\n  y: 2\nuse:\n  <<: *b\n  y: 3\n", "f.yaml")

    assert source.at("use") == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: &a {<<: *a}", 1),
        ("b: 1\na: &a\n  c: 2\n  <<: [{<<: *a}]\n", 4),
        ("a: 1\nb: &b\n  c: {<<: *b}\n", 3),
    ],
)
def test_yaml_that_merges_itself_is_told_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=rf"f\.yaml:{line}: a mapping merges itself: << takes another one"):
        sources.from_yaml(text, "f.yaml")


def test_a_long_chain_of_merged_yaml_is_told_as_too_deep() -> None:
    chain = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}}}\n" for n in range(1, 600))

    with pytest.raises(ConfigError, match=r"f\.yaml:\d+: too large, or nested too deeply"):
        sources.from_yaml(chain, "f.yaml")


def test_of_merged_yaml_each_key_has_the_line_that_gave_it() -> None:
    source = sources.from_yaml("base: &b\n  x: 1\n  y: 2\nuse:\n  y: 3\n  <<: *b\n", "f.yaml")

    assert source.place("use", "y").line == 5
    assert source.place("use", "x").line == 2


def test_json_knows_its_lines_also_with_tabs_and_odd_texts() -> None:
    source = sources.from_json('{\n\t"a": "1: 2\\u00e9 # no comment",\n\t"b":[1,\n\t2]}', "f.json")

    assert source.values == {"a": "1: 2é # no comment", "b": [1, 2]}
    assert source.place("b").line == 3
    assert source.place("b", 1).line == 4


def test_json_inside_another_file_counts_from_its_first_line() -> None:
    _, lines = documents.read_json('\n{"a": 1}', "f.sh", 7)

    assert lines["a",] == 8


def test_a_script_is_split_into_words_and_variables_with_their_lines() -> None:
    text = """#!/bin/bash
export OPTIONS='
{"start": true}'
ARGS="
    --profile \\
    --profile-ranks 0 1
"
DIR=/data   # where to
torchrun --nproc 8 train.py $ARGS --save "${DIR}/x" '$DIR' \\
  --last=1 # no more
"""
    source = sources.from_shell(text, "f.sh")

    assert [(word.text, word.line) for word in source.words] == [
        ("torchrun", 9), ("--nproc", 9), ("8", 9), ("train.py", 9), ("--profile", 5), ("--profile-ranks", 6), ("0", 6),
        ("1", 6), ("--save", 9), ("/data/x", 9), ("$DIR", 9), ("--last=1", 10),
    ]  # fmt: skip
    assert source.variables["OPTIONS"] == Word('\n{"start": true}', 2)
    assert source.variables["DIR"].text == "/data"


def test_what_follows_a_comment_in_a_continued_line_is_read_all_the_same() -> None:
    """A guide writes it so. bash ends the command there; what was meant is plain."""
    source = sources.from_shell("main a.b=[2] \\ # only step 2\na.c=['npu'] \\\nlast\n", "f.sh")

    assert [word.text for word in source.words if word.text != END] == ["main", "a.b=[2]", "a.c=[npu]", "last"]


def test_the_words_of_two_commands_are_apart() -> None:
    source = sources.from_shell("one 1 | two; A=1 three > log 2>&1\nfour", "f.sh")

    assert [word.text for word in source.words] == ["one", "1", END, "two", END, "three", END, "four"]


def test_a_variables_default_is_taken_where_the_script_does_not_set_it() -> None:
    source = sources.from_shell('A=1\nOUT=${OUT:-/data}\nmain ${A:-2} ${B:-2} "${C-x}/y" $OUT ${unknown}', "f.sh")

    assert [word.text for word in source.words] == ["main", "1", "2", "x/y", "/data", "${unknown}"]


@pytest.mark.parametrize("text", ["'", '"', "\\", "a'b", 'a="', "$(", "$", "", "#", "a#b"])
def test_an_unfinished_script_is_read_as_far_as_it_goes(text: str) -> None:
    assert isinstance(sources.from_shell(text, "f.sh"), Source)


def test_a_folder_stands_for_its_dynamic_configuration(tmp_path: Path) -> None:
    path = write(tmp_path, "profiler_config.json", '{"start_step": 1}')

    source = sources.read_source(tmp_path)

    assert (source.name, source.at("start_step")) == (path, 1)


def test_arguments_the_environment_and_objects_are_sources_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_OPTION", "1")

    assert sources.read_source(["--profile", "5"]).words == (Word("--profile"), Word("5"))
    assert sources.read_source(os.environ).variables["SOME_OPTION"] == Word("1")
    arguments = sources.read_source(argparse.Namespace(profile=True, _hidden=1))
    assert (arguments.name, arguments.values) == ("<Namespace>", {"profile": True})
    assert sources.read_source(SimpleNamespace(ranks=(0, 1))).values == {"ranks": [0, 1]}
    assert sources.read_source({"a": {"b": {1}}}).values == {"a": {"b": [1]}}
    assert sources.read_source({"A": "x"}).variables == {"A": Word("x")}


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            (
                "f.toml",
                "a = 1",
                "f.toml: what kind of file this is must be seen from its name: it ends in one of .yaml,",
            ),
            ("f.yaml", "a: [1", "f.yaml:1: not YAML: expected ',' or ']', but got '<stream end>'"),
            ("f.yaml", "a: 1\na: 2", "f.yaml:2: a: given twice, first in line 1"),
            ("f.yaml", "b:\n  a: 1\n  a: 2", "f.yaml:3: b.a: given twice, first in line 2"),
            (
                "f.yaml",
                "a: !!python/object:os.system {}",
                "f.yaml:1: a tag is not allowed here: tag:yaml.org,2002:python",
            ),
            ("f.yaml", "- a\n", "f.yaml:1: a configuration is a mapping of keys to values, not list"),
            ("f.yaml", "? [a]\n: 1\n", "f.yaml:1: the name of a key is needed"),
            ("f.yaml", "a: \x07", "f.yaml:1: not YAML: special characters are not allowed"),
            ("f.json", '{"a": 1', "f.json:1: not JSON: Expecting ',' delimiter"),
            ("f.json", "", "f.json:1: not JSON: Expecting value"),
            ("f.json", '{"a": 1,\n "a": 2}', "f.json:1: not JSON: 'a' is given twice"),
            ("f.json", "[1]", "f.json:1: a configuration is a mapping of keys to values, not list"),
            ("f.json", "[" * 100_000, "f.json:1: not JSON:"),
        ],
    )
    def test_a_broken_file(self, name: str, text: str, message: str, tmp_path: Path) -> None:
        path = write(tmp_path, name, text)

        with pytest.raises(ConfigError) as caught:
            sources.read_source(path)

        assert str(caught.value).startswith(f"{tmp_path}/{message}")

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="No such file"):
            sources.read_source(str(tmp_path / "f.yaml"))
        with pytest.raises(ConfigError, match="null"):
            sources.read_source("a\0.yaml")

    def test_what_is_not_utf_8(self, tmp_path: Path) -> None:
        (tmp_path / "f.yaml").write_bytes(b"a: 1\nb: \xff\n")

        with pytest.raises(ConfigError, match=r"f.yaml:2: this is not UTF-8"):
            sources.read_source(tmp_path / "f.yaml")

    def test_a_file_beyond_a_mebibyte(self, tmp_path: Path) -> None:
        path = write(tmp_path, "f.sh", " " * (1 << 20) + " ")

        with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
            sources.read_source(path)

    def test_a_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "f.yaml")

        with pytest.raises(ConfigError, match="this is no file"):
            sources.read_source(tmp_path / "f.yaml")

    def test_aliases_that_stand_for_a_lot(self, tmp_path: Path) -> None:
        lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
        path = write(tmp_path, "f.yaml", "\n".join(lines))

        with pytest.raises(ConfigError, match="too large, or nested too deeply"):
            sources.read_source(path)

    @pytest.mark.parametrize("given", [None, 5, int, 1.5])
    def test_what_is_no_configuration_at_all(self, given: object) -> None:
        with pytest.raises(ConfigError, match="is no configuration: give a file"):
            sources.read_source(given)


def resolved(text: str, *sections: str) -> dict:
    source = hydra.resolve_source(sources.from_yaml(text, "f.yaml"), [(section,) for section in sections])
    return dict(source.values)


INTERPOLATED = """
a: {b: 5, c: null, d: [1, {e: x}], missing: "???"}
plain: ${a.b}
text: v${a.b}-${a.c}
select: "${oc.select:a.b,7}"
selected_null: "${oc.select:a.c,7}"
absent: ${oc.select:a.nothing}
default: ${oc.select:a.nothing,7}
default_null: "${oc.select:a.nothing, null}"
default_list: "${oc.select:a.nothing,[]}"
default_flag: ${oc.select:a.nothing,false}
default_text: ${oc.select:a.nothing,level0}
nested: ${oc.select:a.nothing,${oc.select:a.b,null}}
missing: "${oc.select:a.missing,3}"
chain: ${plain}
listed: ${a.d}
item: ${a.d[1].e}
variable: ${oc.env:MSTXKIT_TEST_PLACE,home}
default_variable: ${oc.env:MSTXKIT_TEST_NOWHERE,home}
group: {one: 1, two: "${.one}", three: {four: "${..one}"}, five: "${oc.select:.one,null}"}
"""


def test_interpolations_stand_for_what_they_point_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_TEST_PLACE", "there")
    names = [line.partition(":")[0] for line in INTERPOLATED.split("\n") if line and not line.startswith("a:")]

    assert resolved(INTERPOLATED, *names) == {
        "plain": 5, "text": "v5-None", "select": 5, "absent": None, "selected_null": None, "default": 7,
        "default_null": None, "default_list": [], "default_flag": False, "default_text": "level0", "nested": 5,
        "missing": 3, "chain": 5, "listed": [1, {"e": "x"}], "item": "x", "variable": "there",
        "default_variable": "home", "group": {"one": 1, "two": 1, "three": {"four": 1}, "five": 1},
    }  # fmt: skip


@pytest.mark.frameworks
def test_the_real_omegaconf_resolves_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from omegaconf import OmegaConf

    monkeypatch.setenv("MSTXKIT_TEST_PLACE", "there")
    names = [line.partition(":")[0] for line in INTERPOLATED.split("\n") if line and not line.startswith("a:")]
    real = OmegaConf.create(INTERPOLATED)

    wanted = {name: OmegaConf.to_container(OmegaConf.create({"x": real[name]}), resolve=True)["x"] for name in names}

    assert resolved(INTERPOLATED, *names) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: ${nothing.here}", "f.yaml:1: x='${nothing.here}': there is no nothing.here"),
        ("\nx:\n  y: ${x.z}\n  z: ${x.y}", "f.yaml:3: x.y='${x.z}': an interpolation that leads back to itself"),
        ("x: ${a", "f.yaml:1: x='${a': a ${ without its }"),
        ("x: ${oc.env:MSTXKIT_TEST_NOWHERE}", "the environment variable MSTXKIT_TEST_NOWHERE is not set"),
        ("x: ${eval:1+1}", "the resolver eval is not known here; give the resolved configuration"),
        ("x: ${y}\ny: ???", "f.yaml:1: x='${y}': there is no y"),
    ],
)
def test_an_interpolation_that_leads_nowhere_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(text, "x")

    assert message in str(caught.value)


def test_interpolations_that_stand_for_a_lot_are_refused() -> None:
    lines = [f"x{n}: ${{x{n + 1}}}${{x{n + 1}}}" for n in range(25)]

    with pytest.raises(ConfigError, match="interpolations of too many others"):
        resolved("\n".join([*lines, "x25: y"]), "x0")


def test_only_the_sections_that_are_asked_for_are_resolved() -> None:
    assert resolved("x: 1\ny: ${eval:what}\n", "x") == {"x": 1}


def test_overrides_of_a_command_line_become_values_with_lines() -> None:
    script = "main a.b=[0,1] \\\n +a.c='x y' ++a.d.e=null other.f=1 a.b.g=2 --flag a.h=\n"

    source = hydra.from_overrides(sources.from_shell(script, "f.sh"), ["a"])

    assert source.values == {"a": {"b": {"g": 2}, "c": "x y", "d": {"e": None}, "h": None}}
    assert source.place("a", "c").line == 2
