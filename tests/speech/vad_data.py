"""Sound for training and judging the voice activity detector: recordings, noises, mixtures.

Used by train_vad.py and judge_vad.py. Needs python3 and numpy; ffmpeg and fluidsynth decode.

Speech     SPEECH/manifest.tsv names clips (path, set, speaker, ... separated by tabs); prompts in
           five languages come from the Debian packages asterisk-core-sounds-{en,es,fr,it,ru}-g722;
           some are spoken by espeak-ng. Three more speakers, of the packages
           asterisk-prompt-{fr-armelle,it-menardi-wav,es-co}, were only listened to when all was
           done; they are the groups "unseen".
Music      asterisk-moh-opsound-g722, wesnoth-1.16-music, extremetuxracer-data, pingus-data,
           frozen-bubble-data; openttd-openmsx played by fluidsynth with timgm6mb-soundfont.
Noises     made here, and effects of frozen-bubble-data, extremetuxracer-data and
           sound-theme-freedesktop.

`vad_data.py decode PACKAGES RAW` turns packages unpacked below PACKAGES (apt-get download, then
dpkg-deb -x) into 16 kHz mono files RAW/{speech/NAME,music,noise}/*.raw.
Who is held out for judging is decided here, by held_out().
"""
import glob
import os
import subprocess
import sys
import wave
import zlib

import numpy as np

RATE = 16000
STEP = 320

VOICES = ['en-us', 'en-gb', 'en-us+f3', 'en-us+m7', 'en-gb+f2', 'en-us+croak', 'en-gb+whisper',
          'de', 'de+f4', 'fr-fr', 'es+m3', 'en-us+f5']
TEXTS = {
    'en': ['The quick brown fox jumps over the lazy dog, and nobody was surprised at all.',
           'Please leave your name and number after the tone. Thank you very much for calling.',
           'It was seven in the evening when the rain began; they walked home without a word.'],
    'de': ['Am Abend gingen wir durch den Wald nach Hause, und niemand sagte etwas.'],
    'fr': ['Il fait beau ce matin, et nous irons au marché avec nos amis.'],
    'es': ['La casa está cerca del río, pero el camino es largo y difícil.']}


# ---- recordings ----

def read_raw(path):
    return np.fromfile(path, np.int16).astype(np.float32) / 32768


def read_wav(path):
    with wave.open(path) as w:
        assert (w.getframerate(), w.getnchannels(), w.getsampwidth()) == (RATE, 1, 2), path
        return np.frombuffer(w.readframes(w.getnframes()), np.int16).astype(np.float32) / 32768


def half(name):
    """A fixed coin for a name: half of the names are held out."""
    return zlib.crc32(name.encode()) & 1


HELD_SETS = ('kath', 'astru', 'ja', 'ko', 'nl', 'ru', 'sv', 'moh', '1867-154075', '19-198-0001')
HALVED_SETS = ('cv', 'dcmp3', 'vctk', 'wes', 'midi', 'espeak')


def held_out(path):
    """Whether a recording is kept for judging: whole speakers, languages and pieces of music."""
    parts = os.path.splitext(os.path.basename(path))[0].split('_')
    folder = os.path.basename(os.path.dirname(path))
    if folder == 'hard' or folder.startswith('unseen') or folder in HELD_SETS:
        return True
    if any(p in HELD_SETS for p in parts[:2]):
        return True
    return parts[0] in HALVED_SETS and half(parts[1]) == 1


def speech_files(speech, raw):
    """Paths of all clean speech, each speaker's clips together."""
    files = []
    with open(os.path.join(speech, 'manifest.tsv'), encoding='utf-8') as f:
        for line in list(f)[1:]:
            path = line.split('\t')[0]
            if path.split('/')[0] in ('short', 'long', 'multi'):
                files.append(os.path.join(speech, path))
    return sorted(files) + sorted(glob.glob(os.path.join(raw, 'speech/*/*.raw')))


def read(path):
    x = read_raw(path) if path.endswith('.raw') else read_wav(path)
    return x - (x.mean() if len(x) else 0)


def decode(packages, raw):
    def convert(source, target, *options):
        target = os.path.join(raw, target + '.raw')
        os.makedirs(os.path.dirname(target), exist_ok=True)
        subprocess.run(['ffmpeg', '-v', 'error', '-y', *options, '-i', source, '-ac', '1', '-ar',
                        str(RATE), '-f', 's16le', target], stdin=subprocess.DEVNULL, check=False)

    def stem(path):
        return os.path.splitext(os.path.basename(path))[0]

    def find(pattern):
        return sorted(glob.glob(os.path.join(packages, pattern), recursive=True))

    effects = ('beep', 'silence', 'tone', 'tt-', 'scending', 'chime', 'ding')
    for language in ('en', 'es', 'fr', 'it', 'ru'):
        for path in find('asterisk-core-sounds-%s-g722/**/*.g722' % language):
            name = path.split('/sounds/')[1].replace('/', '+')[:-5]
            if not any(e in name for e in effects):
                convert(path, 'speech/ast%s/%s' % (language, name), '-f', 'g722')
    for speaker in ('fr-armelle', 'it-menardi-wav', 'es-co'):
        for kind in ('gsm', 'wav'):
            for path in find('asterisk-prompt-%s/**/*.%s' % (speaker, kind)):
                if not any(e in path for e in effects):
                    convert(path, 'speech/unseen-%s/%s' % (speaker, stem(path)))
    for i, voice in enumerate(VOICES):
        spoken = os.path.join(raw, 'spoken.wav')
        for j, text in enumerate(TEXTS[voice[:2]]):
            subprocess.run(['espeak-ng', '-v', voice, '-s', str(120 + 20 * ((i + j) % 5)), '-w',
                            spoken, text], check=False)
            convert(spoken, 'speech/espeak/espeak_%s_%d' % (voice.replace('_', '-'), j))
    for path in find('asterisk-moh-opsound-g722/**/*.g722'):
        convert(path, 'music/moh_' + stem(path), '-f', 'g722')
    for package, prefix in (('wesnoth*', 'wes'), ('extremetuxracer*', 'etr'), ('pingus*', 'pin')):
        for kind in ('ogg', 'it', 's3m'):
            for path in find('%s/**/*.%s' % (package, kind)):
                convert(path, 'music/%s_%s' % (prefix, stem(path)))
    for path in find('frozen-bubble*/**/*.ogg'):
        convert(path, ('music/fb_' if 'zik' in path else 'noise/fb_') + stem(path))
    for path in find('extremetuxracer*/**/*.wav'):
        convert(path, 'noise/etr_' + stem(path))
    for path in find('sound-theme-freedesktop/**/*.oga'):
        if 'audio-channel' not in path: # those speak
            convert(path, 'noise/fd_' + stem(path))
    for path in find('openttd-openmsx/**/*.mid'):
        played = os.path.join(raw, 'played.wav')
        subprocess.run(['fluidsynth', '-ni', '-g', '0.6', '-r', '32000', '-F', played,
                        find('timgm6mb-soundfont/**/*.sf2')[0], path], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        convert(played, 'music/midi_' + stem(path))


# ---- what is speech in a clean recording ----

def runs(flags):
    """Begins and ends of the stretches where flags is true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return list(zip(edges[0::2], edges[1::2]))


def label(x):
    """Speech (1) or not (0) for each 20 ms of a clean recording, by its level: above a quarter of
    the way from the quiet to the loud steps and at most 40 dB below the loud ones. Pauses below
    300 ms count as speech. -1: too close to an edge to tell."""
    n = (len(x) + STEP - 1) // STEP
    if n == 0:
        return np.zeros(0, np.float32)
    y = np.append(x[:1], np.diff(x) + 0.1 * x[1:]) # less weight on hum and rumble
    y = np.pad(y, (0, n * STEP - len(y))).reshape(n, STEP)
    level = 10 * np.log10((y * y).mean(1) + 1e-10)
    quiet, loud = np.percentile(level, 5), np.percentile(level, 95)
    speech = level > max(quiet + 0.25 * (loud - quiet), loud - 40)
    for first, end in runs(~speech):
        if end - first < 15 and first > 0 and end < n:
            speech[first:end] = True
    for first, end in runs(speech):
        if end - first < 4:
            speech[first:end] = False
    out = speech.astype(np.float32)
    for first, end in runs(speech):
        for edge in (first, end):
            out[max(edge - 2, 0):edge + 2] = -1
    return out


# ---- noises ----

def shaped(rng, n, curve):
    """Noise with the amplitude curve(f in Hz)."""
    size = 1 << max(int(n - 1).bit_length(), 10)
    f = np.fft.rfftfreq(size, 1 / RATE)
    spectrum = np.fft.rfft(rng.standard_normal(size)) * curve(np.maximum(f, 20))
    return np.fft.irfft(spectrum)[:n]


def bands(rng):
    """A random smooth curve over frequency, 30 dB up and down."""
    at = np.linspace(np.log(20), np.log(8000), 10)
    gain = rng.uniform(-1.5, 1.5, 10)
    return lambda f: 10 ** np.interp(np.log(f), at, gain)


def slow(rng, n, hz, low=0.0):
    """A random envelope of low..1 that changes hz times a second."""
    points = max(int(n / RATE * hz) + 2, 2)
    return np.interp(np.arange(n) / n * (points - 1), np.arange(points),
                     rng.uniform(low, 1, points))


def clock(n):
    return np.arange(n) / RATE


def colour(rng, n):
    slope = rng.choice([0.0, 0.5, 1.0, rng.uniform(-0.5, 1.5)])
    return shaped(rng, n, lambda f: f ** -slope)


def hum(rng, n):
    t, f0 = clock(n), rng.choice([50, 60, 100, rng.uniform(30, 400)])
    y = sum(rng.uniform(0, 1) / k * np.sin(2 * np.pi * f0 * k * t + rng.uniform(0, 6))
            for k in range(1, 12))
    return y + rng.uniform(0, 0.3) * rng.standard_normal(n)


def tones(rng, n):
    t, y = clock(n), np.zeros(n)
    for _ in range(rng.integers(1, 4)):
        y += np.sin(2 * np.pi * np.exp(rng.uniform(np.log(60), np.log(6000))) * t)
    if rng.random() < 0.6: # beeps
        on = rng.uniform(0.05, 2)
        y *= (t % (on * rng.uniform(1.1, 4))) < on
    if rng.random() < 0.2: # DTMF and the like
        pairs = rng.uniform(600, 1700, (20, 2))[(t / 0.15).astype(int) % 20]
        y = np.sin(2 * np.pi * pairs[:, 0] * t) + np.sin(2 * np.pi * pairs[:, 1] * t)
        y *= (t % 0.15) < 0.09
    return y


def sweep(rng, n):
    t, period = clock(n), np.exp(rng.uniform(np.log(0.3), np.log(20)))
    phase = (t % period) / period
    if rng.random() < 0.5:
        phase = 1 - np.abs(2 * phase - 1) # up and down, as sirens do
    low, high = np.sort(np.exp(rng.uniform(np.log(50), np.log(7000), 2)))
    f = low * (high / low) ** phase
    wave_ = np.cumsum(f) * 2 * np.pi / RATE
    return np.sin(wave_) + rng.uniform(0, 0.7) * np.sin(2 * wave_)


def gusts(rng, n):
    """Noise whose level wanders: wind, traffic, surf, machines; also at the rate of syllables."""
    y = shaped(rng, n, bands(rng)) * slow(rng, n, np.exp(rng.uniform(np.log(0.2), np.log(8)))) ** 2
    return y + 0.05 * shaped(rng, n, bands(rng))


def clicks(rng, n):
    """Keys, knocks, steps, rain: short bursts through random resonances."""
    y = np.zeros(n)
    rate = np.exp(rng.uniform(np.log(0.5), np.log(200)))
    for at in rng.integers(0, n, max(int(n / RATE * rate), 1)):
        length = min(int(RATE * np.exp(rng.uniform(np.log(0.003), np.log(0.2)))), n - at)
        t = clock(length)
        ring = np.sin(2 * np.pi * np.exp(rng.uniform(np.log(80), np.log(6000))) * t)
        burst = ring * rng.uniform(0, 1) + rng.standard_normal(length) * rng.uniform(0, 1)
        y[at:at + length] += burst * np.exp(-t / (t[-1] + 1e-3) * 5) * rng.uniform(0.2, 1)
    return y + 0.01 * rng.standard_normal(n)


def engine(rng, n):
    f0 = rng.uniform(25, 150) * (0.7 + 0.6 * slow(rng, n, rng.uniform(0.1, 2)))
    phase = 2 * np.pi * np.cumsum(f0) / RATE
    y = sum(rng.uniform(0, 1) * np.sin(k * phase + rng.uniform(0, 6)) for k in range(1, 20))
    return y * slow(rng, n, 2, 0.4) + rng.uniform(0, 3) * shaped(rng, n, bands(rng))


def birds(rng, n):
    y = 0.02 * rng.standard_normal(n)
    for at in rng.integers(0, n, max(int(n / RATE * rng.uniform(0.5, 6)), 1)):
        length = min(int(RATE * rng.uniform(0.03, 0.4)), n - at)
        f = np.linspace(*rng.uniform(1500, 6500, 2), length)
        f += rng.uniform(0, 600) * np.sin(2 * np.pi * rng.uniform(8, 40) * clock(length))
        y[at:at + length] += (np.sin(2 * np.pi * np.cumsum(f) / RATE) * np.hanning(length)
                              * rng.uniform(0.2, 1))
    return y


def note(rng, f0, n, kind):
    """One note: harmonics with a decay and a vibrato."""
    t = clock(n)
    f = f0 * (1 + kind['vibrato'] * np.sin(2 * np.pi * kind['rate'] * t + rng.uniform(0, 6))
              * np.minimum(t / 0.2, 1))
    phase = 2 * np.pi * np.cumsum(f) / RATE
    y = sum(a * np.sin(k * phase) * np.exp(-t * kind['decay'] * k)
            for k, a in enumerate(kind['partials'], 1) if f0 * k < 7600)
    edge = min(int(RATE * kind['attack']) + 1, n // 2 + 1)
    y[:edge] *= np.linspace(0, 1, edge)
    y[n - edge:] *= np.linspace(1, 0, edge)
    return y


def melody(rng, n):
    """Chords, arpeggios and melodies of several voices, drums."""
    y = np.zeros(n)
    scale = np.cumsum(rng.choice([1, 2, 2, 3], 30))
    beat = rng.uniform(0.1, 0.6)
    for _ in range(rng.integers(1, 5)):
        partials = rng.uniform(0, 1, rng.integers(1, 14))
        partials /= np.arange(1, len(partials) + 1) ** rng.uniform(0.3, 2)
        kind = {'vibrato': rng.choice([0, rng.uniform(0, 0.03)]), 'rate': rng.uniform(4, 7),
                'decay': rng.choice([0, rng.uniform(0.3, 5)]), 'partials': partials,
                'attack': np.exp(rng.uniform(np.log(0.003), np.log(0.1)))}
        base, size, legato = rng.uniform(50, 500), rng.integers(1, 4), rng.uniform(0.4, 1.2)
        degree, at = rng.integers(0, 15), 0
        while at < n:
            length = int(RATE * beat * rng.choice([1, 1, 2, 4, 8]))
            degree = int(np.clip(degree + rng.integers(-3, 4), 0, 20))
            for voice in range(size):
                f0 = base * 2 ** (scale[degree + 2 * voice] / 12)
                last = min(int(length * legato) + 200, n - at)
                if f0 < 4000 and last > 400:
                    y[at:at + last] += note(rng, f0, last, kind)
            at += length
    if rng.random() < 0.5:
        y = y / (np.abs(y).max() + 1e-9) + drums(rng, n, beat) * rng.uniform(0.2, 1)
    return y


def drums(rng, n, beat=0.25):
    y = np.zeros(n)
    hits = [(rng.uniform(40, 200), rng.uniform(0.05, 0.4), rng.uniform(0, 1)) for _ in range(4)]
    pattern = rng.integers(0, 6, 16)
    for i, at in enumerate(range(0, n, max(int(RATE * beat), 1600))):
        if pattern[i % 16] < 4:
            f0, length, noisy = hits[pattern[i % 16]]
            t = clock(min(int(RATE * length), n - at))
            hit = np.sin(2 * np.pi * f0 * t * (1 + 0.5 * np.exp(-t * 30))) * (1 - noisy)
            hit += noisy * rng.standard_normal(len(t))
            y[at:at + len(t)] += hit * np.exp(-t / length * 5)
    return y


def faint(rng, n):
    """Nearly nothing: digital silence, a converter's last bits."""
    return rng.choice([0, 1e-5, 1e-4]) * rng.standard_normal(n)


NOISES = [colour, colour, hum, tones, sweep, gusts, gusts, clicks, engine, birds, melody, melody,
          melody, drums]


def unit(x):
    """At an RMS of 1 where it is loud."""
    n = len(x) // 800 * 800
    power = (x[:n].reshape(-1, 800) ** 2).mean(1) if n else np.array([np.mean(x * x)])
    top = np.sqrt(np.percentile(power, 90))
    top = top if top > 1e-6 else np.sqrt(power.max())
    return x / top if top > 1e-6 else x * 0


# ---- mixtures ----

class Library:
    """Speech, music and noise of one side: for training, or held out; with unseen, speech of the
    unseen speakers alone."""

    def __init__(self, speech, raw, held, unseen=False):
        def pick(files):
            return [f for f in files if held is None or held_out(f) == held]
        self.groups = {}
        for path in pick(speech_files(speech, raw)):
            base = os.path.basename(path)
            group = os.path.basename(os.path.dirname(path))
            group = base.split('_')[0] if group == 'short' else group
            if group.startswith('unseen') != unseen:
                continue
            self.groups.setdefault(group, []).append(path)
        # Groups of many speakers come up more often.
        self.names = sorted(self.groups) + ['mini'] * 3 + ['multi'] * 2
        self.names = [n for n in self.names if n in self.groups]
        self.music = pick(sorted(glob.glob(os.path.join(raw, 'music/*.raw'))))
        self.effects = sorted(glob.glob(os.path.join(raw, 'noise/*.raw')))
        self.effects = [f for f in self.effects if held is None or half(f) == held]
        self.cache = {}

    def get(self, path):
        if path not in self.cache:
            x = read(path)
            self.cache[path] = (x, label(x) if '/music/' not in path else None)
        return self.cache[path]

    def clip(self, rng):
        """Some seconds of one speaker, with labels."""
        files = self.groups[self.names[rng.integers(len(self.names))]]
        x, y = self.get(files[rng.integers(len(files))])
        n = len(y)
        if n == 0: # some prompts are empty
            return self.clip(rng)
        if n > 500: # a part of a long one
            first = rng.integers(0, n - 400)
            x, y = x[first * STEP:(first + 400) * STEP], y[first:first + 400]
        return x, y

    def background(self, rng, n, musical=False):
        """With musical, more of what is returned is made-up music."""
        choice = rng.random()
        if choice < 0.3 and self.music:
            x, _ = self.get(self.music[rng.integers(len(self.music))])
            at = rng.integers(0, max(len(x) - n, 1))
            y = np.resize(x[at:at + n], n)
        elif choice < 0.36 and self.effects:
            y = np.zeros(n, np.float32)
            for at in range(0, n, int(RATE * rng.uniform(0.5, 5))):
                x, _ = self.get(self.effects[rng.integers(len(self.effects))])
                last = min(len(x), n - at)
                y[at:at + last] += x[:last]
        elif musical and choice < 0.5:
            y = melody(rng, n)
        else:
            y = NOISES[rng.integers(len(NOISES))](rng, n)
        return unit(np.nan_to_num(y)).astype(np.float32)


def stretch(rng, x, y):
    """Another speed and pitch, so there are more voices than speakers."""
    factor = rng.uniform(0.82, 1.22)
    n = int(len(x) / factor)
    steps = (n + STEP - 1) // STEP
    at = np.minimum((np.arange(steps) * factor).astype(int), len(y) - 1)
    return np.interp(np.arange(n) * factor, np.arange(len(x)), x).astype(np.float32), y[at]


def room(rng, x):
    """Reverberation: a decaying noise as impulse response, behind the direct sound."""
    n = int(RATE * rng.uniform(0.05, 0.5))
    tail = rng.standard_normal(n) * np.exp(-np.arange(n) / n * 6.9) * rng.uniform(0.01, 0.15)
    tail[0] = 1
    size = 1 << int(len(x) + n).bit_length()
    return np.fft.irfft(np.fft.rfft(x, size) * np.fft.rfft(tail, size))[:len(x)].astype(np.float32)


def band(x, low, high):
    spectrum = np.fft.rfft(x)
    f = np.fft.rfftfreq(len(x), 1 / RATE)
    spectrum *= 1 / np.sqrt(1 + (low / np.maximum(f, 1)) ** 8) / np.sqrt(1 + (f / high) ** 12)
    return np.fft.irfft(spectrum, len(x)).astype(np.float32)


def steep(x, low, high):
    """Keeps low..high Hz; edges are 40 Hz wide."""
    spectrum = np.fft.rfft(x)
    f = np.fft.rfftfreq(len(x), 1 / RATE)
    spectrum *= np.clip((f - low) / 40 + 0.5, 0, 1) * np.clip((high - f) / 40 + 0.5, 0, 1)
    return np.fft.irfft(spectrum, len(x)).astype(np.float32)


def narrowed(rng, x):
    """Speech as the network with filled bands is to hear it: behind a narrow channel, at times
    between bursts of noise. Returns samples and their level in dB."""
    if rng.random() < 0.5:
        return x, 0
    low, high = rng.uniform(200, 600), rng.uniform(2200, 3800)
    db = rng.choice([0, rng.uniform(-18, 0)])
    x = unit(steep(x, low, high)) * 10 ** (db / 20)
    if rng.random() < 0.3:
        n = int(RATE * rng.uniform(0.03, 0.4))
        burst = unit(steep(rng.standard_normal(n + 800), rng.choice([50, low]),
                           rng.choice([7000, high])))[:n]
        for at in (0, max(len(x) - n, 0)):
            end = min(at + n, len(x))
            x[at:end] = burst[:end - at] * 10 ** (rng.uniform(-3, 12) / 20)
    return x, db


def rumble(rng, n):
    """Air, engines and hum, mostly below some hundred hertz."""
    slope, corner = rng.uniform(1, 3), rng.uniform(40, 300)
    if rng.random() < 0.2:
        return unit(hum(rng, n))
    return unit(shaped(rng, n, lambda f: 1 / (1 + (f / corner) ** slope)))


def mixture(rng, library, seconds, hard=False):
    """Samples and labels of a made-up recording: speech now and then over changing backgrounds.
    hard: what the network with filled bands is trained on, narrow speech, rumble and more music."""
    n = int(seconds * RATE)
    x, y = np.zeros(n, np.float32), np.zeros(n // STEP, np.float32)
    level = np.zeros(n // STEP, np.float32) # of the speech, dB
    spoken, at = np.zeros(n, np.float32), int(rng.uniform(-2, 6) * RATE)
    talkative = np.exp(rng.uniform(np.log(0.3), np.log(15)))
    at = max(at, 0) // STEP * STEP
    if hard and rng.random() < 0.2: # nobody speaks
        at = n
    while at < n and rng.random() > 0.03:
        clip, said = library.clip(rng)
        if rng.random() < 0.6:
            clip, said = stretch(rng, clip, said)
        if rng.random() < 0.25: # cut somewhere, as recordings are
            cut = rng.integers(0, len(said))
            clip, said = clip[cut * STEP:], said[cut:]
        clip = unit(clip) * 10 ** (rng.normal(0, 4) / 20)
        clip, db = narrowed(rng, clip) if hard else (clip, 0)
        last = min(len(clip), n - at)
        steps = min(len(said), len(y) - at // STEP)
        spoken[at:at + last] = clip[:last]
        y[at // STEP:at // STEP + steps] = said[:steps]
        level[at // STEP:at // STEP + steps] = db
        at = (at + len(clip) + int(rng.exponential(talkative) * RATE)) // STEP * STEP
    if rng.random() < 0.3:
        spoken = room(rng, spoken)
    at = 0
    while at < n: # stretches of one background each
        last = min(int(rng.uniform(3, 40) * RATE), n - at)
        snr = rng.choice([rng.uniform(-3, 12), rng.uniform(8, 35), 60], p=[0.35, 0.45, 0.2])
        noise = library.background(rng, last, hard) if rng.random() < 0.93 else faint(rng, last)
        noise = noise * 10 ** (-snr / 20)
        fade = np.minimum(np.arange(last) / 800, 1)
        x[at:at + last] += noise * (fade if rng.random() < 0.5 else 1)
        # Speech that can hardly be heard is not asked for.
        lost = y[at // STEP:(at + last) // STEP]
        lost[(lost == 1) & (snr + level[at // STEP:(at + last) // STEP] < (3 if hard else 0))] = -1
        at += last
    x = x + spoken
    if hard and rng.random() < 0.25:
        x = x + rumble(rng, n) * 10 ** (rng.uniform(0, 15) / 20)
    return channel(rng, x), y


def channel(rng, x):
    """What stands between the sound and the file: band, level, clipping, quantisation."""
    choice = rng.random()
    if choice < 0.15:
        x = band(x, 300, 3400)
    elif choice < 0.3:
        x = band(x, rng.uniform(20, 200), rng.uniform(2500, 8000))
    x = x + rng.choice([0, 0, 1e-4, 1e-3]) * rng.standard_normal(len(x))
    if rng.random() < 0.08: # overdriven
        x = np.clip(x * 10 ** rng.uniform(0, 1), -1.0, 1.0)
    level = 10 ** (rng.choice([rng.uniform(-30, -8), rng.uniform(-62, -20)], p=[0.7, 0.3]) / 20)
    x = np.clip(x * level, -1, 1)
    x = x + rng.choice([0, 0.01]) * rng.uniform(-1, 1) * (rng.random() < 0.1) # an offset
    if rng.random() < 0.1: # mu-law of a telephone
        x = np.sign(x) * np.round(np.log1p(255 * np.abs(x)) / np.log(256) * 127) / 127
        x = np.sign(x) * (256 ** np.abs(x) - 1) / 255
    return np.clip(np.round(x * 32767), -32768, 32767).astype(np.int16)


if __name__ == '__main__':
    if len(sys.argv) != 4 or sys.argv[1] != 'decode':
        sys.exit(__doc__)
    decode(sys.argv[2], sys.argv[3])
