.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
MINUTES ?= 30 # of `make soak`
WORKERS ?= auto # processes of `make test`; auto: twice the processors; 0: one, without xdist
RUN := $(BIN)/python -m tests.runner.run # pytest, and the run ends whatever happens

.PHONY: help setup demo demo-tenants demo-cluster up down test test-change test-long mutants soak test-kernel test-gpu test-bare test-cgroup2 budget check bench chaos docs docs-site screenshots wheel deb lock audit sbom clean

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: ## Make .venv and install what Mesos needs; quick when nothing changed
	@PYTHON=$(PYTHON) scripts/setup.sh

demo: setup ## Start a real Mesos with simulated GPUs, run jobs of every kind, check, stop
	@$(BIN)/mesos-gpu demo

demo-tenants: setup ## The story of several teams on one pool: borrow, give back, budgets, accounts
	@$(BIN)/mesos-gpu demo --tenants

demo-cluster: setup ## Masters, ZooKeeper, schedulers, agents on hosts of their own; the leader of each is killed; needs root
	@$(BIN)/mesos-gpu demo --cluster

up: setup ## Start the platform on this machine and leave it running
	@$(BIN)/mesos-gpu up --detach

down: setup ## Stop it
	@$(BIN)/mesos-gpu down --yes

test: setup ## The tests that decide whether a change lands; installs what they need
	@scripts/install_test_tools.sh
	@$(RUN) --again --budget --changed -n $(WORKERS) tests

test-change: setup ## The tests of documents, packages, upgrades and the like whose files have changed since they passed
	@scripts/install_test_tools.sh
	@$(RUN) --again --changed -n $(WORKERS) -m "on_change and not long" tests

test-long: setup ## All seeds, kills, hosts and looks; a soak; mutants; the tests of `make test` beside two busy processes
	@scripts/install_test_tools.sh
	@status=0; export MESOS_GPU_TEST_RANDOM=1; \
	$(RUN) --limit 28800 --stuck 7500 -n 0 -m "long or on_change" --timeout 900 tests || status=$$?; \
	$(RUN) --again --burn 2 -n $(WORKERS) --timeout 480 tests || status=$$?; \
	$(MAKE) mutants || status=$$?; \
	$(MAKE) soak || status=$$?; \
	exit $$status

mutants: setup ## Draw 100 mutants by SEED and list those that no test notices; needs root
	@scripts/install_test_tools.sh
	@$(BIN)/python -m tests.mutation $(if $(SEED),--seed $(SEED))

soak: setup ## Random load and faults on a cluster of network namespaces for MINUTES (30), by SEED; needs root
	@scripts/install_test_tools.sh
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --story build/soak-story.json --json build/soak.json

test-kernel: setup ## Tests that need root and cgroups
	@scripts/install_test_tools.sh
	@$(RUN) --again -n 0 -m "kernel and not long" tests

test-gpu: setup ## Tests that need a GPU and its driver
	@$(RUN) -n 0 -m gpu --some -rs tests

test-bare: ## `make demo` and `make test` in a fresh clone on a fresh Debian 12; needs root and debootstrap
	@scripts/test_bare.sh

test-cgroup2: ## Tests in a virtual machine with Debian 13 and cgroups of version 2 only; needs root, debootstrap and QEMU
	@scripts/test_cgroup2.sh

budget: ## Take the CPU seconds of the last `make test` over into tests/budget.toml and docs/development.md
	@$(BIN)/python -m tests.runner.budget

check: setup ## Format, lint, types, layers, faults of security, language, spelling
	@$(BIN)/ruff format --check --quiet . || { echo 'make check: run .venv/bin/ruff format .'; exit 1; }
	@$(BIN)/ruff check --quiet --no-cache . # its cache forgets that what is first-party depends on which files there are
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > .lint-imports.log || { cat .lint-imports.log; exit 1; }
	@rm -f .lint-imports.log
	@$(BIN)/bandit --quiet -ll --recursive mesos_gpu isolator volumes bench scripts > .bandit.log 2>&1 || { cat .bandit.log; exit 1; }
	@rm -f .bandit.log
	@$(BIN)/python -m scripts.prose
	@$(BIN)/codespell --quiet-level 2 --ignore-words-list notin,te --skip tests/data README.md CHANGELOG.md CONTRIBUTING.md docs mesos_gpu isolator volumes bench tests scripts Makefile

bench: setup ## Measure, on the embedded cluster and in memory; ARGS="scale --agents 1000": one benchmark
ifdef ARGS
	@$(BIN)/python -m bench $(ARGS)
else
	@$(BIN)/python -m bench launch
	@$(BIN)/python -m bench placement
	@$(BIN)/python -m bench queues
	@$(BIN)/python -m bench arrays
	@$(BIN)/python -m bench bookings
	@$(BIN)/python -m bench reports
	@$(BIN)/python -m bench metrics
	@$(BIN)/python -m bench store
	@$(BIN)/python -m bench scale --seconds 5
	@$(BIN)/python -m bench scale --agents 10000 --jobs 4000 --seconds 5
	@$(BIN)/python -m bench levels
	@$(BIN)/python -m bench volume
	@$(BIN)/python -m bench api
	@$(BIN)/python -m bench access
	@$(BIN)/python -m bench shim
	@if command -v chromium >/dev/null; then $(BIN)/python -m tests.web.large; else echo "the dashboard's figures need chromium"; fi
	@if [ "$$(id -u)" = 0 ]; then $(BIN)/python -m bench isolation; else echo "bench isolation needs root"; fi
endif

chaos: setup ## Search the engine for faults in a simulated cluster; ARGS="--steps 100000 --seed 0"
	@$(BIN)/python -m tests.chaos $(ARGS)

docs: setup ## Write what is drawn from code: references of the command line and of /v1, life cycles
	@$(BIN)/python -m mesos_gpu.cli.reference > docs/reference/cli.md
	@$(BIN)/python -m mesos_gpu.api.openapi > docs/reference/openapi.json
	@$(BIN)/python -m tests.contract.access.table > docs/reference/rights.md
	@$(BIN)/python -m scripts.life_cycles docs/development.md
	@$(BIN)/python -m scripts.rooms docs/architecture.md

docs-site: setup ## Make the site of docs/ in build/site, with the pictures of `make screenshots`, if any; needs graphviz
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --fresh-env --doctree-dir build/doctrees docs build/site

screenshots: setup ## Take pictures of each part of the dashboard into build/screenshots, small ones for pages into docs/pictures; needs chromium
	@$(BIN)/python -m tests.web.screenshots build/screenshots docs/pictures

wheel: setup ## Build a release into dist/: a wheel with the libraries for shares, x86-64 and arm64; fetches a compiler
	@$(BIN)/python scripts/wheel.py

deb: setup ## Build Debian packages into dist/, for this Debian and machine: scheduler and command line, GPU host
	@$(BIN)/python scripts/deb.py

lock: ## Take the newest releases that setup.cfg allows into requirements.lock
	@PYTHON=$(PYTHON) scripts/lock.sh

audit: setup ## Ask what is known against the locked releases; status 69 (shown by make): a service was not reached
	@$(BIN)/python -m scripts.audit "$$(PYTHON=$(PYTHON) scripts/tools.sh)/pip-audit"

sbom: setup ## Write the bill of materials of what a host runs: build/mesos_gpu.cdx.json, CycloneDX
	@$(BIN)/python -m scripts.sbom build/mesos_gpu.cdx.json

clean: ## Remove what setup and tests made
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
