# The verbs of the project. Each sets up what it needs, from a fresh clone on; CI calls `make ci` and nothing else.
# Needs cargo (with clippy and rustfmt), a C compiler, Python >= 3.11 with venv. Everything it makes is under .venv/, target/ and out/.

PYTHON ?= python3
VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
CARGO := cargo
SOURCES := Cargo.toml Cargo.lock pyproject.toml README.md $(shell find src python -type f ! -name '*.pyc' ! -name '*.so')
PYTHON_FILES := python tests/python examples benches/compare docs
TYPED := python/rustgrad examples
PYTEST = mkdir -p target/pytest && cd target/pytest && $(PY) -P -m pytest -c $(CURDIR)/pyproject.toml --rootdir $(CURDIR)
# The extension as one file, in bytes: what a download may cost.
WHEEL_LIMIT := 6000000

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.SECONDARY:
MAKEFLAGS += --no-print-directory

.PHONY: help run test test-rust test-python check fmt lint stubs stubs-current docs size ci ci-slow loom tsan miri bench compare \
	wheel sdist-check absent rows clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.extra-example $(VENV)/.installed-release ## train the example network; pictures go to out/
	$(PY) examples/train_digits.py --out out

test: test-rust test-python ## all tests: Rust, documentation examples, and Python on the installed wheel

test-rust:
	$(CARGO) test --locked --no-fail-fast

# Runs in an empty folder with -P: what is tested is the wheel, never the source tree.
test-python: $(VENV)/.extra-test $(VENV)/.installed-ci
	@$(PYTEST) -m "not slow" $(CURDIR)/tests/python

check: lint stubs-current ## the quick checks: format, lints, types, stubs

# Cheapest first.
lint: $(VENV)/.extra-test
	$(CARGO) fmt --check
	$(PY) -m ruff check $(PYTHON_FILES)
	$(PY) -m ruff format --check $(PYTHON_FILES)
	$(PY) -m mypy $(TYPED)
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --all-targets --features python -- -D warnings

fmt: $(VENV)/.extra-test ## format everything
	$(CARGO) fmt
	$(PY) -m ruff check --fix $(PYTHON_FILES)
	$(PY) -m ruff format $(PYTHON_FILES)

# The extension writes its own stubs, from the catalogue, into the folder named.
STUBS := $(PY) -P -c "import pathlib, sys, rustgrad._core as core; d = pathlib.Path(sys.argv[1]); d.mkdir(parents=True, exist_ok=True); [(d / n).write_text(t) for n, t in core._stubs().items()]"

stubs: $(VENV)/.installed-ci ## write python/rustgrad/_core/*.pyi from the catalogue
	$(STUBS) python/rustgrad/_core

stubs-current: $(VENV)/.installed-ci
	@rm -rf target/stubs && $(STUBS) target/stubs
	diff -ru python/rustgrad/_core target/stubs

docs: ## the Rust reference, warnings as errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps

size: target/wheels/ci/.built
	@size=$$(stat -c %s target/wheels/ci/*.whl); echo "wheel: $$size bytes, $(WHEEL_LIMIT) allowed"; \
		test "$$size" -le $(WHEEL_LIMIT)

ci: check docs size test ## what CI runs

ci-slow: $(VENV)/.extra-test $(VENV)/.installed-ci sdist-check loom ## exhaustive sweeps, and a build from the source archive
	$(CARGO) test --locked --profile ci -- --ignored
	@$(PYTEST) -m slow $(CURDIR)/tests/python || test $$? -eq 5 # 5: no test is marked slow

# What is to hold however threads take turns. Loom writes a line to stderr for every lock; what fails is said on stdout.
LOOM := RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 $(CARGO) test --locked --profile models --target-dir target/loom --lib
loom: ## models of the threads' ways with one another, in all orders (bounded)
	$(LOOM) --no-run
	$(LOOM) --quiet -- models:: --nocapture 2> /dev/null

# The standard library is the toolchain's, made without the sanitizer: tests/tsan.txt says what that makes it report wrongly.
TSAN := RUSTFLAGS="--cfg sanitized -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.txt" \
	$(CARGO) +nightly test --locked --profile models --target-dir target/tsan --target $$(rustc -vV | sed -n 's/^host: //p')
tsan: ## threads under ThreadSanitizer; needs a nightly toolchain
	$(TSAN) --test threads
	$(TSAN) --lib -- threads:: storage:: board::

miri: ## the rooms with `unsafe` under Miri; needs a nightly toolchain that has it
	MIRIFLAGS="-Zmiri-ignore-leaks -Zmiri-disable-isolation" $(CARGO) +nightly miri test --locked --target-dir target/miri --lib -- \
		threads:: storage:: board:: tensor::

bench: ## criterion benchmarks
	$(CARGO) bench --locked

compare: $(VENV)/.extra-bench $(VENV)/.installed-release ## the same work in rustgrad and PyTorch, one process
	$(PY) -P benches/compare/compare.py
	$(PY) -P benches/compare/threads.py

wheel: target/wheels/release/.built ## the wheel users install, in target/wheels/release/
	@ls -l target/wheels/release/*.whl

# The source archive must be all that a build needs.
sdist-check: $(VENV)/.made
	rm -rf target/sdist && mkdir -p target/sdist/unpacked
	$(VENV)/bin/maturin sdist --out target/sdist
	tar -xzf target/sdist/*.tar.gz -C target/sdist/unpacked --strip-components 1
	cd target/sdist/unpacked && $(VENV)/bin/maturin build --profile ci --locked -i $(PY) --target-dir $(CURDIR)/target --out ..

absent: $(VENV)/.extra-test $(VENV)/.installed-ci ## write tests/data/golden/absent.txt: operators still missing
	@RUSTGRAD_WRITE_ABSENT=1; export RUSTGRAD_WRITE_ABSENT; $(PYTEST) -q -k absent $(CURDIR)/tests/python/test_golden.py

rows: $(VENV)/.made ## write docs/autograd_rows.md: the rows of autograd and the tests that show them
	$(PY) docs/rows.py

clean: ## remove everything made here
	rm -rf .venv out dist .pytest_cache .mypy_cache .ruff_cache
	$(CARGO) clean

# ---- what the verbs need ---------------------------------------------------------------------------------------------

$(VENV)/.made: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rustgrad needs Python 3.11 or newer")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' > $(VENV)/build.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -r $(VENV)/build.txt
	touch $@

# The dependencies and one extra, as pyproject.toml lists them.
$(VENV)/.extra-%: $(VENV)/.made
	$(PY) -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*p["dependencies"], *p["optional-dependencies"]["$*"], sep="\n")' > $(VENV)/$*.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -r $(VENV)/$*.txt
	touch $@

# One wheel a cargo profile: `release` for users and measurements, `ci` for tests (the same code without fat LTO).
target/wheels/%/.built: $(SOURCES) $(VENV)/.made
	rm -rf target/wheels/$* && mkdir -p target/wheels/$*
	$(VENV)/bin/maturin build --profile $* --locked -i $(PY) --out target/wheels/$*
	touch $@

# One wheel is installed at a time; the stamp says which.
$(VENV)/.installed-%: target/wheels/%/.built
	rm -f $(VENV)/.installed-*
	$(PY) -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps target/wheels/$*/*.whl
	touch $@
