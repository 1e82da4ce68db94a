#!/bin/bash
# Stays, in every way that a process can: deaf, as daemons, forking again and again, pouring output.
trap '' TERM INT HUP
mark=$1
setsid bash -c "(setsid sleep 300.$mark &); exit"
env -i PATH="$PATH" setsid sleep "300.$mark" &
setsid bash -c 'again() { sleep 0.2; again & }; again' "$mark" &
(setsid sh -c 'while :; do echo pouring; sleep 0.1; done' "$mark" &)
echo up
sleep "300.$mark" &
while :; do wait; done
