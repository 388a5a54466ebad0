# Every target sets itself up: a virtual environment in .venv with the versions of constraints.txt.
# Needed beforehand: Python 3.10 or newer and make. PYTHON=... chooses the Python, VENV=... the place.

VENV ?= .venv
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.10 python; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; \
	then echo $$python; break; fi; done)

# Test workers. Two, not one per core: each compiles what it needs, until it is on disk.
JOBS ?= 2

BIN := $(VENV)/bin
# Quiet twice: errors only.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
INSTALL := $(PIP) install --constraint constraints.txt
# The project itself, without a second, unconstrained environment to build it in.
PROJECT := --no-build-isolation --editable

.DEFAULT_GOAL := help
.PHONY: help demo explore test slow lint types check format bench paper paper-quick paper-smoke clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.plain ## learn from MNIST digits, make more, compare; writes a page, out/demo.html
	@$(BIN)/dreamwarp demo --output out/demo.html

explore: $(VENV)/.explore ## play with what `make demo` learned, in the browser
	@test -f out/demo.dwm || { echo "run \`make demo\` first: it learns what is shown" >&2; exit 1; }
	@$(BIN)/dreamwarp explore out/demo.dwm mnist-small $(ARGS)

test: $(VENV)/.dev ## run the tests; ARGS="tests/space -k flow" to choose, JOBS=0 for no workers
	@$(BIN)/python -m pytest --numprocesses $(JOBS) $(ARGS)

slow: $(VENV)/.dev ## run the tests that need minutes
	@$(BIN)/python -m pytest -m slow $(ARGS)

lint: $(VENV)/.dev ## check style, formatting and which module imports which
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache --no-logo

types: $(VENV)/.dev ## check types
	@$(BIN)/mypy

check: lint types test ## what CI runs

format: $(VENV)/.dev ## put formatting and imports right
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: $(VENV)/.bench ## measure speed and accuracy, peers in the same run
	@$(BIN)/python -m benchmarks $(ARGS)

paper: $(VENV)/.dev ## run all experiments, or what is missing of them: about 25 hours on two cores
	@$(BIN)/python -m experiments.paper
	@$(BIN)/python -m experiments.few_labels
	@$(BIN)/python -m experiments.ranks
	@$(BIN)/python -m experiments.choosing
	@$(BIN)/python -m experiments.marginals
	@$(BIN)/python -m experiments.known_covariance
	@$(BIN)/python -m experiments.which_pairs
	@$(BIN)/python -m experiments.resolution
	@$(BIN)/python -m experiments.spectrum
	@$(BIN)/python -m experiments.leakage
	@$(BIN)/python -m experiments.longer
	@$(BIN)/python -m experiments.questions
	@$(BIN)/python -m experiments.deformation_size

paper-quick: $(VENV)/.dev ## the paper's table with one seed and a tenth of the samples: about two hours
	@$(BIN)/python -m experiments.paper --quick

paper-smoke: $(VENV)/.dev ## try every experiment on next to nothing
	@$(BIN)/python -m experiments.paper --smoke
	@$(BIN)/python -m experiments.few_labels --smoke
	@$(BIN)/python -m experiments.marginals --smoke
	@$(BIN)/python -m experiments.known_covariance --smoke
	@$(BIN)/python -m experiments.which_pairs --smoke
	@$(BIN)/python -m experiments.resolution --smoke
	@$(BIN)/python -m experiments.spectrum --smoke
	@$(BIN)/python -m experiments.leakage --smoke
	@$(BIN)/python -m experiments.longer --smoke
	@$(BIN)/python -m experiments.questions --smoke
	@$(BIN)/python -m experiments.deformation_size --smoke

clean: ## remove the environment, caches and output
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# What is installed so far: each stamp is younger than the files that decide on versions.

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "dreamwarp needs Python 3.10 or newer. If it is not on the" \
		"path, say where it is: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "making a virtual environment in $(VENV) ($$($(PYTHON) --version))"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.plain: $(VENV)/.made constraints.txt pyproject.toml
	@echo "installing dreamwarp (about a minute, once)"
	@$(INSTALL) hatchling
	@$(INSTALL) $(PROJECT) .
	@echo "compiling (under a minute, once)"
	@$(BIN)/dreamwarp compile
	@touch $@

$(VENV)/.explore: $(VENV)/.plain
	@echo "installing what the page needs (seconds, once)"
	@$(INSTALL) $(PROJECT) '.[explore]'
	@touch $@

$(VENV)/.dev: $(VENV)/.plain
	@echo "installing torch and the tools for tests (a few minutes, once)"
	@$(INSTALL) $(PROJECT) '.[dev,torch]'
	@# Without its dependencies, among them a torch of its own choice.
	@$(INSTALL) --no-deps torchvision
	@echo "compiling for series and volumes (a minute, once)"
	@$(BIN)/dreamwarp compile --cells 10 & $(BIN)/dreamwarp compile --cells 3x3x3 && wait
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@echo "installing the packages to compare with (once)"
	@$(INSTALL) $(PROJECT) '.[bench]'
	@touch $@
