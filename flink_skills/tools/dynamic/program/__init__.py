"""The program that runs a skill's tools, inside the sandbox.

Its modules are sent to the ``python3`` of commands as text (:mod:`flink_skills.tools.dynamic.runner_program`): they
import what every Python from 3.8 on has, each other by relative imports, and nothing else of this package.
"""
