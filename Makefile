# `make demo` and `make test` are all the set-up there is: each builds .venv when it is missing or out of date.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all lint clean

demo: .venv/installed
	$(BIN)/fairflows demo

test: .venv/installed lint
	$(BIN)/pytest -q -n 2

test-all: .venv/installed lint
	$(BIN)/pytest -q -n 2 -m "slow or not slow"

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# torch first and alone: its pinned CPU build must be there before anything that depends on it is resolved.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache .hypothesis
