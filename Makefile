# Every target sets up what it needs. `make` alone lists them.
SHELL := /bin/sh
PY := .venv/bin/python
PYTEST := $(PY) -m pytest -q
PEERS := .venv-peers/bin/python
FLOOR := .venv-floor/bin/python
# Bytecode goes there and not beside the sources; without any, each of the many short processes of the tests compiles anew.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/pycache
export TIDELAKE_PEERS_PYTHON := $(CURDIR)/$(PEERS)

.DEFAULT_GOAL := help
.PHONY: help setup demo docs check format lint types contracts unit test long cluster floor floor-unit compat compat-all soak soak-faults soak-sequences bench bench-spark bench-peers lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/ready: requirements/dev.txt pyproject.toml scripts/make_venv.sh
	@sh scripts/make_venv.sh .venv requirements/dev.txt project
	@touch $@

.venv-floor/ready: requirements/floor.txt pyproject.toml scripts/make_venv.sh
	@sh scripts/make_venv.sh .venv-floor requirements/floor.txt project
	@touch $@

.venv-peers/ready: requirements/peers.txt scripts/make_venv.sh
	@sh scripts/make_venv.sh .venv-peers requirements/peers.txt
	@touch $@

setup: .venv/ready ## make the development environment, nothing else

demo: setup ## run the main job on a local lake and a local Spark
	@.venv/bin/tidelake demo

docs: setup ## write the pages that are made from the code
	@$(PY) scripts/make_docs.py

check: setup lint types contracts unit ## format, lint, types, import contracts, unit tests

format: setup ## rewrite the sources in the house style
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .

lint: setup
	@$(PY) -m ruff format --check . && $(PY) -m ruff check .

types: setup
	@$(PY) -m mypy

contracts: setup
	@.venv/bin/lint-imports --no-cache

unit: setup
	@$(PYTEST) tests/unit -n 2

test: setup ## all tests but those that need another implementation, a cluster or long
	@$(PYTEST) -m "not oracle and not peers and not cluster and not long" -n 2 --durations 30

long: setup ## tests of crowds of processes on one table, of memory, and sweeps over S3
	@$(PYTEST) -m long tests/fault tests/unit -n 2 --durations 10

cluster: setup ## tests that start, measure and kill Spark processes of their own
	@$(PYTEST) -m cluster tests/spark tests/docs --durations 10 --timeout 900

floor: floor-unit ## unit tests, and those on Spark, with the oldest release that is promised of each dependency
	@$(FLOOR) -m pytest -q -m "not oracle and not cluster" tests/spark

floor-unit: .venv-floor/ready ## the unit tests with the oldest release that is promised of each dependency
	@$(FLOOR) -m pytest -q -m "not long" tests/unit -n 2

compat: setup .venv-peers/ready ## the suite against the real Apache Paimon (needs Java 17 and mvn)
	@PYTHONPATH=tests $(PY) -c "import oracle; from compat.write_tables import RELEASES; [oracle.fetch_jars(r) for r in RELEASES]"
	@TIDELAKE_REQUIRE_ORACLE=1 $(PYTEST) -m "oracle or peers" tests/compat -n 2 --durations 20 --timeout 900

compat-all: export TIDELAKE_EVERY_CELL := 1
compat-all: compat ## the same with every cell of its largest matrix, before a release

soak: soak-faults soak-sequences ## the long versions of the fault tests, before a release: hours, so run it in parts

soak-faults: setup ## a part of it: PART="contention" chooses tests by name, all without it
	@TIDELAKE_EVERY_FAULT=1 $(PYTEST) tests/soak tests/fault -n 2 --timeout 3600 --durations 20 $(if $(PART),-k "$(PART)")

soak-sequences: SEQUENCES ?= 0:1000# seeds, to run them in parts
soak-sequences: setup ## a part of it: random sequences beside the real Paimon (needs Java 17 and mvn), SEQUENCES=0:200
	@TIDELAKE_REQUIRE_ORACLE=1 TIDELAKE_SEQUENCES=$(SEQUENCES) $(PYTEST) -m oracle tests/compat/test_sequences.py -n 2 --timeout 900

bench: setup ## measure ourselves against floors; prints a table and writes JSON
	@$(PY) -m benchmarks

bench-spark: setup ## measure tables on Spark against plain Parquet on Spark
	@$(PY) -m benchmarks --only spark && $(PY) -m benchmarks --only spark-changes && $(PY) -m benchmarks --only spark-streams

bench-peers: setup .venv-peers/ready ## measure the others beside us
	@$(PY) -m benchmarks --peers

lock: setup ## pin newer versions of everything (needs uv)
	@uv pip compile -q --upgrade $(LOCK_HOW) --extra all --group dev pyproject.toml -o requirements/dev.txt
	@uv pip compile -q --upgrade $(LOCK_HOW) --resolution lowest-direct --extra all --group dev pyproject.toml -c requirements/floor.in -o requirements/floor.txt
	@uv pip compile -q --upgrade $(subst --universal,,$(LOCK_HOW)) requirements/peers.in -o requirements/peers.txt
LOCK_HOW := --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url

clean: ## remove environments and caches
	@rm -rf .venv .venv-floor .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
