SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.requirements
BEAM := $(VENV)/dataflow

.DEFAULT_GOAL := help
.PHONY: help run check quick test test-all tests test-gcs dataflow lint format benchmark lock image push clean FORCE

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

supported = $(filter 3.11.% 3.12.% 3.13.%,$(shell $(1) --version 2>/dev/null))
unsupported = $(PYTHON) is $(or $(shell $(PYTHON) --version 2>/dev/null),missing), but the project needs Python \
  3.11 to 3.13: install one and name it, such as: make $(MAKECMDGOALS) PYTHON=python3.11

# The stamp is a copy of the lock, so packages are installed again only if the lock changed. An environment of
# another Python, or one without pip, is replaced: its creation was interrupted. --no-deps: the lock is complete, and
# pip would take the newest version of a package that another one requires with extras, for which there is no hash.
$(READY): FORCE
	$(if $(and $(call supported,$(BIN)/python),$(wildcard $(VENV)/lib/*/site-packages/pip)),, \
	  $(if $(call supported,$(PYTHON)),@$(PYTHON) -m venv --clear $(VENV),$(error $(unsupported))))
	@cmp -s requirements.lock $@ || { \
	  echo "Installing the locked packages into $(VENV) (once, about two minutes)"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --no-deps --require-hashes -r requirements.lock \
	    && cp requirements.lock $@; \
	}

run: $(READY) ## Train, evaluate and judge the digits recipe on this machine
	@$(BIN)/python -m pipelines run digits --local

# An environment on top of $(VENV), whose packages take precedence.
$(BEAM)/.requirements: containers/dataflow.lock $(READY)
	@cmp -s containers/dataflow.lock $@ || { \
	  $(BIN)/python -m venv --clear --without-pip $(BEAM); \
	  $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	    > "$$($(BEAM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"; \
	  echo "Installing Apache Beam into $(BEAM) (once, about ten seconds)"; \
	  $(BIN)/python -m pip --python $(BEAM)/bin/python install --quiet --disable-pip-version-check \
	    --no-deps --require-hashes -r containers/dataflow.lock; \
	}
	@cp containers/dataflow.lock $@

dataflow: $(BEAM)/.requirements ## Set up .venv/dataflow, whose python has Apache Beam for records_engine=dataflow

check: $(READY) ## Lint, type-check and run the tests that need no TensorFlow, in half a minute on two cores
	@$(MAKE) --no-print-directory -j2 lint quick

# The files that tests/without_tensorflow.txt lists import no TensorFlow and start no training.
quick: $(READY)
	@$(BIN)/python -m pytest -q -p tests.without_tensorflow @tests/without_tensorflow.txt

test: $(READY) $(BEAM)/.requirements ## Lint, type-check and run every test but the slow ones
	@$(MAKE) --no-print-directory -j2 lint tests

test-all: $(READY) $(BEAM)/.requirements ## Lint, type-check and run every test, including the slow ones
	@$(MAKE) --no-print-directory -j2 WHICH='-m "slow or not slow"' lint tests

# Tests wait for processes that they start, so three workers keep two cores busy; an idle worker
# takes tests from another.
tests: $(READY)
	@$(BIN)/python -m pytest -n 3 --dist worksteal $(WHICH)

test-gcs: $(READY) ## Test a whole run in Cloud Storage, with and without faults, against a local server
	@$(BIN)/python -m pytest -m "slow or not slow" tests/gcs

lint: $(READY) ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY) ## Format the code and apply automatic fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

benchmark: $(READY) ## Compare with the alternatives, side by side
	@$(BIN)/python -m tests.benchmarks

lock: $(READY) ## Resolve pyproject.toml into requirements.lock and containers/*.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes \
	  --no-emit-index-url --no-annotate --no-header --no-emit-package vertex-emulator \
	  --output-file requirements.lock pyproject.toml
	@cp requirements.lock $(VENV)/whole.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev --extra dataflow \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header --no-emit-package vertex-emulator \
	  --output-file $(VENV)/whole.lock pyproject.toml
	@awk 'NR == FNR { if (/^[^ ]/) same[$$0] = 1; next } /^[^ ]/ { differs = !same[$$0] } differs' \
	  requirements.lock $(VENV)/whole.lock > containers/dataflow.lock
	@for name in build cpu gpu serving; do \
	  $(BIN)/uv pip compile --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
	    --constraint requirements.lock --generate-hashes --no-emit-index-url --no-annotate --no-header \
	    --output-file containers/$$name.lock containers/$$name.in || exit; \
	done

# docker if its server answers, else podman.
ENGINE ?= $(shell docker info >/dev/null 2>&1 && echo docker || echo podman)
IMAGE ?= vertex-tensorflow-training
TARGET ?= cpu
TAG ?= $(if $(filter cpu,$(TARGET)),latest,$(TARGET))

image: ## Build the container image: TARGET=cpu, gpu or serving, IMAGE=NAME, BACKBONES="NAME ..."
	@$(ENGINE) build --platform linux/amd64 --file containers/Dockerfile --target $(TARGET) \
	  --build-arg VERSION="$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)" \
	  --build-arg COMMIT="$$(git describe --always --match '' --abbrev=40 --dirty)" --build-arg BACKBONES="$(BACKBONES)" \
	  --tag $(IMAGE):$(TAG) $(BUILD_FLAGS) .

push: image ## Push the image and print its digest: IMAGE=REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME
	@containers/push.sh $(ENGINE) $(IMAGE):$(TAG) build/image-$(TARGET).txt

clean: ## Remove build/ and caches; keep runs and .venv
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache
