"""Entry point of ``python -m flink_skills.cli``."""

import sys

from flink_skills.cli import main

sys.exit(main())
