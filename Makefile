.PHONY: help setup build lint format test check nightly sanitize suites compat primes bench bench-engine bench-handlers bench-apps docs wheels clean

help:                 ## print this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup:                ## get the interpreters, the virtual environments and siege (PGO=1: profile-guided)
	@scripts/setup.sh

build:                ## compile the engine in place (STM_SANITIZE=address or thread: with that sanitizer)
	@scripts/setup.sh engine

lint: setup           ## check the code without running it: ruff, the form of C, types
	@scripts/lint.sh

format: setup         ## put right what ruff can, and the form of the lines of C that differ from HEAD
	@scripts/lint.sh format

test: lint            ## check the code, then run the tests, but for the long ones, in two processes per processor
	@.venv/bin/python -m pytest -q -rs -n auto --dist loadfile

check: test           ## all that .ci/run runs

nightly: setup        ## run all that takes long, one after the other, whatever fails (hours)
	@scripts/nightly.sh

sanitize: setup       ## run the engine's stress program and the tests under the compiler's sanitizers
	@scripts/sanitize.sh

suites: setup         ## run CPython's own tests as transactions, without and with injected aborts, and on our loop outside of them
	@.venv/bin/python -m tests.cpython_suites
	@.venv/bin/python -m tests.cpython_suites --inject 0.02 --seed 1
	@.venv/bin/python -m tests.cpython_suites --outside

compat: setup         ## run Tornado's own tests on our loop, without and with injected aborts, beside upstream's
	@.venv/bin/python -m tests.compat --inject 0 --inject 0.005 --seed 1

primes: setup         ## measure the page of primes beside all alternatives
	@.venv/bin/python -m stm_bench primes

bench: setup          ## measure all workloads beside all alternatives (half an hour), into bench.json, .rst, .png and .html
	@.venv/bin/python -m stm_bench all --time 1 --repeats 6 --json bench.json --rst bench.rst --plot bench.png --html bench.html

bench-engine: setup   ## measure what transactions cost and how they scale, without a server
	@.venv/bin/python -m stm_bench engine

bench-handlers: setup ## measure ordinary handlers of 1 and 10 ms on upstream and on one and more threads
	@.venv/bin/python -m stm_bench handlers

bench-apps: setup     ## measure how handlers scale behind TLS, web sockets, other frameworks and a database
	@.venv/bin/python -m stm_bench apps

docs: setup           ## build the documentation, into build/docs; a warning is an error
	@.venv/bin/python -m sphinx -q -W -n --keep-going -b html docs build/docs

wheels: setup         ## build the wheels and the source distribution, into dist/
	@scripts/wheels.sh

clean:                ## remove what was made here; the cached interpreter stays
	@rm -rf .venv .venv-gil* .venv-pypy .venv-27 pypystm-lib build dist *.egg-info tornado/stm/*.so
