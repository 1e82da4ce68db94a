"""A skill whose scripts read the event's file, and write a table and a chart that later events read again."""
