#!/usr/bin/env python3
# benchmarks/results_table.py -- Markdown of a tuning run beside the peers' stored times.
"""Prints winners beside the fastest fused peer per problem, and geometric means per group.

    benchmarks/results_table.py benchmarks/results/h200/tune.json [--readme]

The input is `vitune tune --preset bench --json`; the peers' times are those of
data/bench_problems.json (another run on the same kind of device; its note says how they were taken).
Speed-ups are peer / vitune, cold unless --warm. With --readme the table replaces the marked region
of README.md. The unfused "eager" path is no peer.
"""
import argparse
import json
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def rows(document, kind):
    problems = {p["name"]: p for p in json.loads((ROOT / "data/bench_problems.json").read_text())["problems"]}
    for result in document["results"]:
        problem, winner = problems.get(result["name"]), result["winner"]
        if problem is None or winner is None:
            continue
        peer, times = min(((n, t) for n, t in problem["peers_us"].items() if n != "eager"),
                          key=lambda item: item[1][kind])
        yield {"group": problem["group"], "name": result["name"], "cold": winner["cold"]["median_us"],
               "warm": winner["warm"]["median_us"], "peer": peer, "peer_us": times[kind],
               "ratio": times[kind] / winner[kind]["median_us"],
               "floor": problem["floor_us"] / winner[kind]["median_us"],
               "default": (winner["default_us"] or 0) / winner[winner["objective"]]["median_us"]}


def table(found, kind):
    lines = [f"| group | problem | vitune cold us | warm us | best peer | its {kind} us | speed-up | of floor |",
             "|---|---|--:|--:|---|--:|--:|--:|"]
    for r in found:
        lines.append(f"| {r['group']} | {r['name']} | {r['cold']:.1f} | {r['warm']:.1f} | {r['peer']} | "
                     f"{r['peer_us']:.1f} | {r['ratio']:.2f} | {100 * r['floor']:.0f} % |")
    lines.append("")
    for group in ("vit", "bias", "long"):
        ratios = [r["ratio"] for r in found if r["group"] == group]
        if ratios:
            lines.append(f"- group `{group}` ({len(ratios)} problems): geometric mean {geometric_mean(ratios):.2f}, "
                         f"least {min(ratios):.2f}, most {max(ratios):.2f}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--readme", action="store_true")
    options = parser.parse_args()
    kind = "warm" if options.warm else "cold"
    text = table(list(rows(json.loads(options.results.read_text()), kind)), kind)
    if not options.readme:
        print(text)
        return
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    readme.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
