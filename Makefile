# Builds the examples and the tests. The library itself needs no build system:
#     cc -c whisper_npu.c
#
#   make               build/transcribe, build/minimal, build/pack, build/bench; build/npu_doctor
#                      with libdrm
#   make demo          fetch a model and a recording once, print transcript and speed
#   make models        fetch both models of the README, print their paths
#   make test          all tests                  make -j4 test builds in parallel
#   make test-npu      the tests of the NPU part alone, on a simulated device
#   make check-long    make test with 1,000 random faults in the NPU part, 10,000 cancels of base.en,
#                      1,000 snapshots, 10 hours of sound, 30 minutes of sounds in which nobody
#                      speaks, and with SPEECH=DIR real models on the simulated device, see
#                      tests/npu_speech.sh: hours
#   make npu-estimate  what an NPU would make of MODEL (base.en): a model, not a measurement
#   make test-asan     the same under AddressSanitizer and UBSan
#   make test-tsan     sixteen sessions at once under ThreadSanitizer
#   make test-aarch64  the C tests under qemu-aarch64, if a cross compiler is there
#   make matrix        one answer from all instruction sets and numbers of threads; MATRIX=full
#   make fuzz          build/fuzz/fuzz_*: libFuzzer targets, with clang
#   make check-symbols every global symbol begins with wnpu_
#   make install       header, static library, pkg-config file and programs into PREFIX
#                      (/usr/local), under DESTDIR; make uninstall takes them away
#   make bench         time of each stage beside what the machine can do at most
#   make bench-plot    the same as a picture, a roofline: build/roofline.svg
#   make accuracy SPEECH=DIR  word error rates on recordings of yours, see tests/accuracy.sh
#   make clean

BUILD ?= build
CFLAGS ?= -O2 -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow
LDLIBS += -lm -lpthread
FUZZ_CC ?= clang
FUZZ_CFLAGS ?= -O1 -g -std=c11 -fsanitize=address,undefined -fno-sanitize-recover=undefined
SANITIZE = -O1 -g -std=c11 -fsanitize=address,undefined -fno-sanitize-recover=undefined \
           -fno-omit-frame-pointer
SANITIZE_THREAD = -O1 -g -std=c11 -fsanitize=thread

# -MMD writes each object's headers (and for tests the library source) beside it.
COMPILE = $(CC) $(CPPFLAGS) -I. $(CFLAGS) -MMD -MP

# The NPU part needs libdrm; without it everything else is built.
DRM_CFLAGS ?= $(shell pkg-config --cflags libdrm 2>/dev/null || echo -I/usr/include/libdrm)
DRM_LIBS ?= $(shell pkg-config --libs libdrm 2>/dev/null || echo -ldrm)
LIBDRM := $(shell echo 'int main(void) { return drmAvailable(); }' | $(CC) $(DRM_CFLAGS) \
    -include xf86drm.h -x c - $(LDFLAGS) $(DRM_LIBS) -o /dev/null 2>/dev/null && echo yes)
NPU_OBJECTS = $(if $(LIBDRM),$(BUILD)/npu_amdxdna.o)
NPU_PROGRAMS = test_npu test_npu_pack test_npu_run test_npu_driver test_doctor
NPU_TOOLS = $(if $(LIBDRM),$(BUILD)/libsim_amdxdna.so $(BUILD)/make_pack)

EXAMPLES = transcribe minimal pack $(if $(wildcard tests/bench.c),bench) $(if $(LIBDRM),npu_doctor)
TESTS = $(filter-out $(if $(LIBDRM),,$(NPU_PROGRAMS)),\
    $(basename $(notdir $(wildcard tests/test_*.c))))
NPU_FUZZERS = fuzz_pack fuzz_driver
FUZZERS = $(filter-out $(if $(LIBDRM),,$(NPU_FUZZERS)),\
    $(basename $(notdir $(wildcard tests/fuzz_*.c))))

.PHONY: all tests demo models test test-npu check-long npu-estimate test-asan test-tsan test-aarch64 \
    matrix fuzz check-symbols install uninstall bench bench-plot accuracy clean
.DELETE_ON_ERROR:
.SECONDARY:

all: $(EXAMPLES:%=$(BUILD)/%)
tests: all $(TESTS:%=$(BUILD)/tests/%) $(BUILD)/wer $(BUILD)/bench_plot $(BUILD)/make_toy \
    $(BUILD)/make_sounds $(NPU_TOOLS)

# An archive, because a test that includes whisper_npu.c then simply does not pull it in.
$(BUILD)/libwhisper_npu.a: $(BUILD)/whisper_npu.o $(NPU_OBJECTS)
	$(AR) rcs $@ $^

$(BUILD)/whisper_npu.o: whisper_npu.c | $(BUILD)
	$(COMPILE) -c $< -o $@

$(BUILD)/npu_amdxdna.o: npu_amdxdna.c | $(BUILD)
	$(COMPILE) $(DRM_CFLAGS) -c $< -o $@

$(BUILD)/%.o: examples/%.c | $(BUILD)
	$(COMPILE) -c $< -o $@

$(BUILD)/%: $(BUILD)/%.o $(BUILD)/libwhisper_npu.a
	$(CC) $(CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS) -o $@

# With libdrm the archive has npu_amdxdna.o, and programs that use it want -ldrm.
$(BUILD)/transcribe: $(BUILD)/input.o $(BUILD)/output.o $(BUILD)/npu.o
$(BUILD)/npu.o: CPPFLAGS += $(if $(LIBDRM),,-DNO_NPU)
$(BUILD)/transcribe $(BUILD)/npu_doctor: LDLIBS += $(if $(LIBDRM),$(DRM_LIBS))

$(BUILD)/pack: $(BUILD)/hf.o $(BUILD)/json.o $(BUILD)/output.o

# Include the library's source, to time single stages.
$(BUILD)/bench $(BUILD)/bench_plot: $(BUILD)/%: tests/%.c | $(BUILD)
	$(COMPILE) $(LDFLAGS) $< $(LDLIBS) -o $@

$(BUILD)/wer: tests/wer.c | $(BUILD)
	$(COMPILE) $(LDFLAGS) $< -o $@

$(BUILD)/make_toy: tests/make_toy.c | $(BUILD)
	$(COMPILE) $(LDFLAGS) $< -lm -o $@

$(BUILD)/make_sounds: tests/make_sounds.c | $(BUILD)
	$(COMPILE) $(LDFLAGS) $< $(LDLIBS) -o $@

# Includes the library's source, to show what its detector sees.
$(BUILD)/vad_features: tests/vad_features.c | $(BUILD)
	$(COMPILE) $(LDFLAGS) $< $(LDLIBS) -o $@

# gcc notes of what they include that vectors of 64 bytes were passed otherwise before 2010.
$(BUILD)/tests/test_op_avx512 $(BUILD)/tests/test_gm_avx512: private override CFLAGS += -Wno-psabi

$(BUILD)/tests/%: tests/%.c $(BUILD)/libwhisper_npu.a | $(BUILD)/tests
	$(COMPILE) $(LDFLAGS) $< $(BUILD)/libwhisper_npu.a $(LDLIBS) -o $@

$(NPU_PROGRAMS:%=$(BUILD)/tests/%): $(BUILD)/tests/%: tests/%.c $(BUILD)/libwhisper_npu.a \
    | $(BUILD)/tests
	$(COMPILE) $(DRM_CFLAGS) $(LDFLAGS) $< $(BUILD)/libwhisper_npu.a $(LDLIBS) $(DRM_LIBS) -o $@

# The simulated NPU has flags of its own: it is preloaded, so it is never sanitized. -O3, because its
# array multiplies whole encoders.
$(BUILD)/libsim_amdxdna.so: $(patsubst tests/%.c,$(BUILD)/sim/%.o,$(wildcard tests/sim_*.c))
	$(CC) -shared $^ -ldl -lpthread -o $@

$(BUILD)/sim/%.o: tests/%.c | $(BUILD)/sim
	$(CC) -std=c11 -O3 -g -fPIC -fvisibility=hidden -Wall -Wextra -MMD -MP -c $< -o $@

$(BUILD)/make_pack: tests/make_pack.c | $(BUILD)
	$(COMPILE) $(LDFLAGS) $< -o $@

# The fuzzers' library is instrumented too.
$(BUILD)/fuzz/libwhisper_npu.a: whisper_npu.c | $(BUILD)/fuzz
	$(FUZZ_CC) -I. $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link -MMD -MP -MT $@ \
	    -MF $(BUILD)/fuzz/whisper_npu.d -c $< -o $(BUILD)/fuzz/whisper_npu.o
	$(AR) rcs $@ $(BUILD)/fuzz/whisper_npu.o

$(BUILD)/fuzz/%: tests/%.c $(BUILD)/fuzz/libwhisper_npu.a
	$(FUZZ_CC) -I. $(FUZZ_CFLAGS) -fsanitize=fuzzer -MMD -MP $< \
	    $(BUILD)/fuzz/libwhisper_npu.a $(LDLIBS) -o $@

# They include the source that they test, and need nothing else of ours.
$(NPU_FUZZERS:%=$(BUILD)/fuzz/%): $(BUILD)/fuzz/%: tests/%.c | $(BUILD)/fuzz
	$(FUZZ_CC) -DFUZZ -I. $(DRM_CFLAGS) $(FUZZ_CFLAGS) -fsanitize=fuzzer -MMD -MP $< \
	    $(LDLIBS) $(DRM_LIBS) -o $@

$(BUILD) $(BUILD)/tests $(BUILD)/fuzz $(BUILD)/sim:
	mkdir -p $@

fuzz: $(FUZZERS:%=$(BUILD)/fuzz/%)
	@echo "Run one with a directory for its findings:"
	@for f in $(FUZZERS); do echo "    mkdir -p $(BUILD)/corpus/$$f && $(BUILD)/fuzz/$$f" \
	    "-max_total_time=600 $(BUILD)/corpus/$$f" \
	    "$$([ ! -d tests/corpus/$$f ] || echo tests/corpus/$$f)"; done

demo: $(BUILD)/transcribe
	@model=$$(scripts/fetch.sh tiny) && recording=$$(scripts/fetch.sh demo) && \
	    $(BUILD)/transcribe --verbose --model "$$model" "$$recording"
	@echo
	@echo "That was tiny, the smallest model. base.en makes fewer mistakes in English:"
	@echo "    $(BUILD)/transcribe --model \"\$$(scripts/fetch.sh base.en)\" RECORDING.wav"

models:
	@scripts/fetch.sh tiny base.en

export WNPU_LIBDRM = $(or $(LIBDRM),no)

test: tests
	@tests/run $(BUILD)

test-npu: $(if $(LIBDRM),$(BUILD)/npu_doctor $(BUILD)/transcribe $(NPU_PROGRAMS:%=$(BUILD)/tests/%)) \
    $(BUILD)/tests/test_accel $(BUILD)/tests/test_sim $(NPU_TOOLS)
	@tests/run $(BUILD) test_accel test_sim $(NPU_PROGRAMS)

# TEST_MODEL and TEST_RECORDING say what those hours consist of, see tests/test_flat.c.
check-long: tests
	@TEST_NPU_RUNS=1000 TEST_CANCELS=10000 TEST_SNAPSHOTS=1000 TEST_MINUTES=600 \
	    WNPU_FREE_SECONDS=90 TEST_TIMEOUT=86400 tests/run $(BUILD)
	@[ -z "$(SPEECH)" ] || WNPU_BUILD=$(BUILD) tests/npu_speech.sh "$(SPEECH)" $(MODELS)

# Includes the library's source, to run the encoder alone.
$(BUILD)/npu_estimate: tests/npu_estimate.c $(NPU_OBJECTS) | $(BUILD)
	$(CC) -std=gnu11 -O2 $(CPPFLAGS) -I. $(LDFLAGS) -MMD -MP -MF $@.d $< $(NPU_OBJECTS) $(LDLIBS) \
	    $(DRM_LIBS) -ldl -o $@

MODEL ?= $$(scripts/fetch.sh base.en)
STATE ?= 512
npu-estimate: $(BUILD)/npu_estimate $(NPU_TOOLS)
	@for device in npu1 npu4; do \
	    WNPU_BUILD=$(BUILD) tests/npu_pack.sh $(BUILD)/estimate-$$device $$device i8 $(STATE) \
	        >/dev/null && \
	    SIM_AMDXDNA_DEVICE=$$device SIM_AMDXDNA_CACHE=off SIM_AMDXDNA_CLOCK=model \
	        SIM_AMDXDNA_QUIET=1 LD_PRELOAD=$(BUILD)/libsim_amdxdna.so $(BUILD)/npu_estimate \
	        --pack $(BUILD)/estimate-$$device --model "$(MODEL)" $(ESTIMATE_ARGS) \
	        "$$(scripts/fetch.sh demo)" || exit 1; echo; done

test-asan:
	+$(MAKE) BUILD=$(BUILD)/asan CFLAGS="$(SANITIZE)" tests
	@WNPU_SANITIZED=1 TEST_TIMEOUT=1800 tests/run $(BUILD)/asan

test-tsan:
	+$(MAKE) BUILD=$(BUILD)/tsan CFLAGS="$(SANITIZE_THREAD)" $(BUILD)/tsan/tests/test_many
	@TSAN_OPTIONS=halt_on_error=1 TEST_TIMEOUT=1800 tests/run $(BUILD)/tsan test_many

AARCH64 = BUILD=$(BUILD)/aarch64 CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar LDFLAGS=-static

test-aarch64:
	+$(MAKE) $(AARCH64) tests
	@WNPU_EMULATOR=qemu-aarch64 TEST_TIMEOUT=3600 tests/run $(BUILD)/aarch64

# Without a cross compiler there is no NEON in it.
matrix: $(BUILD)/transcribe
	+@if command -v aarch64-linux-gnu-gcc >/dev/null; then \
	    $(MAKE) $(AARCH64) $(BUILD)/aarch64/transcribe; fi
	@WNPU_BUILD=$(BUILD) tests/matrix.sh $(MATRIX)

check-symbols: $(BUILD)/whisper_npu.o $(NPU_OBJECTS)
	@nm -g --defined-only $^ | awk 'NF > 1 && $$NF !~ /^_?wnpu_/ { print "not ours: " $$0; bad = 1 } \
	    END { exit bad }' && echo "every global symbol begins with wnpu_"

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
INCLUDEDIR ?= $(PREFIX)/include
LIBDIR ?= $(PREFIX)/lib
PROGRAM_PREFIX ?=
PROGRAMS = transcribe pack $(if $(LIBDRM),npu_doctor)
VERSION = $(shell sed -n 's/^\#define WNPU_VERSION_[MP][A-Z]* //p' whisper_npu.h | paste -s -d . -)

# libwnpu and not libwhisper_npu, because shared libraries of that name exist. What Libs.private adds
# is for users of npu_amdxdna.c, by way of pkg-config --static.
install: $(PROGRAMS:%=$(BUILD)/%) $(BUILD)/libwhisper_npu.a
	printf '%s\n' 'prefix=$(PREFIX)' 'includedir=$(INCLUDEDIR)' 'libdir=$(LIBDIR)' '' \
	    'Name: wnpu' 'Description: Speech to text with Whisper models on CPUs and AMD XDNA NPUs' \
	    'Version: $(VERSION)' 'Cflags: -I$${includedir}' \
	    'Libs: -L$${libdir} -lwnpu -lm -lpthread' \
	    'Libs.private: $(if $(LIBDRM),$(DRM_LIBS))' >$(BUILD)/wnpu.pc
	mkdir -p $(foreach d,$(BINDIR) $(INCLUDEDIR) $(LIBDIR)/pkgconfig,"$(DESTDIR)$(d)")
	for p in $(PROGRAMS); do \
	    install -m 755 $(BUILD)/$$p "$(DESTDIR)$(BINDIR)/$(PROGRAM_PREFIX)$$p" || exit 1; done
	install -m 644 whisper_npu.h "$(DESTDIR)$(INCLUDEDIR)/whisper_npu.h"
	install -m 644 $(BUILD)/libwhisper_npu.a "$(DESTDIR)$(LIBDIR)/libwnpu.a"
	install -m 644 $(BUILD)/wnpu.pc "$(DESTDIR)$(LIBDIR)/pkgconfig/wnpu.pc"

uninstall:
	rm -f $(PROGRAMS:%="$(DESTDIR)$(BINDIR)/$(PROGRAM_PREFIX)%") \
	    "$(DESTDIR)$(INCLUDEDIR)/whisper_npu.h" "$(DESTDIR)$(LIBDIR)/libwnpu.a" \
	    "$(DESTDIR)$(LIBDIR)/pkgconfig/wnpu.pc"

BENCH_ARGS ?= --model "$$(scripts/fetch.sh base.en)" "$$(scripts/fetch.sh demo)"
bench: $(BUILD)/bench
	$(BUILD)/bench $(BENCH_ARGS)

bench-plot: $(BUILD)/bench_plot
	$(BUILD)/bench_plot --model "$$(scripts/fetch.sh base.en)" --output $(BUILD)/roofline.svg \
	    --commit "$$(git describe --always --dirty 2>/dev/null)"
	@echo "$(BUILD)/roofline.svg"

accuracy: $(BUILD)/transcribe $(BUILD)/wer
	@WNPU_BUILD=$(BUILD) tests/accuracy.sh "$(SPEECH)" $(MODELS)

clean:
	rm -rf build $(BUILD)

-include $(wildcard $(BUILD)/*.d $(BUILD)/tests/*.d $(BUILD)/fuzz/*.d \
    $(BUILD)/sim/*.d)
