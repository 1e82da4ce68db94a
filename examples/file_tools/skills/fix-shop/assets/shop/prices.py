"""Prices of the shop, in cents."""

DISCOUNT = 10


def total(prices, member):
    """The sum of ``prices``; members pay ``DISCOUNT`` percent less."""
    amount = sum(prices)
    if member:
        amount -= amount // DISCOUNT
    return amount


def shipping(amount):
    """Orders of 50 and more are shipped for nothing."""
    return 0 if amount > 5000 else 490
