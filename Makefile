# `make demo` and `make test` are all the set-up there is: each builds .venv when it is missing or out of date.
PYTHON ?= python3
BIN := .venv/bin
# For a GPU: make demo TORCH_INDEX=https://download.pytorch.org/whl/cu128
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

PYTEST = $(BIN)/pytest -q -n 2 --dist loadfile
# Both test processes would otherwise compile all test files at every run.
unexport PYTHONDONTWRITEBYTECODE
# Tests whose numbers pass through matrix products.
KERNEL_TESTS := tests/contracts/test_bijections.py tests/contracts/test_densities.py tests/encoder/test_flow.py \
	tests/encoder/test_matching.py tests/training/test_training.py tests/test_storage.py tests/stream

.PHONY: demo test test-all test-kernels test-engines test-standards test-lowest test-newest test-mutants constraints-lowest fast-tests lint docs gallery words wheel clean

demo: .venv/installed
	$(BIN)/fairflows demo

# Types are checked while the tests run.
test: .venv/installed
	@$(MAKE) --no-print-directory --jobs 2 lint fast-tests

fast-tests: .venv/installed
	$(PYTEST)

test-all: .venv/installed lint
	$(PYTEST) -m "slow or not slow"

# Stand-ins for other processors: plain kernels and two threads, then the kernels of old processors.
test-kernels: .venv/installed
	ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=2 LOKY_MAX_CPU_COUNT=2 $(PYTEST) $(KERNEL_TESTS)
	DNNL_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Nehalem $(PYTEST) $(KERNEL_TESTS)

# Ray, Spark (which needs Java), Dask and DuckDB: the recipes of docs/how-to/engines.md, and folders on Ray.
test-engines: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[engines]"
	$(BIN)/pytest -q tests/engines

# Other people's tools read, sign and verify what `share` writes: in-toto, Croissant, SPDX.
test-standards: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[standards]"
	$(BIN)/pytest -q tests/standards

# Changes the core at random places, and asks whether tests notice: some minutes to prepare, then about ten seconds each.
test-mutants: .venv/installed
	$(BIN)/python tools/mutants.py

# The lowest versions that pyproject.toml allows; most of them have wheels for Python 3.11 and 3.12 only.
test-lowest: BIN := .venv-lowest/bin
test-lowest: .venv-lowest/installed
	$(PYTEST)

# The newest versions of everything, as a user gets them who installs today.
test-newest: BIN := .venv-newest/bin
test-newest: .venv-newest/installed
	$(PYTEST)

# After a floor in pyproject.toml has changed. What these packages need in turn is as it was soon after the youngest of
# them came out: beside later releases, old ones give warnings. On arm64 torch asks for no CUDA packages.
constraints-lowest: .venv/installed
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --extra test --resolution lowest-direct \
		--exclude-newer 2025-10-01 --exclude-newer-package duckdb=2026-06-01 \
		--exclude-newer-package jupyter-core=2026-06-01 --exclude-newer-package scikit-learn=2026-02-01 \
		--python-version 3.11 --python-platform aarch64-unknown-linux-gnu --no-annotate \
		--custom-compile-command "make constraints-lowest" --output-file constraints-lowest.txt

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

# Runs the pages of docs/gallery and writes what they give into them, for readers on GitHub.
gallery: .venv/installed
	$(BIN)/python tools/gallery.py

# Spelling, words per page, and how easy the prose is to read.
words: .venv/installed
	$(BIN)/pip install --quiet --editable ".[words]"
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs src benchmarks tools
	$(BIN)/python tools/reading_ease.py

# Builds the wheel, and does a small job with it in a folder where the sources are not.
wheel: .venv/installed
	rm -rf dist
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	$(BIN)/python tools/try_wheel.py dist/fairflows-*.whl

# torch first and alone: its pinned build must be there before anything that depends on it is resolved. The CPU build
# lies in an index of its own, which is asked where it can be reached; PyPI's build brings gigabytes of CUDA.
.venv/installed: constraints.txt
.venv-lowest/installed: constraints-lowest.txt
.venv/installed .venv-lowest/installed .venv-newest/installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	index=$$($(@D)/bin/python -c "import urllib.request as web; web.urlopen('$(TORCH_INDEX)/torch/', timeout=5); \
		print('--extra-index-url $(TORCH_INDEX)')" 2>/dev/null || true); \
	$(@D)/bin/pip install --quiet $(addprefix --constraint ,$(filter constraints%,$^)) $$index torch
	$(@D)/bin/pip install --quiet $(addprefix --constraint ,$(filter constraints%,$^)) --editable ".[test]"
	touch $@

clean:
	rm -rf .venv .venv-lowest .venv-newest dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis
