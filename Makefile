# make env      .venv with the exact versions of requirements.lock, renewed when the lock changes
# make study    the laptop study of config.yaml on 2 cores (CORES=8 for more)
# make smoke    the same rules on a tiny target, under 2 minutes, in a temporary folder
# make test     the test suite;  make lint: style, types, workflow lint
# make figures  tables, figures and page again from the stored replays
# make clean    removes results, reports of this machine, logs; keeps .venv and fetched assets

CORES ?= 2
PYTHON ?= python3
SHELL := /bin/bash
BIN := $(CURDIR)/.venv/bin
STAMP := .venv/.installed
export PATH := $(BIN):$(PATH)

.PHONY: env study figures smoke test lint clean

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

smoke: env
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	snakemake all --cores $(CORES) --directory "$$folder" --replace-workflow-config --configfile workflow/studies/smoke.yaml

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
