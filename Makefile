# Everything a user or a developer runs; `make` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
# Torch would otherwise start a thread per core and fight the control loop for them.
export OMP_WAIT_POLICY ?= PASSIVE
export OMP_NUM_THREADS ?= 1

# make demo MODE=reflex|sync|async_naive POLICY=tiny|oracle DELAY_MS=80 DURATION=30 SEED=1 VIEW=1
MODE ?=
POLICY ?=
DELAY_MS ?=
DURATION ?=
SEED ?=
VIEW ?=
PYTEST_ARGS ?=
GPU_ARGS ?=
# of the experiments, e.g. EXPERIMENT_ARGS='--only experiments --workers 1'; where the small ones go
EXPERIMENT_ARGS ?=
SMALL ?= runs/experiments-small
# tests side by side: one worker for what runs nodes, buses or threads in real time, the others
# compute and give way (test/conftest.py); what judges a wall clock follows alone
JOBS ?= 3
# a choice of tests may leave one of the two runs without any
OR_NONE = $(if $(PYTEST_ARGS),|| [ $$? = 5 ])
HERE := not soak and not gpu and not hardware and not faults
PYTHON3 ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,python3)

.PHONY: help setup demo test numpy1 lint type docs experiments experiments-small results faults soak \
  gpu clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 19
	@echo 'demo takes MODE POLICY DELAY_MS DURATION SEED VIEW, e.g. make demo MODE=sync DELAY_MS=80'

setup:  ## virtual environment, packages, messages, entry points (repeat at will)
	@requirements/setup.sh $(VENV)

$(BIN)/reflex-ros:
	@requirements/setup.sh $(VENV)

demo: $(BIN)/reflex-ros  ## run the nodes against a simulated arm
	@$(BIN)/reflex-ros demo $(if $(MODE),--mode $(MODE)) $(if $(POLICY),--policy $(POLICY)) \
	  $(if $(DELAY_MS),--delay-ms $(DELAY_MS)) $(if $(DURATION),--duration $(DURATION)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(filter-out 0,$(VIEW)),--view)

test: lint type  ## lint, types and every test that needs no GPU, arm or hours
	$(BIN)/python -m pytest -m '$(HERE) and not wallclock' $(PYTEST_ARGS) \
	  -n $(JOBS) --dist loadfile --no-loadscope-reorder $(OR_NONE)
	$(BIN)/python -m pytest -m '$(HERE) and wallclock' $(PYTEST_ARGS) $(OR_NONE)

numpy1:  ## the pure layers under NumPy 1.26, in an environment of their own
	@test -x $(VENV)-numpy1/bin/python || $(PYTHON3) -m venv $(VENV)-numpy1
	@$(VENV)-numpy1/bin/pip install -q -r requirements/numpy1.txt
	$(VENV)-numpy1/bin/python -m pytest -q -m 'not slow' -p no:cacheprovider \
	  test/unit/core test/unit/ring test/unit/arm

lint: $(BIN)/reflex-ros  ## style
	$(BIN)/ruff check .

type: $(BIN)/reflex-ros  ## static types
	$(BIN)/mypy

docs: $(BIN)/reflex-ros  ## write the generated documents and figures
	$(BIN)/python docs/make_docs.py

experiments: $(BIN)/reflex-ros  ## all that docs/results.md is made from but the GPU, about six hours on two idle cores; resumable
	$(BIN)/python -m reflex_ros.study.rerun $(EXPERIMENT_ARGS)
	$(MAKE) results

experiments-small: $(BIN)/reflex-ros  ## every mode once, three short episodes, run anew each time
	@rm -f $(SMALL)/small/results.jsonl
	$(BIN)/reflex-ros experiment config/experiments/small/small.yaml --out $(SMALL) $(EXPERIMENT_ARGS)

results: $(BIN)/reflex-ros  ## docs/results.md and docs/results.html from stored lines
	$(BIN)/python -m reflex_ros.study.results_page

faults: $(BIN)/reflex-ros  ## every fault, kills and fuzzing; writes results/faults
	$(BIN)/python -m pytest -m 'faults and not gpu and not hardware' --timeout=0 $(PYTEST_ARGS)

soak: $(BIN)/reflex-ros  ## tests that run for minutes to hours
	$(BIN)/python -m pytest -m 'soak and not gpu and not hardware' --timeout=0 $(PYTEST_ARGS)

gpu: $(BIN)/reflex-ros  ## tests and measurements on an NVIDIA GPU, 25 minutes at most
	$(BIN)/python -m reflex_ros.study.gpu_run $(GPU_ARGS)

clean:  ## remove caches and build folders (the virtual environment and runs/ stay)
	rm -rf build install log .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -path './$(VENV)*' -prune -o -name __pycache__ -type d -exec rm -rf {} +
