"""Stands for the chat model: it answers by script, so the example needs no network and shows the same each time."""

from __future__ import annotations

from flink_skills.models import Provider, register_provider
from flink_skills.testing import ScriptedModel, call, calls

STEPS = (
    calls(call("load_skill", name="fix-shop")),
    calls(call("Bash", command="cp -r $SKILLS_DIR/fix-shop/assets/shop . && chmod -R u+w shop")),
    calls(call("Glob", pattern="**/*.{py,md}"), call("Bash", command="python3 shop/check.py")),
    calls(call("Grep", pattern=r"def \w*ship|50+", path="shop")),
    calls(call("Read", path="shop/prices.py", start_line=14, end_line=16)),
    # Written from memory, with two blanks where the file has four: whole lines are found all the same.
    calls(
        call(
            "Edit",
            path="shop/prices.py",
            old_string="  return 0 if amount > 5000 else 490",
            new_string="  return 0 if amount >= 5000 else 490",
        )
    ),
    calls(call("Bash", command="python3 shop/check.py")),
    calls(call("Write", path="CHANGES.md", content="* Orders of exactly 50 are shipped for nothing.\n", append=True)),
    calls(call("Read", path="/etc/passwd")),
    "Orders of exactly 50 are shipped for nothing now; the check passes.",
)


def use_script() -> ScriptedModel:
    """Make ``file-script`` a provider of models; its model, which keeps the requests that it gets."""
    model = ScriptedModel(STEPS, name="file-script:doctor")
    register_provider(Provider("file-script", lambda setup, config: model, strategies=False))
    return model
