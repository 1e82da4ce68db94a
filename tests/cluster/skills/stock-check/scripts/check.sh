#!/bin/sh
# Prints whether the goods of order $1 are in stock, and appends the call to the record $2.
set -eu
printf '%s command %s %s\n' "$1" "$FLINK_SKILLS_CALL_ID" "$(date +%s.%N)" >>"$2"
echo "$1 is in stock"
