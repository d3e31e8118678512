#!/bin/sh
# The compiler with libFuzzer's coverage, for the crates of this workspace: RUSTC_WORKSPACE_WRAPPER of cargo.
exec "$@" --cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Copt-level=3 -Ccodegen-units=1
