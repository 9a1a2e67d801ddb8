SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.requirements

.DEFAULT_GOAL := help
.PHONY: help run test test-all lint format benchmark lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamp holds the lock's content: a changed lock installs again, anything else does not.
$(READY): requirements.lock
	@cmp -s requirements.lock $(READY) || { \
	  test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); \
	  echo "Installing the locked packages into $(VENV) (once, about two minutes)"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; \
	}
	@cp requirements.lock $(READY)

run: $(READY) ## Train, evaluate and judge the digits recipe on this machine
	@$(BIN)/python -m pipelines run digits --local

test: $(READY) lint ## Lint, type-check and test: everything under a minute
	@$(BIN)/python -m pytest

test-all: $(READY) lint ## The same with the slow tests
	@$(BIN)/python -m pytest -m "slow or not slow"

lint: $(READY) ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY) ## Format the code and mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

benchmark: $(READY) ## Measure against the alternatives, side by side
	@$(BIN)/python -m tests.benchmarks

lock: $(READY) ## Resolve pyproject.toml anew into requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --extra dev --generate-hashes \
	  --no-emit-index-url --no-annotate --no-header --output-file requirements.lock pyproject.toml

clean: ## Remove what was built, but neither runs nor .venv
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache
