"""The page on theory names every function, and no function that is not there."""

import re
from pathlib import Path

import fairflows.bounds as bounds

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"
OTHER_NAMES = {"fairflows.bounds", "FairMatching"}


def test_every_function_is_on_the_page_and_every_name_exists():
    text = re.sub(r"^```.*?^```$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([^`]+)`", text))
    assert set(bounds.__all__) - named == set()
    assert named - set(bounds.__all__) == OTHER_NAMES
