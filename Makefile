# Everything runs in a virtual environment of its own; `make` installs what it needs.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TORCH  := $(shell sed -n 's/^torch==/torch==/p' constraints.txt)

# Programs are measured and tested as users have them: compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-long test-frameworks bench lint format screenshots clean help

help:
	@echo "make demo              set everything up and judge the bundled digits project"
	@echo "make test              lint, types and tests (minutes)"
	@echo "make test-long         the torture runs too"
	@echo "make test-frameworks   checkpoints written by the real frameworks, where installed"
	@echo "make screenshots       the README's pictures again, from the recorded sessions"
	@echo "make bench             costs as ratios, measured interleaved in one run"

# torch first and pinned: a later range then finds it installed and downloads no other build.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

# On a terminal the guided trial, elsewhere (a log, a pipe) its account.
demo: $(STAMP)
	@if [ -t 0 ] && [ -t 1 ]; then $(BIN)/amptui run sample_projects/digits/amptui.yaml; \
	else $(BIN)/amptui check sample_projects/digits/amptui.yaml; fi

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not long and not frameworks and not gpu"

test-long: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not frameworks and not gpu" --timeout 3600

test-frameworks: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m frameworks --timeout 900

bench: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.bench

# checkpoints.py and make.py need no torch; check.py runs the digits sample.
screenshots: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python screenshots/make.py
	OMP_NUM_THREADS=1 $(BIN)/python screenshots/checkpoints.py
	OMP_NUM_THREADS=1 $(BIN)/python screenshots/check.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
