# `make demo` and `make test` are all the set-up there is: each builds .venv when it is missing or out of date.
PYTHON ?= python3
BIN := .venv/bin
# For a GPU: make demo TORCH_INDEX=https://download.pytorch.org/whl/cu128
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

PYTEST := $(BIN)/pytest -q -n 2 --dist worksteal
# Both test processes would otherwise compile all test files at every run.
unexport PYTHONDONTWRITEBYTECODE
# Tests whose numbers pass through matrix products.
KERNEL_TESTS := tests/contracts/test_bijections.py tests/contracts/test_densities.py tests/encoder/test_flow.py \
	tests/encoder/test_matching.py tests/training/test_training.py tests/storage tests/stream

.PHONY: demo test test-all test-kernels test-engines fast-tests lint docs wheel clean

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
	ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=2 $(PYTEST) $(KERNEL_TESTS)
	DNNL_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Nehalem $(PYTEST) $(KERNEL_TESTS)

# Ray, Spark (which needs Java), Dask and DuckDB: the recipes of docs/how-to/engines.md, and folders on Ray.
test-engines: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[engines]"
	$(BIN)/pytest -q tests/engines

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[docs]"
	$(BIN)/mkdocs build --strict --quiet --site-dir site

# Builds the wheel, and does a small job with it in a folder where the sources are not.
wheel: .venv/installed
	rm -rf dist
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	$(BIN)/python tools/try_wheel.py dist/fairflows-*.whl

# torch first and alone: its pinned build must be there before anything that depends on it is resolved. The CPU build
# lies in an index of its own, which is asked where it can be reached; PyPI's build brings gigabytes of CUDA.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	index=$$($(BIN)/python -c "import urllib.request as web; web.urlopen('$(TORCH_INDEX)/torch/', timeout=5); \
		print('--extra-index-url $(TORCH_INDEX)')" 2>/dev/null || true); \
	$(BIN)/pip install --quiet --constraint constraints.txt $$index torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@

clean:
	rm -rf .venv dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis
