"""Make rows like those of a table with SDV 2, arfpy or an older fairflows; run by ``rows.py`` in their environment.

arfpy needs a NumPy that still has `in1d`: ``pip install arfpy "numpy<2.4" pyarrow``.

python benchmarks/rows_of_others.py {gaussian-copula,ctgan,arf,mixture} FOLDER EPOCHS
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pandas as pd


def main() -> None:
    maker, folder, epochs = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    fit, cells = (pd.read_parquet(folder / f"{name}.parquet") for name in ("fit", "cells"))
    fit_cells = fit.pop("(cell)")
    start = time.perf_counter()
    if maker == "mixture":
        drawn = by_mixture(fit, fit_cells, cells["(cell)"])
    else:
        drawn = by_forests(fit, len(cells)) if maker == "arf" else by_sdv(fit, len(cells), maker, epochs)
    (folder / "seconds").write_text(str(time.perf_counter() - start))
    drawn[list(fit)].to_parquet(folder / "drawn.parquet")


def by_mixture(fit: pd.DataFrame, fit_cells: pd.Series, cells: pd.Series) -> pd.DataFrame:
    from fairflows.encoder.rows_given_cell import RowsGivenCell

    law = RowsGivenCell.fit(fit, cells=fit_cells.to_numpy(), n_cells=int(max(fit_cells.max(), cells.max())) + 1)
    return law.sample(cells.to_numpy())


def by_sdv(fit: pd.DataFrame, n: int, maker: str, epochs: int) -> pd.DataFrame:
    from sdv.metadata import Metadata
    from sdv.single_table import CTGANSynthesizer, GaussianCopulaSynthesizer

    metadata = Metadata.detect_from_dataframes({"table": fit})
    synthesizer = (
        GaussianCopulaSynthesizer(metadata) if maker == "gaussian-copula" else CTGANSynthesizer(metadata, epochs=epochs)
    )
    synthesizer.fit({"table": fit})
    drawn = synthesizer.sample(num_rows=n)
    return drawn["table"] if isinstance(drawn, dict) else drawn


def by_forests(fit: pd.DataFrame, n: int) -> pd.DataFrame:
    from arfpy import arf

    plain = fit.copy()
    for name, column in plain.items():  # arfpy takes neither missing values nor times
        if not pd.api.types.is_numeric_dtype(column):
            plain[name] = column.astype(str).astype("category")
        else:
            plain[name] = column.fillna(column.median())
    model = arf.arf(x=plain)
    model.forde()
    return model.forge(n=n)


if __name__ == "__main__":
    main()
