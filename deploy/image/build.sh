#!/usr/bin/env bash
# build.sh [OPTION OF docker buildx build…]: builds the image from this checkout, on the digests of base.lock.
#   FLINK_VERSION=2.3.0 PLATFORMS=linux/amd64,linux/arm64 TAG=registry/flink-skills:1 deploy/image/build.sh --push
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=images.sh
. ./images.sh
FLINK_VERSION=${FLINK_VERSION:-2.2.1}
TAG=${TAG:-flink-skills:$FLINK_VERSION}
PLATFORMS=${PLATFORMS:-}

digest_of() {
  local digest
  digest=$(awk -v name="$1" '$1 == name {print $2}' "$LOCK")
  [ -n "$digest" ] || stop "$1 is not in $LOCK: run deploy/image/pin.sh $1 and review what it writes"
  [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || stop "$LOCK: '$digest' is no digest of $1"
  printf '%s' "$digest"
}

base_digest=$(digest_of "$BASE:$FLINK_VERSION-java17")
builder_digest=$(digest_of "$BUILDER")
revision=$(git -C ../.. rev-parse HEAD 2> /dev/null || echo unknown)
version=$(cd ../.. && python3 -c 'from hatch_version import RELEASE, version_of; print(version_of(RELEASE))')
exec docker buildx build -f Dockerfile -t "$TAG" ${PLATFORMS:+--platform "$PLATFORMS"} \
  --build-arg "FLINK_VERSION=$FLINK_VERSION" --build-arg "BASE=$BASE" --build-arg "BASE_DIGEST=$base_digest" \
  --build-arg "BUILDER=$BUILDER" --build-arg "BUILDER_DIGEST=$builder_digest" \
  --build-arg "VERSION=$version" --build-arg "REVISION=$revision" "$@" ../..
