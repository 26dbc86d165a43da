"""Erase a group linearly with LEACE (concept-erasure); run by ``board_instead.py`` in the environment "groups".

python benchmarks/board_erase.py FOLDER

Reads FOLDER/fit.parquet and FOLDER/other.parquet, whose column "(group)" is 0 or 1, and writes the erased columns to
changed-fit.parquet and changed-other.parquet. The eraser learns from the first part alone, and needs no group later.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import torch

GROUP = "(group)"


def main() -> None:
    from concept_erasure import LeaceEraser

    folder = Path(sys.argv[1])
    parts = {part: pd.read_parquet(folder / f"{part}.parquet") for part in ("fit", "other")}
    x = {part: torch.tensor(rows.drop(columns=GROUP).to_numpy(dtype=float)) for part, rows in parts.items()}
    eraser = LeaceEraser.fit(x["fit"], torch.tensor(parts["fit"][GROUP].to_numpy(dtype=float)))
    for part, rows in parts.items():
        names = rows.columns.drop(GROUP)
        pd.DataFrame(eraser(x[part]).numpy(), columns=names).to_parquet(folder / f"changed-{part}.parquet")


if __name__ == "__main__":
    main()
