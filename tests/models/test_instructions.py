"""Examines the internals of models.instructions on purpose."""

from __future__ import annotations

import pytest

from flink_skills.models.instructions import first_command, first_paragraph


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("```bash\nls -l\n```", "ls -l"),
        ("```sh\na\nb\n```", "a\nb"),
        ("``` shell title=x\nmake\n```", "make"),
        ("~~~bash\nls\n~~~", "ls"),
        ("````bash\necho '```'\n````", "echo '```'"),
        ("```console\n$ python3 x.py\nresult: 5\n$ python3 y.py\n```", "python3 x.py\npython3 y.py"),
        ("```bash\n$ ls\n```", "ls"),
        ("```\npython3 scripts/x.py\n```", "python3 scripts/x.py"),
        ("```\n# first\n./run.sh now\n```", "# first\n./run.sh now"),
        ("```\nFOO=1 BAR=2 python3 x.py\n```", "FOO=1 BAR=2 python3 x.py"),
        ("```\n$SKILLS_DIR/x/run.sh\n```", "$SKILLS_DIR/x/run.sh"),
        ("1. Run:\n\n   ```bash\n   cat <<E\n   x\n   E\n   ```\n", "cat <<E\nx\nE"),
        ("```python\nprint(1)\n```\n\n```bash\nls\n```", "ls"),
        ("```json\n{}\n```\n\n```\nSome sample output.\n```\n\n```sh\nls\n```", "ls"),
        ("```bash\n\n```\n\n```bash\nls\n```", "ls"),
        ("```bash\r\nls\r\n```\r\n", "ls"),
        ("Use `ls` for that.", None),
        ("```python\nprint(1)\n```", None),
        ("```\nThe output looks like this.\n```", None),
        ("```bash\nunclosed", None),
        ("````md\n```bash\nls\n```\n", "ls"),
        ("~~~~\nls\n~~~\n~~~~~\n", "ls\n~~~"),
        ("```sh `x`\n```sh\nls\n```", "ls"),
        ("```{.bash}\nls\n  ```  ", "ls"),
        ("```bash\nls\n~~~\n```~~\n", "ls\n~~~"),
        ("", None),
    ],
)
def test_the_first_command_block(text: str, command: str | None) -> None:
    assert first_command(text) == command


@pytest.mark.parametrize(
    ("text", "paragraph"),
    [
        ("# Title\n\nFirst line\nsecond line.\n\nOther.", "First line second line."),
        ('<skill_content name="x">\n# T\n\nText.\n</skill_content>', "Text."),
        ("```bash\nls\n```\n\nAfter.", "After."),
        ("# Only a title", "# Only a title"),
        ("# T\n```\na\n```\nB.\nC.\n~~~\nd\n~~~", "B. C."),
        ("```\n\nUnclosed.", "Unclosed."),
    ],
)
def test_the_first_paragraph(text: str, paragraph: str) -> None:
    assert first_paragraph(text) == paragraph
