#!/bin/bash
# Prints whether the goods of order $1 are in stock, once the call is in the record of all checks at host $2, port $3.
set -euo pipefail
exec 3<>"/dev/tcp/$2/$3"
printf '%s command %s\n' "$1" "$FLINK_SKILLS_CALL_ID" >&3
read -r noted <&3
test "$noted" = noted
echo "$1 is in stock"
