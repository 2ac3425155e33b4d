#!/usr/bin/env bash
# What has become slower since another commit: builds both with one profile, and plays the same rows by both in turn, beside a
# floor that shares nothing with either (bench/floor.rs). Prints a table of tab-separated values; exits with 1 if a row is slower.
#
#   bench/regress.sh BASE [NEW]     two commits; NEW is HEAD unless said
#   bench/regress.sh --profiles     what `cargo build --release` builds against what packages get (`dist`), of this tree
#
#   TURNS=N      turns of all rows, 7 unless said; some three minutes each
#   CORE=N       the core that all run on (the last)
#   ROWS=RE      only the rows whose name this regular expression matches, such as '^nat'
#   OLD_PROGRAM=, NEW_PROGRAM=   programs that are built already; BASE and NEW are not used then
#
# A row's figure is nanoseconds a packet: of `rivulet bench`, and for `read` the processor time of a capture through a policy
# without functions. `ratio` is the median over the turns of new over old, in the same turn; `least` and `most` are its spread.
# Where the spread of the floor is large, others use the machine. A row is slower if its ratio is above LIMIT (1.03; of
# profiles 1.05) and no turn says otherwise (`least` is above 1).
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BASE=${1:?"usage: bench/regress.sh BASE [NEW] | --profiles"} NEW=${2:-HEAD}
readonly TURNS=${TURNS:-7} CORE=${CORE:-$(($(nproc) - 1))} ROWS=${ROWS:-.}
readonly TARGET=$PWD/${CARGO_TARGET_DIR:-target}/regress
readonly READ_PACKETS=1000000 READ_FLOWS=1000
# WORKLOAD FLOWS [PACKETS OF A FLOW]
readonly BENCHED='
forward 1k
nat 1k
nat 100k
firewall 1k
firewall 100k
chain4 100k
chain4-consolidated 1k
ids 1k
nat 1k 1
nat 1k 2
nat 1k 16
nat 1k 256
firewall 1k 1
firewall 1k 2
firewall 1k 16
firewall 1k 256
chain4-consolidated 1k 1
chain4-consolidated 1k 16
'

main() {
    work=$(mktemp -d)
    trap clean EXIT
    local old=${OLD_PROGRAM:-} new=${NEW_PROGRAM:-} limit=1.03
    if [[ $BASE == --profiles ]]; then
        cargo build --quiet --profile dist -p cli
        cargo build --quiet --release -p cli
        old=${CARGO_TARGET_DIR:-target}/dist/rivulet new=${CARGO_TARGET_DIR:-target}/release/rivulet limit=1.05
    fi
    [[ -n $old ]] || { build "$BASE"; old=$built; }
    [[ -n $new ]] || { build "$NEW"; new=$built; }
    prepare
    local turn row
    for ((turn = 1; turn <= TURNS; turn++)); do
        echo "turn $turn of $TURNS" >&2
        while read -r row; do
            [[ ${row% } =~ $ROWS ]] || continue
            note "$row" "$old" "$new" "$turn"
        done < <(rows)
    done
    table "${LIMIT:-$limit}"
}

clean() {
    rm -rf "$work"
    git worktree prune
}

# build COMMIT: sets `built` to the program of a commit. The profile is that of packages, but said here: it is one for both, whatever
# their manifests say.
build() {
    local commit tree
    commit=$(git rev-parse --verify --quiet "$1^{commit}") || { echo "no commit $1 here: is the clone shallow?" >&2; exit 2; }
    tree=$work/$commit
    built=$TARGET/$commit/release/rivulet
    if [[ -x $built ]]; then
        return
    fi
    echo "building $1 ($commit)" >&2
    git worktree add --quiet --detach "$tree" "$commit"
    local profile=(--config 'profile.release.lto="thin"' --config 'profile.release.codegen-units=1')
    local package
    for package in cli policy; do
        profile+=(--config "profile.release.package.$package.opt-level=3")
    done
    (cd "$tree" && CARGO_TARGET_DIR=$TARGET/$commit cargo build --release --quiet -p cli "${profile[@]}")
    git worktree remove --force "$tree"
}

prepare() {
    rustc --edition 2024 -O -C target-cpu=native bench/floor.rs -o "$work/floor"
    "$work/floor" capture "$READ_FLOWS" "$READ_PACKETS" "$work/long.pcap"
    "$work/floor" capture "$READ_FLOWS" 1000 "$work/short.pcap"
    printf 'Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n' >"$work/wire.rvl"
}

rows() {
    echo "$BENCHED" | sed '/^$/d'
    echo "read $READ_FLOWS"
}

alone() {
    nice -n -10 taskset -c "$CORE" "$@"
}

# note ROW OLD NEW TURN: measures a row by both programs, by the one that was second the last time first.
note() {
    local row=$1 old=$2 new=$3 turn=$4 flows floor first second
    read -r _ flows _ <<<"$row"
    floor=$(alone "$work/floor" "$(numfmt --from=si "${flows^^}")" 3)
    if ((turn % 2)); then
        first=$(ns "$row" "$old")
        second=$(ns "$row" "$new")
    else
        second=$(ns "$row" "$new")
        first=$(ns "$row" "$old")
    fi
    printf '%s\t%s\t%s\t%s\n' "$row" "$floor" "$first" "$second" >>"$work/measured.tsv"
}

# ns ROW PROGRAM
ns() {
    local workload flows packets
    read -r workload flows packets <<<"$1"
    if [[ $workload == read ]]; then
        local long short
        long=$(processor_us "$2" "$work/long.pcap")
        short=$(processor_us "$2" "$work/short.pcap")
        awk "BEGIN { printf \"%.1f\", ($long - $short) * 1000 / ($READ_PACKETS - 1000) }"
    else
        alone "$2" bench "$workload" --flows "$flows" ${packets:+--flow-length "$packets"} --rounds 3 --json |
            sed -nE 's/^ *"ns_per_packet": ([0-9.]+),?$/\1/p'
    fi
}

# Microseconds of the processor, in user and system mode.
processor_us() {
    local TIMEFORMAT='%3U %3S'
    { time alone "$1" run "$work/wire.rvl" --read "$2" --quiet >/dev/null; } 2>&1 | awk '{ print ($1 + $2) * 1e6 }'
}

# table LIMIT
table() {
    python3 - "$1" "$work/measured.tsv" <<'PYTHON'
import sys
from statistics import median

limit, measured = float(sys.argv[1]), {}
for line in open(sys.argv[2]):
    row, *figures = line.rstrip("\n").split("\t")
    measured.setdefault(row, []).append([float(figure) for figure in figures])

some_slower = False
print("row", "floor_ns", "floor_least", "floor_most", "old_ns", "new_ns", "ratio", "least", "most", "slower", sep="\t")
for row, turns in measured.items():
    floors, olds, news = zip(*turns)
    ratios = [new / old for _, old, new in turns]
    slower = median(ratios) > limit and min(ratios) > 1
    some_slower |= slower
    nanoseconds = (median(floors), min(floors), max(floors), median(olds), median(news))
    spread = (median(ratios), min(ratios), max(ratios))
    print(row, *(f"{ns:.1f}" for ns in nanoseconds), *(f"{of:.3f}" for of in spread), "yes" if slower else "no", sep="\t")
sys.exit(some_slower)
PYTHON
}

main
