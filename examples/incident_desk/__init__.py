"""An incident desk: a router that asks a specialist, and a reviewer behind them, in one job file."""
