# lakesql: see `make help`.

# go-mysql-server's regular expressions need cgo unless this tag is set. Programs that embed lakesql set it too.
export GOFLAGS := -tags=gms_pure_go $(filter-out -tags=gms_pure_go,$(GOFLAGS))
# One static binary; only `race` turns cgo on, because the race detector needs it.
export CGO_ENABLED := 0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TOOL := go tool -modfile=go.tools.mod

# Sizes of the long checks. The defaults take minutes; the larger ones in docs/testing.md were run by hand.
export SEEDS ?= 3
export KILLS ?= 5
export CASES ?= 200
export MAXREC ?= 120
export HISTORY ?= 3
export HUDI_VERSIONS ?= 1.1.1
SF ?= tiny
FUZZTIME ?= 30s

# bench
SIZE ?= tiny
ENGINES ?= lakesql,mariadb
WORKLOADS ?= w1,w3,w4,w5,w7,crash
BENCH ?= .

# The larger suites; not part of this repository. See testdata/suites/README.md.
ifeq ($(LAKESQL_SUITES),)
LAKESQL_SUITES := $(wildcard $(abspath ../shared/suites))
endif
export LAKESQL_SUITES

CLIENTS := $(or $(LAKESQL_CLIENTS_CACHE),$(HOME)/.cache/lakesql-clients)

.PHONY: help build run test lint check interop crash history suites race fuzz bench microbench clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 12

build: ## bin/lakesql, one static binary
	go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/lakesql ./cmd/lakesql

run: build ## start a server on ./lakesql-data (ARGS="--listen …")
	@exec bin/lakesql server $(ARGS)

test: ## all tests that need nothing but Go and the mariadb client (a few minutes)
	go test -timeout 30m ./...

lint: ## go vet, staticcheck, gofumpt
	go vet ./...
	$(TOOL) staticcheck ./...
	@bad="$$($(TOOL) gofumpt -l $$(go list -f '{{.Dir}}' ./...))"; \
	if [ -n "$$bad" ]; then echo "not formatted by gofumpt:"; echo "$$bad"; exit 1; fi

check: lint test ## lint and test

interop: ## both ways against Spark + Hudi and hudi-rs; installs them first (HUDI_VERSIONS, SEEDS)
	testdata/oracle/setup.sh
	LAKESQL_INTEROP=1 go test -count=1 -timeout 40m -run 'Interop' ./...

crash: ## kill -9 and crash clones (KILLS, SEEDS, CASES)
	go test -count=1 -timeout 40m -run 'Crash' ./...

history: ## histories of concurrent transactions against their isolation levels (HISTORY: seconds each)
	go test -count=1 -timeout 40m -run 'History' ./cmd/lakesql

suites: build ## sample databases, users' reports, sqllogictest, clients (MAXREC, SF, LAKESQL_SUITES)
	scripts/setup-clients.sh
	testdata/oracle/setup.sh
	SF=$(SF) $(CLIENTS)/venv/bin/python scripts/suites.py
	LAKESQL_CLIENTS=1 go test -count=1 -run 'Client' ./cmd/lakesql

race: ## tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race -short -timeout 40m ./...

fuzz: ## every fuzz target for FUZZTIME
	@for pkg in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; \
	done

bench: build ## lakesql beside its peers, over the wire (SIZE, ENGINES, WORKLOADS)
	scripts/setup-clients.sh
	cd bench && d=tpch-$$(case $(SIZE) in tiny) echo 0.01;; small) echo 0.1;; *) echo 1;; esac); \
	  [ -e bench-data/$$d/tpch.json ] || $(CLIENTS)/venv/bin/python bench.py gen --size $(SIZE)
	cd bench && rm -f bench-work/results.jsonl && mkdir -p bench-work && \
	for e in $(subst $(comma), ,$(ENGINES)); do \
	  $(CLIENTS)/venv/bin/python bench.py run --size $(SIZE) --engines $$e --workloads $(WORKLOADS) --strict --out bench-work/results.jsonl \
	    --opts "$$([ $$e != lakesql ] || echo '{"server_cmd": "$(CURDIR)/bin/lakesql server --data {dir} --listen 127.0.0.1:{port}"}')" || exit 1; \
	done
	cd bench && $(CLIENTS)/venv/bin/python bench.py report bench-work/results.jsonl --size $(SIZE) --base lakesql

microbench: ## Go benchmarks (BENCH=regexp); compare two outputs by `$(TOOL) benchstat`
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count 6 ./...

clean: ## remove what was built
	rm -rf bin bench/bench-work

comma := ,
