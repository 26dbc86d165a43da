"""Messages that name parameters: as Python does by themselves, and in any other way on request."""

import copy
import pickle

import pytest

from fairflows.exceptions import DataError, DataWarning, Parameter, ParameterError, warn_user


def shouted(parameter):
    return parameter.name.upper()


def test_a_data_error_joins_text_and_parameters():
    error = DataError(
        "Drop {them} (", Parameter("missing", "drop"), ") or name them (", Parameter("identifier", ...), ")."
    )
    assert str(error) == "Drop {them} (missing='drop') or name them (identifier=...)."
    assert error.render(shouted) == "Drop {them} (MISSING) or name them (IDENTIFIER)."
    assert str(DataError("plain {text}")) == "plain {text}"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ParameterError("gamma", "must be in [0, 1]", 1.5), "gamma must be in [0, 1]; got 1.5."),
        (ParameterError("seeds", "must be at least 1", None), "seeds must be at least 1; got None."),
        (ParameterError(("gamma", "target"), "exclude each other"), "gamma and target exclude each other."),
        (ParameterError(("a", "b", "c"), "exclude each other"), "a, b and c exclude each other."),
    ],
)
def test_a_parameter_error_names_the_parameter_the_rule_and_what_came(error, text):
    assert str(error) == text
    assert isinstance(error, ValueError)


def test_a_parameter_error_says_its_parts_to_programs():
    error = ParameterError("gamma", "must be in [0, 1]", 1.5)
    assert (error.parameter, error.rule, error.got) == ("gamma", "must be in [0, 1]", 1.5)
    assert error.render(lambda parameter: f"--{parameter}") == "--gamma must be in [0, 1]; got 1.5."


@pytest.mark.parametrize(
    "error",
    [
        DataError("Drop them (", Parameter("missing", "drop"), ")."),
        ParameterError("gamma", "must be in [0, 1]", 1.5),
        ParameterError("key", "must be bytes"),
        DataWarning("Give ", Parameter("identifier", ...), "."),
    ],
)
def test_messages_travel_between_processes(error):
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(made) is type(error)
        assert str(made) == str(error)
        assert made.render(shouted) == error.render(shouted)


def test_a_warning_points_at_the_user_s_line():
    with pytest.warns(DataWarning, match=r"give identifier=\.\.\., please") as found:
        warn_user("give ", Parameter("identifier", ...), ", please")
    assert found[0].filename == __file__
