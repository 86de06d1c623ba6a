# Everything sets itself up in .venv: a fresh machine needs Python 3.9 or later (3.11 is preferred), gcc and make.
#
#   make demo       a real GRPO training under capture, and its report          DEMO="--kill-rank 1" passes options on
#   make test       all tests: C engine, Python twin, real torch_npu, packaging, Ray, verl, trl, MindSpore
#   make test-all   the core tests on every Python from 3.9 to 3.13 found here
#   make check      ruff, formatting, mypy, architecture
#   make bench      the benchmarks against their budgets                         BENCH="--only range_off" passes options on
#   make clean      what was built; `make distclean` the environments too
#
# PIP_TORCH="--index-url https://download.pytorch.org/whl/cpu" keeps pip from fetching a CUDA build of torch.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PYTHON := $(VENV)/bin/python
TORCH_VERSION := 2.13.0
PIP_TORCH ?=
PIP := $(PYTHON) -m pip --disable-pip-version-check --quiet

# With torch_npu installed and no CANN, a plain `import torch` fails unless torch is told not to load its plug-ins.
export TORCH_DEVICE_BACKEND_AUTOLOAD := 0
export PIP_TORCH

.PHONY: help demo test test-all test-packaging check readme-table bench clean distclean setup setup-torch setup-frameworks

help:
	@sed -n 's/^# \{0,1\}//; 3,8p' Makefile

$(VENV)/.made:
	@python=$$(.ci/find-python) && echo "making $(VENV) with $$python" && "$$python" -m venv $(VENV)
	@$(PIP) install --upgrade pip "setuptools>=77" wheel
	@touch $@

# A stale extension must not outlive a failed build, which is no error (it is optional).
$(VENV)/.installed: $(VENV)/.made pyproject.toml setup.py mstxkit/bootstrap/mstxkit.pth $(wildcard mstxkit/_native/*.[ch])
	@echo "installing mstxkit and its tools"
	@rm -f mstxkit/_native/hot.*.so
	@PYTHONWARNINGS=ignore $(PIP) install --no-build-isolation --editable '.[test,dev]'
	@ls mstxkit/_native/hot.*.so >/dev/null 2>&1 || echo "the C engine could not be built: mstxkit runs on its Python twin"
	@touch $@

$(VENV)/.torch-$(TORCH_VERSION): $(VENV)/.made
	@echo "installing torch $(TORCH_VERSION) and torch_npu $(TORCH_VERSION)"
	@$(PIP) install $(PIP_TORCH) 'torch==$(TORCH_VERSION)' pyyaml numpy
	@$(PIP) install --no-deps 'torch_npu==$(TORCH_VERSION)' \
	  || echo "torch_npu $(TORCH_VERSION) is not to be had for this platform: its tests will be left out"
	@touch $@

setup: $(VENV)/.installed
setup-torch: $(VENV)/.installed $(VENV)/.torch-$(TORCH_VERSION)

# Ray, verl, trl and transformers on Python 3.11, an old Ray, and MindSpore: `make test` makes them too.
setup-frameworks: $(VENV)/.made
	@$(PYTHON) .ci/environments.py frameworks ray-2.42.1 mindspore

demo: setup-torch
	@$(VENV)/bin/mstxkit demo $(DEMO)

test: setup-torch
	@$(PYTHON) .ci/suite.py test

test-packaging: setup
	@$(PYTHON) -m pytest -m wheel

test-all: setup
	@$(PYTHON) .ci/suite.py test-all

check: setup-torch
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy mstxkit $(wildcard tests/typing)
	$(PYTHON) -m pytest -q tests/test_architecture.py

# The README's support table, from the recorded surfaces and the patch files; a test fails while it is stale.
readme-table: setup
	@PYTHONPATH=.:tests $(PYTHON) tests/cli/readme_table.py

bench: setup-torch
	@$(PYTHON) -m benchmarks --check $(BENCH)

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f mstxkit/_native/*.so $(VENV)/.installed .venvs/*/.installed
	find mstxkit tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	rm -rf $(VENV) .venvs
