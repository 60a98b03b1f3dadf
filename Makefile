# Builds the examples and the tests. The library itself needs no build system:
#     cc -c whisper_npu.c
#
#   make               build/transcribe, build/minimal, build/live, build/voices, build/pack,
#                      build/listen, build/bench; build/npu_doctor with libdrm, build/server with
#                      civetweb
#   make demo          fetch a model once, print transcript and speed of examples/jfk.wav
#   make models        fetch both models of the README, print their paths
#   make test          all tests                  make -j4 test builds in parallel
#   make test-npu      the tests of the NPU part alone, on a simulated device
#   make npu-code      assemble the NPU part's built-in kernels again, after changes of their assembly
#   make check-long    make test with 1,000 random faults in the NPU part, 10,000 cancels of base.en,
#                      1,000 snapshots, 10 hours of sound, as a file and live, 500 divisions of
#                      live audio, ten minutes of it under ThreadSanitizer, half a minute of film
#                      of build/listen, 30 minutes of sounds in which nobody speaks, 12 clips with
#                      all instruction sets under wine, and with SPEECH=DIR real models on the
#                      simulated device, see tests/npu/npu_speech.sh: hours
#   make npu-estimate  what an NPU would make of MODEL (tiny base.en): counted cycles of the built-in
#                      kernels beside the measured CPU, as ranges; not a measurement of an NPU
#   make test-asan     the same under AddressSanitizer and UBSan
#   make test-tsan     under ThreadSanitizer: sixteen sessions at once, live audio that one thread
#                      pushes and another transcribes, and clients of the server
#   make test-aarch64  the C tests under qemu-aarch64, if a cross compiler is there
#   make windows       build/windows/transcribe.exe and pack.exe, with mingw-w64
#   make browser       build/browser: WebAssembly modules, wnpu.mjs and the page of examples/browser,
#                      with clang, lld and wasi-libc; npm pack makes a package of it
#   make matrix        one answer from all instruction sets and numbers of threads; MATRIX=full
#   make fuzz          build/fuzz/fuzz_*: libFuzzer targets, with clang
#   make check-symbols every global symbol begins with wnpu_
#   make install       header, static and shared library (SHARED=no: not that), files for pkg-config
#                      and CMake's find_package, and programs into PREFIX (/usr/local), under
#                      DESTDIR, the server as wnpu-server; make uninstall takes them away
#   make shared        build/libwnpu.so, the shared library
#   make bench         time of each stage beside what the machine can do at most
#   make bench-live    delays and cost of live text; with SPEECH=DIR on recordings of yours
#   make bench-server  first delta, throughput and memory of build/server; uploads beside silent
#                      connections, and memory during ten minutes of requests
#   make bench-browser speed of the WebAssembly modules in node beside the native program's
#   make bench-plot    the same as a picture, a roofline: build/roofline.svg
#   make cpu-estimate  what CPUs that nobody here has would make of MODEL (tiny base.en): cycles by
#                      llvm-mca, predictions beside measurements for this machine; minutes
#   make abi           write down the layouts that are kept, after fields were added to public
#                      structures or to what snapshots contain
#   make outline       the sections of the library's sources: first line, lines, functions
#   make measures      how entangled whisper_npu.c is, in numbers: see tests/lib/measures.awk
#   make sections      each of them as a file of its own in build/sections, for reading: some tools
#                      refuse whisper_npu.c for its size
#   make sizes         speed, memory and text of models in the shapes of small, medium, turbo and
#                      large-v3, made of tiny's weights, beside whisper.cpp if WHISPER_CPP is the path
#                      of its whisper-cli: half an hour, 5 GB of disk
#   make accuracy SPEECH=DIR  word error rates on recordings of yours, see tests/speech/accuracy.sh
#   make detector SPEECH=DIR  what the voice detector finds in 200 hard cases made of recordings, see
#                      tests/speech/judge_cases.c; CASES=choose or judge takes a half of them
#   make fidelity SPEECH=DIR  how far INT8's predictions are from float's on the WAV files in DIR,
#                      see tests/bench/fidelity.c
#   make clean
#
# BUILD=DIR puts everything elsewhere, and from another directory make -f PATH/Makefile builds into
# the current one's build. What was made with other flags, another compiler or without libdrm is made
# again. BUILD, PREFIX and DESTDIR may contain spaces.

# Rules name files relative to the source directory. From another directory (make -f DIR/Makefile),
# everything is handed to a make in the source directory; paths stay relative to the caller's.
here := $(shell cd "$$(dirname '$(subst ','\'',$(wordlist 1,99,$(MAKEFILE_LIST)))')" && pwd -P)
BUILD ?= build
ifneq ($(here),$(CURDIR))
absolute = $(if $(filter /%,$(firstword $(1))),$(1),$(CURDIR)/$(1))
handed_over = $(foreach v,BUILD DESTDIR PREFIX SPEECH,\
    $(if $($(v)),$(v)='$(subst ','\'',$(call absolute,$($(v))))'))
.DEFAULT_GOAL := all
.PHONY: handed-over
handed-over:
	+@$(MAKE) --no-print-directory -C '$(subst ','\'',$(here))' $(handed_over) $(MAKECMDGOALS)
all $(filter-out all,$(MAKECMDGOALS)): handed-over ;
else

CFLAGS ?= -O2 -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow
LDLIBS += -lm -lpthread
FUZZ_CC ?= clang
FUZZ_CFLAGS ?= -O1 -g -std=c11 -fsanitize=address,undefined -fno-sanitize-recover=undefined \
               -DWNPU_KEEP_FLAGS
SANITIZE = -O1 -g -std=c11 -fsanitize=address,undefined -fno-sanitize-recover=undefined \
           -fno-omit-frame-pointer -DWNPU_KEEP_FLAGS
SANITIZE_THREAD = -O1 -g -std=c11 -fsanitize=thread -DWNPU_KEEP_FLAGS

# In targets and prerequisites spaces are escaped, in recipes names are quoted. Functions that split
# text into words see several in a name with spaces: prefix their results, not their arguments. A
# static pattern rule does not work with such names either.
space := $(subst ,, )
comma := ,
B := $(subst $(space),\ ,$(BUILD))
quote = '$(subst ','\'',$(1))'

# -MMD writes each object's headers (and for tests the library source) beside it.
COMPILE = $(CC) $(CPPFLAGS) -I. $(CFLAGS) -MMD -MP

# The NPU part needs libdrm; without it everything else is built.
DRM_CFLAGS ?= $(shell pkg-config --cflags libdrm 2>/dev/null || echo -I/usr/include/libdrm)
DRM_LIBS ?= $(shell pkg-config --libs libdrm 2>/dev/null || echo -ldrm)
LIBDRM := $(shell echo 'int main(void) { return drmAvailable(); }' | $(CC) $(DRM_CFLAGS) \
    -include xf86drm.h -x c - $(LDFLAGS) $(DRM_LIBS) -o /dev/null 2>/dev/null && echo yes)
NPU_OBJECTS = $(if $(LIBDRM),npu_amdxdna)
# The server needs civetweb; without it everything else is built.
CIVETWEB_CFLAGS ?=
CIVETWEB_LIBS ?= -lcivetweb -ldl
CIVETWEB := $(shell echo 'int main(void) { return mg_version() == 0; }' | $(CC) $(CIVETWEB_CFLAGS) \
    -include civetweb.h -x c - $(LDFLAGS) $(CIVETWEB_LIBS) -o /dev/null 2>/dev/null && echo yes)
OVERLAY_PROGRAMS = test_npu_kernel test_sim
NPU_PROGRAMS = test_npu test_npu_pack test_npu_run test_npu_driver test_doctor $(OVERLAY_PROGRAMS)
NPU_TOOLS = $(if $(LIBDRM),$(B)/libsim_amdxdna.so $(B)/make_pack $(B)/npu_live)
# Assembler and simulated cores: they need neither the library nor libdrm, except for overlay.c, which
# gives tests the built-in design of npu_amdxdna.c.
KIT_PROGRAMS = test_npu_isa test_npu_core
KIT = $(filter-out test_% sim_% npu_asm npu_estimate npu_live make_pack make_code overlay,\
    $(basename $(notdir $(wildcard tests/npu/*.c tests/npu/kit/*.c))))

EXAMPLES = transcribe minimal live voices pack listen $(if $(wildcard tests/bench/bench.c),bench) \
    $(if $(LIBDRM),npu_doctor) $(if $(CIVETWEB),server)
TESTS = $(filter-out $(if $(LIBDRM),,$(NPU_PROGRAMS)),\
    $(basename $(notdir $(wildcard tests/*/test_*.c))))
NPU_FUZZERS = fuzz_pack fuzz_driver
FUZZERS = $(filter-out $(if $(LIBDRM),,$(NPU_FUZZERS)),\
    $(basename $(notdir $(wildcard tests/fuzz/fuzz_*.c))))

# Where the sources of those programs are.
vpath test_%.c tests/unit:tests/api:tests/npu
vpath fuzz_%.c tests/fuzz
vpath bench%.c tests/bench
vpath fidelity.c tests/bench
vpath make_%.c tests/lib:tests/npu:tests/speech
vpath sim_%.c tests/npu
vpath wer.c tests/speech
vpath judge_%.c tests/speech
vpath vad_%.c tests/speech

.PHONY: all tests demo models test test-npu npu-code check-long npu-estimate test-asan test-tsan \
    test-aarch64 windows browser abi outline measures sections matrix fuzz check-symbols shared \
    install uninstall \
    bench bench-live bench-browser bench-server bench-plot sizes cpu-estimate \
    accuracy detector fidelity clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:

# What is left out, and the package in Debian that has what it needs.
left_out := $(if $(LIBDRM),,npu_doctor (libdrm-dev))$(if $(LIBDRM)$(CIVETWEB),,$(comma)$(space))$(if \
    $(CIVETWEB),,server (libcivetweb-dev))
all: $(EXAMPLES:%=$(B)/%)
	@$(if $(left_out),echo "left out: $(left_out)",:)
tests: all $(TESTS:%=$(B)/tests/%) $(B)/wer $(B)/bench_plot $(B)/bench_live \
    $(B)/fidelity $(B)/make_toy $(B)/make_sounds \
    $(NPU_TOOLS)

# What every object and program was made with: the compiler, its version, flags and libdrm. These
# files change only when that does, and whatever is older is then made again. What single targets
# add is in OWN_CFLAGS and OWN_LIBS, because a command line overrides CPPFLAGS and LDLIBS.
COMPILED_WITH := $(CC) | $(shell $(CC) --version 2>/dev/null | head -n 1) | $(CPPFLAGS) | $(CFLAGS) | \
    $(PROGRAM_PREFIX)
LINKED_WITH := $(COMPILED_WITH) | $(AR) | $(LDFLAGS) | $(LDLIBS) | $(LIBDRM) | $(DRM_CFLAGS) | \
    $(DRM_LIBS) | $(CIVETWEB) | $(CIVETWEB_CFLAGS) | $(CIVETWEB_LIBS)
FUZZED_WITH := $(FUZZ_CC) | $(FUZZ_CFLAGS) | $(LDLIBS) | $(DRM_CFLAGS) | $(DRM_LIBS)

note_flags = @printf '%s\n' $(call quote,$(1)) | cmp -s - "$@" || \
    printf '%s\n' $(call quote,$(1)) >"$@"
$(B)/compiled_with: FORCE | $(B)
	$(call note_flags,$(COMPILED_WITH))
$(B)/linked_with: FORCE | $(B)
	$(call note_flags,$(LINKED_WITH))
$(B)/fuzz/fuzzed_with: FORCE | $(B)/fuzz
	$(call note_flags,$(FUZZED_WITH))
FORCE:

# An archive, because a test that includes whisper_npu.c then simply does not pull it in.
LIBRARY = whisper_npu $(NPU_OBJECTS)
$(B)/libwhisper_npu.a: $(LIBRARY:%=$(B)/%.o) $(B)/linked_with
	rm -f "$@"
	$(AR) rcs "$@" $(LIBRARY:%="$(BUILD)/%.o")

$(B)/whisper_npu.o: whisper_npu.c $(B)/compiled_with | $(B)
	$(COMPILE) -c $< -o "$@"

$(B)/npu_amdxdna.o: npu_amdxdna.c $(B)/linked_with | $(B)
	$(COMPILE) $(DRM_CFLAGS) -c $< -o "$@"

# Programs are in folders of examples/, and what several of them share is in kit/.
define example_objects
$(B)/%.o: $(1)/%.c $(B)/compiled_with | $(B)
	$$(COMPILE) $$(OWN_CFLAGS) -c $$< -o "$$@"
endef
$(foreach folder,examples $(wildcard examples/*),$(eval $(call example_objects,$(folder))))

# Programs of more than one object. With libdrm the archive has npu_amdxdna.o, and programs that use
# it want -ldrm.
OBJECTS_transcribe = args options values list help results input ffmpeg frames output platform replay npu
OBJECTS_pack = hf json output platform
OBJECTS_listen = listen_file listen_recorder listen_show listen_source commands ffmpeg frames input list
OBJECTS_listen += args output platform terminal
OBJECTS_server = server_address server_answer server_client server_event server_form server_http
OBJECTS_server += server_item server_jobs server_keys server_log server_models server_options
OBJECTS_server += server_pool server_realtime server_reply server_request server_run server_thread
OBJECTS_server += server_tls server_turns server_upload server_watch server_wyoming args json input
OBJECTS_server += ffmpeg frames list output npu platform
$(B)/%: $(B)/%.o $(B)/libwhisper_npu.a $(B)/linked_with
	$(CC) $(CFLAGS) $(LDFLAGS) "$<" $(OBJECTS_$*:%="$(BUILD)/%.o") "$(BUILD)/libwhisper_npu.a" \
	    $(LDLIBS) $(OWN_LIBS) -o "$@"

$(B)/%.exe: $(B)/%.o $(B)/libwhisper_npu.a $(B)/linked_with
	$(CC) $(CFLAGS) $(LDFLAGS) "$<" $(OBJECTS_$*:%="$(BUILD)/%.o") "$(BUILD)/libwhisper_npu.a" \
	    $(LDLIBS) -o "$@"

$(B)/transcribe $(B)/transcribe.exe: $(OBJECTS_transcribe:%=$(B)/%.o)
$(B)/pack $(B)/pack.exe: $(OBJECTS_pack:%=$(B)/%.o)
$(B)/listen: $(OBJECTS_listen:%=$(B)/%.o)
$(B)/server: $(OBJECTS_server:%=$(B)/%.o)
$(B)/server_answer.o $(B)/server_client.o $(B)/server_http.o $(B)/server_options.o \
    $(B)/server_realtime.o: private OWN_CFLAGS = -I"$(BUILD)" $(CIVETWEB_CFLAGS)
$(B)/server_http.o: $(B)/server_page.h $(B)/server_openapi.h
$(B)/server_page.h: examples/server/server.html | $(B)
$(B)/server_openapi.h: examples/server/openapi.json | $(B)
$(B)/server_page.h $(B)/server_openapi.h:
	od -An -v -t d1 $< | sed 's/$$/ /; s/ *\([-0-9]*\) /\1,/g' >"$@"
$(B)/server: private OWN_LIBS = $(CIVETWEB_LIBS) $(if $(LIBDRM),$(DRM_LIBS))
$(B)/npu.o: private OWN_CFLAGS = $(if $(LIBDRM),,-DNO_NPU)
$(B)/npu.o: $(B)/linked_with
$(B)/help.o $(B)/options.o $(B)/pack.o $(B)/server.o $(B)/transcribe.o: private OWN_CFLAGS = $(if \
    $(PROGRAM_PREFIX),-DPROGRAM_PREFIX='"$(PROGRAM_PREFIX)"')
$(B)/transcribe $(B)/npu_doctor: private OWN_LIBS = $(if $(LIBDRM),$(DRM_LIBS))

# Programs of one source file, which may include the library's to see its inside.
$(B)/%: %.c $(B)/linked_with | $(B)
	$(COMPILE) $(LDFLAGS) $< $(LDLIBS) -o "$@"

# gcc notes of what they include that vectors of 64 bytes were passed otherwise before 2010.
$(B)/tests/test_kernels_avx512: private override CFLAGS += -Wno-psabi

# Where allocations and files are tested, optimising the source again would only take time.
$(B)/tests/test_contract $(B)/tests/test_faults $(B)/tests/test_memory $(B)/tests/test_wnpu: \
    private override CFLAGS := $(subst -O2,-O1 -DWNPU_KEEP_FLAGS,$(CFLAGS))

$(B)/tests/%: %.c $(B)/libwhisper_npu.a $(B)/linked_with | $(B)/tests
	$(COMPILE) $(OWN_CFLAGS) $(LDFLAGS) $< "$(BUILD)/libwhisper_npu.a" $(LDLIBS) $(OWN_LIBS) \
	    -o "$@"

$(NPU_PROGRAMS:%=$(B)/tests/%): private OWN_CFLAGS = $(DRM_CFLAGS)
$(NPU_PROGRAMS:%=$(B)/tests/%): private OWN_LIBS = $(DRM_LIBS)

$(B)/kit/%.o: tests/npu/kit/%.c $(B)/compiled_with | $(B)/kit
	$(COMPILE) $(OWN_CFLAGS) -c $< -o "$@"

$(B)/kit/%.o: tests/npu/%.c $(B)/compiled_with | $(B)/kit
	$(COMPILE) $(OWN_CFLAGS) -c $< -o "$@"

$(B)/kit/overlay.o: private OWN_CFLAGS = $(DRM_CFLAGS)

$(B)/kit/kit.a: $(KIT:%=$(B)/kit/%.o) $(B)/linked_with
	rm -f "$@"
	$(AR) rcs "$@" $(KIT:%="$(BUILD)/kit/%.o")

$(B)/npu_asm: $(B)/kit/npu_asm.o $(B)/kit/kit.a $(B)/linked_with
	$(CC) $(CFLAGS) $(LDFLAGS) "$<" "$(BUILD)/kit/kit.a" $(LDLIBS) -o "$@"

$(KIT_PROGRAMS:%=$(B)/tests/%): $(B)/kit/kit.a
$(KIT_PROGRAMS:%=$(B)/tests/%): private OWN_LIBS = "$(BUILD)/kit/kit.a"
$(OVERLAY_PROGRAMS:%=$(B)/tests/%): $(B)/kit/overlay.o $(B)/kit/kit.a
$(OVERLAY_PROGRAMS:%=$(B)/tests/%): private OWN_LIBS = "$(BUILD)/kit/overlay.o" \
    "$(BUILD)/kit/kit.a" $(DRM_LIBS)

# The built-in kernels' machine code, from its assembly into npu_amdxdna.c.
$(B)/make_code: $(B)/kit/make_code.o $(B)/kit/kit.a $(B)/linked_with
	$(CC) $(CFLAGS) $(LDFLAGS) "$<" "$(BUILD)/kit/kit.a" $(LDLIBS) -o "$@"

npu-code: $(B)/make_code
	"$(BUILD)/make_code" npu_amdxdna.c

# The simulated NPU has flags of its own: it is preloaded, so it is never sanitized. -O3, because its
# array multiplies whole encoders.
SIMULATOR = $(basename $(notdir $(wildcard tests/npu/sim_*.c \
    $(patsubst %,tests/npu/kit/%.c,array cdo core txn isa isa_aie2 isa_aie2p))))
$(B)/libsim_amdxdna.so: $(SIMULATOR:%=$(B)/sim/%.o)
	$(CC) -shared $(SIMULATOR:%="$(BUILD)/sim/%.o") -ldl -lpthread -o "$@"

SIMULATOR_COMPILE = $(CC) -std=c11 -O3 -g -fPIC -fvisibility=hidden -Wall -Wextra -MMD -MP
$(B)/sim/%.o: tests/npu/%.c $(B)/linked_with | $(B)/sim
	$(SIMULATOR_COMPILE) -c $< -o "$@"

$(B)/sim/%.o: tests/npu/kit/%.c $(B)/linked_with | $(B)/sim
	$(SIMULATOR_COMPILE) -c $< -o "$@"

# The fuzzers' library is instrumented too.
$(B)/fuzz/libwhisper_npu.a: whisper_npu.c $(B)/fuzz/fuzzed_with | $(B)/fuzz
	$(FUZZ_CC) -I. $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link -MMD -MP -MT "$(B)/fuzz/libwhisper_npu.a" \
	    -MF "$(BUILD)/fuzz/whisper_npu.d" -c $< -o "$(BUILD)/fuzz/whisper_npu.o"
	rm -f "$@"
	$(AR) rcs "$@" "$(BUILD)/fuzz/whisper_npu.o"

$(B)/fuzz/%: %.c $(B)/fuzz/libwhisper_npu.a $(B)/fuzz/fuzzed_with
	$(FUZZ_CC) $(OWN_CFLAGS) -I. $(FUZZ_CFLAGS) -fsanitize=fuzzer -MMD -MP $< \
	    "$(BUILD)/fuzz/libwhisper_npu.a" $(LDLIBS) $(OWN_LIBS) -o "$@"

# Whole runs: their arithmetic is not instrumented, which makes them several times faster. The other
# fuzzers and the tests with sanitizers check it.
$(B)/fuzz/run.o: whisper_npu.c tests/fuzz/arithmetic.txt $(B)/fuzz/fuzzed_with | $(B)/fuzz
	$(FUZZ_CC) -I. $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link \
	    -fsanitize-ignorelist=tests/fuzz/arithmetic.txt \
	    -fsanitize-coverage-ignorelist=tests/fuzz/arithmetic.txt -MMD -MP -c $< -o "$@"

$(B)/fuzz/fuzz_run: tests/fuzz/fuzz_run.c $(B)/fuzz/run.o $(B)/fuzz/fuzzed_with
	$(FUZZ_CC) -I. $(FUZZ_CFLAGS) -fsanitize=fuzzer -MMD -MP $< "$(BUILD)/fuzz/run.o" $(LDLIBS) \
	    -o "$@"

# They include the source that they test, and need nothing else of ours.
$(NPU_FUZZERS:%=$(B)/fuzz/%): private OWN_CFLAGS = -DFUZZ $(DRM_CFLAGS)
$(NPU_FUZZERS:%=$(B)/fuzz/%): private OWN_LIBS = $(DRM_LIBS)

$(B) $(B)/tests $(B)/fuzz $(B)/sim $(B)/kit $(B)/pic $(B)/browser $(B)/wasm:
	mkdir -p "$@"

fuzz: $(FUZZERS:%=$(B)/fuzz/%)
	@echo "Run one with a directory for its findings:"
	@for f in $(FUZZERS); do echo "    mkdir -p '$(BUILD)/corpus/$$f' && '$(BUILD)/fuzz/$$f'" \
	    "-max_total_time=600 '$(BUILD)/corpus/$$f'" \
	    "$$([ ! -d tests/fuzz/corpus/$$f ] || echo tests/fuzz/corpus/$$f)"; done

demo: $(B)/transcribe
	@model=$$(examples/fetch.sh --first tiny base.en) && \
	    "$(BUILD)/transcribe" --verbose --model "$$model" examples/jfk.wav
	@echo
	@echo "John F. Kennedy, 1961. tiny is the smallest model; base.en makes fewer mistakes in English:"
	@echo "    $(BUILD)/transcribe --model \"\$$(examples/fetch.sh base.en)\" RECORDING.wav"

models:
	@examples/fetch.sh tiny base.en

export WNPU_LIBDRM = $(or $(LIBDRM),no)
export WNPU_CIVETWEB = $(or $(CIVETWEB),no)

# Tests share the shared library, and do not make it at the same time.
test: tests shared
	@tests/run "$(BUILD)"

test-npu: $(if $(LIBDRM),$(B)/npu_doctor $(B)/transcribe $(NPU_PROGRAMS:%=$(B)/tests/%)) \
    $(B)/tests/test_decoding $(KIT_PROGRAMS:%=$(B)/tests/%) $(NPU_TOOLS)
	@tests/run "$(BUILD)" test_decoding:accel $(KIT_PROGRAMS) \
	    $(if $(LIBDRM),$(NPU_PROGRAMS) test_npu_auto.sh)

# TEST_MODEL and TEST_RECORDING say what those hours consist of, see tests/api/test_flat.c.
check-long: tests shared
	@TEST_WINDOWS=full TEST_ALIGN=full TEST_SPEECH=full TEST_NPU_AUTO=full TEST_NPU_RUNS=1000 \
	    TEST_NPU_SHAPES=1 TEST_CANCELS=10000 TEST_SNAPSHOTS=1000 TEST_MINUTES=600 \
	    TEST_CHUNKS=500 TEST_MOVES=500 TEST_FILM=full WNPU_FREE_SECONDS=90 \
	    TEST_REQUESTS=10000 TEST_HOSTILE=100000 TEST_TIMEOUT=86400 tests/run "$(BUILD)"
	+@TEST_STREAM_SECONDS=600 $(MAKE) test-tsan
	@[ -z "$(SPEECH)" ] || WNPU_BUILD="$(BUILD)" tests/npu/npu_speech.sh "$(SPEECH)" $(MODELS)

# Includes the library's source, to run the encoder alone.
$(B)/npu_estimate: tests/npu/npu_estimate.c $(NPU_OBJECTS:%=$(B)/%.o) $(B)/linked_with | $(B)
	$(CC) -std=gnu11 -O2 $(CPPFLAGS) -I. $(LDFLAGS) -MMD -MP -MF "$@.d" $< \
	    $(NPU_OBJECTS:%="$(BUILD)/%.o") $(LDLIBS) $(DRM_LIBS) -ldl -o "$@"

$(B)/npu_live: tests/npu/npu_live.c $(B)/npu.o $(B)/libwhisper_npu.a $(B)/linked_with | $(B)
	$(COMPILE) $(LDFLAGS) $< "$(BUILD)/npu.o" "$(BUILD)/libwhisper_npu.a" $(LDLIBS) $(DRM_LIBS) \
	    -o "$@"

MODEL ?= tiny base.en
npu-estimate: $(B)/npu_estimate $(NPU_TOOLS)
	@for model in $(MODEL); do for device in npu1 npu4; do \
	    echo "$$model"; SIM_AMDXDNA_DEVICE=$$device SIM_AMDXDNA_CACHE=off \
	        SIM_AMDXDNA_CLOCK=cycles SIM_AMDXDNA_CORES=built-in SIM_AMDXDNA_QUIET=1 \
	        LD_PRELOAD="$(BUILD)/libsim_amdxdna.so" "$(BUILD)/npu_estimate" --pack auto \
	        --model "$$(examples/fetch.sh $$model)" $(ESTIMATE_ARGS) "$$(examples/fetch.sh demo)" || \
	        exit 1; echo; done; done

test-asan:
	+$(MAKE) BUILD="$(BUILD)/asan" CFLAGS="$(SANITIZE)" tests
	@WNPU_SANITIZED=1 tests/run "$(BUILD)/asan"

test-tsan:
	+$(MAKE) BUILD="$(BUILD)/tsan" CFLAGS="$(SANITIZE_THREAD)" "$(B)/tsan/tests/test_many" \
	    "$(B)/tsan/tests/test_stream" "$(B)/tsan/make_toy" $(if $(CIVETWEB),"$(B)/tsan/server")
	@TSAN_OPTIONS=halt_on_error=1 tests/run "$(BUILD)/tsan" test_many \
	    test_stream:thread
	@TSAN_OPTIONS=halt_on_error=1 TEST_SERVER="mixed realtime_refused frames" \
	    tests/run "$(BUILD)/tsan" test_server.sh

AARCH64 = BUILD="$(BUILD)/aarch64" CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar LDFLAGS=-static

test-aarch64:
	+$(MAKE) $(AARCH64) tests
	@WNPU_EMULATOR=qemu-aarch64 TEST_TIMEOUT=7200 tests/run "$(BUILD)/aarch64"

# Neither libm nor a library of threads is needed there. WINDOWS_CC may be clang-cl's relative,
# "clang --target=x86_64-w64-mingw32".
WINDOWS_CC ?= x86_64-w64-mingw32-gcc
WINDOWS = BUILD="$(BUILD)/windows" CC="$(WINDOWS_CC)" AR=x86_64-w64-mingw32-ar LDLIBS= LIBDRM=

windows:
	+$(MAKE) $(WINDOWS) "$(B)/windows/transcribe.exe" "$(B)/windows/pack.exe" \
	    "$(B)/windows/tests/windows.exe"

$(B)/tests/windows.exe: tests/api/windows.c $(B)/libwhisper_npu.a $(B)/linked_with | $(B)/tests
	$(COMPILE) $(LDFLAGS) $< "$(BUILD)/libwhisper_npu.a" $(LDLIBS) -o "$@"

# A module with vector instructions, the same with threads, and one with neither; wnpu.mjs chooses what
# its host can run. wasi-libc is compiled without atomics, so the linker would refuse to share its
# memory. That is right for functions with locks or static data; here only one thread calls those, the
# others only memcpy and the like (see glue.c): hence --no-check-features.
WASM_CC ?= clang
WASM_COMPILE = $(WASM_CC) --target=wasm32-wasi -isystem /usr/include/wasm32-wasi -Os -std=c11 -Wall \
    -Wextra -Wpedantic -Wconversion -Wshadow -I. -DWNPU_NO_OS
WASM_VECTOR = -msimd128 -matomics -mbulk-memory
WASM_LINK = $(WASM_COMPILE) $(patsubst %,"$(BUILD)/wasm/%",$(filter %.o,$(^F))) \
    -nostartfiles -L/usr/lib/wasm32-wasi \
    -Wl,--no-entry,--gc-sections,-s,--stack-first,-z,stack-size=1048576
BROWSER = $(notdir $(filter-out %.c,$(wildcard examples/browser/*)))
WASM_MODULES = $(B)/browser/wnpu.wasm $(B)/browser/wnpu_threads.wasm $(B)/browser/wnpu_scalar.wasm

browser: $(WASM_MODULES) $(BROWSER:%=$(B)/browser/%) $(B)/browser/shared.css \
    $(B)/browser/shared.js $(B)/browser/LICENSE

$(B)/wasm/%.o: %.c whisper_npu.h Makefile | $(B)/wasm
	$(WASM_COMPILE) $(WASM_VECTOR) -c $< -o "$@"

$(B)/wasm/%.o: examples/browser/%.c whisper_npu.h Makefile | $(B)/wasm
	$(WASM_COMPILE) $(WASM_VECTOR) -c $< -o "$@"

$(B)/wasm/scalar_%.o: %.c whisper_npu.h Makefile | $(B)/wasm
	$(WASM_COMPILE) -c $< -o "$@"

$(B)/wasm/scalar_%.o: examples/browser/%.c whisper_npu.h Makefile | $(B)/wasm
	$(WASM_COMPILE) -c $< -o "$@"

$(B)/browser/wnpu.wasm: $(B)/wasm/whisper_npu.o $(B)/wasm/glue.o | $(B)/browser
	$(WASM_LINK) -o "$@"

$(B)/browser/wnpu_threads.wasm: $(B)/wasm/whisper_npu.o $(B)/wasm/glue.o | $(B)/browser
	$(WASM_LINK) -Wl,--shared-memory,--import-memory,--initial-memory=4194304 \
	    -Wl,--max-memory=4294967296,--no-check-features,--export=__stack_pointer -o "$@"

$(B)/browser/wnpu_scalar.wasm: $(B)/wasm/scalar_whisper_npu.o $(B)/wasm/scalar_glue.o | $(B)/browser
	$(WASM_LINK) -o "$@"

$(B)/browser/%: examples/browser/% | $(B)/browser
	cp $< "$@"

# What the page has in common with the server's: its player, styles and scripts.
$(B)/browser/index.html: examples/browser/index.html examples/server/server.html | $(B)/browser
	awk '/<!-- <\/player>/ { on = 0 } NR == FNR && on { player = player $$0 "\n" } \
	    NR > FNR && !/<!-- <player>/ { print } NR > FNR && /<!-- <player>/ { printf "%s", player } \
	    /<!-- <player>/ { on = 1 }' examples/server/server.html $< >"$@"

$(B)/browser/shared.css: examples/server/server.html | $(B)/browser
	sed -n '/^<style>$$/,/^<\/style>$$/{/style>$$/!p;}' $< >"$@"

$(B)/browser/shared.js: examples/server/server.html | $(B)/browser
	sed -n '/^\/\* <shared>/,/^\/\* <\/shared>/p' $< >"$@"

$(B)/browser/LICENSE: LICENSE | $(B)/browser
	cp $< "$@"

# Without a cross compiler there is no NEON in it.
matrix: $(B)/transcribe
	+@if command -v aarch64-linux-gnu-gcc >/dev/null; then \
	    $(MAKE) $(AARCH64) "$(B)/aarch64/transcribe"; fi
	@WNPU_BUILD="$(BUILD)" tests/api/matrix.sh $(MATRIX)

check-symbols: $(LIBRARY:%=$(B)/%.o)
	@nm -g --defined-only $(LIBRARY:%="$(BUILD)/%.o") | awk '/^[0-9a-f]+ [A-Z] / && $$NF !~ /^_?wnpu_/ { print "not ours: " $$0; bad = 1 } \
	    END { exit bad }' && echo "every global symbol begins with wnpu_"

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
INCLUDEDIR ?= $(PREFIX)/include
LIBDIR ?= $(PREFIX)/lib
PROGRAM_PREFIX ?=
PROGRAMS = transcribe pack $(if $(LIBDRM),npu_doctor)
VERSION = $(shell sed -n 's/^\#define WNPU_VERSION_[MP][A-Z]* //p' whisper_npu.h | paste -s -d . -)

# Where something is installed, and a path as pkg-config reads it: a space after a backslash.
staged = $(call quote,$(DESTDIR)$(1))
pc = $(subst $(space),\$(space),$(1))

# libwnpu and not libwhisper_npu, because shared libraries of that name exist. SHARED=no leaves the
# shared library out. Libs.private is what only the archive's users need: pkg-config --static.
SHARED ?= yes
SONAME = libwnpu.so.$(firstword $(subst ., ,$(VERSION)))
SHARED_LIBRARY = libwnpu.so.$(VERSION)
PRIVATE_LIBS = $(LDLIBS) $(if $(LIBDRM),$(DRM_LIBS))
BUILDFILES = examples/packaging

$(B)/pic/%.o: %.c $(B)/linked_with | $(B)/pic
	$(COMPILE) $(DRM_CFLAGS) -fPIC -c $< -o "$@"

$(B)/libwnpu.so: $(LIBRARY:%=$(B)/pic/%.o) $(BUILDFILES)/wnpu.map
	$(CC) -shared $(CFLAGS) $(LDFLAGS) -Wl,-soname,$(SONAME) -Wl,-z,defs \
	    -Wl,--version-script=$(BUILDFILES)/wnpu.map $(LIBRARY:%="$(BUILD)/pic/%.o") $(PRIVATE_LIBS) \
	    -o "$(BUILD)/$(SHARED_LIBRARY)"
	ln -sf $(SHARED_LIBRARY) "$(BUILD)/$(SONAME)"
	ln -sf $(SHARED_LIBRARY) "$@"

shared: $(B)/libwnpu.so

$(B)/wnpu.pc: whisper_npu.h Makefile FORCE | $(B)
	printf '%s\n' $(call quote,prefix=$(call pc,$(PREFIX))) \
	    $(call quote,includedir=$(call pc,$(INCLUDEDIR))) \
	    $(call quote,libdir=$(call pc,$(LIBDIR))) '' \
	    'Name: wnpu' 'Description: Speech to text with Whisper models on CPUs and AMD XDNA NPUs' \
	    'Version: $(VERSION)' 'Cflags: -I$${includedir}' \
	    'Libs: -L$${libdir} -lwnpu$(if $(filter yes,$(SHARED)),, $(LDLIBS))' \
	    'Libs.private: $(strip $(PRIVATE_LIBS))' >"$@"

# "server" would say nothing among the programs of a system.
SERVER = $(if $(CIVETWEB),$(call staged,$(BINDIR))/wnpu-server)

install: $(PROGRAMS:%=$(B)/%) $(if $(CIVETWEB),$(B)/server) $(B)/libwhisper_npu.a $(B)/wnpu.pc \
    $(if $(filter yes,$(SHARED)),$(B)/libwnpu.so)
	mkdir -p $(call staged,$(BINDIR)) $(call staged,$(INCLUDEDIR)) \
	    $(call staged,$(LIBDIR)/pkgconfig) $(call staged,$(LIBDIR)/cmake/wnpu)
	for p in $(PROGRAMS); do \
	    install -m 755 "$(BUILD)/$$p" $(call staged,$(BINDIR))/"$(PROGRAM_PREFIX)$$p" || exit 1; done
	$(if $(SERVER),install -m 755 "$(BUILD)/server" $(SERVER))
	install -m 644 whisper_npu.h $(call staged,$(INCLUDEDIR)/whisper_npu.h)
	install -m 644 "$(BUILD)/libwhisper_npu.a" $(call staged,$(LIBDIR)/libwnpu.a)
	install -m 644 "$(BUILD)/wnpu.pc" $(call staged,$(LIBDIR)/pkgconfig/wnpu.pc)
	for f in wnpu-config wnpu-config-version; do \
	    sed 's/@VERSION@/$(VERSION)/; s/@HAS_AMDXDNA@/$(if $(LIBDRM),ON,OFF)/' \
	        $(BUILDFILES)/$$f.cmake.in >$(call staged,$(LIBDIR)/cmake/wnpu)/$$f.cmake || exit 1; done
ifeq ($(SHARED),yes)
	install -m 644 "$(BUILD)/$(SHARED_LIBRARY)" $(call staged,$(LIBDIR)/)
	ln -sf $(SHARED_LIBRARY) $(call staged,$(LIBDIR)/$(SONAME))
	ln -sf $(SHARED_LIBRARY) $(call staged,$(LIBDIR)/libwnpu.so)
endif

uninstall:
	rm -f $(PROGRAMS:%=$(call staged,$(BINDIR))/"$(PROGRAM_PREFIX)%") $(SERVER) \
	    $(call staged,$(INCLUDEDIR)/whisper_npu.h) $(call staged,$(LIBDIR)/libwnpu.a) \
	    $(call staged,$(LIBDIR)/libwnpu.so)* \
	    $(call staged,$(LIBDIR)/pkgconfig/wnpu.pc)
	rm -rf $(call staged,$(LIBDIR)/cmake/wnpu)

abi:
	@tests/api/abi/layout.sh --write

outline:
	@awk -f tests/lib/outline.awk $(wildcard whisper_npu.c npu_amdxdna.c)

measures:
	@awk -v owners=1 -f tests/lib/outline.awk whisper_npu.c | grep '^whole'
	@awk -f tests/lib/measures.awk whisper_npu.c
	@for f in wi_run_window wi_confirm; do \
	    awk -v walk=$$f -f tests/lib/outline.awk whisper_npu.c || exit 1; done

sections: | $(B)
	rm -rf "$(BUILD)/sections"
	for f in $(basename $(wildcard whisper_npu.c npu_amdxdna.c)); do \
	    mkdir -p "$(BUILD)/sections/$$f" && \
	    awk -v to="$(BUILD)/sections/$$f" -f tests/lib/outline.awk $$f.c || exit 1; done

BENCH_ARGS ?= --model "$$(examples/fetch.sh base.en)" "$$(examples/fetch.sh demo)"
bench: $(B)/bench bench-live
	"$(BUILD)/bench" $(BENCH_ARGS)

$(B)/bench_live: bench_live.c $(B)/libwhisper_npu.a $(B)/linked_with
	$(COMPILE) $(LDFLAGS) $< "$(BUILD)/libwhisper_npu.a" $(LDLIBS) -o "$@"

bench-live: $(B)/bench_live
	WNPU_BUILD="$(BUILD)" SPEECH='$(SPEECH)' tests/bench/live.sh

bench-browser: $(B)/transcribe browser
	WNPU_BUILD="$(BUILD)" tests/bench/browser.sh

bench-server: $(B)/server
	WNPU_BUILD="$(BUILD)" MODEL="$$(examples/fetch.sh base.en)" \
	    SPEECH="$$(examples/fetch.sh demo)" tests/bench/bench_server.py
	@for what in "--silent 90" "--endure 10000 --minutes 10"; do echo; WNPU_BUILD="$(BUILD)" \
	    MODEL="$$(examples/fetch.sh tiny)" SPEECH="$$(examples/fetch.sh demo)" \
	    tests/bench/bench_server.py $$what || exit 1; done

bench-plot: $(B)/bench_plot
	"$(BUILD)/bench_plot" --model "$$(examples/fetch.sh base.en)" --output "$(BUILD)/roofline.svg" \
	    --commit "$$(git describe --always --dirty 2>/dev/null)"
	@echo "$(BUILD)/roofline.svg"

sizes: $(B)/transcribe $(B)/pack shared
	@for python in python3 /usr/bin/python3; do $$python -c 'import numpy' 2>/dev/null && break; done; \
	    WNPU_BUILD="$(BUILD)" $$python tests/bench/sizes.py $(SHAPES)

# Programs at fixed addresses, and packs, which are not converted under the emulator.
STATIC = BUILD="$(BUILD)/static" LDFLAGS=-static
cpu-estimate:
	@tests/bench/cpu_estimate.py --help >/dev/null
	+@$(MAKE) "$(B)/pack"
	+@$(MAKE) $(STATIC) "$(B)/static/bench_work"
	+@$(MAKE) $(AARCH64) "$(B)/aarch64/bench_work"
	@for model in $(MODEL); do "$(BUILD)/pack" "$$(examples/fetch.sh $$model)" \
	    "$(BUILD)/static/$$model.wnpu" || exit; done
	@WNPU_BUILD="$(BUILD)" tests/bench/cpu_estimate.py $(ESTIMATE_ARGS) \
	    $(MODEL:%="$(BUILD)/static/%.wnpu")

$(B)/fidelity: fidelity.c $(B)/libwhisper_npu.a $(B)/linked_with
	$(COMPILE) $(LDFLAGS) $< "$(BUILD)/libwhisper_npu.a" $(LDLIBS) -o "$@"

$(B)/judge_cases: judge_cases.c $(B)/libwhisper_npu.a $(B)/linked_with
	$(COMPILE) $(LDFLAGS) $< "$(BUILD)/libwhisper_npu.a" $(LDLIBS) -o "$@"

# Includes whisper_npu.c.
$(B)/vad_features: vad_features.c whisper_npu.c whisper_npu.h $(B)/compiled_with
	$(COMPILE) $< $(LDLIBS) -o "$@"

fidelity: $(B)/fidelity
	for model in $(or $(MODELS),tiny base.en); do \
	    "$(BUILD)/fidelity" "$$(examples/fetch.sh $$model)" "$(SPEECH)"/*.wav || exit; done

detector: $(B)/judge_cases
	@"$(BUILD)/judge_cases" "$$(examples/fetch.sh tiny)" "$(SPEECH)" "$(or $(CASES),all)"

accuracy: $(B)/transcribe $(B)/wer
	@WNPU_BUILD="$(BUILD)" tests/speech/accuracy.sh "$(SPEECH)" $(MODELS)

clean:
	rm -rf build "$(BUILD)"

# Made by -MMD, one beside each object or program.
MADE = $(LIBRARY) $(EXAMPLES) $(foreach p,transcribe pack listen server,$(OBJECTS_$(p))) \
    npu_estimate $(basename $(notdir $(wildcard tests/*/*.c)))
NOTES = $(patsubst %,$(B)/%.d,$(sort $(MADE))) $(TESTS:%=$(B)/tests/%.d) $(SIMULATOR:%=$(B)/sim/%.d) \
    $(FUZZERS:%=$(B)/fuzz/%.d) $(B)/fuzz/whisper_npu.d $(B)/fuzz/run.d \
    $(LIBRARY:%=$(B)/pic/%.d) $(KIT:%=$(B)/kit/%.d) \
    $(patsubst %,$(B)/kit/%.d,npu_asm make_code overlay)
$(NOTES): ;
-include $(NOTES)
endif
