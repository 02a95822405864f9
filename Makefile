# Two commands matter: `make demo` and `make test`. Everything they need they install or build themselves; what is slow
# (Kubernetes from source, torch) is kept in the user's cache, $ELASTICJOB_CACHE or ~/.cache/elasticjob.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The system's Python is compiled with optimizations, as that of the image is; one of a version manager mostly is not.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  && echo /usr/bin/python3 || echo python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SOURCES := events rendezvous operator tests examples
# Tests wait as much as they compute.
WORKERS = $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN) )))

# Compiled once, not by each of the hundreds of processes that the tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test lint test-unit test-simulation test-integration test-torch test-e2e bench cluster-up cluster-down prepare format lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## Train a real job on a real Kubernetes (yours, or one that is built here) and show it
	@$(BIN)/python -m tests.demo

test: lint test-unit test-simulation prepare test-integration test-e2e ## Run every check and every test

lint: $(READY) ## Format, lint, types, and the arrows between the rooms
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy $(SOURCES)
	@$(BIN)/lint-imports

format: $(READY) ## Format the sources
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

test-unit: $(READY) ## Tests that need nothing but Python
	@$(BIN)/python -m pytest tests/unit -q -n $(WORKERS)

test-simulation: $(READY) ## Random schedules in virtual time
	@$(BIN)/python -m pytest tests/simulation -q -n auto

prepare: $(READY) ## Build and cache the slow parts: Kubernetes, images, torch
	@$(BIN)/python -m tests.cluster prepare

test-integration: $(READY) ## Tests against a real API server and real etcd
	@$(BIN)/python -m pytest tests/integration -q -n 3 --dist loadgroup

test-torch: $(READY) ## torchrun of every release of torch that is supported (each is 6 GB)
	@for release in 2.6.0 2.9.1 2.15.0; do \
	  ELASTICJOB_TEST_TORCH=$$release $(BIN)/python -m pytest tests/integration/rendezvous/test_torchrun.py -q; \
	done

test-e2e: $(READY) ## Tests on a real cluster with real nodes, Helm and torchrun
	@$(BIN)/python -m pytest tests/e2e -q

bench: $(READY) ## Measure against the peers, into build/bench.json
	@$(BIN)/python -m tests.bench

cluster-up: $(READY) ## Start the test cluster with two nodes
	@$(BIN)/python -m tests.cluster up --level full --nodes 2

cluster-down: $(READY) ## Stop the test cluster and leave nothing behind
	@$(BIN)/python -m tests.cluster down

lock: $(READY) ## Pin the newest versions within the ranges of pyproject.toml
	@$(BIN)/pip install -q uv
	@$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --all-extras --no-emit-index-url --no-header \
	  pyproject.toml -o requirements.lock

clean: ## Remove what was made in this folder (the cache stays)
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "elasticjob needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1). Set PYTHON=/path/to/python3.11." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -qy python3-venv; } || \
	  { echo "Python's venv module is missing: install the package python3-venv." >&2; exit 1; }
	@echo "Installing the project and its tools into $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)  # one that another Python has made cannot be used
	@$(BIN)/pip install -q --disable-pip-version-check -r requirements.lock
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@
