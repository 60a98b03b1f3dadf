#!/usr/bin/env python3
"""inflate.py - a Whisper model in the shape of any published one, made of the weights of tiny or
base.en: its text is nearly that of the model it was made from.

    tests/bench/inflate.py [--layers ENCODER,DECODER] [--fit A.wav,B.wav] SOURCE.bin SHAPE OUT.bin

SOURCE is ggml-tiny.bin or, for English shapes, ggml-base.en.bin in f16. OUT has the sizes, the
vocabulary and the mel bins of SHAPE, and its layers unless --layers gives others. All weights are
dense and have the outliers of real ones. Such a model runs the code, takes the memory and needs the
time of the real one, and its text can be checked. About the word errors of the real model it says
nothing, nor about errors that add up over layers which all matter.

Shapes and alignment heads are those in whisper_npu.c. How a function is kept in more room (the
source has width d, the result D):

  channels   of the residual stream have D / d copies each, and those left over hold the mean of
             all, so that a layer norm finds the same mean, and a variance that its gain makes up
             for. Copies have gains of their own; a reader multiplies them by random shares of 1.
  heads      and units of the MLP have copies, too, with shares of what they write. A copy of a head
             has its queries and keys turned by an orthogonal matrix, and its values by another.
  layers     of the source are spread among the others, which read as they do but write little, and
             only what every reader's shares cancel. Alignment heads are copies of alignment heads.
  mel bins   of 128 become the 80 by linear regression over the recordings of --fit.
  languages  Cantonese, the hundredth, is a weaker Chinese.

In the encoder the mean over channels that the left-over ones need is that of speech on average:
there is no other for what follows a GELU. Shapes whose width is a multiple of the source's have
none."""
import argparse
import os
import re
import struct
import sys
import wave

import numpy as np

HEAD = 64
CHINESE, CANTONESE = 50260, 50358  # ids of their tokens, the second one with 100 languages
QUIET = 0.005                      # what added layers write, as a part of what the source's do
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


# ---- what the library knows about shapes ----

def library_table(name):
    """The rows of a table of whisper_npu.c as lists of strings."""
    with open(os.path.join(ROOT, "whisper_npu.c"), encoding="utf-8") as file:
        table = re.search(r"\}\s*%s\[\]\s*=\s*\{(.*?)\n\s*\};" % name, file.read(), re.S)[1]
    rows = re.findall(r'\{((?:"|NULL)(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}', table)
    return [[x.strip(' "\n') for x in row.split(",", 2)] + [row] for row in rows]


class Shape:
    def __init__(self, name):
        for known in library_table("known"):
            if name in known[:2]:
                numbers = [int(x) for x in re.findall(r"-?\b\d+\b", known[3].split('",')[-1])]
                vocab, self.width, _, self.encoder, self.decoder, self.mels = numbers[-6:]
                self.vocab = 51864 if name == known[1] else vocab
                break
        else:
            sys.exit(f"{name} is no shape: {', '.join(self.names())}")
        self.heads = {}  # layer: alignment heads
        for known in library_table("al_known"):
            if known[0] == name:
                for layer, head in re.findall(r"\{(\d+), (\d+)\}", known[3]):
                    self.heads.setdefault(int(layer), []).append(int(head))

    @staticmethod
    def names():
        return [x for row in library_table("known") for x in row[:2] if x != "NULL"]


# ---- files ----

class Source:
    """A ggml file of f16 and f32 tensors."""
    def __init__(self, path):
        with open(path, "rb") as file:
            magic, *self.sizes = struct.unpack("<12i", file.read(48))
            assert magic == 0x67676d6c, "no ggml file"
            mels, bins = struct.unpack("<2i", file.read(8))
            self.filters = np.fromfile(file, "<f4", mels * bins).reshape(mels, bins)
            (n,) = struct.unpack("<i", file.read(4))
            self.tokens = [file.read(struct.unpack("<i", file.read(4))[0]) for _ in range(n)]
            self.tensors = {}
            while head := file.read(12):
                dims, length, kind = struct.unpack("<3i", head)
                shape = struct.unpack(f"<{dims}i", file.read(4 * dims))[::-1]
                name = file.read(length).decode()
                assert kind < 2, f"{name} is quantised: take the f16 file"
                data = np.fromfile(file, ("<f4", "<f2")[kind], int(np.prod(shape)))
                self.tensors[name] = data.astype(np.float32).reshape(shape)
        self.vocab, _, self.width, _, self.encoder, *_ = self.sizes
        self.decoder = self.sizes[8]

    def __getitem__(self, name):
        return self.tensors[name]


class Sink:
    """Writes tensors as they come, so that no model is in memory."""
    def __init__(self, path, sizes, filters, tokens):
        self.file = open(path, "wb")
        self.file.write(struct.pack("<12i", 0x67676d6c, *sizes))
        self.file.write(struct.pack("<2i", *filters.shape) + filters.astype("<f4").tobytes())
        self.file.write(struct.pack("<i", len(tokens)))
        for token in tokens:
            self.file.write(struct.pack("<i", len(token)) + token)

    def __setitem__(self, name, x):
        if name in ("encoder.conv1.bias", "encoder.conv2.bias"):
            x = x.reshape(-1, 1)
        half = x.ndim > 1 and x.shape[1] > 1 and not name.endswith("positional_embedding")
        self.file.write(struct.pack("<3i", x.ndim, len(name), half))
        self.file.write(struct.pack(f"<{x.ndim}i", *x.shape[::-1]) + name.encode())
        np.ascontiguousarray(x, "<f2" if half else "<f4").tofile(self.file)


def samples_of(path):
    with wave.open(path) as file:
        assert file.getparams()[:3] == (1, 2, 16000), f"{path}: not 16 kHz, mono, 16 bits"
        return np.frombuffer(file.readframes(30 * 16000), "<i2").astype(np.float32) / 32768


# ---- the front of the encoder ----

def slaney_filters(mels):
    """librosa.filters.mel for 16 kHz and 400 samples."""
    def hertz(m):
        return np.where(m < 15, m * 200 / 3, 1000 * np.exp((m - 15) * np.log(6.4) / 27))
    edges = hertz(np.linspace(0, 15 + 27 * np.log(8) / np.log(6.4), mels + 2))[:, None]
    f = np.arange(201) * 40
    up = (f - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - f) / (edges[2:] - edges[1:-1])
    return np.float32(np.maximum(0, np.minimum(up, down)) * 2 / (edges[2:] - edges[:-2]))


def log_mel(samples, filters):
    """[frames, mels] of 30 s that begin with these samples."""
    x = np.pad(samples, (200, 30 * 16000 + 200 - len(samples)))
    x[:200] = x[201:401][::-1]
    frames = np.lib.stride_tricks.sliding_window_view(x, 400)[::160][:3000]
    power = np.abs(np.fft.rfft(frames * np.hanning(401)[:400])) ** 2
    m = np.log10(np.maximum(power @ filters.T, 1e-10))
    return np.float32((np.maximum(m, m.max() - 8) + 4) / 4)


def convolved(x, weight, bias, stride):
    """GELU of a convolution over [frames, inputs]."""
    x = np.pad(x, ((1, 1), (0, 0)))
    n = len(x) - 2
    y = sum(x[k:k + n:stride] @ weight[:, :, k].T for k in range(3)) + bias.reshape(-1)
    return 0.5 * y * (1 + np.tanh(0.7978845608 * (y + 0.044715 * y ** 3)))


# ---- copies ----

class Copies:
    """N units in place of n: which unit each one is (-1: the mean of all), and its share of it."""
    def __init__(self, random, n, N, mean_left=False):
        index = np.tile(np.arange(n), N // n)
        left = N - len(index)
        index = np.append(index, np.full(left, -1) if mean_left else random.permutation(n)[:left])
        self.index = random.permutation(index)
        self.real = self.index >= 0
        self.at = self.index[self.real]
        self.share = random.uniform(0.6, 1.4, len(self.at)).astype(np.float32)
        self.share /= self.sums(self.share)[self.at]

    def sums(self, x):
        """Over the copies of each unit."""
        return np.bincount(self.at, x).astype(np.float32)


class Stream(Copies):
    """The residual stream of encoder or decoder."""
    def __init__(self, random, n, N):
        super().__init__(random, n, N, mean_left=True)
        self.random = random
        self.scale = np.float32(np.sqrt(len(self.at) / N))  # variance that the means leave
        self.gain = random.uniform(0.75, 1.35, len(self.at)).astype(np.float32)

    def all(self, x, left):
        """[N, ...]: x for the copies, left for the others."""
        out = np.empty((len(self.index),) + x.shape[1:], np.float32)
        out[self.real], out[~self.real] = x, left
        return out

    def norm(self, gain, bias, factor=None):
        """Gain and bias of a layer norm; factor: of the copies, which readers undo."""
        factor = self.gain if factor is None else factor
        return (self.all(gain[self.at] * factor * self.scale, 1.0),
                self.all(bias[self.at] * factor, 0.0))

    def reader(self, weight):
        """[rows, N] for [rows, n] behind a layer norm. What the norm makes of a mean is 0, so any
        weights will do for it."""
        noise = self.random.standard_normal((int((~self.real).sum()), len(weight)))
        noise *= weight.std() * self.share.mean()
        return self.all((weight[:, self.at] * (self.share / self.gain)).T, noise).T

    def writer(self, x):
        """[N, ...] for [n, ...], which is added to the stream."""
        return self.all(x[self.at], x.mean(0))

    def quiet_writer(self, x):
        """The same, little and unseen: of each channel's copies the sum of shares is 0."""
        u = self.random.standard_normal(len(self.at)).astype(np.float32)
        u -= self.share * (self.sums(u * self.share) / self.sums(self.share ** 2))[self.at]
        if len(self.index) < 2 * len(self.sums(self.share)):
            u[:] = 0.02  # a single copy has no other to cancel it
        return self.all(x[self.at] * QUIET * u.reshape((-1,) + (1,) * (x.ndim - 1)),
                        x.mean(0) * QUIET * 0.1)


def layer_places(n, N, first_aligned, aligned):
    """{place: source layer}. With alignment heads, the source's layers that have some lie between
    the outermost ones of the shape."""
    if n > N:
        return dict(enumerate(np.linspace(0, n - 1, N).round().astype(int)))
    places = np.linspace(0, N - 1, n).round().astype(int)
    if aligned and n < N:
        places[:first_aligned] = np.arange(first_aligned)
        places[first_aligned:] = np.linspace(min(aligned), max(aligned),
                                             n - first_aligned).round().astype(int)
    return {int(place): layer for layer, place in enumerate(places)}


def head_sources(random, n, N, wanted=(), own=()):
    """Which of n heads each of N is: all of them, and those wanted are own ones."""
    out = np.full(N, -1)
    for i, head in enumerate(wanted):
        out[head] = own[i % len(own)]
    free = np.flatnonzero(out < 0)
    missing = np.setdiff1d(np.arange(n), out)
    others = np.setdiff1d(np.arange(n), own) if len(wanted) else np.arange(n)
    fill = np.append(missing, random.choice(others if len(others) else np.arange(n), len(free)))
    out[free] = random.permutation(fill[:len(free)])
    return out


# ---- the model ----

class Inflater:
    def __init__(self, source, shape, out, fit):
        self.source, self.shape, self.out = source, shape, out
        self.random = np.random.default_rng(1)
        self.own = Shape({384: "tiny", 512: "base.en"}[source.width]).heads
        self.front_clips = [samples_of(path) for path in fit]

    def norm(self, stream, of, to):
        t = self.source
        self.out[to + ".weight"], self.out[to + ".bias"] = stream.norm(t[of + ".weight"],
                                                                       t[of + ".bias"])

    def attention(self, of, to, streams, heads, quiet):
        """streams: of queries and output, and of keys and values."""
        t, random, (stream, keys) = self.source, self.random, streams
        share = random.uniform(0.5, 1.5, len(heads))
        share = np.float32(share / np.bincount(heads, share)[heads])
        parts = {name: [] for name in ("query.weight", "query.bias", "key.weight",
                                       "value.weight", "value.bias", "out.weight")}
        for head, part in zip(heads, share):
            rows = slice(head * HEAD, (head + 1) * HEAD)
            turn = [np.float32(np.linalg.qr(random.standard_normal((HEAD, HEAD)))[0])
                    for _ in range(2)]
            for name, made in parts.items():
                x = t[f"{of}.{name}"]
                made.append(x[:, rows] @ turn[1].T * part if name == "out.weight" else
                            turn[name.startswith("value")] @ x[rows])
        made = {name: np.concatenate(x, axis=int(name == "out.weight"))
                for name, x in parts.items()}
        write = stream.quiet_writer if quiet else stream.writer
        for name, x in made.items():
            if name.endswith("bias"):
                self.out[f"{to}.{name}"] = x
            else:
                self.out[f"{to}.{name}"] = (write if name == "out.weight" else
                                            stream.reader if name == "query.weight" else
                                            keys.reader)(x)
        self.out[to + ".out.bias"] = write(t[of + ".out.bias"])

    def mlp(self, of, to, stream, quiet):
        t = self.source
        units = Copies(self.random, 4 * t.width, 4 * self.shape.width)
        write = stream.quiet_writer if quiet else stream.writer
        self.out[to + ".0.weight"] = stream.reader(t[of + ".0.weight"])[units.index]
        self.out[to + ".0.bias"] = t[of + ".0.bias"][units.index]
        self.out[to + ".2.weight"] = write(t[of + ".2.weight"][:, units.index] * units.share)
        self.out[to + ".2.bias"] = write(t[of + ".2.bias"])

    def front(self, stream):
        """Convolutions and positions."""
        t, wide = self.source, self.shape.mels != len(self.source.filters)
        w1, b1 = t["encoder.conv1.weight"], t["encoder.conv1.bias"].reshape(-1)
        w2, b2 = t["encoder.conv2.weight"], t["encoder.conv2.bias"].reshape(-1)
        mels = [log_mel(x, t.filters) for x in self.front_clips]
        heard = [convolved(convolved(m[:len(x) // 160], w1, b1, 1), w2, b2, 2)
                 for m, x in zip(mels, self.front_clips) if not stream.real.all()]
        mean = np.concatenate(heard).mean() if heard else 0.0
        if wide:
            x = np.concatenate([log_mel(x, slaney_filters(self.shape.mels))
                                for x in self.front_clips]).astype(np.float64)
            x = np.hstack([x, np.ones((len(x), 1))])
            to_narrow = np.linalg.solve(x.T @ x + 0.01 * np.eye(x.shape[1]),
                                        x.T @ np.concatenate(mels))
            b1 = np.float32(b1 + np.einsum("omk,m->o", w1, to_narrow[-1]))
            w1 = np.einsum("omk,nm->onk", w1, to_narrow[:-1]).astype(np.float32)
        units = Copies(self.random, t.width, self.shape.width)
        self.out["encoder.conv1.weight"] = w1[units.index]
        self.out["encoder.conv1.bias"] = b1[units.index]
        w2 = w2[:, units.index] * units.share[:, None]
        noise = self.random.standard_normal((int((~stream.real).sum()),) + w2.shape[1:]) * 1e-4
        self.out["encoder.conv2.weight"] = stream.all(w2[stream.at], noise)
        self.out["encoder.conv2.bias"] = stream.all(b2[stream.at], 0.0)
        position = t["encoder.positional_embedding"].T
        self.out["encoder.positional_embedding"] = stream.all(position[stream.at],
                                                              position.mean(0) + mean).T

    def embedding(self, stream):
        """The last norm's gain has the shares, because the same embedding is read and written."""
        t, e = self.source, self.source["decoder.token_embedding.weight"]
        if self.shape.vocab == len(e) + 1:
            e = np.insert(e, CANTONESE, 0.9 * e[CHINESE], axis=0)
        assert len(e) == self.shape.vocab, "another vocabulary"
        self.out["decoder.token_embedding.weight"] = stream.writer(e.T).T
        self.out["decoder.positional_embedding"] = stream.writer(
            t["decoder.positional_embedding"].T).T
        gain, bias = stream.norm(t["decoder.ln.weight"], t["decoder.ln.bias"], stream.share)
        gain[~stream.real] = 0
        self.out["decoder.ln.weight"], self.out["decoder.ln.bias"] = gain, bias

    def layers(self, part, n, places, streams):
        """The layers of a half. streams: its own, and what cross-attention reads."""
        stream, encoded = streams
        heads = self.source.width // HEAD, self.shape.width // HEAD
        for i in range(n):
            place = min((p for p in places if p >= i), default=max(places))
            of, to = f"{part}.blocks.{places[place]}", f"{part}.blocks.{i}"
            self.norm(stream, of + ".attn_ln", to + ".attn_ln")
            self.attention(of + ".attn", to + ".attn", (stream, stream),
                           head_sources(self.random, *heads), i not in places)
            if part == "decoder":
                chosen = head_sources(self.random, *heads, self.shape.heads.get(i, []),
                                      self.own.get(places[place], [0]))
                self.norm(stream, of + ".cross_attn_ln", to + ".cross_attn_ln")
                self.attention(of + ".cross_attn", to + ".cross_attn", (stream, encoded), chosen,
                               i not in places)
            self.norm(stream, of + ".mlp_ln", to + ".mlp_ln")
            self.mlp(of + ".mlp", to + ".mlp", stream, i not in places)

    def run(self):
        t, s = self.source, self.shape
        encoder, decoder = (Stream(self.random, t.width, s.width) for _ in range(2))
        self.front(encoder)
        self.layers("encoder", s.encoder, layer_places(t.encoder, s.encoder, 0, None),
                    (encoder, None))
        self.norm(encoder, "encoder.ln_post", "encoder.ln_post")
        self.layers("decoder", s.decoder,
                    layer_places(t.decoder, s.decoder, min(self.own), s.heads), (decoder, encoder))
        self.embedding(decoder)


def inflate(source_path, name, out_path, layers=None, fit=()):
    source, shape = Source(source_path), Shape(name)
    if layers:
        shape.encoder, shape.decoder = layers
        shape.heads = {}  # the library does not know the model then
    if (shape.vocab == 51864) != (source.vocab == 51864):
        sys.exit("English shapes are made of base.en, the others of tiny")
    wide = shape.mels != len(source.filters)
    out = Sink(out_path, [shape.vocab, 1500, shape.width, shape.width // HEAD, shape.encoder, 448,
                          shape.width, shape.width // HEAD, shape.decoder, shape.mels, 1],
               slaney_filters(shape.mels) if wide else source.filters, source.tokens)
    Inflater(source, shape, out, fit or [os.path.join(ROOT, "examples", "jfk.wav")]).run()
    out.file.close()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("source")
    p.add_argument("shape", help=", ".join(Shape.names()))
    p.add_argument("out")
    p.add_argument("--layers", help="ENCODER,DECODER")
    p.add_argument("--fit", default="", help="recordings, separated by commas (default: jfk.wav)")
    a = p.parse_args()
    inflate(a.source, a.shape, a.out, a.layers and [int(x) for x in a.layers.split(",")],
            [x for x in a.fit.split(",") if x])


if __name__ == "__main__":
    main()
