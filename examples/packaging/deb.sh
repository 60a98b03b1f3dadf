#!/bin/sh
# deb.sh - builds libwnpu0, libwnpu-dev, wnpu-tools and wnpu-server for this machine.
# usage: deb.sh DIRECTORY. The packages are left in DIRECTORY, which is created. Needs dpkg-dev,
# debhelper and libcivetweb-dev.
set -e
[ $# -eq 1 ] || { echo "usage: $0 DIRECTORY" >&2; exit 1; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
rm -rf "$out/wnpu-source"
mkdir "$out/wnpu-source"
tar -cf - --exclude=./build* --exclude=./.git --exclude=./tests . | tar -xf - -C "$out/wnpu-source"
cp -R examples/packaging/debian "$out/wnpu-source/debian"
cd "$out/wnpu-source"
# bench is not part of the packages, and its source is not there.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES CFLAGS CPPFLAGS LDFLAGS CC
dpkg-buildpackage -us -uc -b -d
rm -rf "$out/wnpu-source"
