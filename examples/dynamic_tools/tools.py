"""The business functions of the shop. Plain Python: signature and docstring are what a model is told."""

from __future__ import annotations

ORDERS = {"A-17": ("ann", "sent"), "A-18": ("ann", "packed"), "B-02": ("ben", "paid")}
STOCK = {"lamp": (4, "Ulm"), "chair": (0, "Jena")}


def find_orders(customer: str) -> list[str]:
    """Ids of the orders of a customer."""
    return [order for order, (of, _) in ORDERS.items() if of == customer]


def order_status(order: str) -> dict[str, str]:
    """What has become of an order."""
    customer, status = ORDERS[order]
    return {"order": order, "customer": customer, "status": status}


def cancel_order(order: str) -> str:
    """Cancel an order that was not sent yet."""
    _, status = ORDERS[order]
    return f"{order} is sent already" if status == "sent" else f"{order} is cancelled"


def refund_order(order: str, percent: int) -> str:
    """Pay back part of the price of an order.

    Args:
        percent: 1 to 100.
    """
    return f"{percent} % of {order} are paid back"


def stock_level(article: str) -> int:
    """How many of an article there are."""
    return STOCK[article][0]


def warehouse_of(article: str) -> str:
    """The town where an article is kept."""
    return STOCK[article][1]


def reserve_article(article: str, count: int) -> str:
    """Keep some of an article for a customer."""
    return f"{count} x {article} reserved"


def restock(article: str, count: int) -> str:
    """Order more of an article from its supplier."""
    return f"{count} x {article} ordered"


def shipping_cost(kilograms: float, country: str) -> float:
    """What sending a parcel costs, in euro.

    Args:
        country: Two letters.
    """
    return round((4.0 if country == "DE" else 11.0) + 1.2 * kilograms, 2)


def delivery_day(order: str) -> str:
    """The day on which an order arrives."""
    return f"{order} arrives on Thursday"


def track_parcel(order: str) -> str:
    """Where the parcel of an order is now."""
    return f"the parcel of {order} is in Ulm"


def send_mail(to: str, text: str) -> str:
    """Send a mail to a customer."""
    return f"mail to {to}: {text}"


ALL = (
    find_orders,
    order_status,
    cancel_order,
    refund_order,
    stock_level,
    warehouse_of,
    reserve_article,
    restock,
    shipping_cost,
    delivery_day,
    track_parcel,
    send_mail,
)
