# Bare `make` prints these lines.
#
# make env      .venv with the exact versions of requirements.lock (1.8 GB), renewed when the lock changes
# make study    the laptop study of config.yaml on 2 cores (CORES=8 for more)
# make smoke    nearly the same rules on a tiny target, 2 minutes, in a temporary folder, or in FOLDER=... which is kept
# make figures  tables, figures and page again from the stored replays
# make test     the test suite
# make lint     style, types, workflow lint
# make clean    removes results and logs; keeps .venv, reports and fetched assets

CORES ?= 2
PYTHON ?= python3
SHELL := /bin/bash
BIN := $(CURDIR)/.venv/bin
STAMP := .venv/.installed
SMOKE := --replace-workflow-config --configfile workflow/studies/smoke.yaml
export PATH := $(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help env study figures smoke test lint clean

help:
	@sed -n 's/^# \(make \)/\1/p' $(MAKEFILE_LIST)

env: $(STAMP)

# The stamp is written last, so an interrupted installation starts afresh.
$(STAMP): requirements.lock pyproject.toml
	rm -f $@
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

study: env
	snakemake --cores $(CORES) all

figures: env
	snakemake --cores $(CORES) figures

# A temporary folder goes when the run is over; its report is worth FOLDER=...
smoke: env
ifdef FOLDER
	snakemake all --cores $(CORES) --directory "$(FOLDER)" $(SMOKE)
else
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	snakemake all --cores $(CORES) --directory "$$folder" $(SMOKE) && \
	echo "That folder is removed now; to keep it: make smoke FOLDER=/tmp/smoke"
endif

test: env
	pytest -n $(CORES)

lint: env
	ruff check
	ruff format --check
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

clean:
	rm -rf results logs .snakemake
