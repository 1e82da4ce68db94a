"""Computes how late an order is. Reads the order from standard input and prints one JSON object."""

import datetime
import json
import sys

LATE = "Order {order} arrived {late} late. Shipping is free."
IN_TIME = "Order {order} arrived in time."


def main():
    try:
        order = json.load(sys.stdin)
        promised, delivered = (datetime.date.fromisoformat(order[field]) for field in ("promised", "delivered"))
    except (ValueError, KeyError, TypeError) as error:
        print(f"the order cannot be read: {error}", file=sys.stderr)
        return 2
    days = max(0, (delivered - promised).days)
    late = "1 day" if days == 1 else f"{days} days"
    answer = (LATE if days else IN_TIME).format(order=order["order_id"], late=late)
    print(json.dumps({"days_late": days, "answer": answer}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
