# What a newcomer types. Each target first installs what this machine lacks (Debian: apt-get), or says what to do.
#
#   make demo        build, run the quickstart scenario, show the verdict and where the report is (about two minutes)
#   make test        formatting, lints, tidy, all tests
#   make scenarios   every scenario at full length, a verdict each, and 100 seeds of random failures (about nine hours)
#   make bench       side by side with iperf3, sockperf and rattan; results in bench/runs
#   make accuracy    the lab against its own ground truth: writes docs/guide/lab-accuracy.md (about a quarter of an hour)
#   make accuracy-disks   the disks under services likewise: writes docs/guide/disk-accuracy.md (about five minutes)
#   make tidy        the house rules alone
#   make picture     the picture of the report in the guide, drawn anew from a kept folder

SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: demo test bench accuracy accuracy-disks scenarios tidy picture build

demo:
	@scripts/ensure-lab
	@scripts/with-rust scripts/demo

test:
	@scripts/ensure-lab --for-tests
	@scripts/with-rust scripts/test

scenarios:
	@scripts/ensure-lab
	@scripts/ensure-systems
	@scripts/with-rust scripts/scenarios

bench:
	@scripts/ensure-lab
	@scripts/with-rust scripts/install-bench-peers
	@scripts/with-rust scripts/bench

accuracy:
	@scripts/ensure-lab
	@scripts/with-rust scripts/accuracy

accuracy-disks:
	@scripts/ensure-lab
	@scripts/with-rust scripts/accuracy disk --out docs/guide/disk-accuracy.md

tidy:
	@scripts/ensure-build
	@scripts/with-rust cargo xtask tidy

picture:
	@scripts/ensure-build
	@scripts/ensure-readers
	@WEIR_PICTURE=docs/guide/report.png scripts/with-rust cargo test --locked --test claims report_page::picture

build:
	@scripts/ensure-build
	@scripts/with-rust cargo build --release --locked
