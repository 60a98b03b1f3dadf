#!/bin/sh
# man.sh - a manual page from a program's --help. usage: man.sh PROGRAM NAME
# The first line of the help, "Usage: ...", becomes the synopsis.
set -e
case $2 in
*transcribe) what='write what is said in recordings as text, subtitles or JSON' ;;
*fetch) what='fetch models for speech to text' ;;
*pack) what='make model files that open at once and share their memory' ;;
*server) what='serve speech to text with Whisper models' ;;
*npu_doctor) what='find out why an AMD XDNA NPU does not work' ;;
*) echo "man.sh: $2 is unknown" >&2; exit 1 ;;
esac
printf '.TH %s 1 "" "whisper_npu %s"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n' \
    "$(printf '%s' "$2" | tr '[:lower:]' '[:upper:]')" \
    "$(sed -n 's/^#define WNPU_VERSION_[MP][A-Z]* //p' whisper_npu.h | paste -s -d . -)" "$2" "$what"
LC_ALL=C "$1" --help | sed "s/\\\\/\\\\e/g; s/-/\\\\-/g; s/^\\([.']\\)/\\\\\\&\\1/"
printf '.fi\n'
