"""Make rows like those of a table with SDV 2, arfpy or an older fairflows; run by ``rows.py`` in their environment.

arfpy needs a NumPy that still has `in1d`, and a pandas that finds columns by position:
``pip install arfpy "numpy<2.4" "pandas<3" pyarrow``.

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

    # SDV fails on a category without rows, and takes times for nanoseconds.
    types = {"category": object, "datetime": "datetime64[ns]"}
    fit = fit.astype({name: new for old, new in types.items() for name in fit.select_dtypes(old)})
    metadata = Metadata.detect_from_dataframes({"table": fit})
    for name, column in metadata.to_dict()["tables"]["table"]["columns"].items():
        if column.get("pii"):  # SDV would invent other values, such as states of other countries
            metadata.update_column(table_name="table", column_name=name, sdtype="categorical")
    synthesizer = (
        GaussianCopulaSynthesizer(metadata) if maker == "gaussian-copula" else CTGANSynthesizer(metadata, epochs=epochs)
    )
    synthesizer.fit({"table": fit})
    drawn = synthesizer.sample(num_rows=n)
    return drawn["table"] if isinstance(drawn, dict) else drawn


def by_forests(fit: pd.DataFrame, n: int) -> pd.DataFrame:
    from arfpy import arf

    # arfpy takes no missing numbers, and draws every number with all decimals.
    numbers = [n for n, c in fit.items() if pd.api.types.is_numeric_dtype(c) and not pd.api.types.is_bool_dtype(c)]
    gaps = {name: f"{name} is missing" for name in numbers if fit[name].isna().any()}
    plain = fit.astype(dict.fromkeys(fit.columns.difference(numbers), "category"))
    plain[numbers] = fit[numbers].fillna(fit[numbers].median()).astype(float)
    model = arf.arf(x=plain.assign(**{gap: fit[name].isna().astype("category") for name, gap in gaps.items()}))
    model.forde()
    drawn = model.forge(n=n)
    for name in numbers:
        if (plain[name] == plain[name].round()).all():
            drawn[name] = drawn[name].round()
    for name, gap in gaps.items():
        drawn[name] = drawn[name].mask(drawn[gap].astype(bool))
    return drawn[list(fit)].astype(fit.dtypes.to_dict())


if __name__ == "__main__":
    main()
