"""Measurements. ``python -m benchmarks.run`` writes JSON to ``benchmarks/results``."""
