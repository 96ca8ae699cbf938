PYTHON ?= python3
# The one version of TypeScript that checks the page's JSDoc types; used in development only.
TYPESCRIPT = typescript@5.9.3
# The one version of prettier that formats it.
PRETTIER = prettier@3.10.1

SCRIPTS = 'static/js/**/*.js' 'tests/support/*.js'

.PHONY: install run quick test prove format check bench recordings generated

install:
	$(PYTHON) -m pip install ".[dev]"

run:
	$(PYTHON) -m kvviz serve

# The inner loop: no browser, no default model, nothing that takes more than a second.
quick:
	$(PYTHON) -m pytest -m "not slow"

test:
	$(PYTHON) -m pytest

# The exhaustive sets too, of which `test` runs a sample.
prove:
	$(PYTHON) -m pytest --prove

format:
	$(PYTHON) -m ruff format
	npx --yes --package $(PRETTIER) -- prettier --log-level warn --write $(SCRIPTS)

check:
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy --strict kvviz
	$(PYTHON) -m kvviz.log.schema --check
	npx --yes --package $(PRETTIER) -- prettier --log-level warn --check $(SCRIPTS)
	npx --yes --package $(TYPESCRIPT) -- tsc --project tsconfig.json

bench:
	$(PYTHON) -m kvviz bench

recordings:
	$(PYTHON) -m kvviz.experiments.scenarios

generated:
	$(PYTHON) -m kvviz.log.schema
