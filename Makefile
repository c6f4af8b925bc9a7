# Everything runs in .venv, which is made on first use; a stamp file says what is installed in it.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3 python,\
	$(shell $(name) -c 'import sys, ensurepip; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))
BIN := .venv/bin
RUN := .venv/.run
DEV := .venv/.dev
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Not for us: 9xx, a checkpoint on every path; 114, a list of what may be started; 124, async without
# an await, which an interface may ask of one implementation.
ASYNC_OFF := ASYNC9,ASYNC114,ASYNC124
# Extra arguments: make test ARGS="-k resume", make serve ARGS="--port 8080", make bench ARGS=--full
ARGS ?=
# Two workers and more halve the wait; the conformance record is kept by the main process.
# Tests marked alone measure delays; they come after the others, one at a time. With ARGS, there may be
# tests for one of the two runs only: pytest then exits with 5 for the other.
PARALLEL ?= --numprocesses auto --dist worksteal

.PHONY: help
help: ## List the targets
	@while IFS= read -r line; do \
		if [[ $$line =~ ^([a-z-]+):.*\#\#\ (.*) ]]; then printf '  %-12s %s\n' "$${BASH_REMATCH[@]:1}"; fi; \
	done < $(firstword $(MAKEFILE_LIST))
	@echo 'serve, test, bench, soak, agents and conformance take ARGS="…": make test ARGS="-k resume"'

.PHONY: serve
serve: $(RUN) ## Start a runtime on ws://127.0.0.1:7777/arcp with the demo agents
	@exec $(BIN)/python -m arcp_trio serve $(ARGS)

.PHONY: test
test: $(DEV) ## Run the test suite
	@$(BIN)/python -m pytest -m "not soak and not alone" $(PARALLEL) $(ARGS) || test $$? -eq 5
	@$(BIN)/python -m pytest -m "alone and not soak" $(ARGS) || test $$? -eq 5

.PHONY: check
check: lint types imports test ## Run every check: lint, format, types, import contracts, tests

.PHONY: lint
lint: $(DEV) ## Run the linters, the format check, and the check of names and prose
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python .ci/house.py
	@.ci/browser lint
	@$(BIN)/flake8 --select=ASYNC --disable=$(ASYNC_OFF) --exclude=.venv .

.PHONY: types
types: $(DEV) ## Run the type checkers, in strict mode
	@$(BIN)/mypy
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@.ci/browser types

.PHONY: imports
imports: $(DEV) ## Check that imports point one way
	@$(BIN)/lint-imports --no-logo

.PHONY: format
format: $(DEV) ## Format the code and mend what the linter can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@.ci/browser format

.PHONY: bench
bench: $(DEV) ## Measure, beside the vendor's Python SDK
	@$(BIN)/python -m bench $(ARGS)

.PHONY: conformance
conformance: $(DEV) ## Run the tests of the specification's clauses and write docs/conformance.md
	@$(BIN)/python -m pytest -m "spec and not soak" $(PARALLEL) --conformance-report docs/conformance.md $(ARGS)

.PHONY: soak
soak: $(DEV) ## Run the long tests
	@$(BIN)/python -m pytest -m soak --timeout 3600 $(ARGS)

.PHONY: agents
agents: $(DEV) ## Install the coding agents of docs/agents.md, 2 GB, and test with them
	@.ci/agents all
	@$(BIN)/python -m pytest tests/agents $(ARGS)

.PHONY: clean
clean: ## Remove .venv and everything else that can be made again
	rm -rf .venv dist build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer (with venv) found; say which: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv

$(RUN): pyproject.toml | $(BIN)/python
	@echo "installing the package"
	@$(PIP) --editable .
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	@echo "installing the package and the tools of its checks"
	@$(PIP) --editable ".[dev]"
	@touch $@ $(RUN)
