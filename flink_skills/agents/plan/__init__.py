"""The plan of an agent: compiled and checked at submit, stored in the job graph as JSON."""
