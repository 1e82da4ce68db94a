"""Program of the processes between a worker and its commands: the zygote and the supervisors.

A worker starts one zygote with a clean environment and few imports. For commands it forks supervisors, which fork each
command, watch it and end its whole process tree. These modules import only the standard library and two small
libraries, landlockpy and pyseccomp: the zygote starts without site packages, and receives the directories of these.
"""
