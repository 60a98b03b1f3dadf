#!/bin/sh
# test_input.sh - what build/transcribe makes of inputs: pipes, FIFOs, damaged files, containers.
# Needs the model tiny and the demo recording in the cache (examples/fetch.sh tiny demo); most of it
# needs ffmpeg, too.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=$(cd "${WNPU_BUILD:-build}" && pwd) || exit 1
transcribe=$build/transcribe
t_temp

model=$(examples/fetch.sh --offline tiny 2>/dev/null)
demo=$(examples/fetch.sh --offline demo 2>/dev/null)

# piped FILE CODE COMMAND...: run, with the file's bytes through a pipe
piped() {
    file=$1 want=$2
    shift 2
    # shellcheck disable=SC2002 # a pipe is what is tested
    cat "$file" | "$@" >"$T/out" 2>"$T/err"
    got=$?
    [ "$got" -eq "$want" ] || fail "status $got, not $want: cat $file | $* ($(head -c 300 "$T/err"))"
}

# t OPTION-OR-FILE...: transcribes; the text is what most tests compare.
t() { "$transcribe" -m "$model" "$@"; }
has() { grep -qF -e "$2" "$1" || fail "no '$2' in $(basename "$1"): $(head -c 300 "$1")"; }
empty() { [ ! -s "$1" ] || fail "$(basename "$1") is not empty: $(head -c 300 "$1")"; }
filled() { [ -s "$1" ] || fail "$(basename "$1") is empty or missing"; }
same() { cmp -s "$1" "$2" || fail "$(basename "$1") and $(basename "$2") differ"; }
make_with() { ffmpeg -nostdin -y -v error "$@" </dev/null || fail "ffmpeg $*"; }

# first_cue FILE: ms at which the first cue of a TSV file begins.
first_cue() { sed -n '2s/	.*//p' "$1"; }

# between LOW HIGH VALUE WHAT
between() {
    [ -n "$3" ] && [ "$3" -ge "$1" ] && [ "$3" -le "$2" ] || fail "$4: $3 is not $1 to $2"
}

byte() { printf '%b' "\\0$(printf '%03o' $(($1 & 255)))"; }
le16() { byte "$1"; byte $(($1 >> 8)); }
le32() { le16 $(($1 & 65535)); le16 $(($1 >> 16 & 65535)); }

# wav_header BYTES [FORMAT [BITS]]: mono at 16 kHz; BYTES of samples by its data chunk
wav_header() {
    format=${2:-1} bits=${3:-16}
    printf RIFF; le32 $(($1 + 36)); printf 'WAVEfmt '; le32 16
    le16 "$format"; le16 1; le32 16000; le32 $((2000 * bits)); le16 $((bits / 8)); le16 "$bits"
    printf data; le32 "$1"
}

# 8 s of the demo: 256,000 bytes of samples.
make_recordings() {
    tail -c 822400 "$demo" | head -c 256000 >"$T/raw"
    { wav_header 256000; cat "$T/raw"; } >"$T/speech.wav"
    t "$T/speech.wav" >"$T/speech.txt" || fail "the recording itself"
    t -f json "$T/speech.wav" >"$T/speech.json" || fail "the recording itself"
    filled "$T/speech.txt"
}

# ---- WAV and raw samples ----

test_pipes() {
    mkfifo "$T/fifo"
    cat "$T/speech.wav" >"$T/fifo" &
    run 0 t -f json "$T/fifo"
    wait
    same "$T/speech.json" "$T/out"
    piped "$T/speech.wav" 0 t -f json /dev/stdin
    same "$T/speech.json" "$T/out"
    # In pieces that fit nothing.
    { dd bs=777 2>/dev/null | t -f json - >"$T/out" 2>"$T/err" || fail "in pieces"; } \
        <"$T/speech.wav"
    same "$T/speech.json" "$T/out"
    # A file from the middle of which standard input begins.
    { printf 'some bytes'; cat "$T/speech.wav"; } >"$T/middle"
    { dd bs=10 count=1 of=/dev/null 2>/dev/null; t -f json -; } <"$T/middle" >"$T/out" 2>"$T/err" ||
        fail "from the middle of a file"
    same "$T/speech.json" "$T/out"
}

# The text of a recording that goes on is there before its end: the writer waits for it.
test_as_it_comes() {
    mkfifo "$T/slow"
    { cat "$T/speech.wav"; soon [ -e "$T/heard" ] || echo >"$T/impatient"; } >"$T/slow" &
    run 0 t --spans --duration 2 "$T/slow"
    filled "$T/out"
    [ ! -e "$T/impatient" ] || fail "the whole pipe was read for its first 2 s"
    echo >"$T/heard"
    wait
}

test_raw() {
    run 0 t -f json --raw s16le,16000,1 "$T/raw"
    same "$T/speech.json" "$T/out"
    piped "$T/raw" 0 t -f json --raw s16le -
    same "$T/speech.json" "$T/out"
    run 0 t --raw s16le,16000 "$T/raw"
    for wrong in s16 s16le, s16le,1 s16le,16000,0 s16le,16000,1,1 s16be s16le,x; do
        run 1 t --raw "$wrong" "$T/raw"
        has "$T/err" --help
    done
}

test_wav_sizes() {
    for size in 100000 100001 8 2; do # not updated to the end
        { wav_header $size; cat "$T/raw"; } >"$T/x.wav"
        run 0 t "$T/x.wav"
        same "$T/speech.txt" "$T/out"
        has "$T/err" "too small"
    done
    run 0 t -q "$T/x.wav"
    empty "$T/err"
    for size in 0 4294967295 2147483647 2147479552; do # what recorders write first
        { wav_header $size; cat "$T/raw"; } >"$T/x.wav"
        run 0 t "$T/x.wav"
        same "$T/speech.txt" "$T/out"
        empty "$T/err"
    done
    { wav_header 512000; cat "$T/raw"; } >"$T/x.wav" # cut
    run 6 t "$T/x.wav"
    same "$T/speech.txt" "$T/out"
    has "$T/err" "cut short"
    piped "$T/x.wav" 6 t -
    same "$T/speech.txt" "$T/out"
    { wav_header 256000; cat "$T/raw"; printf LIST; le32 4; printf 'INFO'; } >"$T/x.wav"
    run 0 t -f json "$T/x.wav"
    same "$T/speech.json" "$T/out"
    empty "$T/err"
    # Two data chunks, of which the second holds the second half.
    { wav_header 128000; head -c 128000 "$T/raw"; printf data; le32 128000
      tail -c 128000 "$T/raw"; } >"$T/x.wav"
    run 0 t -f json "$T/x.wav"
    same "$T/speech.json" "$T/out"
    # The samples come before their format.
    { printf RIFF; le32 256036; printf WAVEdata; le32 256000; cat "$T/raw"
      wav_header 0 | tail -c +13 | head -c 24; } >"$T/x.wav"
    run 0 t -f json "$T/x.wav"
    same "$T/speech.json" "$T/out"
}

# A file that becomes shorter while it is read: speech, and ten hours of silence that are cut off as
# soon as there is progress. They are a hole in the file.
test_shrinking() {
    { wav_header 1152256000; cat "$T/raw"; } >"$T/x.wav"
    dd if=/dev/null of="$T/x.wav" bs=1 seek=1152256044 2>/dev/null
    begin "$transcribe" -m "$model" --progress "$T/x.wav"
    soon [ -s "$T/err" ]
    dd if=/dev/null of="$T/x.wav" bs=1 seek=256044 2>/dev/null
    ended 6
    filled "$T/out"
    has "$T/err" "cut short"
}

# Times are those of the file, and what is outside is not heard.
test_clips() {
    { wav_header 384000; head -c 128000 /dev/zero; cat "$T/raw"; } >"$T/late.wav"
    run 0 t -f tsv "$T/late.wav"
    between 3500 4500 "$(first_cue "$T/out")" "speech after 4 s"
    run 0 t -f tsv --offset 0:04 "$T/late.wav"
    between 3500 4500 "$(first_cue "$T/out")" "--offset 4"
    run 0 t -f tsv --offset 3.5 --duration 1:00:00 "$T/late.wav"
    between 3500 4500 "$(first_cue "$T/out")" "--offset 3.5"
    run 0 t -f json --duration 4 "$T/late.wav"
    has "$T/out" '"text": ""'
    has "$T/out" '"end": 4.000, "kind": "silence"'
    # Two stretches, the second to the end, are what silence between them leaves.
    { wav_header 384000; head -c 128000 /dev/zero; head -c 64000 "$T/raw"; head -c 64000 /dev/zero
      tail -c 128000 "$T/raw"; } >"$T/holes.wav"
    run 0 t -f json "$T/holes.wav"
    cp "$T/out" "$T/want"
    run 0 t -f json --clip-timestamps 4,6,8 "$T/late.wav"
    same "$T/want" "$T/out"
    piped "$T/late.wav" 0 t -f json --clip-timestamps 0:04,6,0:00:08,1000 -
    same "$T/want" "$T/out"
    for wrong in 3,2 1,1 x 1,,2 1,2,1 ''; do
        run 1 t --clip-timestamps "$wrong" "$T/late.wav"
        has "$T/err" --help
    done
    run 1 t --clip-timestamps 1,2 --offset 3 "$T/late.wav"
    run 1 t --offset 1:2:3:4 "$T/late.wav"
    run 1 t --duration 0 "$T/late.wav"
    run 1 t --offset -1 "$T/late.wav"
    for ending in wav flac; do
        [ -e "$T/speech.$ending" ] || continue
        run 0 t --offset 9 "$T/speech.$ending"
        empty "$T/out"
        has "$T/err" "ends at 8.0 s"
    done
}

# Channels of opposite sign, all along or in the second half only, and floats up to 32767.
test_channels() {
    command -v python3 >/dev/null 2>&1 || { skip "no python3"; return; }
    python3 - "$T/raw" "$T/opposed" "$T/half" "$T/floats" <<'END'
import array, sys
x = array.array("h", open(sys.argv[1], "rb").read())
def write(name, pairs): array.array("h", [v for p in pairs for v in p]).tofile(open(name, "wb"))
write(sys.argv[2], [(v, max(-32767, -v) if v != -32768 else 32767) for v in x])
write(sys.argv[3], [(v, v if i < len(x) // 2 else min(32767, -v)) for i, v in enumerate(x)])
array.array("f", x).tofile(open(sys.argv[4], "wb"))
END
    for kind in opposed half; do
        run 0 t --raw s16le,16000,2 "$T/$kind"
        same "$T/speech.txt" "$T/out"
        has "$T/err" "cancel each other"
        piped "$T/$kind" 0 t --raw s16le,16000,2 -
        same "$T/speech.txt" "$T/out"
        if [ -n "$ffmpeg" ]; then
            make_with -f s16le -ar 16000 -ac 2 -i "$T/$kind" "$T/$kind.flac"
            run 0 t "$T/$kind.flac"
            same "$T/speech.txt" "$T/out"
            has "$T/err" "cancel each other"
        fi
    done
    run 0 t --raw f32le,16000,1 "$T/floats"
    same "$T/speech.txt" "$T/out"
    has "$T/err" "full scale of integers"
}

test_names() {
    mkdir -p "$T/names"
    for name in '-o' 'http:x' 'concat:a|b' 'a
b' 'pipe:0' 'noending'; do
        cp "$T/speech.wav" "$T/names/$name"
        (cd "$T/names" && t -f json -- "$name") >"$T/out" 2>"$T/err" || fail "$name: $(cat "$T/err")"
        same "$T/speech.json" "$T/out"
        if [ -n "$ffmpeg" ]; then
            cp "$T/speech.flac" "$T/names/$name"
            (cd "$T/names" && t -- "$name") >"$T/out" 2>"$T/err" || fail "$name: $(cat "$T/err")"
            same "$T/speech.txt" "$T/out"
        fi
    done
}

# Waiting ends with a signal, wherever the input waits, and what was heard is kept.
test_end() {
    mkfifo "$T/never"
    begin "$transcribe" -m "$model" "$T/never"
    soon catches $pid
    sleep 1 # by then it waits, or the signal keeps it from beginning to
    kill -INT $pid
    ended 4
    has "$T/err" "not transcribed"
    [ -n "${WNPU_SANITIZED-}" ] || signal_at_open # which would want to be loaded first
    mkfifo "$T/stays"
    feed "$T/speech.wav" >"$T/stays" &
    begin "$transcribe" -m "$model" "$T/stays"
    soon catches $pid
    interrupted
    same "$T/speech.txt" "$T/out"
}

# The signal arrives when the FIFO is about to be opened, which a writer would have to do as well.
signal_at_open() {
    cat >"$T/open.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
static int with(const char *name, const char *path, int flags)
{
    int (*next)(const char *, int, ...);
    *(void **)&next = dlsym(RTLD_NEXT, name);
    if (strstr(path, "/never") != NULL)
        raise(SIGINT);
    return next(path, flags, 0600);
}
int open(const char *path, int flags, ...) { return with("open", path, flags); }
int open64(const char *path, int flags, ...) { return with("open64", path, flags); }
END
    "${CC:-cc}" -shared -fPIC -w "$T/open.c" -o "$T/open.so" -ldl || { fail "no library"; return; }
    run 4 timeout --foreground 300 env LD_PRELOAD="$T/open.so" "$transcribe" -m "$model" "$T/never"
    has "$T/err" "not transcribed"
}

# ---- ffmpeg ----

# The same from a file and from a pipe, whatever the format.
test_formats() {
    make_with -i "$T/speech.wav" -c:a adpcm_ima_wav "$T/f.adpcm.wav"
    for ending in mp3 m4a ogg opus flac mkv webm aac wma ts w64 caf aiff avi; do
        make_with -i "$T/speech.wav" "$T/f.$ending"
    done
    for file in "$T"/f.*; do
        run 0 t -f json "$file"
        has "$T/out" '"kind": "text"'
        empty "$T/err"
        cp "$T/out" "$T/want"
        piped "$file" 0 t -f json -
        same "$T/want" "$T/out"
        empty "$T/err"
    done
    run 0 t -f json "$T/f.flac"
    same "$T/speech.json" "$T/out"
    run 0 t -f json "$T/f.w64"
    same "$T/speech.json" "$T/out"
    mkfifo "$T/compressed"
    cat "$T/f.flac" >"$T/compressed" &
    run 0 t -f json "$T/compressed"
    wait
    same "$T/speech.json" "$T/out"
}

test_cut() {
    make_with -i "$T/speech.wav" -movflags +faststart "$T/f.fast.m4a"
    for ending in mp3 fast.m4a ogg opus flac mkv webm wma; do
        size=$(wc -c <"$T/f.$ending")
        head -c $((size * 8 / 10)) "$T/f.$ending" >"$T/cut.$ending"
        run 6 t "$T/cut.$ending"
        filled "$T/out"
        has "$T/err" "cut short"
        piped "$T/cut.$ending" 6 t -
        filled "$T/out"
        has "$T/err" "cut short"
    done
    # Damaged in the middle.
    size=$(wc -c <"$T/f.flac")
    { head -c $((size / 2)) "$T/f.flac"; head -c 4000 /dev/zero
      tail -c +$((size / 2 + 4001)) "$T/f.flac"; } >"$T/damaged.flac"
    run 6 t "$T/damaged.flac"
    filled "$T/out"
    has "$T/err" "damaged"
    # Its index is gone.
    head -c 10000 "$T/f.m4a" >"$T/cut.m4a"
    run 3 t "$T/cut.m4a"
    has "$T/err" "moov"
}

# What a decoder of MP3 skips without losing a frame is no damage: tags inside the file and padding.
# What was overwritten or left out is, also with zeros.
test_skipped() {
    make_with -i "$T/speech.wav" -write_xing 0 -id3v2_version 0 "$T/plain.mp3"
    size=$(wc -c <"$T/plain.mp3")
    zeros() { head -c "$1" /dev/zero; }
    {
        cat "$T/plain.mp3"
        printf 'ID3\004\000\000\000\000\003\144TIT2'; zeros 480
        cat "$T/plain.mp3"
    } >"$T/id3_inside.mp3"
    { cat "$T/plain.mp3"; zeros 5000; } >"$T/padded.mp3"
    {
        cat "$T/plain.mp3"
        printf 'LYRICSBEGININD0000210LYR00020[00:01]Some text here000039LYRICS200TAG'; zeros 125
    } >"$T/lyrics.mp3"
    cat "$T/f.mp3" "$T/f.mp3" >"$T/joined.mp3"
    for name in id3_inside padded lyrics joined; do
        run 0 t --spans "$T/$name.mp3"
        empty "$T/err"
        piped "$T/$name.mp3" 0 t --spans -
        empty "$T/err"
    done
    half=$((size / 2 - 50))
    { head -c $half "$T/plain.mp3"; zeros 1000; tail -c +$((half + 1001)) "$T/plain.mp3"
    } >"$T/zeros.mp3"
    { head -c $half "$T/plain.mp3"; tail -c +$((half + 1001)) "$T/plain.mp3"; } >"$T/missing.mp3"
    { head -c $half "$T/plain.mp3"; zeros $half; } >"$T/begun.mp3"
    for name in zeros missing begun; do
        run 6 t --spans "$T/$name.mp3"
        has "$T/err" damaged
        piped "$T/$name.mp3" 6 t --spans -
    done
}

# Formats of dictation machines and the like. A DSS file of G.723.1 frames has blocks of 506 bytes of
# them, the last of which is filled up.
test_rare() {
    make_with -i examples/jfk.wav -ar 8000 -c:a g723_1 -b:a 6300 "$T/rare.tco"
    make_with -i examples/jfk.wav -c:a sbc "$T/rare.sbc"
    {
        printf '\002dss'; head -c 34 /dev/zero; printf 260928101500260928101510
        head -c 614 /dev/zero; printf '\002'; head -c 347 /dev/zero
        at=0 size=$(wc -c <"$T/rare.tco")
        while [ $at -lt "$size" ]; do
            printf '\000\000\026\000\000\000'
            tail -c +$((at + 1)) "$T/rare.tco" | head -c 506
            at=$((at + 506))
        done
        head -c $((at - size)) /dev/zero | tr '\000' '\377'
    } >"$T/rare.dss"
    for ending in tco sbc dss; do
        run 0 t "$T/rare.$ending"
        has "$T/out" "country"
        empty "$T/err"
    done
    # What ends before its time is cut.
    head -c 3072 "$T/rare.dss" >"$T/begun.dss"
    head -c 512 /dev/zero | tr '\000' '\377' >>"$T/begun.dss"
    tail -c +3585 "$T/rare.dss" >>"$T/begun.dss"
    run 6 t "$T/begun.dss"
}

# Sound that begins 4 s after the picture, and a hole of 3 s in the time stamps.
test_timestamps() {
    make_with -f lavfi -i color=s=64x64:r=5:d=12 -itsoffset 4 -i "$T/speech.wav" -c:v mpeg4 \
        -c:a aac "$T/delayed.mkv"
    run 0 t -f tsv "$T/delayed.mkv"
    between 3500 4500 "$(first_cue "$T/out")" "delayed.mkv"
    make_with -i "$T/speech.wav" -af 'asetpts=if(gt(T\,4)\,PTS+3/TB\,PTS)' -c:a pcm_s16le \
        "$T/hole.mkv"
    run 0 t -f json "$T/hole.mkv"
    grep -q '"duration": 11\.' "$T/out" || fail "hole: $(grep duration "$T/out")"
    # MPEG streams: ffmpeg would begin with the first sample, find no audio that begins late, and
    # remove long holes.
    for ending in ts mpg; do
        make_with -f lavfi -i color=s=64x64:r=25:d=18 -itsoffset 8 -i "$T/speech.wav" \
            -c:v mpeg2video -b:v 100k -c:a mp2 "$T/delayed.$ending"
        run 0 t -f tsv "$T/delayed.$ending"
        between 7500 8600 "$(first_cue "$T/out")" "delayed.$ending"
    done
    for ending in ts mpg ogg mp4; do
        codec=mp2
        [ $ending != ogg ] || codec=flac
        [ $ending != mp4 ] || codec=aac
        make_with -i "$T/speech.wav" -af 'asetpts=if(gt(T\,4)\,PTS+30/TB\,PTS)' -c:a $codec \
            "$T/hole.$ending"
        run 0 t -f json "$T/hole.$ending"
        grep -q '"duration": 38\.' "$T/out" || fail "$ending: $(grep duration "$T/out")"
    done
}

# spans_end LOW HIGH FILE: where the last speech ends, in ms.
spans_end() {
    run 0 t --spans "$3"
    between "$1" "$2" "$(tail -n 1 "$T/out" | sed 's/.*	//')" "$(basename "$3")"
}

# Pieces of 4, 3 and 4 s with other channels and sample rates, as spliced advertisements and television
# have them: no time is put in where they change, and one that is missing there is.
test_spliced() {
    make_with -i examples/jfk.wav -t 4 -ac 2 -ar 44100 "$T/4.wav"
    make_with -i examples/jfk.wav -ss 8 -t 3 -ar 22050 "$T/3.wav"
    make_with -i examples/jfk.wav -ss 8 -t 3 -ac 6 -ar 48000 "$T/3.ac3"
    make_with -i "$T/4.wav" "$T/4.ac3"
    for ending in aac mp3 mp2 ts; do
        for n in 4 3; do
            make_with -i "$T/$n.wav" -write_xing 0 -id3v2_version 0 "$T/$n.$ending"
        done
    done
    make_with -i "$T/3.wav" -output_ts_offset 9 "$T/late.ts"
    for ending in aac mp3 mp2 ac3 ts; do
        cat "$T/4.$ending" "$T/3.$ending" "$T/4.$ending" >"$T/spliced.$ending"
        spans_end 10500 11500 "$T/spliced.$ending"
        piped "$T/spliced.$ending" 0 t --spans -
        between 10500 11500 "$(tail -n 1 "$T/out" | sed 's/.*	//')" "spliced.$ending from a pipe"
    done
    cat "$T/4.ts" "$T/late.ts" >"$T/gap.ts"
    spans_end 11500 12500 "$T/gap.ts"
}

# Chained Ogg, as internet radio sends it and joined files have it: each link has times and headers of
# its own, and the links may have other numbers of channels.
test_chained() {
    make_with -i examples/jfk.wav -t 4.3 "$T/link1.opus"
    make_with -i examples/jfk.wav -ss 7 -t 3.7 -ac 2 "$T/link2.opus"
    make_with -i examples/jfk.wav -t 4.3 -c:a libvorbis "$T/link1.vorbis.ogg"
    make_with -i examples/jfk.wav -ss 7 -t 3.7 -c:a libvorbis "$T/link2.vorbis.ogg"
    cat "$T/link1.opus" "$T/link2.opus" "$T/link1.opus" >"$T/chained.opus"
    cat "$T/link1.vorbis.ogg" "$T/link2.vorbis.ogg" "$T/link1.vorbis.ogg" >"$T/chained.ogg"
    for name in chained.opus chained.ogg; do
        run 0 t -f json "$T/$name"
        grep -qE '"duration": 12\.(29|30|31)' "$T/out" || fail "$name: $(grep duration "$T/out")"
        [ "$(grep -c 'fellow Americans' "$T/out")" -ge 2 ] || fail "$name: $(cat "$T/out")"
        empty "$T/err"
        mv "$T/out" "$T/whole"
        piped "$T/$name" 0 "$transcribe" -m "$model" -f json -
        same "$T/whole" "$T/out"
    done
    # What is damaged in one of the links is reported, and the others are read.
    {
        head -c 6000 "$T/link1.opus"
        cat "$T/link2.opus"
    } >"$T/broken.opus"
    t "$T/broken.opus" >"$T/out" 2>"$T/err"
    has "$T/out" "do for your country"
}

# A film: dialogue in the centre, loud sounds everywhere else. Where the layout is known it is heard as
# from two loudspeakers.
test_film() {
    make_with -i examples/jfk.wav -f lavfi -i "aevalsrc=0.2*sin(2*PI*196*t)+0.2*sin(2*PI*(330+9*\
sin(5*t))*t)+0.1*sin(2*PI*1320*t):d=11:s=16000" -filter_complex "[0:a][1:a]amerge[x];[x]pan=5.1|\
FL=0.1*c1|FR=0.1*c1|FC=0.8*c0|LFE=2*c1|BL=0.3*c1|BR=0.3*c1" "$T/film.wav"
    make_with -i "$T/film.wav" -c:a ac3 "$T/film.ac3"
    for name in film.wav film.ac3; do
        run 0 t --channel mix "$T/$name"
        has "$T/out" "what your country can do for you"
        mv "$T/out" "$T/mix"
        run 0 t --channel centre "$T/$name"
        has "$T/out" "what your country can do for you"
    done
    run 0 t --channel 2 "$T/film.wav"
    mv "$T/out" "$T/two"
    run 0 t --channel center "$T/film.wav"
    same "$T/two" "$T/out"
    run 3 t --channel centre "$T/speech.wav"
    has "$T/err" "no centre channel"
}

# A file that standard input is, for ffmpeg.
test_redirected() {
    for name in - /dev/stdin /proc/self/fd/0; do
        t "$name" <"$T/speech.flac" >"$T/out" 2>"$T/err" || fail "$name: $(cat "$T/err")"
        same "$T/speech.txt" "$T/out"
    done
}

# Formats that need a file are spooled; a signal ends that, and what arrived is transcribed.
test_end_of_spooled() {
    for ending in mp3 m4a ogg; do
        make_with -i "$T/speech.wav" "$T/end.$ending"
        t "$T/end.$ending" >"$T/whole.txt" || fail "end.$ending"
        mkfifo "$T/open.$ending"
        { cat "$T/end.$ending"; sleep 9; } >"$T/open.$ending" &
        run 4 timeout -s INT --preserve-status 6 "$transcribe" -m "$model" "$T/open.$ending"
        same "$T/whole.txt" "$T/out"
        wait
    done
}

test_tracks() {
    make_with -i "$T/speech.wav" -f lavfi -i anullsrc=r=16000:cl=mono:d=8 -map 1 -map 0 -c:a flac \
        "$T/two.mkv"
    run 0 t --track 1 -f json "$T/two.mkv"
    same "$T/speech.json" "$T/out"
    run 0 t --track 0 "$T/two.mkv"
    empty "$T/out"
    run 3 t --track 2 "$T/two.mkv"
    has "$T/err" "no such audio track"
    run 3 t --track 1 "$T/speech.wav"
    has "$T/err" "no such audio track"
    run 0 t --track 0 "$T/speech.wav"
    same "$T/speech.txt" "$T/out"
    make_with -f lavfi -i color=s=64x64:r=5:d=1 -c:v mpeg4 "$T/silent.mkv"
    run 3 t "$T/silent.mkv"
    has "$T/err" "no audio"
    # A picture on the cover.
    make_with -f lavfi -i color=s=64x64:d=1 -frames:v 1 "$T/cover.png"
    make_with -i "$T/speech.wav" -i "$T/cover.png" -map 0 -map 1 -c:a flac -c:v copy \
        -disposition:v attached_pic "$T/cover.flac"
    run 0 t -f json "$T/cover.flac"
    same "$T/speech.json" "$T/out"
    empty "$T/err"
}

# Nothing but the one input is opened.
test_playlists() {
    cp "$T/speech.flac" "$T/secret.flac"
    printf '#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://192.0.2.1/a.ts\n' >"$T/live.mp3"
    printf '#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nsecret.flac\n#EXT-X-ENDLIST\n' \
        >"$T/list.m3u8"
    printf 'ffconcat version 1.0\nfile secret.flac\n' >"$T/concat.mp3"
    printf 'v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n' \
        >"$T/stream.sdp"
    for file in live.mp3 list.m3u8 concat.mp3 stream.sdp; do
        run 3 t "$T/$file" "$T/speech.wav"
        has "$T/err" "$file"
        [ "$(wc -l <"$T/err")" -eq 1 ] || fail "$file: not one line"
        has "$T/out" "$(cat "$T/speech.txt")"
        piped "$T/$file" 3 t -
    done
    run 3 sh -c 'cd "$1" && shift && exec "$@"' sh "$T" "$transcribe" -m "$model" \
        concat:secret.flac http://192.0.2.1/a.mp3
}

# No room for temporary files is needed but for MP4 from a pipe, which takes TMPDIR.
test_temporary_files() {
    mkdir -p "$T/tmp"
    run 0 env TMPDIR="$T/none" "$transcribe" -m "$model" "$T/f.mp3"
    piped "$T/f.m4a" 0 env TMPDIR="$T/tmp" "$transcribe" -m "$model" -
    filled "$T/out"
    [ -z "$(ls "$T/tmp")" ] || fail "left in TMPDIR: $(ls "$T/tmp")"
    if command -v strace >/dev/null 2>&1; then
        strace -f -o "$T/trace" "$transcribe" -m "$model" "$T/f.mp3" >/dev/null 2>&1
        grep -E 'O_CREAT' "$T/trace" | grep -v /dev/null | grep -q . && fail "a file was made"
    fi
}

# A stand-in that hangs before it writes anything, or after, is ended. The second one has time to write.
test_stall() {
    mkdir -p "$T/bin"
    printf '#!/bin/sh\necho $$ >"%s"\n[ -z "$HALF" ] || cat "%s"\nexec sleep 9999\n' "$T/stalled" \
        "$T/speech.wav" >"$T/bin/ffmpeg"
    chmod +x "$T/bin/ffmpeg"
    cp "$T/raw" "$T/any.mp3"
    run 3 env PATH="$T/bin:$PATH" "$transcribe" -m "$model" --stall 1 "$T/any.mp3"
    has "$T/err" "no progress"
    run 6 env HALF=1 PATH="$T/bin:$PATH" "$transcribe" -m "$model" --stall 8 -f txt "$T/any.mp3"
    has "$T/err" "no progress"
    same "$T/speech.txt" "$T/out"
    ! kill -0 "$(cat "$T/stalled")" 2>/dev/null || fail "the stand-in goes on"
    run 1 t --stall -1 "$T/any.mp3"
}

t_all() {
    for name in "$@"; do
        t_run "test_$name"
    done
}

no_model() { skip "no model in the cache: examples/fetch.sh tiny demo"; }
no_ffmpeg() { skip "ffmpeg is not installed"; }

if [ -z "$model" ] || [ -z "$demo" ]; then
    t_run no_model
    t_end
    exit
fi
ffmpeg=$(command -v ffmpeg)
make_recordings
[ -z "$ffmpeg" ] || make_with -i "$T/speech.wav" "$T/speech.flac"
t_all pipes as_it_comes raw wav_sizes shrinking clips channels names end
if [ -n "$ffmpeg" ]; then
    t_all formats cut skipped rare timestamps spliced chained film redirected end_of_spooled tracks playlists temporary_files stall
else
    t_run no_ffmpeg
fi
t_end
