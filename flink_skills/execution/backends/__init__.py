"""The execution backends of this package, one module each; :mod:`flink_skills.execution.registry` names them."""
