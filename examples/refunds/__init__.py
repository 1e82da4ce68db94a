"""Refunds that a person approves: a Flink job, a page for people, and the bridge between them."""
