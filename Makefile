# The commands of the house. `make` alone lists them.
# Every command that needs the environment brings it up to date first; that is silent when there is nothing to do.

PYTHON ?= python3
BIN := .venv/bin
# Nothing here looks for a model hub or reports usage; ROS 2 stays on this machine; vLLM's CPU build gets a KV cache of
# 1 GiB.
export HF_HUB_OFFLINE ?= 1
export VLLM_CPU_KVCACHE_SPACE ?= 1
export VLLM_NO_USAGE_STATS ?= 1
export DO_NOT_TRACK ?= 1
export ROS_AUTOMATIC_DISCOVERY_RANGE ?= LOCALHOST
# An engine is three processes that import vLLM one after the other; without byte code each compiles it anew (10 s).
unexport PYTHONDONTWRITEBYTECODE
# Options for pytest, for `timely demo` and for `timely bench`: make test-fast ARGS="-k profiles -x"
ARGS ?=
SLOW := engine or ros or process or paper or long
PYTEST := $(BIN)/python -m pytest --dist loadscope

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-long test-vllm lint format docs bench robots lock clean

help: ## List these commands.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make the environment .venv, or bring it up to date.
	@$(PYTHON) scripts/setup_env.py main

demo: setup ## A minute of drones and an arm planning with a real model over ROS 2.
	@$(BIN)/timely demo $(ARGS)

# Four workers for two processors: the robots keep real time and wait a lot. See tests/conftest.py.
# In a fresh clone each of them would compile the same modules at the same time, for 19 s. mypy leaves a processor free.
test: setup ## Lint, then every test but the long ones: real engine and ROS 2.
	@[ -d tests/__pycache__ ] || { \
	    $(BIN)/python -m pytest -m "not long" --collect-only; \
	    $(BIN)/python -c "import vllm.entrypoints.openai.api_server, vllm.v1.worker.cpu_model_runner"; \
	} >/dev/null 2>&1 & \
	$(MAKE) --no-print-directory lint; status=$$?; wait; exit $$status
	@$(PYTEST) -m "not long" -n 4 --no-loadscope-reorder --durations 25 $(ARGS)

test-long: setup ## The long tests: paper claims over seeds, soak, faults.
	@$(BIN)/python -m pytest -m long $(ARGS)

test-vllm: ## The vLLM tests under another version: make test-vllm VERSION=0.33.0
	@$(PYTHON) scripts/setup_env.py vllm $(VERSION)
	@.venv-vllm/bin/python -m pytest -m "not long" tests/engines/vllm $(ARGS)

test-fast: setup ## The tests without the engine, ROS 2 or sub-processes (about a minute on two cores).
	@$(PYTEST) -m "not ($(SLOW))" -n auto --hypothesis-profile=fast $(ARGS)

lint: setup ## Check style, types, spelling, prose, rooms and generated files.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python scripts/write_rooms.py --check
	@$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs timely lrtrace ros2_ws/src scripts tests examples skills
	@$(BIN)/python scripts/check_prose.py
	@$(BIN)/python scripts/generate_ros_stubs.py --check
	@$(BIN)/python scripts/generate_sync_client.py --check

docs: setup ## Build the documentation site into build/site.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

format: setup ## Format the code, and fix what can be fixed.
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup ## Measure scheduling overhead and simulator speed, ROS 2 latency.
	@$(BIN)/timely bench overhead $(ARGS)
	@$(BIN)/timely bench ros $(ARGS)
	@$(BIN)/timely bench sim-speed $(ARGS)

robots: ## Make .venv-robots, the environment with the robots' vendor SDKs.
	@$(PYTHON) scripts/setup_env.py robots

lock: setup ## Resolve the dependencies anew into requirements/.
	@$(PYTHON) scripts/setup_env.py lock

clean: ## Remove the environments and everything built or cached in this folder.
	rm -rf .venv .venv-robots .venv-vllm build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf ros2_ws/build ros2_ws/install ros2_ws/log
	find . -name __pycache__ -prune -exec rm -rf {} +
