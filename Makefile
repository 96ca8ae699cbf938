PYTHON ?= python3
# The one version of TypeScript that checks the page's JSDoc types; used in development only.
TYPESCRIPT = typescript@5.9.3

.PHONY: install run test check bench recordings generated

install:
	$(PYTHON) -m pip install ".[dev]"

run:
	$(PYTHON) -m kvviz serve

test:
	$(PYTHON) -m pytest

check:
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy --strict kvviz
	$(PYTHON) -m kvviz.log.schema --check
	npx --yes --package $(TYPESCRIPT) -- tsc --project tsconfig.json

bench:
	$(PYTHON) -m kvviz bench

recordings:
	$(PYTHON) -m kvviz.experiments.scenarios

generated:
	$(PYTHON) -m kvviz.log.schema
