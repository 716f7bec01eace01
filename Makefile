# Each target makes what it needs. On a fresh machine python3 (3.11 or newer) and make are enough.

VENV := .venv
PY := $(VENV)/bin/python
# A folder that was moved or copied needs a new install: the editable one names the folder.
HERE := $(shell pwd | cksum | cut -d' ' -f1)
# The first of these that is new enough; `make test PYTHON=python3.13` chooses another.
NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && echo $$p && break; done)
WORKERS ?= auto
# A virtual environment whose Python is gone is of no use.
BROKEN := $(shell test ! -e $(VENV) || $(PY) -c '' 2>/dev/null || rm -rf $(VENV))

.DEFAULT_GOAL := help
.PHONY: help demo test bench bench-peers lint clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1 - /p' Makefile

demo: $(VENV)/demo-$(HERE)  ## train on handwritten digits: demo-output/digits.png
	$(PY) -m numbagrad demo

test: $(VENV)/test-$(HERE)  ## run the whole test suite, lint and types included
	$(PY) -m pytest -n $(WORKERS) --maxprocesses 8

bench: $(VENV)/bench-$(HERE)  ## time ours and whichever peers are installed; BENCH='-k tanh' for a part
	$(PY) -m benchmarks $(BENCH)

bench-peers: $(VENV)/bench-$(HERE)  ## install the peers that `make bench` compares with (torch: up to several GB)
	for peer in torch jax autograd; do \
		$(PY) -m pip install $$peer || echo "make: $$peer could not be installed: the benchmarks leave it out"; done

lint: $(VENV)/test-$(HERE)  ## ruff, mypy and the direction of imports
	$(PY) scripts/check

clean:  ## remove the virtual environment and everything else that was made
	rm -rf $(VENV) build dist demo-output *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@test -n '$(PYTHON)' || { \
		echo 'make: no Python of 3.11 or newer with venv found (on Debian: apt install python3-venv);' >&2; \
		echo 'make: name one with PYTHON=/path/to/python3' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo-$(HERE): EXTRAS = examples
$(VENV)/test-$(HERE): EXTRAS = test,examples
$(VENV)/bench-$(HERE): EXTRAS = test,examples

# The stamp comes last, so an install that was broken off starts again.
$(VENV)/demo-$(HERE) $(VENV)/test-$(HERE) $(VENV)/bench-$(HERE): pyproject.toml | $(PY)
	@echo 'installing numbagrad[$(EXTRAS)] into $(VENV), once'
	@$(PY) -m pip install --quiet -e '.[$(EXTRAS)]'
	@touch $@
