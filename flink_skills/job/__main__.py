"""``python -m flink_skills.job --config FILE``: the main of a job in a cluster."""

from __future__ import annotations

import sys
from os.path import dirname, realpath

# If this file is run as a script, Python searches modules in this folder first. They must not hide others.
_HERE = dirname(realpath(__file__))
sys.path[:] = [entry for entry in sys.path if realpath(entry or ".") != _HERE]

from flink_skills.job.job_main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
