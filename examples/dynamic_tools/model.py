"""Stands for the chat model: it answers by script, so the example needs no network and shows the same each time."""

from __future__ import annotations

from flink_skills.models.registry import Provider, register_provider
from flink_skills.testing import ScriptedModel, call, calls

#: What the model does, request by request, and what the table says of it.
STEPS = (
    ("asks for a tool too early", calls(call("order_status", order="A-17"))),
    ("loads orders", calls(call("skill_load", skill="orders"))),
    ("calls two of its tools", calls(call("find_orders", customer="ann"), call("order_status", order="A-17"))),
    ("selects one of the four", calls(call("skill_select_tools", skill="orders", tools=["refund_order"]))),
    ("calls it", calls(call("refund_order", order="A-17", percent=20))),
    (
        "adds one that no skill names",
        calls(call("skill_select_tools", skill="orders", tools=["send_mail"], mode="add")),
    ),
    ("calls it", calls(call("send_mail", to="ann", text="20 % of your order are on their way back."))),
    (
        "unloads orders, loads shipping",
        calls(call("skill_unload", skill="orders"), call("skill_load", skill="shipping")),
    ),
    ("calls one of its tools", calls(call("track_parcel", order="A-17"))),
    ("unloads shipping", calls(call("skill_unload", skill="shipping"))),
    ("answers", "Your parcel A-17 is in Ulm, and a fifth of its price is on the way back to you."),
)


def use_script() -> ScriptedModel:
    """Make ``shop-script`` a provider of models; its model, which keeps the requests that it gets."""
    model = ScriptedModel([answer for _, answer in STEPS], name="shop-script")
    register_provider(
        Provider("shop-script", lambda setup, config: model, needs_model=False, strategies=False), replace=True
    )
    return model
