#!/bin/sh
# Runs all or the given fuzz targets, one per core at a time; fails if one crashes. Needs cargo-fuzz
# and a nightly compiler.
#
#   fuzz/run.sh [SECONDS [TARGET...]]     60 seconds each by default
#
# FUZZ_SEED       the seed; drawn and printed if unset
# FUZZ_SANITIZER  address by default; none builds and runs faster
#
# Inputs that reach new code are kept in fuzz/learned, where the next run starts; crashing ones are
# kept in fuzz/artifacts.
set -eu
cd "$(dirname "$0")"

seconds=${1:-60}
[ $# -eq 0 ] || shift
seed=${FUZZ_SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}
sanitizer=${FUZZ_SANITIZER:-address}
echo "seed $seed, sanitizer $sanitizer, $seconds s a target"

cargo +nightly fuzz build --fuzz-dir . --sanitizer "$sanitizer"

failed=$(mktemp)
trap 'rm -f "$failed"' EXIT

# Prints one line for a run without findings; for a crash, the whole output and the reproducer.
one='
    target=$1 learned=learned/$1 log=$(mktemp)
    mkdir -p "$learned"
    seeds=corpus/$target
    [ -d "$seeds" ] || seeds=
    if cargo +nightly fuzz run "$target" --fuzz-dir . --sanitizer "$4" "$learned" $seeds -- \
        -max_total_time="$2" -timeout=30 -max_len=4096 -seed="$3" >"$log" 2>&1; then
        echo "$target: $(grep "^Done" "$log")"
    else
        echo "$target: FAILED"
        grep -vE "^#[0-9]+[[:space:]]" "$log"
        echo "$target" >>"$5"
    fi
    rm -f "$log"'
if [ $# -gt 0 ]; then
    for target in "$@"; do echo "$target"; done
else
    for source in targets/*.rs; do basename "$source" .rs; done
fi | xargs -P "$(nproc)" -I TARGET sh -c "$one" sh TARGET "$seconds" "$seed" "$sanitizer" "$failed"

[ ! -s "$failed" ] || { echo "failed: $(sort "$failed" | tr '\n' ' ')"; exit 1; }
