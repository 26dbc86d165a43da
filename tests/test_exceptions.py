"""The one class for wrong input, the checks that raise it, and warnings that point at the user's line."""

import pytest

from fairflows import DataError, DataWarning
from fairflows.exceptions import check_choice, check_count, warn_user


def test_checks_name_the_parameter_the_rule_and_what_came():
    with pytest.raises(DataError, match=r"^unseen must be one of 'error', 'other'; got 'drop'\.$"):
        check_choice("unseen", "drop", ("error", "other"))
    with pytest.raises(DataError, match=r"^n_cells must be a whole number of at least 2; got True\.$"):
        check_count("n_cells", True, 2)
    assert issubclass(DataError, ValueError)


def test_a_warning_points_at_the_user_s_line():
    with pytest.warns(DataWarning, match=r"give identifier=\.\.\., please") as found:
        warn_user("give identifier=..., please")
    assert found[0].filename == __file__
