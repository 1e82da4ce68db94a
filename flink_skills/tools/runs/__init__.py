"""``skill_run``: one command of a skill, with inputs, outputs and artifacts."""
