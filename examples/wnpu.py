"""whisper_npu for Python, with ctypes alone.

    with wnpu.Session("ggml-tiny.bin") as session:
        for segment in session.transcribe("talk.wav", language="en", words=1):
            print(segment.t0_ms, segment.t1_ms, segment.text)

Samples may also be an array of numpy or of the array module, or anything else with the buffer
protocol, and pieces of it of any size, as a microphone or a pipe delivers them:

        for update in session.live(sys.stdin.buffer):
            for segment in update.segments:
                print(segment.text)
            print(update.text, end="\\r")           # tentative

The results of a run can be written in the formats of transcribe: session.write("srt").

A session may be used by one thread at a time; but cancel() may be called from any, and lets the run
end with an Error."""
import array
import ctypes
import itertools
import mmap
import os
import threading
from ctypes import byref, c_char_p, c_size_t, c_void_p, sizeof
from types import SimpleNamespace

KINDS = {"i": ctypes.c_int32, "u": ctypes.c_uint32, "q": ctypes.c_int64, "Q": ctypes.c_uint64,
         "f": ctypes.c_float, "z": c_size_t, "s": c_char_p, "p": c_void_p, "e": ctypes.c_char * 252}


def structure(text):
    """A structure of the header: for each group of fields a letter of KINDS, then their names."""
    fields = [(name, KINDS[group[0]]) for group in text.split("; ") for name in group[2:].split()]
    return type("Structure", (ctypes.Structure,), {"_fields_": fields})


Token = structure("i id; f probability; q t0_ms t1_ms")
KINDS["t"] = ctypes.POINTER(Token)
Segment = structure("q t0_ms t1_ms; s text; z text_length; t tokens; z n_tokens; i language; "
                    "i window; f mean_logprob no_speech temperature compression_ratio; "
                    "f first_logprob; i retries; u reasons; i accepted prompted device; f voice; "
                    "q window_ms; f level; i speaker")
Word = structure("u struct_size; f probability; q t0_ms t1_ms; s text; z text_length first_token; "
                 "z n_tokens; i speaker reserved")
Config = structure("u struct_size threads; i compute isa; Q result_bytes; p parallel_for; p user; "
                   "p accel; u require_accel accel_use; p allocator log log_user; u max_beams; "
                   "u max_phrase_tokens batch reserved; Q stream_bytes; "
                   "u voice_dimension max_turns")
Audio = structure("u struct_size; i format; u rate channels; i channel; p data; Q frames; p read; "
                  "p user; u layout reserved")
Stream = structure("u struct_size; i format; u rate channels; i channel step_ms hangover_ms; "
                   "i detect_only; u layout; i skip_late")
Live = structure("u struct_size; i speaking; q committed_ms audio_ms lag_ms overrun_ms; s text; "
                 "z text_length likely_length; q t0_ms t1_ms utterance_t0_ms utterance_t1_ms; "
                 "u revision skipped; z confirmed_length")
Memory = structure("u struct_size reserved; Q held shared peak")
Options = structure("u struct_size; i format max_line_width max_lines max_cue_ms min_cue_ms "
                    "min_gap_ms reading_speed max_words word_times device")
ON_CUT = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, ctypes.c_int64)
WRITE = ctypes.CFUNCTYPE(ctypes.c_int64, c_void_p, c_void_p, c_size_t)
Aligned = structure("u struct_size reserved; Q words said alike extra")
# Parameters are set by name, so only one of the callbacks is a field here. What is behind it leaves
# room for those of later libraries.
Params = type("Params", (ctypes.Structure,), {"_fields_": [
    ("before", ctypes.c_char * (304 if sizeof(c_void_p) == 8 else 244)), ("on_voice", c_void_p),
    ("behind", c_void_p * 25)]})
ON_VOICE = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, c_void_p, c_size_t,
                            ctypes.POINTER(ctypes.c_float))
ARGUMENT, STATE, CANCELLED, IO, UNSUPPORTED = -1, -8, -6, -3, -7
MORE = 32  # WNPU_EVENT_MORE
FORMATS = {"u8": 2, "s16": 3, "s24": 4, "s32": 5, "f32": 6, "f64": 7, "alaw": 8, "ulaw": 9}
WIDTHS = {2: 1, 3: 2, 4: 3, 5: 4, 6: 4, 7: 8, 8: 1, 9: 1, 0: 4, 1: 2}  # bytes of a sample
TYPES = {"h": "s16", "f": "f32", "d": "f64"}  # what the buffer protocol calls them
WAV_NAMES = (b"RIFF", b"RF64", b"BW64")  # what a WAV file begins with


class Error(Exception):
    """args: a wnpu_status, for example CANCELLED, and a message."""


def load():
    """$WNPU_LIBRARY, or the library beside this module, in build/ (make shared), or installed."""
    here = os.path.dirname(os.path.abspath(__file__))
    names = ("libwnpu.so.0", "libwnpu.so", "libwnpu.dylib", "wnpu.dll")
    places = [os.path.join(here, name) for name in names]
    places += [os.path.join(here, "..", "build", name) for name in names]
    places = [place for place in places if os.path.exists(place)] + list(names)
    places += ["/usr/local/lib/" + name for name in names]  # make install, without ldconfig
    given = os.environ.get("WNPU_LIBRARY")
    reason = None
    for place in [given] if given else places:
        try:
            found = ctypes.CDLL(place)
            found.wnpu_stream_params_init  # AttributeError: of an older version
            return found
        except (OSError, AttributeError) as error:
            reason = reason or f"{place}: {error}"
    raise ImportError(f"wnpu needs the shared library libwnpu ({reason}). Run make shared or "
                      "pip install ./examples/packaging in the sources, or set WNPU_LIBRARY to "
                      "its path; after make install, run ldconfig")


lib = load()
for name in ("segment_count", "word_count", "stream_push", "stream_room", "session_size",
             "snapshot_size"):
    getattr(lib, "wnpu_" + name).restype = c_size_t
lib.wnpu_session_error.restype = lib.wnpu_strerror.restype = c_char_p


def call(function, *arguments):
    """Calls a function whose last parameter is a wnpu_error. Returns its message, or a warning."""
    error = structure("i code; e message")()
    if function(*arguments, byref(error)) < 0:
        raise Error(error.code, error.message.decode())
    return error.message.decode()


def made(kind, init, **values):
    item = kind()
    init(byref(item), c_size_t(sizeof(item)))
    for field, value in values.items():
        if field not in dict(kind._fields_):
            raise Error(ARGUMENT, f"there is no field {field}")
        setattr(item, field, value)
    return item


def version():
    """Of the library, as text."""
    number = lib.wnpu_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def memory(path, **config):
    """Bytes that a model and a session need: held by the process, shared by all processes that
    have opened the same pack, and session. config is that of Session."""
    found, model = Memory(struct_size=sizeof(Memory)), c_void_p()
    call(lib.wnpu_model_measure, os.fsencode(path), None, byref(found))
    config = made(Config, lib.wnpu_config_init, **{"stream_bytes": 1 << 20, **config})
    call(lib.wnpu_model_open, byref(model), os.fsencode(path), None)
    error = structure("i code; e message")()
    session = lib.wnpu_session_size(model, byref(config), byref(error))
    lib.wnpu_model_close(model)
    if session == 0:
        raise Error(error.code, error.message.decode())
    return SimpleNamespace(held=found.held, shared=found.shared, session=session)


def mapped(path):
    """The bytes of a file, which are read when they are used."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b"", c_char_p(b"")
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return whole, (ctypes.c_char * len(whole)).from_buffer(whole)


def copied(item, **more):
    fields = {name: getattr(item, name) for name, _ in item._fields_ if name != "struct_size"}
    return SimpleNamespace(**{**fields, "text": item.text.decode(), **more})


def text_of(value):
    """The value of a parameter as wnpu_params_set() takes it: a list has one item a line."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return "off" if value in (float("inf"), float("-inf")) else f"{value:.9f}"
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [str(item) for item in value]
        if any("\n" in item for item in items):
            raise Error(ARGUMENT, "an item of a list has more than one line")
        return "\n".join(items)
    return str(value).lower() if type(value).__name__ in ("bool", "bool_") else str(value)


def parameters(init, params):
    """A wnpu_params, and what must live as long."""
    values, kept = made(Params, init), []
    for key, value in params.items():
        if value is None and key == "language":
            value = "auto"
        if value is not None:  # None: the default
            kept += [key.encode(), text_of(value).encode()]
            call(lib.wnpu_params_set, byref(values), kept[-2], kept[-1])
    return values, kept


def buffer_of(samples, typed=True):
    """Bytes of a buffer, the format of its items (None for bytes), the channels of its shape.
    typed: arrays of unsigned bytes of NumPy are 8-bit samples."""
    if isinstance(samples, str):
        raise Error(ARGUMENT, "samples are bytes or an array of numbers, not str")
    try:
        view = memoryview(samples)
    except TypeError:
        raise Error(ARGUMENT, f"samples are bytes or an array of numbers, not "
                    f"{type(samples).__name__}") from None
    kind = view.format.lstrip("@=<")
    if typed and kind == "B" and hasattr(samples, "dtype"):
        form = "u8"
    elif kind in ("b", "B", "c") and view.ndim == 1 and \
            not (typed and kind == "b" and hasattr(samples, "dtype")):
        form = None
    elif kind in "il" and view.itemsize == 4:
        form = "s32"
    elif kind in TYPES:
        form = TYPES[kind]
    else:
        raise Error(ARGUMENT, f"samples have the type {view.format} in {view.ndim} dimensions; use "
                    "float32, float64, int16, int32 or uint8, as [frames] or [frames, channels]")
    if view.ndim > 2:
        raise Error(ARGUMENT, "samples have more dimensions than [frames, channels]")
    channels = view.shape[1] if view.ndim == 2 else None
    if view.nbytes == 0:
        return memoryview(b""), form, channels
    native = view.c_contiguous and len(view.format) == 1  # memoryview casts no other formats
    return view.cast("B") if native else memoryview(view.tobytes()), form, channels


def pieces_of(source):
    """Pieces of a buffer, of a file or pipe, or of an iterable."""
    if hasattr(source, "read"):
        read = getattr(source, "read1", source.read)
        return iter(lambda: read(1 << 15), b"")
    try:
        memoryview(source)
    except TypeError:
        if isinstance(source, str) or not hasattr(source, "__iter__"):
            raise Error(ARGUMENT, f"{type(source).__name__} holds no samples") from None
        return iter(source)
    return iter([source])


def wav_of(source):
    """The bytes of a WAV file, if source is an open one or a buffer with them, or None; and what
    else source is."""
    if hasattr(source, "read"):
        begin = source.read(4)
        if not isinstance(begin, (bytes, bytearray)):
            raise Error(ARGUMENT, "the file is open as text; open it with mode \"rb\"")
        rest = pieces_of(source)
        if bytes(begin) in WAV_NAMES:
            return bytes(begin) + b"".join(rest), None
        return None, itertools.chain([begin] if begin else [], rest)
    try:
        view = memoryview(source)
    except TypeError:
        return None, source
    is_wav = view.contiguous and view.ndim == 1 and view.itemsize == 1 and \
        view.nbytes >= 4 and bytes(view[:4]) in WAV_NAMES
    return bytes(view) if is_wav else None, source


class Frames:
    """Whole frames of pieces of any size; what is left of one begins the next."""
    def __init__(self, form, width, channels):
        if form is not None and form not in FORMATS:
            raise Error(ARGUMENT, f"there is no format {form}, only {' '.join(FORMATS)}")
        if width is not None and width not in (1, 2, 3, 4):
            raise Error(ARGUMENT, f"there are no samples of {width} bytes; use format")
        self.form, self.width, self.channels = form, width, channels
        self.rest, self.begun, self.frame, self.layout = b"", False, 0, 0
        self.typed = form is None and width is None

    def begin(self, flat, form, channels):
        if form is None and self.form is None:
            if self.width == 4:
                raise Error(ARGUMENT, "4 bytes may be int32 or float32: set format to s32 or f32")
            if bytes(flat[:4]) in (b"RIFF", b"RF64") and bytes(flat[8:12]) == b"WAVE":
                raise Error(ARGUMENT, "these are not samples but a WAV file: use transcribe()")
            form = {1: "u8", 3: "s24"}.get(self.width, "s16")
        if self.width not in (None, WIDTHS[FORMATS[form or self.form]]):
            raise Error(ARGUMENT, f"samples have {self.width} bytes and are {form or self.form}")
        self.form, self.channels = self.form or form, self.channels or channels or 1
        self.number = FORMATS[self.form]
        self.frame, self.begun = WIDTHS[self.number] * self.channels, True

    def add(self, piece):
        """Bytes of whole frames."""
        flat, form, channels = buffer_of(piece, self.typed)
        if not self.begun:
            self.begin(flat, form, channels)
        if form not in (None, self.form) or channels not in (None, self.channels):
            raise Error(ARGUMENT, f"samples of {self.channels} channels of {self.form} were "
                        f"expected, not {channels or self.channels} of {form or self.form}")
        if self.rest:
            flat = memoryview(self.rest + bytes(flat))
        whole = len(flat) // self.frame * self.frame
        self.rest = bytes(flat[whole:])
        return flat[:whole]


class Session:
    """A model and a session. config: fields of wnpu_config, such as threads=2 or batch=4."""
    def __init__(self, path, **config):
        self.model, self.session, self.cancelled = c_void_p(), c_void_p(), False
        self.status, self.warning, self.running = None, "", False
        self.calls, self.depth = threading.RLock(), 0  # depth: calls of C that have not returned
        config = made(Config, lib.wnpu_config_init, **{"stream_bytes": 1 << 20, **config})
        self.voice_dimension = config.voice_dimension
        call(lib.wnpu_model_open, byref(self.model), os.fsencode(path), None)
        call(lib.wnpu_session_open, byref(self.session), self.model, byref(config), None, None)

    def close(self, *_):
        """Cancels what another thread runs, and waits until that has ended."""
        if self.session:
            self.cancel()
        with self.calls:
            if self.depth > 0:
                raise Error(STATE, "the session is busy: it cannot be closed from a callback")
            lib.wnpu_session_close(self.session)
            lib.wnpu_model_close(self.model)
            self.session, self.model = c_void_p(), c_void_p()

    def __enter__(self):
        return self

    __exit__ = close

    def __del__(self):
        if hasattr(self, "session"):
            self.close()

    def cancel(self):
        self.cancelled = True
        lib.wnpu_cancel(self.session)

    def transcribe(self, source, rate=16000, channels=None, format=None, on_voice=None, **params):
        """Yields the segments of a recording: the path of a WAV file, its bytes, a file that is
        open for reading, or samples as stream() takes them. params: names and values of
        wnpu_params; lists such as hotwords are lists. Then self.status is 0, or 1 if part of the
        audio is unresolved, and self.warning is empty or says what is odd about the file.

        on_voice(samples) tells speakers by voice (experimental): it gets the samples of a turn at
        16 kHz, an array.array of floats, and returns voice_dimension numbers, or None. voices is
        their number, -1 (not known) by default. Segments come at the end, with speaker from 1."""
        wav, source = self.wav(source, format)
        form, begin = format, lib.wnpu_params_init
        if wav is not None:
            audio, whole, address = wav
            rate, channels = audio.rate, audio.channels
            form = next(key for key, number in FORMATS.items() if number == audio.format)
            start = audio.data - ctypes.cast(address, c_void_p).value
            size = audio.frames * channels * WIDTHS[audio.format]
            source = memoryview(whole)[start:start + size]
        frames = Frames(form, None, channels)
        frames.layout = audio.layout if wav is not None else 0
        if on_voice or params.get("voices"):
            yield from self.voiced(source, rate, frames, on_voice, params)
        else:
            yield from self.finals(self.updates(begin, source, rate, frames, 0, params))

    def wav(self, source, format=None):
        """A WAV file's audio and what it lies in, or None; and what source is if it is none."""
        self.warning, address, whole = "", None, None
        if isinstance(source, (str, os.PathLike)):
            whole, address = mapped(source)
        elif format is None:
            whole, source = wav_of(source)
            address = c_char_p(whole) if whole is not None else None
        if address is None:
            return None, source
        audio = made(Audio, lib.wnpu_audio_init)
        self.warning = call(lib.wnpu_wav_open, byref(audio), address, c_size_t(len(whole)))
        return (audio, whole, address), source

    def whole(self, source):
        wav, _ = self.wav(source)
        if wav is None:
            raise Error(ARGUMENT, "parts are those of a WAV file: a path, or its bytes")
        return wav

    def cuts(self, source, channel=None, **params):
        """The times, in ms, at which a WAV file (a path, or its bytes) can be divided into parts
        whose texts are those of one run; see wnpu_find_cuts(). channel: that one alone."""
        found, (audio, *kept) = [], self.whole(source)
        audio.channel = audio.channel if channel is None else channel
        values, more = parameters(lib.wnpu_params_init, params)
        take = ON_CUT(lambda _, ms: found.append(ms) or 0)
        self.run(lib.wnpu_find_cuts, byref(values), byref(audio), take, None)
        del kept, more
        return found

    def part(self, source, begin, end, channel=None, **params):
        """Transcribes a part of a WAV file, from one cut to the next (0: its begin, its end), and
        returns it as bytes for join(). Raises an Error with STATE if a text goes across end."""
        audio, *kept = self.whole(source)
        audio.channel = audio.channel if channel is None else channel
        values, more = parameters(lib.wnpu_params_init, params)
        self.cancelled = False
        self.status = self.run(lib.wnpu_transcribe_part, byref(values), byref(audio),
                               ctypes.c_int64(begin), ctypes.c_int64(end))
        block = ctypes.create_string_buffer(lib.wnpu_snapshot_size(self.session))
        self.run(lib.wnpu_snapshot, block, c_size_t(len(block)))
        del kept, more
        return block.raw

    def join(self, parts, **params):
        """Puts parts in order together: then write(), segments and status are those of one run.
        params are those of the parts; with append=True they are another channel's."""
        values, more = parameters(lib.wnpu_params_init, params)
        blocks = (c_char_p * len(parts))(*parts)
        sizes = (c_size_t * len(parts))(*map(len, parts))
        self.seen, self.cancelled = 0, False
        self.status = self.run(lib.wnpu_join, byref(values), blocks, sizes, c_size_t(len(parts)))
        del more
        return list(self.segments())

    def voiced(self, source, rate, frames, on_voice, params):
        """A run of wnpu_transcribe(), at the end of which it is known who speaks."""
        if self.running:
            raise Error(STATE, "the session is busy: another run has neither ended nor been closed")
        raised = []

        def hook(_, samples, n, vector):
            try:
                turn = array.array("f", ctypes.string_at(samples, n * 4))
                numbers = on_voice(turn)
                if numbers is not None and len(numbers) != self.voice_dimension:
                    raise Error(ARGUMENT, f"on_voice returned {len(numbers)} numbers and not "
                                f"voice_dimension, {self.voice_dimension}")
                for i, number in enumerate(() if numbers is None else numbers):
                    vector[i] = number
                return -1 if numbers is None else 0
            except BaseException as error:  # not for the library's C to handle
                raised.append(error)
                self.cancel()
                return -1

        values, kept = parameters(lib.wnpu_params_init, {"voices": -1, **params})
        if on_voice:
            kept.append(ON_VOICE(hook))
            values.on_voice = ctypes.cast(kept[-1], c_void_p)
        self.cancelled, self.seen, self.status = False, 0, None
        data = b"".join(bytes(frames.add(piece)) for piece in pieces_of(source))
        if not frames.begun:
            frames.begin(b"", None, None)
        kept.append(c_char_p(data))
        audio = made(Audio, lib.wnpu_audio_init, format=frames.number, rate=rate,
                     channels=frames.channels, data=ctypes.cast(kept[-1], c_void_p),
                     frames=len(data) // frames.frame, layout=frames.layout)
        try:
            self.status = self.run(lib.wnpu_transcribe, byref(values), byref(audio))
        except Error as error:
            raise (raised or [error])[0] from None
        yield from self.segments()

    def align(self, text, source, extra=False, **params):
        """When a known text was said: its segments, one for each line (of a str, or an iterable),
        with the times and probabilities of their words. source and params are those of
        transcribe(). A word that was not said has probability 0, and a line of which nothing was
        said accepted 0; with extra, so have segments of what was said beside the text.
        self.aligned then counts: words, said, alike, extra, see wnpu_align_stats."""
        lines = [line.encode() for line in (text.splitlines() if isinstance(text, str) else text)]
        for _ in self.transcribe(source, **{**params, "words": True}):
            pass
        self.aligned = Aligned(struct_size=sizeof(Aligned))
        self.run(lib.wnpu_align, (c_char_p * len(lines))(*lines), c_size_t(len(lines)),
                 ctypes.c_int32(bool(extra)), byref(self.aligned))
        self.seen = 0
        return list(self.segments())

    def stream(self, chunks, width=None, rate=16000, channels=None, format=None, **params):
        """Yields segments as soon as they are final, while chunks goes on: an iterable of buffers,
        or a file or pipe. Their samples have the type of the buffer's items; bytes are 16-bit
        samples unless format is one of FORMATS. They may end anywhere. The defaults are those of
        live runs."""
        frames = Frames(format, width, channels)
        init = lib.wnpu_stream_params_init
        yield from self.finals(self.updates(init, chunks, rate, frames, 0, params))

    def live(self, chunks, rate=16000, channels=None, format=None, step_ms=500, **params):
        """As stream(), but yields what is new whenever something has changed: segments, which are
        final, and text, which is tentative and replaces the one before. speaking is 1 while
        somebody speaks."""
        frames = Frames(format, None, channels)
        yield from self.updates(lib.wnpu_stream_params_init, chunks, rate, frames, step_ms, params)

    def finals(self, updates):
        try:
            for update in updates:
                for segment in update.segments:
                    if self.cancelled:
                        raise Error(CANCELLED, "cancelled")
                    yield segment
        finally:
            updates.close()

    def updates(self, init, chunks, rate, frames, step_ms, params):
        if self.running:
            raise Error(STATE, "the session is busy: another run has neither ended nor been closed")
        values, kept = parameters(init, params)
        self.cancelled, self.seen, self.status, shown = False, 0, None, 0
        self.running = True
        try:
            for chunk in pieces_of(chunks):
                was_begun = frames.begun
                whole, at = frames.add(chunk), 0
                if not was_begun:
                    self.begin(values, rate, frames, step_ms)
                while at < len(whole):
                    with self.calls:
                        session = self.checked()
                        room = lib.wnpu_stream_room(session) * frames.frame
                        part = bytes(whole[at:at + room])
                        lib.wnpu_stream_push(session, part, c_size_t(len(part) // frames.frame))
                    at += len(part)
                    for update in self.steps(shown):
                        shown = update.revision
                        yield update
            if not frames.begun:
                frames.begin(b"", None, None)
                self.begin(values, rate, frames, step_ms)
            self.status = self.run(lib.wnpu_stream_finish)
            yield SimpleNamespace(segments=list(self.segments()), text="", likely="", confirmed="",
                                  speaking=0, revision=shown)
        finally:
            self.running = False
            with self.calls:
                if self.status is None and self.session:  # cancelled, failed, or of no interest
                    lib.wnpu_reset(self.session)

    def begin(self, values, rate, frames, step_ms):
        options = made(Stream, lib.wnpu_stream_options_init, rate=rate, channels=frames.channels,
                       step_ms=step_ms, format=frames.number, layout=frames.layout)
        self.run(lib.wnpu_stream_begin, byref(values), byref(options))

    def steps(self, shown):
        """Steps as long as there is something to do, and yields what has changed."""
        events = ctypes.c_uint32(MORE)
        while events.value & MORE:
            self.run(lib.wnpu_stream_step, byref(events))
            segments, live = list(self.segments()), Live(struct_size=sizeof(Live))
            self.run(lib.wnpu_get_live, byref(live))
            if segments or live.revision != shown:
                shown, text = live.revision, live.text
                yield SimpleNamespace(segments=segments, text=text.decode(), speaking=live.speaking,
                                      likely=text[:live.likely_length].decode(), revision=shown,
                                      confirmed=text[:live.confirmed_length].decode())

    def checked(self):
        if not self.session:
            raise Error(STATE, "the session is closed")
        return self.session

    def run(self, function, *arguments):
        with self.calls:
            session = self.checked()
            self.depth += 1
            try:
                status = CANCELLED if self.cancelled else function(session, *arguments)
            finally:
                self.depth -= 1
            if status < 0:
                reason = b"" if self.cancelled else lib.wnpu_session_error(session)
                raise Error(status, (reason or lib.wnpu_strerror(status)).decode())
        return status

    def write(self, format="txt", **options):
        """The results as bytes in a format of transcribe: txt, srt, vtt, json, and so on. options:
        fields of wnpu_write_options."""
        number, parts = lib.wnpu_format_from_name(format.encode()), []
        if number < 0:
            raise Error(ARGUMENT, f"there is no format {format}")
        options = made(Options, lib.wnpu_write_options_init, format=number, **options)

        def take(_, data, n):
            parts.append(ctypes.string_at(data, n))
            return n
        self.run(lib.wnpu_write_with, byref(options), None, WRITE(take), None)
        return b"".join(parts)

    def segments(self):
        item, word = Segment(), Word(struct_size=sizeof(Word))
        for i in map(c_size_t, range(self.seen, lib.wnpu_segment_count(self.session))):
            self.seen = i.value + 1
            self.run(lib.wnpu_get_segment_sized, i, byref(item), c_size_t(sizeof(item)))
            words = [self.run(lib.wnpu_get_word, i, c_size_t(n), byref(word)) or copied(word)
                     for n in range(lib.wnpu_word_count(self.session, i))]
            tokens = [Token.from_buffer_copy(token) for token in item.tokens[:item.n_tokens]]
            yield copied(item, words=words, tokens=tokens)
