#!/usr/bin/env bash
# How what a packet costs has changed over the commits: a page of every count of instructions that was kept (bench/instructions.tsv
# in the history), with a picture of it.
#
#   bench/curve.sh >bench/curve.md
set -euo pipefail
cd "$(dirname "$0")/.."

python3 - <<'PYTHON'
import subprocess

KEPT = "bench/instructions.tsv"
WORKLOADS = ["forward", "nat", "lb", "firewall", "monitor", "chain4", "chain4-consolidated", "http", "ids"]
DRAWN = ["nat", "firewall", "chain4", "ids"]


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


rows = []
for line in git("log", "--reverse", "--format=%h %as", "--", KEPT).splitlines():
    commit, day = line.split()
    counts = dict(row.split("\t")[:2] for row in git("show", f"{commit}:{KEPT}").splitlines()[1:])
    if all(workload in counts for workload in WORKLOADS) and (not rows or rows[-1][2] != counts):
        rows.append((commit, day, counts))

first = rows[0][2]
relative = lambda workload: [round(100 * int(counts[workload]) / int(first[workload]), 1) for _, _, counts in rows]
drawn = {workload: relative(workload) for workload in DRAWN}
lowest = min(map(min, drawn.values())) // 10 * 10
highest = -(-max(map(max, drawn.values())) // 10) * 10

print("# Instructions over time\n")
print("Instructions that a packet costs (`bench/instructions.sh`), at each commit that counted them again.")
print("Written by `bench/curve.sh`.\n")
print(f"In per cent of {rows[0][0]}, lines in this order: {', '.join(DRAWN)}.\n")
print("```mermaid\nxychart-beta")
print(f"    x-axis [{', '.join(chr(34) + commit[:4] + chr(34) for commit, _, _ in rows)}]")
print(f'    y-axis "per cent" {lowest:.0f} --> {highest:.0f}')
for values in drawn.values():
    print(f"    line {values}")
print("```\n")
print(f"| commit | day | {' | '.join(f'`{workload}`' for workload in WORKLOADS)} |")
print("|---" * (2 + len(WORKLOADS)) + "|")
for commit, day, counts in rows:
    print(f"| {commit} | {day} | {' | '.join(f'{int(counts[workload]):,}' for workload in WORKLOADS)} |")
PYTHON
