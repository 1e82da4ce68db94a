"""The program that the backend puts into a sandbox: it unpacks files, runs one command and packs what changed.

It travels as a zip archive together with the supervisor of the launcher, so that limits, output and the end of the
process tree mean the same as on the worker's own machine. It needs Python 3.10 or later with its standard library and
no right that the sandbox's user lacks. Paths, the format of files and capped output are shared with the worker.
"""
