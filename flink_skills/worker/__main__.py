"""Entry point of a worker process: ``python -m flink_skills.worker``, started by the bridge."""

from __future__ import annotations

from flink_skills.worker.worker_process import main

if __name__ == "__main__":
    main()
