"""Sums up sales by region: a chart on standard output, and regions.csv and regions.svg in $OUTPUT_DIR."""

import csv
import os
import sys
from collections import Counter
from html import escape
from pathlib import Path

BAR, ROW = 300, 28


def main() -> None:
    revenue: Counter[str] = Counter()
    with Path(sys.argv[1]).open(newline="") as sales:
        for row in csv.DictReader(sales):
            revenue[row["region"]] += round(int(row["count"]) * float(row["price"]) * 100)
    ranked = [(region, cents / 100) for region, cents in revenue.most_common()]

    out = Path(os.environ["OUTPUT_DIR"])
    with (out / "regions.csv").open("w", newline="") as table:
        writer = csv.writer(table)
        writer.writerow(["region", "revenue"])
        writer.writerows((region, f"{euro:.2f}") for region, euro in ranked)
    (out / "regions.svg").write_text(chart(ranked))
    for region, euro in ranked:
        print(f"{region:<6} {euro:>9,.2f}  {'█' * round(30 * euro / ranked[0][1])}")


def chart(ranked: list[tuple[str, float]]) -> str:
    """A bar for each region."""
    rows = [
        f'<text x="0" y="{ROW * at + 18}">{escape(region)}</text>'
        f'<rect x="60" y="{ROW * at + 4}" width="{BAR * euro / ranked[0][1]:.0f}" height="{ROW - 8}" fill="#4078c0"/>'
        for at, (region, euro) in enumerate(ranked)
    ]
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{BAR + 60}" height="{ROW * len(ranked)}">'
    return "\n".join([opening, *rows, "</svg>\n"])


if __name__ == "__main__":
    main()
