# Two commands are all there is to it: `make run` and `make test`. Each sets itself up.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
WORKERS ?= 4
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal

# Without compiled files each worker would rewrite the assertions of all tests again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# `make run` needs less than the tests do. $(STAMP) covers both.
RUN_STAMP := .venv/.installed-run

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "cronledger needs Python >= 3.11; say which: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -m venv .venv || { echo "no venv module: on Debian, apt-get install python3-venv"; exit 2; }

$(RUN_STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[embedded,web,metrics]'
	@touch $@

$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(RUN_STAMP)

setup: $(STAMP) ## make .venv and install everything into it

# The source has a name of its own, so that another checkout may apply the same jobs to this ledger.
# On a terminal the replica gets a process group of its own (set -m), so that Ctrl-C reaches it and
# not make, which would report an interrupt although the replica drained and exited 0.
run: $(RUN_STAMP) ## a replica with sample jobs and the web page, on an embedded PostgreSQL; Ctrl-C drains
	@if [ -t 0 ]; then set -m; fi; \
	export CRONLEDGER_DATABASE_URL=$${CRONLEDGER_DATABASE_URL:-embedded}; \
	$(BIN)/cronledger migrate || exit $$?; \
	$(BIN)/cronledger web & page=$$!; \
	$(BIN)/cronledger run examples/sample.toml --source sample --summary; code=$$?; \
	kill $$page 2>/dev/null; wait $$page; exit $$code

# The newest server that the system has, if it has one: the database tests run on it as well.
SYSTEM_POSTGRES := $(patsubst %/initdb,%,$(lastword $(sort $(wildcard /usr/lib/postgresql/*/bin/initdb))))

# To collect the tests for a browser, each worker would need a second.
DATED := -m "not slow and not tools and not browser" --ignore tests/web/browser
FAST := -m "not long and not slow and not tools and not browser" --ignore tests/web/browser

test: $(STAMP) ## the fast tests: all but those marked long, slow or tools
	$(PYTEST) $(FAST)

# $(call program,PROGRAM,PACKAGE): fail if the program is missing and may not be installed. Debian's
# packages would start their services; RUNLEVEL prevents it.
define program
{ command -v $(1) >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	&& apt-get update -qq && RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $(2); } \
	|| { echo "$(1) is missing: on Debian, apt-get install $(2)"; false; }; }
endef

suite: $(STAMP) ## all tests, tests/db also on the system's PostgreSQL, and the example projects'
	@PATH="$$PATH:/usr/sbin"; $(call program,nginx,nginx-light) \
		|| echo "The tests of examples/proxy are left out."
	@$(call program,promtool,prometheus) || echo "The tests of deploy/prometheus are left out."
	@command -v kubectl >/dev/null || echo "kubectl is missing: on Debian 13 or later, apt-get install kubernetes-client." \
		"Some tests of deploy/kubernetes are left out."
	@$(call program,systemd-analyze,systemd) || echo "Tests of deploy/systemd are left out."
	@PATH="$$PATH:/usr/sbin"; $(call program,pgbouncer,pgbouncer) \
		|| echo "The tests of PgBouncer are left out."
	$(PYTEST) -m "not browser"
	cd examples/plugin_project && $(CURDIR)/$(BIN)/python -m pytest
	cd examples/fastapi_project && $(CURDIR)/$(BIN)/python -m pytest
ifneq ($(SYSTEM_POSTGRES),)
	CRONLEDGER_TEST_BINARIES=$(SYSTEM_POSTGRES) $(PYTEST) tests/db
endif

# Playwright's own browser is not used. Where it may, this installs Chromium.
test-web: $(STAMP) ## the web page in headless Chromium, and its journeys in Firefox; SCREENSHOTS=DIR keeps a picture of each page
	@$(call program,chromium,chromium)
	@$(call program,firefox-esr,firefox-esr) || echo "The journeys in Firefox are left out."
	$(if $(SCREENSHOTS),CRONLEDGER_TEST_SCREENSHOTS=$(abspath $(SCREENSHOTS))) $(PYTEST) -m browser tests/web

dates: $(STAMP) ## the tests of `make test` and those marked long as if at INSTANT, by default one that the commit draws; INSTANT=all: each kind of day
	$(BIN)/python -m tests.dated $(or $(INSTANT),drawn) $(DATED) -n $(WORKERS) --dist worksteal

pictures: $(STAMP) ## renew the pictures of README.md and docs/, with Chromium
	CRONLEDGER_TEST_PICTURES=1 $(BIN)/pytest -m browser tests/web/browser/test_pictures.py

lint: $(STAMP) ## ruff, format, strict types, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd examples/fastapi_project && $(CURDIR)/$(BIN)/mypy --strict invoicing tests
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the sources in the one format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# These tools are not part of `make setup`.
AUDIT_STAMP := .venv/.installed-audit
DOCS_STAMP := .venv/.installed-docs
RELEASE_STAMP := .venv/.installed-release

$(AUDIT_STAMP) $(DOCS_STAMP) $(RELEASE_STAMP): .venv/.installed-%: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,$*]'
	@touch $@

docs: $(DOCS_STAMP) ## write the generated documents, and build the site in build/site; a missing link or anchor fails
	$(BIN)/python -m docs.tools
	$(BIN)/python -m docs.tools.site build/pages
	$(BIN)/zensical build --strict

release: $(RELEASE_STAMP) ## build and check both packages, and try them in empty environments of each Python; PYTHONS='python3.12 …'
	$(BIN)/python -m tests.release $(if $(SUITE),--suite) $(FAST) -n $(WORKERS)

lowest: $(RELEASE_STAMP) ## the fast tests with the lowest permitted versions of the dependencies
	$(BIN)/python -m tests.release --lowest $(FAST) -n $(WORKERS)

audit: $(AUDIT_STAMP) ## bandit, and pip-audit where its service can be reached; STRICT=1: it must be
	$(BIN)/python -m tests.audit $(if $(STRICT),--strict)

structure: $(STAMP) ## levels of the packages, the longest modules and functions, lines
	@$(BIN)/python -m docs.tools.structure

# The plots need matplotlib, and the peers an environment of their own.
BENCH_STAMP := .venv/.installed-bench
PEERS_STAMP := .peers/.installed

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench]'
	@touch $@

$(PEERS_STAMP): tests/bench/peers/requirements.txt
	@$(PYTHON) -m venv .peers
	.peers/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

BENCH_FORM := $(if $(RECORD),--record,$(if $(SHORT),--short,$(if $(FULL),--full)))

bench: $(STAMP) $(if $(SHORT)$(RECORD),,$(PEERS_STAMP)) $(if $(FULL),$(BENCH_STAMP)) ## speed beside floor and peers; SHORT=1: cost by recorded ratios; FULL=1: for the documents
	$(BIN)/python -m tests.bench $(BENCH_FORM) $(if $(ROWS),--rows $(ROWS))

chaos: $(STAMP) ## simulated and real faults for MINUTES (20), and a verdict; SHORT=1: each real one once
ifneq ($(SHORT),)
	$(BIN)/python -m tests.chaos --short $(if $(SEED),--seed $(SEED))
else
	@minutes() { $(BIN)/python -c "print($(or $(MINUTES),20) * $$1)"; }; failed=0; \
	$(BIN)/python -m tests.simulation --minutes $$(minutes 1/3) || failed=1; \
	$(BIN)/python -m tests.chaos $$(minutes 2/3) $(if $(SEED),--seed $(SEED)) || failed=1; \
	exit $$failed
endif

mutations: $(STAMP) ## deliberate mistakes: in the engine, for the simulator; elsewhere, for the test that each names
	$(BIN)/python -m tests.simulation.mutations
	$(BIN)/python -m tests.mistakes --workers $(WORKERS)

fuzz: $(STAMP) ## bad input to every command for MINUTES (5): no traceback, no hang, no secret
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),5) $(if $(SEED),--seed0 $(SEED))

soak: $(STAMP) ## the replicas and clients of chaos for MINUTES (10), with nothing but kill -9
	$(BIN)/python -m tests.chaos $(or $(MINUTES),10) \
		--only 'replica killed -9' --only 'worker killed -9'

proofs: $(STAMP) ## bench and chaos in their short forms, about five minutes on two cores
	@$(MAKE) --no-print-directory bench SHORT=1
	@$(MAKE) --no-print-directory chaos SHORT=1

check: lint audit suite test-web docs dates proofs ## what CI runs: lint, all tests, most of them also at a drawn date, bench and chaos in short

clean: ## remove .venv, .peers, what was built, and caches
	rm -rf .venv .peers build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.PHONY: help setup run test test-web pictures suite dates lint format docs release lowest audit structure bench chaos mutations fuzz soak proofs check clean
