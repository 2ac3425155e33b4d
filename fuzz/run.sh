#!/bin/sh
# Runs fuzz targets, all of them unless some are named, as many at a time as there are cores; fails if one crashes. Needs cargo-fuzz
# and a nightly compiler.
#
#   fuzz/run.sh [SECONDS [TARGET...]]     60 seconds for each unless said
#
# FUZZ_SEED       the seed; drawn and printed if it is not set
# FUZZ_SANITIZER  address unless set; none builds and runs faster
#
# Inputs that reach new code are kept in fuzz/learned, and the next run begins with them; crashing ones in fuzz/artifacts.
set -eu
cd "$(dirname "$0")"

seconds=${1:-60}
[ $# -eq 0 ] || shift
seed=${FUZZ_SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}
sanitizer=${FUZZ_SANITIZER:-address}
echo "seed $seed, sanitizer $sanitizer, $seconds s a target"

cargo +nightly fuzz build --fuzz-dir . --sanitizer "$sanitizer"

# The output of a run is shown when it is over, so that it stands together.
one='
    target=$1 learned=learned/$1 log=$(mktemp) code=0
    mkdir -p "$learned"
    echo "== $target" >"$log"
    cargo +nightly fuzz run "$target" --fuzz-dir . --sanitizer "$4" "$learned" "corpus/$target" -- \
        -max_total_time="$2" -timeout=30 -max_len=4096 -seed="$3" -print_final_stats=1 >>"$log" 2>&1 || code=1
    cat "$log"
    rm -f "$log"
    exit $code'
if [ $# -gt 0 ]; then
    for target in "$@"; do echo "$target"; done
else
    for source in targets/*.rs; do basename "$source" .rs; done
fi | xargs -P "$(nproc)" -I TARGET sh -c "$one" sh TARGET "$seconds" "$seed" "$sanitizer"
