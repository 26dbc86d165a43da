"""Count the words of the docs, and measure how easy their prose is to read (Flesch; higher is easier).

    pip install 'fairflows[words]'
    python tools/reading_ease.py [--before FOLDER] [--limit 26000] [--page-limit 2500]

Code, tables, formulas and links' addresses are no prose. Words are counted with code and tables: what stands between
blanks and has a letter or digit. Outputs that `tools/gallery.py` stored are not counted. With `--before` a second
checkout is measured beside this one. The exit code is 1 above a limit.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SKIPPED = {"changelog.md", "contributing.md"}  # they include pages of the repository

OUTPUT = re.compile(r"<!-- output -->.*?<!-- end of output -->", flags=re.DOTALL)


def pages(root: Path) -> dict[str, str]:
    """Return the text of the README and of every page of the docs, by its path."""
    found = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return {
        page.relative_to(root).as_posix(): OUTPUT.sub("", page.read_text("utf-8"))
        for page in found
        if page.name not in SKIPPED
    }


def prose(text: str) -> str:
    """Return the sentences of a page: without code, tables, headings, quotes, addresses and marks."""
    text = re.sub(r"^(```.*?^```|\$\$.*?^\$\$)", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(\||#|>|:::|\s*!\[).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`|\$[^$]+\$", "it", text).replace("*", "")


def is_word(part: str) -> bool:
    """Return whether it has a letter or digit: a mark between columns of a table is no word."""
    return any(map(str.isalnum, part))


def measured(root: Path) -> tuple[dict[str, int], float, float]:
    """Return the words of each page, the reading ease of all prose, and the mean number of words of a sentence."""
    import textstat

    texts = pages(root)
    everything = "\n\n".join(prose(text) for text in texts.values())
    ease = textstat.flesch_reading_ease(everything)
    length = textstat.lexicon_count(everything) / textstat.sentence_count(everything)
    return {name: sum(map(is_word, text.split())) for name, text in texts.items()}, ease, length


def main() -> int:
    """Print the measures; return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--limit", type=int, default=26_000)
    parser.add_argument("--page-limit", type=int, default=2_500)
    arguments = parser.parse_args()
    for name, root in {"before": arguments.before, "now": ROOT}.items():
        if root is None:
            continue
        words, ease, length = measured(root)
        longest = max(words, key=words.__getitem__)
        print(
            f"{name:<7} {sum(words.values()):>6,} words on {len(words)} pages, the longest {longest} with "
            f"{words[longest]:,}; reading ease {ease:.1f}; {length:.1f} words per sentence"
        )
    return int(sum(words.values()) > arguments.limit or words[longest] > arguments.page_limit)


if __name__ == "__main__":
    sys.exit(main())
