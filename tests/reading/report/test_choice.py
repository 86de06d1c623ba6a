"""What a report is to be of, in the forms of the command line; what nothing answers to is an error that says so."""

from __future__ import annotations

import pytest

from mstxkit.errors import ReadError
from mstxkit.reading.report.choice import check_choice, names_of, read_choice

EVER = (1 << 63) - 1


@pytest.mark.parametrize(
    ("text", "bounds"), [("5", (5, 5)), ("5:10", (5, 10)), ("5:", (5, EVER)), (":10", (0, 10)), (" 0 : 3 ", (0, 3))]
)
def test_steps_are_from_the_first_to_the_last(text: str, bounds: tuple[int, int]) -> None:
    assert read_choice(steps=text).steps == bounds


def test_ranks_are_numbers_and_spans() -> None:
    assert read_choice(ranks="0, 3-5,").ranks == ((0, 0), (3, 5))


def test_ranges_are_a_count_or_names() -> None:
    assert (read_choice(ranges="7").top, read_choice(ranges="7").ranges) == (7, None)
    assert (read_choice(ranges="a,b*").top, read_choice(ranges="a,b*").ranges) == (None, ("a", "b*"))


@pytest.mark.parametrize(
    "options",
    [{"steps": text} for text in ("", ":", "x", "-1", "3:1", "1:2:3", "1-2")]
    + [{"ranks": text} for text in ("", ",", "all", "5-3", "-1", "1:2")]
    + [{"stages": ","}, {"ranges": " "}],
    ids=str,
)
def test_another_form_is_refused(options: dict[str, str]) -> None:
    (option,) = options

    with pytest.raises(ReadError, match=f"^--{option}"):
        read_choice(**options)


def test_a_stage_answers_to_every_systems_name_and_to_a_pattern() -> None:
    there = ["update_actor", "actor_generate", "mine"]

    assert names_of("stage", ["actor_update"], there) == {"update_actor"}
    assert names_of("stage", ["actor*", "mine"], there) == {"actor_generate", "mine"}


def test_a_pattern_has_no_other_signs_than_the_star() -> None:
    assert names_of("range", ["a[0]*"], ["a[0] x", "a0"]) == {"a[0] x"}
    assert names_of("range", ["a,b"], ["a,b"]) == {"a,b"}


def test_what_is_not_there_is_named_and_the_nearest_is_proposed() -> None:
    with pytest.raises(ReadError, match=r"no stage 'rewrd' in what was asked for; did you mean reward\?"):
        names_of("stage", ["reward", "rewrd"], ["reward"])
    with pytest.raises(ReadError, match="no range 'x' in what was asked for; there: none"):
        names_of("range", ["x"], [])


def test_steps_and_ranks_that_a_run_has_not_are_refused() -> None:
    check_choice(read_choice(steps="3:", ranks="0,7-9"), [0, None, 8], 1, 3)

    with pytest.raises(ReadError, match="this run has no step 99; it has steps 1 to 3"):
        check_choice(read_choice(steps="99"), [0], 1, 3)
    with pytest.raises(ReadError, match="this run has no step 0: none of its ranges is in a step"):
        check_choice(read_choice(steps="0"), [0], None, None)
    with pytest.raises(ReadError, match="no process of this run has rank 9 to 11; it has ranks 0 to 8"):
        check_choice(read_choice(ranks="0,9-11"), [0, None, 8], 1, 3)


def test_it_says_in_words_what_was_asked_for() -> None:
    assert str(read_choice("5:7", "0,3-5", "reward")) == "steps 5 to 7; ranks 0, 3 to 5; stages reward"
    assert str(read_choice(ranges="3")) == ""
    assert read_choice("5:", ranks="1").as_json() == {
        "steps": [5, None],
        "ranks": [[1, 1]],
        "stages": None,
        "ranges": None,
    }
