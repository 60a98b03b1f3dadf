#!/usr/bin/env python3
"""Judges the voice activity detector on mixtures: held-out speech at known places in silence, noise
and music at several levels. Prints the README's table.

usage: judge_vad.py --speech DIR --raw DIR --model FILE [--build build] [--minutes N] [--seed N]
                    [--unseen] [--hard] [--options OPTIONS]

vad_data.py says what the data are; nothing here was trained on. Thresholds and defaults were chosen
on mixtures of seed 77, so tables are made with others. --unseen takes the speakers that were not
even listened to then, --hard the recordings of SPEECH/hard in place of mixtures.

Speech is told by the level of the clean recordings, pauses below 700 ms counting as speech because
spans bridge them. Recall: share of the 20 ms steps with speech that lie in a span. Precision: share
of the steps in spans that are at most 300 ms, the padding, from speech. Words apart from others by
more than 700 ms make an island; lost islands are those of which less than a half was found. Needs
python3, numpy and build/transcribe.
"""
import argparse
import os
import subprocess
import tempfile
import wave

import numpy as np

import vad_data as d

BRIDGE, PAD = 35, 15 # steps


def held_music(rng, library, n):
    while True:
        x, _ = library.get(library.music[rng.integers(len(library.music))])
        if len(x) > n:
            at = rng.integers(0, len(x) - n)
            return d.unit(x[at:at + n])


def babble(rng, library, n):
    y = np.zeros(n)
    for _ in range(8):
        at = 0
        while at < n:
            x, _ = library.clip(rng)
            x = d.unit(x)
            last = min(len(x), n - at)
            y[at:at + last] += x[:last]
            at += len(x)
    return d.unit(y)


def colour(slope):
    return lambda rng, library, n: d.unit(d.shaped(rng, n, lambda f: f ** -slope))


def made(function):
    return lambda rng, library, n: d.unit(function(rng, n))


# name, background, SNR in dB (None: none), what is done to the sum
CONDITIONS = [('in silence', None, None, None)]
for _name, _make in (('white noise', colour(0)), ('pink noise', colour(0.5)),
                     ('brown noise', colour(1))):
    CONDITIONS += [('%s, %d dB' % (_name, snr), _make, snr, None) for snr in (20, 10, 5, 0)]
CONDITIONS += [('hum, 5 dB', made(d.hum), 5, None), ('tones, 5 dB', made(d.tones), 5, None),
               ('sweeps, 5 dB', made(d.sweep), 5, None), ('gusts, 5 dB', made(d.gusts), 5, None),
               ('clicks, 5 dB', made(d.clicks), 5, None), ('engine, 5 dB', made(d.engine), 5, None)]
CONDITIONS += [('music, %d dB' % snr, held_music, snr, None) for snr in (20, 10, 5, 0)]
CONDITIONS += [('8 other voices, %d dB' % snr, babble, snr, None) for snr in (20, 10)]
CONDITIONS += [('telephone band', colour(0.5), 25, lambda x: d.band(x, 300, 3400)),
               ('overdriven by 24 dB', colour(0.5), 30,
                lambda x: np.clip(x * 10 ** 1.2, -1.0, 1.0)),
               ('50 dB quieter', colour(0.5), 30, lambda x: x * 10 ** -2.5)]
FREE = [('silence, last bits', lambda rng, library, n: rng.standard_normal(n) * 1e-4),
        ('white noise', colour(0)), ('pink noise', colour(0.5)), ('brown noise', colour(1)),
        ('hum', made(d.hum)), ('tones', made(d.tones)), ('sweeps', made(d.sweep)),
        ('gusts', made(d.gusts)), ('clicks', made(d.clicks)), ('engines', made(d.engine)),
        ('birds', made(d.birds)), ('synthetic music', made(d.melody)), ('drums', made(d.drums)),
        ('music', held_music)]


def to_int16(x):
    return np.clip(np.round(x * 32767), -32768, 32767).astype(np.int16)


def fill(y, gap):
    """Pauses shorter than gap count as speech."""
    out = y.copy()
    for first, end in d.runs(~y):
        if end - first < gap and first > 0 and end < len(y):
            out[first:end] = True
    return out


def widen(y, by):
    out = y.copy()
    for first, end in d.runs(y):
        out[max(first - by, 0):end + by] = True
    return out


def recording(rng, library, background, snr, change):
    n = 60 * d.RATE
    x, y = np.zeros(n), np.zeros(n // d.STEP, np.float32)
    at = int(rng.uniform(1, 4) * 50) * d.STEP
    while True:
        clip, said = library.clip(rng)
        if at + len(clip) > n - d.RATE:
            break
        x[at:at + len(clip)] = d.unit(clip)
        y[at // d.STEP:at // d.STEP + len(said)] = said
        at += (len(said) + int(rng.uniform(1.5, 8) * 50)) * d.STEP
    if background is not None:
        x += background(rng, library, n) * 10 ** (-snr / 20)
    x *= 0.12
    return to_int16(change(x) if change else x), y


def ours(args, recordings):
    """Steps in spans, for each recording."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, x in enumerate(recordings):
            paths.append(os.path.join(folder, '%04d.wav' % i))
            with wave.open(paths[-1], 'wb') as w:
                w.setnchannels(1)
                w.setsampwidth(2)
                w.setframerate(d.RATE)
                w.writeframes(x.tobytes())
        out = os.path.join(folder, 'out/')
        subprocess.run([os.path.join(args.build, 'transcribe'), '-q', '-t', '1', '-m', args.model,
                        '--spans', '-o', out] + args.options.split() + paths, check=True)
        found = []
        for i, x in enumerate(recordings):
            on = np.zeros(len(x) // d.STEP, bool)
            with open(os.path.join(out, '%04d.txt' % i), encoding='ascii') as f:
                for line in f:
                    first, end = (int(v) // 20 for v in line.split())
                    on[first:end] = True
            found.append(on)
        return found


def judge(found, labels):
    """Recall and precision in percent, lost islands, islands."""
    hit = spoken = right = claimed = lost = islands = 0
    for on, y in zip(found, labels):
        truth = fill(y == 1, BRIDGE)
        hit += (on & (y == 1)).sum()
        spoken += (y == 1).sum()
        right += (on & widen(fill(y != 0, BRIDGE), PAD)).sum()
        claimed += on.sum()
        for first, end in d.runs(truth):
            islands += 1
            lost += on[first:end].mean() < 0.5
    return 100 * hit / max(spoken, 1), 100 * right / max(claimed, 1), lost, islands


def judge_hard(args):
    """The noisy copies of one clip, by the labels of the clean one, of which they are in step."""
    def read(name):
        return to_int16(d.read_wav(os.path.join(args.speech, 'hard', name)))
    clean = read('wavhdr_list_before_data.wav')
    y = d.label(clean.astype(np.float32) / 32767)
    names = sorted(n for n in os.listdir(os.path.join(args.speech, 'hard'))
                   if n.endswith('_19-198-0001.wav') and not n.startswith('fmt_'))
    print('| hard/ | recall | precision | lost |\n| --- | --- | --- | --- |')
    for name, on in zip(names, ours(args, [read(n) for n in names])):
        part = y[:len(on)]
        print('| %s | %.1f %% | %.1f %% | %d of %d |'
              % ((name.split('_19-')[0],) + judge([on[:len(part)]], [part])))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--speech', required=True)
    parser.add_argument('--raw', required=True)
    parser.add_argument('--model', required=True)
    parser.add_argument('--build', default='build')
    parser.add_argument('--minutes', type=int, default=6)
    parser.add_argument('--seed', type=int, default=78)
    parser.add_argument('--unseen', action='store_true')
    parser.add_argument('--hard', action='store_true')
    parser.add_argument('--options', default='')
    args = parser.parse_args()
    if args.hard:
        judge_hard(args)
        return
    library = d.Library(args.speech, args.raw, True, args.unseen)
    recordings, labels, rows = [], [], []
    for i, (name, background, snr, change) in enumerate(CONDITIONS):
        for j in range(args.minutes):
            rng = np.random.default_rng([args.seed, i, j])
            x, y = recording(rng, library, background, snr, change)
            recordings.append(x)
            labels.append(y)
        rows.append(name)
    first_free = len(recordings)
    for i, (name, background) in enumerate(FREE):
        for j in range(args.minutes):
            rng = np.random.default_rng([args.seed, 1000 + i, j])
            recordings.append(to_int16(background(rng, library, 60 * d.RATE) * 0.12))
    found = ours(args, recordings)
    print('| speech | recall | precision | lost |\n| --- | --- | --- | --- |')
    for i, name in enumerate(rows):
        part = slice(i * args.minutes, (i + 1) * args.minutes)
        print('| %s | %.1f %% | %.1f %% | %d of %d |'
              % ((name,) + judge(found[part], labels[part])))
    print('| all of these | %.1f %% | %.1f %% | %d of %d |' % judge(found[:first_free], labels))
    print('\n| nobody speaks | taken for speech |\n| --- | --- |')
    for i, (name, _) in enumerate(FREE):
        at = first_free + i * args.minutes
        share = np.mean([f.mean() for f in found[at:at + args.minutes]])
        print('| %s | %.1f %% |' % (name, 100 * share))


if __name__ == '__main__':
    main()
