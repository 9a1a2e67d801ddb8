#!/bin/sh
# Pushes an image and prints its name with its digest, which no later push can move.
#   push.sh ENGINE NAME:TAG FILE     ENGINE: docker or podman; NAME@sha256:... is written to FILE
set -eu
engine=$1 reference=$2 file=$3
case $reference in
  *.*/*:*) ;;
  *)
    echo "error: IMAGE=${reference%:*} names no registry; give" \
      "IMAGE=REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME" >&2
    exit 2
    ;;
esac
name=${reference%:*}
mkdir -p "$(dirname "$file")"
case $(basename "$engine") in
  podman)
    "$engine" push --quiet --digestfile "$file.partial" "$reference"
    digest=$(cat "$file.partial")
    ;;
  *)
    "$engine" push --quiet "$reference"
    digest=$("$engine" image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$reference" |
      sed -n "s|^$name@||p" | head -n 1)
    ;;
esac
echo "$name@$digest" > "$file.partial"
mv "$file.partial" "$file"
echo "pushed $(cat "$file")"
echo "compile for it: python compile.py --image $(cat "$file")"
