"""share --again, as it is typed."""

import numpy as np
import pandas as pd
import pytest
from known_tables import people

pytestmark = pytest.mark.usefixtures("few_trees")
ROLES = ["--sensitive", "sex", "--label", "repaid", "--id", "person"]


def test_next_months_file_is_drawn_from_the_same_cells(run, tmp_path):
    first = people(1200, 0)
    second = pd.concat([first.iloc[50:], people(50, 1)])
    first.to_csv(tmp_path / "1.csv", index=False)
    second.assign(hours=np.arange(1200) % 40).to_csv(tmp_path / "2.csv", index=False)
    run("share", tmp_path / "1.csv", *ROLES, "--target", "0.3", "--quick", "-o", tmp_path / "a", ends=0)
    out = run("share", tmp_path / "2.csv", *ROLES, "--again", tmp_path / "a", "-o", tmp_path / "b", ends=0)[1]
    assert "linked" in out
    assert "hours" in pd.read_csv(tmp_path / "b" / "shared.csv")
    assert "ok       previous" in run("check", tmp_path / "b", ends=0)[1]
    words = ["share", tmp_path / "2.csv", *ROLES, "--again", tmp_path / "a", "-o", tmp_path / "c"]
    assert (
        "Leave it out, or cut the cells further (--extend). (option --target)"
        in run(*words, "--target", 0.1, ends=2)[2]
    )
    assert "groups must be those of the earlier release" in run(*words, "--groups", "sex:1", ends=2)[2]
    assert "merge_small must be left out: groups are those" in run(*words, "--merge-small", 30, ends=2)[2]
    run("verify", tmp_path / "b", tmp_path / "2.csv", ends=0)
    run("verify", tmp_path / "b", tmp_path / "1.csv", ends=1)
    people(300, 2).to_csv(tmp_path / "new.csv", index=False)
    run("encode", tmp_path / "b", tmp_path / "new.csv", "-o", tmp_path / "z.csv", ends=0)
    assert "hours" in pd.read_csv(tmp_path / "z.csv")
    run("watch", tmp_path / "b", tmp_path / "new.csv", ends=0)
    words = ["share", tmp_path / "2.csv", *ROLES, "--again", tmp_path / "a", "--replace", "-o", tmp_path / "a"]
    assert "another folder" in run(*words, ends=2)[2]
    assert "no such folder" in run(*words[:-4], tmp_path / "none", "-o", tmp_path / "c", ends=2)[2]
