#!/bin/sh
# test_dropin.sh - dropin/, a project that has the library's two files in its own tree, built
# in every way that it might be; and the library as `make install` leaves it. Each program that comes
# of it runs the self test and transcribes with a toy model, and all have to write the same.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
here=$PWD
build=$(cd "${WNPU_BUILD:-build}" && pwd) || exit 1
t_temp
warnings='-Wall -Wextra -Werror'
fast=$(command -v clang || command -v cc) # clang without -O takes a second

if [ -n "${WNPU_SANITIZED-}" ]; then
    echo "nothing here depends on sanitizers"
    t_end
    exit
fi

mkdir -p "$T/acme/third_party" && cp -R tests/api/dropin/. "$T/acme" &&
    cp whisper_npu.h whisper_npu.c "$T/acme/third_party" && cd "$T/acme" || exit 1
toy_says "$build" || exit 1

# exports LIBRARY VERSION: the version script is obeyed.
exports() {
    nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' >"$T/names"
    grep -q "^wnpu_transcribe@@$2\$" "$T/names" || fail "$1 does not export wnpu_transcribe@@$2"
    ! grep -v "^wnpu_" "$T/names" >"$T/foreign" || fail "$1 exports $(head -n 3 "$T/foreign")"
}

# Without any flags.
# shellcheck disable=SC2086 # several words are wanted, here and below
test_static() {
    have gcc g++ || return
    try gcc -c third_party/whisper_npu.c -o lib.o && try ar rcs libacme.a lib.o &&
        try gcc $warnings -Ithird_party src/app.c libacme.a -o app_c -lm -lpthread &&
        try g++ -std=c++11 $warnings -Ithird_party src/app.cpp libacme.a -o app_cpp -lm -lpthread &&
        hears ./app_c ./app_cpp
}

# Hidden but for what WNPU_API marks, and once more by the version script.
# shellcheck disable=SC2086
test_shared() {
    have clang clang++ || return
    try clang $warnings -fPIC -fvisibility=hidden -shared -Wl,--version-script=acme.map \
        '-DWNPU_API=__attribute__((visibility("default")))' -Wl,-z,defs \
        third_party/whisper_npu.c -o libacme.so -lm -lpthread && exports libacme.so ACME_1 &&
        try clang $warnings -Ithird_party src/app.c ./libacme.so -o app_c &&
        try clang++ -std=c++11 $warnings -Ithird_party src/app.cpp ./libacme.so -o app_cpp &&
        hears ./app_c ./app_cpp
}

# shellcheck disable=SC2086
test_lto_gcc() {
    have gcc g++ || return
    try gcc -O1 -DWNPU_KEEP_FLAGS -flto $warnings -c third_party/whisper_npu.c -o lto.o &&
        try g++ -O1 -flto -std=c++11 $warnings -Ithird_party src/app.cpp lto.o -o app_lto -lm \
            -lpthread && hears ./app_lto
}

# shellcheck disable=SC2086
test_lto_clang() {
    have clang ld.lld || return
    try clang -O1 -flto=thin -fuse-ld=lld $warnings -Ithird_party src/app.c \
        third_party/whisper_npu.c -o app_lto -lm -lpthread && hears ./app_lto
}

test_cmake() {
    have cmake || return
    CC=$fast try cmake -S . -B cmake -DCMAKE_BUILD_TYPE=None && try cmake --build cmake &&
        exports cmake/libacme_shared.so ACME_1 &&
        hears cmake/app_cpp_static cmake/app_c_shared
}

test_meson() {
    have meson ninja || return
    CC=$fast try meson setup meson && try ninja -C meson && exports meson/libacme.so ACME_1 &&
        hears meson/app_c_static meson/app_cpp_shared
}

# Two copies with other names in one program, each with a caller of its own.
# shellcheck disable=SC2086
test_two_copies() {
    for p in one other; do
        (cd third_party && renames $p)
        flags="$warnings -include $T/$p.h -Ithird_party"
        try $fast $flags -c third_party/whisper_npu.c -o $p.o &&
            try $fast $flags -DOTHER_COPY=${p}_hears -c src/app.c -o app_$p.o || return
        nm -g --defined-only $p.o | awk 'NF > 1 { print $NF }' >"$T/names"
        [ "$(grep -c "^_\{0,1\}${p}_" "$T/names")" -gt 40 ] ||
            fail "few names begin with ${p}_"
        ! grep -v "^_\{0,1\}${p}_" "$T/names" >"$T/foreign" ||
            fail "not renamed: $(tr '\n' ' ' <"$T/foreign")"
    done
    try $fast $warnings src/two.c one.o other.o app_one.o app_other.o -o two -lm -lpthread || return
    ./two "$T/toy.bin" "$T/noise.wav" >"$T/out" 2>"$T/log" || fail "two: $(head -c 300 "$T/log")"
    cat "$T/want" "$T/want" | cmp -s - "$T/out" || fail "two copies write something else"
}

# What pkg-config says is enough to build with an installed library.
# shellcheck disable=SC2046
test_install() {
    have pkg-config || return
    (cd "$here" && try make BUILD="$build" DESTDIR="$T/stage" PREFIX=/opt/wnpu install) || return
    for file in include/whisper_npu.h lib/libwnpu.a lib/pkgconfig/wnpu.pc bin/transcribe bin/pack; do
        [ -s "$T/stage/opt/wnpu/$file" ] || fail "$file is not installed"
    done
    [ "${WNPU_LIBDRM-}" = no ] || [ -x "$T/stage/opt/wnpu/bin/npu_doctor" ] || fail "no npu_doctor"
    installed() {
        PKG_CONFIG_PATH="$T/stage/opt/wnpu/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$T/stage" \
            pkg-config "$@" wnpu
    }
    want=$(sed -n 's/^#define WNPU_VERSION_[MP][A-Z]* //p' third_party/whisper_npu.h |
        paste -s -d . -)
    [ "$(installed --modversion)" = "$want" ] || fail "$(installed --modversion) is not $want"
    rm -rf "$T/elsewhere" && mkdir "$T/elsewhere" && cp src/app.c "$T/elsewhere" || return
    (cd "$T/elsewhere" && try "${CC:-cc}" app.c $(installed --cflags --libs) \
        "-Wl,-rpath,$T/stage/opt/wnpu/lib" -o app) && hears "$T/elsewhere/app"
    exports "$T/stage/opt/wnpu/lib/libwnpu.so.0" WNPU_0
    # -ldrm is for users of the archive only.
    case " $(installed --libs) " in *drm*) fail "$(installed --libs)" ;; esac
    [ "${WNPU_LIBDRM-}" = no ] || case " $(installed --libs --static) " in
    *" -ldrm "*) ;;
    *) fail "$(installed --libs --static)" ;;
    esac
    rm "$T/stage/opt/wnpu/lib/libwnpu.so"
    (cd "$T/elsewhere" && try "${CC:-cc}" app.c $(installed --cflags --libs --static) -o app) &&
        hears "$T/elsewhere/app"
    "$T/stage/opt/wnpu/bin/transcribe" -q -t 1 -m "$T/toy.bin" --vad off --max-tokens 8 \
        --no-fallback -f json "$T/noise.wav" >"$T/out" && cmp -s "$T/out" "$T/want" || fail "bin/transcribe"
    (cd "$here" && try make BUILD="$build" DESTDIR="$T/stage" PREFIX=/opt/wnpu uninstall)
    [ -z "$(find "$T/stage" -type f)" ] || fail "uninstall leaves $(find "$T/stage" -type f)"
}

for t in static shared lto_gcc lto_clang cmake meson two_copies install; do
    t_run test_$t
done
t_end
