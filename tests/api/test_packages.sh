#!/bin/sh
# test_packages.sh - examples/packaging: projects of CMake and Meson build against a checkout and
# against an installed library, static and shared; and the Debian packages are made, pass lintian, and
# hold everything that programs need. What is built transcribes with a toy model.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
here=$PWD
build=$(cd "${WNPU_BUILD:-build}" && pwd) || exit 1
t_temp
fast=$(command -v clang || command -v cc) # clang without -O takes a second
export PATH="$PATH:/usr/sbin"

if [ -n "${WNPU_SANITIZED-}" ]; then
    echo "nothing here depends on sanitizers"
    t_end
    exit
fi
toy_says "$build" || exit 1

# project NAME: an empty directory $T/NAME with app.c and npu.c, which use the public header only.
project() {
    rm -rf "${T:?}/$1"
    mkdir -p "$T/$1" && cp tests/api/dropin/src/app.c "$T/$1" || return
    printf '%s\n' '#include <whisper_npu.h>' '#include <stdio.h>' 'int main(void) {' \
        'puts(wnpu_amdxdna_cause_name(WNPU_AMDXDNA_FINE));' \
        'return wnpu_amdxdna_open(NULL, NULL, NULL) == WNPU_OK; }' >"$T/$1/npu.c"
}

# installed: the library in $T/inst, as make install leaves it.
installed() {
    [ -d "$T/inst" ] || (cd "$here" && env -u MAKEFLAGS -u MFLAGS -u MAKEOVERRIDES make -s \
        CC="$fast" CFLAGS=-O0 BUILD="$T/build" PREFIX="$T/inst" install) >"$T/log" 2>&1 ||
        { fail "make install: $(tail -n 3 "$T/log")"; return 1; }
}

npu() { [ "${WNPU_LIBDRM-}" != no ]; }

# What a CMake project does once it has the package.
cmake_targets='add_executable(app app.c)
target_link_libraries(app wnpu::wnpu)
if(TARGET wnpu::amdxdna)
    add_executable(npu npu.c)
    target_link_libraries(npu wnpu::amdxdna)
endif()'

# A checkout by add_subdirectory: five lines. By FetchContent with the NPU part, shared.
test_cmake_checkout() {
    have cmake || return
    project cmake
    cat >"$T/cmake/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.18)
project(app C)
add_subdirectory($here/examples/packaging wnpu)
add_executable(app app.c)
target_link_libraries(app wnpu::wnpu)
END
    CC=$fast try cmake -S "$T/cmake" -B "$T/cmake/b" -DCMAKE_BUILD_TYPE=Debug &&
        try cmake --build "$T/cmake/b" && hears "$T/cmake/b/app" || return
    project fetch
    cat >"$T/fetch/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.18)
project(app C)
include(FetchContent)
FetchContent_Declare(wnpu SOURCE_DIR $here SOURCE_SUBDIR examples/packaging)
FetchContent_MakeAvailable(wnpu)
$cmake_targets
END
    CC=$fast try cmake -S "$T/fetch" -B "$T/fetch/b" -DCMAKE_BUILD_TYPE=Debug \
        -DBUILD_SHARED_LIBS=ON && try cmake --build "$T/fetch/b" && hears "$T/fetch/b/app"
    ! npu || [ "$("$T/fetch/b/npu")" = fine ] || fail "wnpu::amdxdna: $("$T/fetch/b/npu")"
}

# CMake's own install, then find_package() of that and of make install's.
test_cmake_installed() {
    have cmake || return
    installed || return
    CC=$fast try cmake -S examples/packaging -B "$T/cb" -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_INSTALL_PREFIX="$T/cmake inst" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=ON &&
        try cmake --build "$T/cb" && try cmake --install "$T/cb" || return
    project find
    cat >"$T/find/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.18)
project(app C)
find_package(wnpu 0.2 REQUIRED)
$cmake_targets
END
    for kind in "$T/inst,OFF" "$T/inst,ON" "$T/cmake inst,OFF"; do
        rm -rf "$T/find/b"
        CC=$fast try cmake -S "$T/find" -B "$T/find/b" -DCMAKE_PREFIX_PATH="${kind%,*}" \
            -Dwnpu_USE_STATIC="${kind#*,}" && try cmake --build "$T/find/b" &&
            hears "$T/find/b/app" || return
        ! npu || [ "$("$T/find/b/npu")" = fine ] || fail "wnpu::amdxdna of $kind"
        ldd "$T/find/b/app" | grep -q 'libwnpu\.so\.0' && is=OFF || is=ON
        [ "$is" = "${kind#*,}" ] || fail "$kind: static is $is"
    done
    sed -i 's/wnpu 0.2/wnpu 9.0/' "$T/find/CMakeLists.txt"
    ! cmake -S "$T/find" -B "$T/find/b9" -DCMAKE_PREFIX_PATH="$T/inst" >"$T/log" 2>&1 ||
        fail "version 9.0 was found"
}

test_meson() {
    have meson ninja || return
    installed || return
    project meson
    mkdir -p "$T/meson/subprojects/packagefiles"
    cp -R "$here/examples/packaging" "$T/meson/subprojects/packagefiles/wnpu"
    # The archive takes the place of [wrap-git], whose checkout is patched in the same way.
    tar -cf "$T/meson/subprojects/packagefiles/checkout.tar" --transform 's|^|checkout/|' \
        whisper_npu.[ch] npu_amdxdna.c || { fail "no archive"; return; }
    printf '%s\n' '[wrap-file]' 'directory = checkout' 'source_filename = checkout.tar' \
        'patch_directory = wnpu' '[provide]' 'dependency_names = wnpu, wnpu-amdxdna' \
        >"$T/meson/subprojects/wnpu.wrap"
    printf '%s\n' "project('app', 'c')" "wnpu = dependency('wnpu')" \
        "executable('app', 'app.c', dependencies: wnpu)" >"$T/meson/meson.build"
    CC=$fast try meson setup "$T/meson/b" "$T/meson" && try ninja -C "$T/meson/b" &&
        hears "$T/meson/b/app"
    rm -rf "$T/meson/subprojects"
    CC=$fast PKG_CONFIG_PATH="$T/inst/lib/pkgconfig" try meson setup "$T/meson/i" "$T/meson" &&
        try ninja -C "$T/meson/i" && LD_LIBRARY_PATH="$T/inst/lib" hears "$T/meson/i/app"
    # By itself, with what it installs.
    CC=$fast try meson setup "$T/mb" examples/packaging --prefix "$T/meson inst" --libdir lib \
        --buildtype debug && try ninja -C "$T/mb" install && [ -f "$T/meson inst/lib/libwnpu.so.0" ] &&
        [ -f "$T/meson inst/include/whisper_npu.h" ] || fail "Meson installs something else"
    nm -D --defined-only "$T/meson inst/lib/libwnpu.so" | awk '$2 != "A" { print $3 }' |
        grep -v '^wnpu_' && fail "Meson's library exports other names"
}

# unpacked COMMAND...: with the packages' files instead of installed ones.
unpacked() {
    PATH="$T/root/usr/bin:$PATH" LD_LIBRARY_PATH=$libs PKG_CONFIG_PATH="$libs/pkgconfig" \
        PKG_CONFIG_SYSROOT_DIR="$T/root" C_INCLUDE_PATH="$T/root/usr/include" \
        LIBRARY_PATH=$libs "$@"
}

# install: the packages over a copy of this system, by dpkg, with their own test. Only where a
# file system may be laid over the root.
install_packages() {
    mkdir -p "$T/over"
    unshare -m sh -c 'cd "$1" && mount -t tmpfs tmpfs over && mkdir over/up over/work over/root &&
        mount -t overlay overlay -o lowerdir=/,upperdir=over/up,workdir=over/work over/root' \
        sh "$T" 2>/dev/null ||
        { echo "  not installed: no file system can be laid over the root"; return; }
    unshare -m sh -c 'cd "$1" && mount -t tmpfs tmpfs over && mkdir over/up over/work over/root &&
        mount -t overlay overlay -o lowerdir=/,upperdir=over/up,workdir=over/work over/root &&
        mkdir over/root/debs && cp deb/*.deb "$2/examples/packaging/debian/tests/link" over/root/debs &&
        chroot over/root sh -c "
            dpkg -i /debs/libwnpu0_*.deb /debs/libwnpu-dev_*.deb /debs/wnpu-tools_*.deb \
                /debs/wnpu-server_*.deb &&
            sh /debs/link && dpkg -P wnpu-server wnpu-tools libwnpu-dev libwnpu0"' sh "$T" "$here" \
        >"$T/log" 2>&1 || fail "dpkg -i and debian/tests/link: $(tail -n 3 "$T/log")"
    rmdir "$T/over"
}

test_debian() {
    have dpkg-buildpackage dh lintian pkg-config || return
    # dwz cannot read what clang writes of DWARF 5.
    mkdir -p "$T/bin" && printf '#!/bin/sh\nexec %s -gdwarf-4 "$@"\n' "$fast" >"$T/bin/cc" &&
        chmod +x "$T/bin/cc"
    try env PATH="$T/bin:$PATH" DEB_BUILD_OPTIONS=noopt examples/packaging/deb.sh "$T/deb" || return
    lintian --allow-root --fail-on error,warning "$T"/deb/*.changes >"$T/log" 2>&1 ||
        fail "lintian: $(head -n 5 "$T/log")"
    mkdir "$T/root"
    for package in libwnpu0 libwnpu-dev wnpu-tools wnpu-server; do
        dpkg -x "$T/deb/${package}_"*.deb "$T/root" || fail "no $package"
    done
    libs=$T/root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
    for file in usr/bin/wnpu-transcribe usr/bin/wnpu-pack usr/include/whisper_npu.h \
        usr/bin/wnpu-fetch usr/share/man/man1/wnpu-transcribe.1.gz \
        usr/share/man/man1/wnpu-fetch.1.gz usr/bin/wnpu-server usr/share/man/man1/wnpu-server.1.gz \
        etc/default/wnpu-server; do
        [ -s "$T/root/$file" ] || fail "no $file in the packages"
    done
    mkdir "$T/autopkgtest"
    AUTOPKGTEST_TMP="$T/autopkgtest" unpacked sh examples/packaging/debian/tests/link >"$T/log" 2>&1 ||
        fail "debian/tests/link: $(tail -n 3 "$T/log")"
    unpacked wnpu-transcribe -q -t 1 -m "$T/toy.bin" --vad off --max-tokens 8 --no-fallback -f json \
        "$T/noise.wav" | cmp -s - "$T/want" || fail "wnpu-transcribe writes something else"
    # The unit runs the program of the package, with the options of the file beside it.
    unit=$(find "$T/root/usr/lib/systemd" "$T/root/lib/systemd" -name wnpu-server.service 2>/dev/null)
    start=$(sed -n 's/^ExecStart=\(.*\) \$OPTIONS$/\1/p' "$unit")
    [ -x "$T/root/$start" ] || fail "the unit starts '$start'"
    options=$(sed -n 's|^EnvironmentFile=||p' "$unit")
    # shellcheck disable=SC2086 # several words
    (. "$T/root/$options" && unpacked "$T/root/$start" $OPTIONS) >"$T/log" 2>&1
    got=$?
    [ $got -eq 2 ] && grep -q '/var/lib/whisper_npu/ggml-base.en.bin' "$T/log" ||
        [ -f /var/lib/whisper_npu/ggml-base.en.bin ] || fail "without a model: $got, $(cat "$T/log")"
    # Programs are called what they are called there, also in their own words.
    for page in transcribe pack fetch; do
        zcat "$T/root/usr/share/man/man1/wnpu-$page.1.gz" | tr -d '\\' >"$T/page"
        grep -q "^Usage: wnpu-$page " "$T/page" || fail "wnpu-$page: $(grep Usage "$T/page")"
        ! grep -nE 'examples/fetch|build/' "$T/page" || fail "the page of wnpu-$page names files of the sources"
    done
    XDG_CACHE_HOME="$T/none" unpacked wnpu-transcribe "$T/noise.wav" >"$T/log" 2>&1 &&
        fail "transcribes without a model"
    grep -q 'wnpu-fetch tiny' "$T/log" || fail "advice: $(cat "$T/log")"
    unpacked wnpu-fetch --help >"$T/log" && grep -q '^Usage: wnpu-fetch' "$T/log" ||
        fail "wnpu-fetch: $(head -n 2 "$T/log")"
    install_packages
    project deb_cmake
    printf '%s\n' 'cmake_minimum_required(VERSION 3.18)' 'project(app C)' \
        'find_package(wnpu REQUIRED)' 'add_executable(app app.c)' \
        'target_link_libraries(app wnpu::wnpu)' >"$T/deb_cmake/CMakeLists.txt"
    have cmake && try cmake -S "$T/deb_cmake" -B "$T/deb_cmake/b" \
        -Dwnpu_DIR="$libs/cmake/wnpu" && try cmake --build "$T/deb_cmake/b" &&
        hears "$T/deb_cmake/b/app"
}

for t in cmake_checkout cmake_installed meson debian; do
    t_run test_$t
done
t_end
