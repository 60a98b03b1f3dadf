"""whisper_npu for Python, with ctypes alone. A session may be used by one thread at a time; but
cancel() may be called from any, and lets transcribe() or stream() end with an Error.

    with wnpu.Session("ggml-tiny.bin") as session:
        for segment in session.transcribe("talk.wav", language="en", beam=5):
            print(segment.t0_ms, segment.t1_ms, segment.text)"""
import ctypes
import os
import wave
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
                   "u max_phrase_tokens batch reserved; Q stream_bytes")
Stream = structure("u struct_size; i format; u rate channels; i channel step_ms")
CANCELLED = -6
lib = ctypes.CDLL(os.environ.get("WNPU_LIBRARY", "libwnpu.so.0"))  # see make shared
for name in ("segment_count", "word_count", "stream_push", "stream_room"):
    getattr(lib, "wnpu_" + name).restype = c_size_t
lib.wnpu_session_error.restype = lib.wnpu_strerror.restype = c_char_p

class Error(Exception):
    """args: a wnpu_status, for example CANCELLED, and a message."""
def call(function, *arguments):  # of which the last parameter is a wnpu_error
    error = structure("i code; e message")()
    if function(*arguments, byref(error)) < 0:
        raise Error(error.code, error.message.decode())

def made(kind, init, **values):
    item = kind()
    init(byref(item), c_size_t(sizeof(item)))
    any(setattr(item, name, value) for name, value in values.items())
    return item

def copied(item, **more):
    fields = {name: getattr(item, name) for name, _ in item._fields_ if name != "struct_size"}
    return SimpleNamespace(**{**fields, "text": item.text.decode(), **more})

class Session:
    """A model and a session. config: fields of wnpu_config, such as threads=2 or batch=4."""
    def __init__(self, path, **config):
        self.model, self.session, self.cancelled = c_void_p(), c_void_p(), False
        config = made(Config, lib.wnpu_config_init, **{"stream_bytes": 1 << 20, **config})
        call(lib.wnpu_model_open, byref(self.model), os.fsencode(path), None)
        call(lib.wnpu_session_open, byref(self.session), self.model, byref(config), None, None)

    def close(self, *_):
        lib.wnpu_session_close(self.session)
        lib.wnpu_model_close(self.model)
        self.session, self.model = c_void_p(), c_void_p()
    __enter__, __exit__, __del__ = lambda self: self, close, close

    def cancel(self):
        self.cancelled = True
        lib.wnpu_cancel(self.session)

    def transcribe(self, path, **params):
        """Yields the segments of a PCM WAV file. params: names and values of wnpu_params."""
        with wave.open(path) as file:
            chunks = iter(lambda: file.readframes(1 << 16), b"")
            yield from self.stream(chunks, file.getsampwidth(), file.getframerate(),
                                   file.getnchannels(), **params)

    def stream(self, chunks, width=2, rate=16000, channels=1, **params):
        """Yields segments while chunks goes on, an iterable of bytes: whole frames of samples of
        width bytes. Then self.status is 0, or 1 if part of the audio is unresolved."""
        values, frame = made(ctypes.c_char * 512, lib.wnpu_params_init), width * channels
        texts = {name.encode(): str(value).encode() for name, value in params.items()}
        for name in texts:
            call(lib.wnpu_params_set, values, name, texts[name])
        options = made(Stream, lib.wnpu_stream_options_init, rate=rate, channels=channels,
                       step_ms=0, format=width + 1)  # WNPU_SAMPLE_U8 is 2, S16LE 3, S24LE 4 ...
        self.cancelled, self.seen, self.status = False, 0, None
        self.run(lib.wnpu_stream_begin, values, byref(options))
        try:
            for chunk in chunks:
                while len(chunk) >= frame:
                    room = min(len(chunk) // frame, lib.wnpu_stream_room(self.session))
                    lib.wnpu_stream_push(self.session, chunk, c_size_t(room))
                    chunk = chunk[room * frame:]
                    self.run(lib.wnpu_stream_step, None)
                    yield from self.segments()
            self.status = self.run(lib.wnpu_stream_finish)
            yield from self.segments()
        finally:
            if self.status is None:  # cancelled, failed, or the caller has lost interest
                lib.wnpu_reset(self.session)

    def run(self, function, *arguments):
        status = CANCELLED if self.cancelled else function(self.session, *arguments)
        if status < 0:
            raise Error(status, (lib.wnpu_session_error(self.session) or b"cancelled").decode())
        return status

    def segments(self):
        item, word = Segment(), Word(struct_size=sizeof(Word))
        for i in map(c_size_t, range(self.seen, lib.wnpu_segment_count(self.session))):
            self.seen = i.value + 1
            self.run(lib.wnpu_get_segment_sized, i, byref(item), c_size_t(sizeof(item)))
            words = [self.run(lib.wnpu_get_word, i, c_size_t(n), byref(word)) or copied(word)
                     for n in range(lib.wnpu_word_count(self.session, i))]
            tokens = [Token.from_buffer_copy(token) for token in item.tokens[:item.n_tokens]]
            yield copied(item, words=words, tokens=tokens)
