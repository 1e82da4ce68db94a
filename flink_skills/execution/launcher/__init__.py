"""What runs in the processes between a worker and its commands: the zygote and the supervisors.

The zygote is started once per worker with a clean environment and imports next to nothing; for every command
it forks a supervisor, which forks the command, watches it and ends its whole process tree. These modules
import the standard library and two small libraries only, landlockpy and pyseccomp: the zygote starts without site
packages and is told where these are.
"""
