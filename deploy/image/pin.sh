#!/usr/bin/env bash
# pin.sh [IMAGE…]: asks the registry for the digests of the images that the Dockerfile begins with, and writes base.lock.
# Needs docker with buildx, crane or skopeo. Without arguments: Flink's images of both supported versions, and the builder.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=images.sh
. ./images.sh

digest_of() {
  if docker buildx version > /dev/null 2>&1; then
    docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$1"
  elif command -v crane > /dev/null; then
    crane digest "$1"
  elif command -v skopeo > /dev/null; then
    # Of the index and not of one processor's image.
    skopeo inspect --raw "docker://$1" | sha256sum | sed 's/^\([0-9a-f]*\).*/sha256:\1/'
  else
    stop 'needs docker with buildx, crane or skopeo to ask a registry'
  fi
}

[ $# -gt 0 ] || set -- "$BASE:2.2.1-java17" "$BASE:2.3.0-java17" "$BUILDER"
for image in "$@"; do
  digest=$(digest_of "$image") || stop "no answer for $image"
  [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || stop "'$digest' is no digest of $image"
  { awk -v name="$image" '$1 != name' "$LOCK"; printf '%s %s\n' "$image" "$digest"; } > "$LOCK.new"
  mv "$LOCK.new" "$LOCK"
  printf '%s %s\n' "$image" "$digest"
done
