#!/bin/sh
# Leaves the secret $1 in every folder of the workspace, open to everybody as far as that is ours to say.
set -eu
chmod 755 "$WORK_DIR" "$OUTPUT_DIR" "$HOME" "$TMPDIR"
for folder in "$WORK_DIR" "$OUTPUT_DIR" "$HOME" "$TMPDIR"; do
    echo "$1" >"$folder/secret"
    chmod 644 "$folder/secret"
done
echo "workspace=$WORKSPACE_DIR"
