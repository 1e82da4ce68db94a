"""Says which share of all revenue each region of regions.csv has."""

import csv
import sys
from pathlib import Path


def main() -> None:
    with Path(sys.argv[1]).open(newline="") as table:
        revenue = {row["region"]: float(row["revenue"]) for row in csv.DictReader(table)}
    total = sum(revenue.values())
    print(", ".join(f"{region} {euro / total:.0%}" for region, euro in revenue.items()))


if __name__ == "__main__":
    main()
