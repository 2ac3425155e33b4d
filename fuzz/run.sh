#!/bin/sh
# Runs every fuzz target for so many seconds (60 if not said), as many at a time as there are cores, and fails if one
# crashes. Needs cargo-fuzz and a nightly compiler. What was found is kept in fuzz/artifacts; what was learned is not, so
# that runs repeat.
set -eu
cd "$(dirname "$0")"

cargo +nightly fuzz build --fuzz-dir .

# What a run says is shown when it is over, so that it stands together.
one='
    target=$1 learned=$(mktemp -d) log=$(mktemp) code=0
    echo "== $target, $2 s" >"$log"
    cargo +nightly fuzz run "$target" --fuzz-dir . "$learned" "corpus/$target" -- \
        -max_total_time="$2" -timeout=10 -max_len=4096 -seed=1 -print_final_stats=1 >>"$log" 2>&1 || code=1
    cat "$log"
    rm -rf "$learned" "$log"
    exit $code'
for source in targets/*.rs; do basename "$source" .rs; done |
    xargs -P "$(nproc)" -I TARGET sh -c "$one" sh TARGET "${1:-60}"
