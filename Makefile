# Everything sets itself up in .venv and .venvs: a fresh machine needs Python 3.9 or later (3.11 is preferred), gcc and make.
#
#   make demo       a real GRPO training under capture, and who is slow in it   DEMO="--kill-rank 1" passes options on
#   make test       all tests: C engine, Python twin, real torch_npu, packaging, Ray, verl, trl, MindSpore
#   make quick      under a minute: the tests of PART=store and of what depends on it
#   make soak       what is long or random, in full: an hour or more
#   make test-all   the core tests on every Python from 3.9 to 3.13 found here
#   make check      ruff, formatting, mypy, architecture
#   make bench      the benchmarks against their budgets                        BENCH="--only range_off" passes options on
#   make locks      .ci/locks from what is installed now
#   make real-files real profiles of others against their own figures, fetched by commit    REAL_FILES=FOLDER: from clones
#   make wheels     sdist and wheels into dist, each installed and tested: CPython 3.9 on, x86-64 and aarch64
#   make nomem      the C engine with each of its allocations failing in turn
#   make asan       the engine's and the recorder's tests under address and undefined-behaviour sanitizers
#   make test-aarch64   marking, recorder, reading on aarch64, in qemu-user: half an hour, Debian's packages by root
#   make clean      what was built; `make distclean` the environments too
#
# MSTXKIT_TEST_SEED=20261122 repeats the random tests of that day. Environments are made from the lists in .ci/locks.
# PIP_TORCH="--index-url https://download.pytorch.org/whl/cpu" keeps pip from fetching a CUDA build of torch.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PYTHON := $(VENV)/bin/python
PIP_TORCH ?=
SET_UP = python=$$([ -x $(PYTHON) ] && echo $(PYTHON) || .ci/find-python) && "$$python" .ci/environments.py

# With torch_npu installed and no CANN, a plain `import torch` fails unless torch is told not to load its plug-ins.
export TORCH_DEVICE_BACKEND_AUTOLOAD := 0
export PIP_TORCH

.PHONY: help setup setup-frameworks demo test quick soak test-packaging test-all test-aarch64 check readme-tables recording \
        bench locks real-files wheels clean nomem asan distclean

help:
	@sed -n 's/^# \{0,1\}//; 3,16p' Makefile

setup:
	@$(SET_UP) main

# Ray, verl, trl and transformers on Python 3.11, an old Ray, and MindSpore.
setup-frameworks:
	@$(SET_UP) all

# An environment of its own, with torch and what reports need: nothing else is fetched for it.
demo:
	@$(SET_UP) demo && .venvs/demo/bin/mstxkit demo $(DEMO)

# All environments first: each that is made builds the C engine anew, below the tests of the others. One that cannot be
# made fails in the table, after the tests of the others.
test soak:
	-@$(SET_UP) all
	@$(PYTHON) .ci/suite.py $@

quick: setup
	@$(PYTHON) .ci/quick.py $(PART)

test-packaging: setup
	@$(PYTHON) -m pytest -m wheel

test-all: setup
	@$(PYTHON) .ci/suite.py test-all

check: setup
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy mstxkit $(wildcard tests/typing)
	$(PYTHON) -m pytest -q tests/test_architecture.py tests/test_budgets.py

# The guide's pictures: `mstxkit top`, of a real job, half a minute; and the page. Look at them before you commit them.
recording: setup
	PYTHONPATH=.:tests $(PYTHON) tests/builders/top_recording.py
	PYTHONPATH=.:tests $(PYTHON) tests/builders/report_picture.py

# The tables of the README and of docs/guide/autopatch.md; a test fails while one is stale.
readme-tables: setup
	@PYTHONPATH=.:tests $(PYTHON) tests/builders/readme_tables.py

bench: setup
	@$(PYTHON) -m benchmarks --check $(BENCH)

locks:
	@$(PYTHON) .ci/environments.py --lock

# What they say is written into docs/guide/import.md; nothing of them is committed.
real-files: setup
	@$(PYTHON) .ci/real_files.py
	@SOAK_TESTS=1 REAL_FILES_TABLE=write $(PYTHON) -m pytest -q -n 0 tests/reading/importers/test_real_files.py

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f mstxkit/engine/native/*.so $(VENV)/.mstxkit .venvs/*/.mstxkit
	find mstxkit tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	rm -rf $(VENV) .venvs

wheels: setup
	@$(PYTHON) .ci/wheels.py

nomem: setup
	@MSTXKIT_NATIVE=1 $(PYTHON) -m pytest -q -m nomem tests/engine/test_nomem.py

test-aarch64: setup
	@$(PYTHON) .ci/aarch64.py

# A copy of the package and its tests in a folder of its own: the engine that everybody runs on stays as it is.
asan: setup
	@$(PYTHON) .ci/sanitized.py
