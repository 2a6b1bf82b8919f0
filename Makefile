# `make demo` shows everything, `make test` proves it. Both set up what they need under .venv and may be run again.
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= $(shell expr $$(nproc) + 1) # tests that start servers wait for them
SECONDS_OF_ORACLE ?= 3600
SECONDS_OF_FUZZ ?= 600
SECONDS_OF_SOAK ?= 600
VERSION := $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' shared_ir/versions.py)
# Bytecode is kept, whatever the environment says: without it every process compiles the whole house, and every pytest
# rewrites the assertions of all tests, which takes longer than most tests.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-all quick packages deployed lock images lint format proto conformance oracle fuzz chaos fuzz-peers soak exports operators api up clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.demo ## compile, serve, infer, compare and measure two models; under 3 minutes
	@$(BIN)/python -m ingot.demo

test: $(VENV)/.test system ## every test, of large families a fifth of the cases; one machine is emulated
	@$(BIN)/python -m tests.e2e.published_models >/dev/null || true
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not machines and not long"

test-all: $(VENV)/.test system ## every case of every test, on every machine that can be emulated
	@$(BIN)/python -m tests.e2e.published_models >/dev/null || true
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

quick: $(VENV)/.test ## the fast tests; under a minute
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not slow and not services"

packages: $(VENV)/.test system ## the wheel, and each of its extras alone in a clean environment; part of `make test`
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal tests/packaging

deployed: $(VENV)/.test system ## README's production section, compose and chart as they are, with faults, on namespaces instead of Docker
	@$(BIN)/python -m pytest -q tests/deploy tests/deployed

lock: $(VENV)/.test ## deploy/locks: what images install, with hashes; UPGRADE=--upgrade takes the newest
	@sh scripts/lock.sh $(BIN)/uv deploy/locks $(UPGRADE)

images: ## the three images, and the SBOM (CycloneDX) of what they install in build/sbom; needs Docker
	@for each in runtime compiler-api compiler-worker; do \
	  docker build -f deploy/Dockerfile --target $$each -t ingot/$$each:$(VERSION) . || exit 1; done
	@docker build -f deploy/Dockerfile --target sbom --output build/sbom .

lint: $(VENV)/.test ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/mypy

format: $(VENV)/.test ## let ruff write the code as it should be
	@$(BIN)/ruff check -q --fix .
	@$(BIN)/ruff format -q .

proto: $(VENV)/.test ## stubs from proto/
	@$(BIN)/python proto/generate.py

conformance: $(VENV)/.test ## onnx's own node tests; writes conformance.json
	@$(BIN)/python -m ingot.conformance --out conformance.json

oracle: $(VENV)/.test ## an hour of random models of every operator against two oracles; 1 when it finds something new
	@PYTHONPATH=. $(BIN)/python -m tests.oracle --seconds $(SECONDS_OF_ORACLE) --jobs 2

fuzz: $(VENV)/.test ## odd requests to models of every operator and to servers, under guard pages, and odd models to a compiler service: ten minutes each
	@PYTHONPATH=. $(BIN)/python -m tests.guard --seconds $(SECONDS_OF_FUZZ) --jobs 2
	@PYTHONPATH=. $(BIN)/python -m tests.guard.serving --seconds $(SECONDS_OF_FUZZ)
	@PYTHONPATH=. $(BIN)/python -m tests.guard.compiling --seconds $(SECONDS_OF_FUZZ)

chaos: $(VENV)/.test ## 210 models, some refused while they are uploaded and 200 compiled, while servers, workers, stages, Redis, the store and the disk fail at random; 1 when one is lost, stuck, wrong or done twice
	@PYTHONPATH=. $(BIN)/python -m tests.chaos --jobs 210

fuzz-peers: $(VENV)/.test ## ten minutes of odd bytes to the ports of a service; 1 when an answer is not as it should be
	@PYTHONPATH=. $(BIN)/python -m tests.peers.fuzzer 600

soak: $(VENV)/.test ## ten minutes of a runtime service at 80 % load while models change, clients hang up and requests are wrong; 1 when an answer or the memory is not as it should be
	@PYTHONPATH=. $(BIN)/python -m tests.soak --seconds $(SECONDS_OF_SOAK)

exports: $(VENV)/.exports ## models as torch, scikit-learn and LightGBM export them, a hundred architectures among them
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal tests/exports

operators: $(VENV)/.test ## writes docs/operators.md
	@PYTHONPATH=. $(BIN)/python scripts/document_operators.py

api: $(VENV)/.test ## writes docs/python-api.md
	@PYTHONPATH=. $(BIN)/python scripts/document_api.py

up: $(VENV)/.demo ## all services on this machine, until Ctrl-C
	@$(BIN)/ingot up

clean: ## remove what make made
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis conformance.json *.egg-info build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: system
system:
	@sh scripts/system_packages.sh

# The stamps tell which extras are installed; they are older than pyproject.toml when that has changed since.
$(VENV)/.demo: pyproject.toml scripts/environment.sh
	@test -e $(VENV)/.test -a $(VENV)/.test -nt pyproject.toml || sh scripts/environment.sh $(VENV) demo
	@touch $@

# torch's wheel on PyPI brings CUDA along (3 GB); pip takes one for processors alone where it is told of an index that has it.
$(VENV)/.exports: $(VENV)/.test
	@sh scripts/environment.sh $(VENV) test,lint,exports
	@touch $@

$(VENV)/.test: pyproject.toml scripts/environment.sh
	@sh scripts/environment.sh $(VENV) test,lint
	@touch $@
