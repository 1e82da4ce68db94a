# Sourced by pin.sh and build.sh: the images that the Dockerfile begins with. A mirror goes into BASE and BUILDER.
BASE=${BASE:-docker.io/library/flink}
BUILDER=${BUILDER:-docker.io/library/maven:3.9-eclipse-temurin-17}
LOCK=${LOCK:-base.lock}

stop() { printf '%s: %s\n' "$(basename "$0")" "$1" >&2; exit 1; }
