"""Make rows like those of a table with SDV 2 or arfpy; run by ``rows.py`` in an environment that has them.

arfpy needs a NumPy that still has `in1d`: ``pip install arfpy "numpy<2.4" pyarrow``.

python benchmarks/rows_of_others.py {gaussian-copula,ctgan,arf} FOLDER ROWS EPOCHS
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd


def main() -> None:
    maker, folder, n, epochs = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    fit = pd.read_parquet(folder / "fit.parquet")
    drawn = by_forests(fit, n) if maker == "arf" else by_sdv(fit, n, maker, epochs)
    drawn[list(fit)].to_parquet(folder / "drawn.parquet")


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
