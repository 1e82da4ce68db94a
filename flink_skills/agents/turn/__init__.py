"""One turn: its steps, conversations, requests, tool calls, outputs and record."""
