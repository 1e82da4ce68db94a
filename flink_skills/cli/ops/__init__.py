"""Commands for operators: hosts, savepoints and releases of skills."""
