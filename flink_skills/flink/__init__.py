"""Flink: environment, options, job graph. The only package that imports ``pyflink``."""
