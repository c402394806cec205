# Every target does its own set-up: Python 3.10 to 3.14 is all a machine needs.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	$$python -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null && echo $$python && break; \
	done)
BIN := .venv/bin
INSTALLED := .venv/.installed
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test chaos matrix check format docs bench soak compat lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## the flights of 2013, through a Pulsar program, on a real Kafka broker
	@$(BIN)/python examples/flights_demo.py $(ARGS)

test: $(INSTALLED) ## in some ten minutes what proves most: pure tests, and those on a broker; ARGS="-k name" goes to pytest
	@$(BIN)/python -m tests $(ARGS)

chaos: $(INSTALLED) ## tests that kill processes and brokers, and those that take long
	@$(BIN)/python -m tests chaos $(ARGS)

matrix: $(INSTALLED) ## each Python of the machine, each Kafka, each Spark; ARGS="--kafka 3.9 --spark 4.1"
	@$(BIN)/python -m tests.matrix $(ARGS)

check: $(INSTALLED) ## lint, format, types, and the site
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(MKDOCS) build --quiet

format: $(INSTALLED) ## put the code into its form
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

docs: $(INSTALLED) ## the documentation site in build/site; ARGS="serve" shows it on http://127.0.0.1:8000
	@$(MKDOCS) $(or $(ARGS),build)

bench: $(INSTALLED) ## measure, beside raw confluent-kafka and a real Pulsar; ARGS="--only produce --quick"
	@$(BIN)/python -m benchmarks $(ARGS)

compat: $(INSTALLED) ## the same scenarios on a real Pulsar and here; ARGS="--scenario 'seek.*' --html report.html"
	@$(BIN)/python -m tests.compat $(ARGS)
	@$(if $(ARGS),,$(BIN)/python -m pytest -m pulsar --require kafka tests/from_pulsar tests/compat/test_against_pulsar.py tests/compat/test_java_*.py tests/compat/test_gateway_*.py tests/clusters)

soak: $(INSTALLED) ## the long proof
	@$(BIN)/python -m pytest -s -m "soak or hypothesis" --require kafka --timeout 0 $(ARGS)

lock: $(BIN)/uv ## resolve requirements/dev.lock anew from pyproject.toml
	$(BIN)/uv pip compile --universal --python-version 3.10 --no-header --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-annotate --extra dev -o requirements/dev.lock pyproject.toml

clean: ## remove what was built; the user's cache of broker jars stays
	rm -rf .venv .matrix .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python of version 3.10 to 3.14 found: install one, or say make PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "the virtual environment failed: on Debian and Ubuntu, apt install python3-venv"; exit 1; }

$(BIN)/uv: | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.7'

$(INSTALLED): pyproject.toml requirements/dev.lock | $(BIN)/python
	@echo "installing the locked dependencies (some minutes, once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@
