# Needs make and Python 3.11 or newer, nothing else. Writes only below this directory, to pip's cache and to the package's own.

PYTHON ?= $(shell for name in python3.11 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

# A second thread per process only slows these small models down; caches would otherwise go to the home directory.
export OMP_NUM_THREADS := 1
export MPLCONFIGDIR := $(CURDIR)/build/cache/matplotlib
export WANDB_CACHE_DIR := $(CURDIR)/build/cache/wandb
export WANDB_CONFIG_DIR := $(CURDIR)/build/cache/wandb
export WANDB_DATA_DIR := $(CURDIR)/build/cache/wandb
export RAY_USAGE_STATS_ENABLED := 0

.PHONY: help setup demo test torture lint bench docs site sweeps lock hashes sbom audit clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/setup.stamp ## create .venv with the exact packages of a run; done again when requirements change

demo: setup ## a small federated comparison, offline, with its report
	$(BIN)/python -m fl_platform demo

test: $(VENV)/dev.stamp ## lint, then every test: what CI runs; says how long it took
	@start=$$(date +%s); $(MAKE) --no-print-directory lint \
	&& $(BIN)/python -m pytest -n 2 --dist worksteal && $(BIN)/python -m pytest -n 2 --dist worksteal tests/device; code=$$?; \
	seconds=$$(( $$(date +%s) - start )); \
	printf 'make test took %d min %02d s\n' $$(( seconds / 60 )) $$(( seconds % 60 )); exit $$code

torture: $(VENV)/dev.stamp ## kills, full disks, broken files, hostile input, many times; minutes (docs/reliability.md)
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/torture --torture

lint: $(VENV)/dev.stamp ## ruff (rules and format) and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict --num-workers 2

bench: setup ## measure the engines and the solver on this machine
	$(BIN)/python -m benchmarks

docs: $(VENV)/dev.stamp ## renew the parts of the documents that are made from the code, then build the site
	$(BIN)/python -m tools.documentation --write
	$(BIN)/python -m tools.architecture
	$(BIN)/python -m tools.site

site: $(VENV)/dev.stamp ## build the documentation as a web site, build/site/index.html
	$(BIN)/python -m tools.site

sweeps: setup ## write the YAML files of sweeps/ from the paper's definitions
	$(BIN)/python -m tools.sweeps

lock: ## resolve requirements-dev.txt afresh and write constraints.txt
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --disable-pip-version-check --requirement requirements-dev.txt
	sed '/^[^#]/d' constraints.txt > build/constraints.txt
	build/lock/bin/python -m pip freeze --all | grep -Ev '^(pip==|nvidia|cuda|triton)' | sed 's/+[a-z0-9.]*$$//' >> build/constraints.txt
	mv build/constraints.txt constraints.txt
	rm -rf build/lock

hashes: setup ## write build/requirements.hashed.txt, for pip install --require-hashes on this platform
	$(BIN)/python -m tools.hashes

sbom: setup ## write build/sbom.json, the packages of .venv as CycloneDX
	$(PYTHON) -m venv build/supply
	build/supply/bin/python -m pip install --disable-pip-version-check --quiet cyclonedx-bom==7.5.0
	build/supply/bin/cyclonedx-py environment $(BIN)/python --output-file build/sbom.json

audit: ## compare constraints.txt with the database of known vulnerabilities; fails for a package it cannot look up
	$(PYTHON) -m venv build/supply
	build/supply/bin/python -m pip install --disable-pip-version-check --quiet pip-audit==2.10.1
	build/supply/bin/pip-audit --strict --no-deps --requirement constraints.txt $(AUDIT)

clean: ## remove build products and caches; .venv and runs stay
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find fl_platform tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/setup.stamp: requirements.txt constraints.txt
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "'$(or $(PYTHON),python3)' is not Python 3.11 or newer: install it, or make PYTHON=/path/to/python3.11" >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --requirement requirements.txt
	$(BIN)/python -m fl_platform prepare
	@touch $@

$(VENV)/dev.stamp: $(VENV)/setup.stamp requirements-dev.txt
	$(PIP) --requirement requirements-dev.txt
	@touch $@
