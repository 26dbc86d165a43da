"""Do a small job with a wheel, where the sources are not: what is missing in it shows here.

    python tools/try_wheel.py dist/fairflows-0.1.0-py3-none-any.whl

The wheel's own dependencies are those of the Python that runs this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

JOB = """
import pathlib, fairflows as ff
assert pathlib.Path(ff.__file__).is_relative_to(pathlib.Path.cwd()), ff.__file__
adult = ff.load_adult()
shared = ff.share(adult, quick=True)
shared.save("out")
print(shared.certificate.status, len(shared.table))
"""


def main(wheel: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*install, wheel], check=True)
        licences = list(Path(folder).glob("fairflows-*.dist-info/licenses/**/ATTRIBUTION.md"))
        assert licences, "the wheel lacks the attribution of its data"
        looks = {**os.environ, "FAIRFLOWS_LEDGER": str(Path(folder) / "looks")}  # and not those of the user
        subprocess.run([sys.executable, "-c", JOB], check=True, cwd=folder, env=looks)
        subprocess.run([sys.executable, "-m", "fairflows.cli.main", "--help"], check=True, cwd=folder, stdout=-3)


if __name__ == "__main__":
    main(*sys.argv[1:])
