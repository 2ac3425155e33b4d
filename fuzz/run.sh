#!/bin/sh
# Runs every fuzz target for so many seconds (60 if not said), and fails if one crashes. Needs cargo-fuzz and a nightly
# compiler. What was found is kept in fuzz/artifacts; what was learned is not, so that runs repeat.
set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
failed=0
for source in targets/*.rs; do
    target=$(basename "$source" .rs)
    learned=$(mktemp -d)
    echo "== $target, ${seconds} s"
    cargo +nightly fuzz run "$target" --fuzz-dir . "$learned" "corpus/$target" -- \
        -max_total_time="$seconds" -timeout=10 -max_len=4096 -seed=1 -print_final_stats=1 || failed=1
    rm -rf "$learned"
done
exit $failed
