"""Checks the invoice in a file, and prints what is wrong with it as JSON."""

import json
import sys
from decimal import Decimal
from pathlib import Path

CENT = Decimal("0.01")


def main() -> None:
    invoice = json.loads(Path(sys.argv[1]).read_text(), parse_float=Decimal)
    net = sum(line["count"] * line["price"] for line in invoice["lines"])
    tax = (net * invoice["tax_percent"] / 100).quantize(CENT)
    problems = [
        f"{name} is {invoice[name]}, not {right}"
        for name, right in (("tax", tax), ("total", net + tax))
        if invoice[name] != right
    ]
    print(json.dumps({"invoice": invoice["number"], "total": float(net + tax), "problems": problems}))


if __name__ == "__main__":
    main()
