#!/usr/bin/env python3
"""Trains the network of the voice activity detector (section va_ of whisper_npu.c).

usage: train_vad.py --tool build/vad_features --speech DIR --raw DIR [--streams N] [--epochs N]
                    [--stop N] [--seed N] [--mixtures SEED] [--work DIR] [--filled] [--write]
                    [--source whisper_npu.c]

vad_data.py says what the data are and who is held out; `make build/vad_features` builds the tool
that computes features with the library's own code. Mixtures of one minute each are made once,
then the network (52 inputs, 16 rectified, 24 gated recurrent, 1 sigmoid) learns to tell 200 ms
late whether there is speech: Adam, truncated backpropagation over 5 s with the state carried on,
weights rounded to 8 bits in the last third. --write replaces the table in the source. Needs
python3 and numpy.

--mixtures is the seed of the mixtures, --seed that of the rest. --filled trains the second
network, which hears the spectrum with bands filled in. It begins with the weights of the first, in
the source, and hears three mixtures of vad_data.mixture(hard) for each other one. Its loss differs
because the larger of both probabilities counts, see weights_of(). Its table comes from
    train_vad.py --filled --streams 2000 --mixtures 7 --epochs 36 --stop 36 --write ...

The table of the first comes from a run with the default seed, streams and epochs that was broken
off before its end. Weights are kept every fifth epoch; which of them these are was not noted, and
the default of --stop, 25 of 45 epochs, is what they were taken for later. So a new run makes a
network of the same kind, but cannot be promised to make the same numbers: judge_vad.py has to be
run, and its tables written anew. On the held-out mixtures this one has, at a threshold of 0.5, a
recall of 0.953 and takes 0.084 of the other steps for speech; a network of twice the size (24 and
40 units) had 0.950 and 0.072.
"""
import argparse
import os
import re
import subprocess

import numpy as np

import vad_data

INPUTS, DENSE, STATE, AHEAD = 52, 16, 24, 10 # the tool prints two times INPUTS
CHUNK = 250


def features(tool, recordings):
    data = b''.join(np.int64(len(x)).tobytes() + x.tobytes() for x in recordings)
    out = subprocess.run([tool, 'features'], input=data, stdout=subprocess.PIPE, check=True).stdout
    out, at, split = np.frombuffer(out, np.float32).reshape(-1, 2 * INPUTS), 0, []
    for x in recordings:
        steps = (len(x) + vad_data.STEP - 1) // vad_data.STEP
        split.append(out[at:at + steps])
        at += steps
    return split


def make_streams(args, held, count):
    """Features [count, steps, 104] and labels [count, steps], kept in the work directory."""
    name = 'held' if held else 'train'
    path = os.path.join(args.work, 'streams_%s_%d_%d%s.npz'
                        % (name, count, args.mixtures, '_hard' * args.filled))
    if os.path.exists(path):
        kept = np.load(path)
        return kept['x'], kept['y']
    library = vad_data.Library(args.speech, args.raw, held)
    xs, ys = [], []
    for i in range(count):
        rng = np.random.default_rng([args.mixtures, held, i])
        x, y = vad_data.mixture(rng, library, 60, args.filled and i % 4 != 0)
        xs += features(args.tool, [x])
        ys.append(y)
    x, y = np.stack(xs), np.stack(ys)
    np.savez(path, x=x, y=y)
    return x, y


def sigmoid(x):
    return 1 / (1 + np.exp(-np.clip(x, -30, 30)))


def new_weights(rng):
    def matrix(m, n, gain):
        return (rng.standard_normal((m, n)) * gain / np.sqrt(m)).astype(np.float32)
    w = {'dense': matrix(INPUTS, DENSE, 1.4), 'dense_b': np.zeros(DENSE, np.float32),
         'input': matrix(DENSE, 3 * STATE, 1), 'input_b': np.zeros(3 * STATE, np.float32),
         'state': matrix(STATE, 3 * STATE, 1), 'state_b': np.zeros(3 * STATE, np.float32),
         'out': matrix(STATE, 1, 1), 'out_b': np.zeros(1, np.float32)}
    w['input_b'][STATE:2 * STATE] = 2 # remember, to begin with
    return w


def table_of(source, name):
    """The weights in a table of the source, as new_weights() arranges them."""
    with open(source, encoding='utf-8') as f:
        text = f.read()
    text = text[text.index('_%s[4][2] = {' % ('scales' + name)):]
    scales = re.findall(r'\{([-0-9.e]+)f, ([-0-9.e]+)f\}', text)[:4]
    text = text[text.index('_%s[3897] = {' % ('table' + name)):]
    numbers = np.array(text[text.index('{') + 1:text.index('}')].split(','), np.float32)
    w, at = new_weights(np.random.default_rng(0)), 0
    for part, pair in zip(('dense', 'input', 'state', 'out'), scales):
        for key, scale in zip((part, part + '_b'), pair):
            w[key] = (numbers[at:at + w[key].size] * np.float32(scale)).reshape(w[key].shape)
            at += w[key].size
    return w


def rounded(w):
    """Weights as the table holds them: 8 bits and a scale each, biases with their own."""
    out = {}
    for name, value in w.items():
        scale = np.abs(value).max() / 127
        out[name] = (np.round(value / scale) * scale).astype(np.float32)
    return out


def forward(w, x, h):
    """x [batch, steps, INPUTS]; returns logits and what backward() needs."""
    steps = x.shape[1]
    dense = np.maximum(x @ w['dense'] + w['dense_b'], 0)
    gates_in = dense @ w['input'] + w['input_b']
    kept, states = [], []
    for t in range(steps):
        back = h @ w['state'] + w['state_b']
        rz = sigmoid(gates_in[:, t, :2 * STATE] + back[:, :2 * STATE])
        r, z = rz[:, :STATE], rz[:, STATE:]
        n = np.tanh(gates_in[:, t, 2 * STATE:] + r * back[:, 2 * STATE:])
        kept.append((h, r, z, n, back[:, 2 * STATE:]))
        h = n + z * (h - n)
        states.append(h)
    states = np.stack(states, 1)
    return (states @ w['out'])[:, :, 0] + w['out_b'], (dense, kept, states), h


def backward(w, x, saved, dlogit):
    dense, kept, states = saved
    g = {'out': np.einsum('bts,bt->s', states, dlogit)[:, None]}
    dgates = np.empty(dense.shape[:2] + (3 * STATE,), np.float32)
    g['state'] = np.zeros_like(w['state'])
    g['state_b'] = np.zeros_like(w['state_b'])
    dh = np.zeros_like(kept[0][0])
    for t in range(x.shape[1] - 1, -1, -1):
        h, r, z, n, back = kept[t]
        dh = dh + dlogit[:, t, None] * w['out'][:, 0]
        dn = dh * (1 - z) * (1 - n * n)
        dz = dh * (h - n) * z * (1 - z)
        dr = dn * back * r * (1 - r)
        dgates[:, t, :STATE] = dr
        dgates[:, t, STATE:2 * STATE] = dz
        dgates[:, t, 2 * STATE:] = dn
        dback = np.concatenate((dr, dz, dn * r), 1)
        g['state'] += h.T @ dback
        g['state_b'] += dback.sum(0)
        dh = dh * z + dback @ w['state'].T
    flat = dgates.reshape(-1, 3 * STATE)
    g['input'] = dense.reshape(-1, DENSE).T @ flat
    g['input_b'] = flat.sum(0)
    ddense = (flat @ w['input'].T) * (dense.reshape(-1, DENSE) > 0)
    g['dense'] = x.reshape(-1, INPUTS).T @ ddense
    g['dense_b'] = ddense.sum(0)
    g['out_b'] = np.array([dlogit.sum()], np.float32)
    return g


def late(y):
    """Labels as the network is to tell them, AHEAD steps later; -1: do not care."""
    out = np.full_like(y, -1)
    out[:, AHEAD:] = y[:, :-AHEAD]
    return out


def loss(logit, y, weight):
    """Mean cross entropy and its gradient."""
    p = sigmoid(logit)
    target = np.maximum(y, 0)
    cost = -(weight * np.log(np.where(target > 0.5, p, 1 - p) + 1e-7)).sum()
    return cost, weight * (p - target)


def weights_of(y, first):
    """Weights of the loss: missed speech costs twice a false alarm. first: probabilities of the
    first network, if the second is trained. Then a false alarm costs as much as missed speech, and
    missing what the first has found costs half of that."""
    weight = np.where(y < 0, 0, np.where(y > 0.5, 2, 1)).astype(np.float32)
    if first is not None:
        weight[y == 0] = 2
        weight[(y > 0.5) & (first > 0.5)] = 1
    return weight


def predict(w, x):
    parts = [x[i:i + 32] for i in range(0, len(x), 32)]
    return np.concatenate([sigmoid(forward(w, part, np.zeros((len(part), STATE), np.float32))[0])
                           for part in parts])


def load(args, held, count):
    """Inputs, labels and, if the second network is trained, what the first one says."""
    x, y = make_streams(args, held, count)
    first = predict(table_of(args.source, ''), x[:, :, :INPUTS]) if args.filled else None
    return x[:, :, INPUTS:] if args.filled else x[:, :, :INPUTS], late(y), first


def larger(p, first):
    return p if first is None else np.maximum(p, first)


def tell(name, p, y):
    """Recall of speech and false alarms, step by step, at some thresholds."""
    words = []
    for threshold in (0.2, 0.3, 0.5, 0.7):
        on = p >= threshold
        words.append('%.1f: recall %.4f, alarms %.4f' % (threshold, on[y == 1].mean(),
                                                        on[y == 0].mean()))
    print(name, '; '.join(words), flush=True)


def train(args):
    x, y, heard = load(args, False, args.streams)
    held_x, held_y, held_heard = load(args, True, max(args.streams // 8, 8))
    weight = weights_of(y, heard)
    rng = np.random.default_rng(args.seed)
    w = table_of(args.source, '') if args.filled else new_weights(rng)
    first = {k: np.zeros_like(v) for k, v in w.items()}
    second = {k: np.zeros_like(v) for k, v in w.items()}
    batch, chunks, step = min(128, len(x)), x.shape[1] // CHUNK, 0
    for epoch in range(min(args.epochs, args.stop)):
        quantise = epoch >= args.epochs * 2 // 3
        order, total, count = rng.permutation(len(x)), 0.0, 0
        rate = 0.5 * (0.002 if args.filled else 0.004)
        rate = rate * (1 + np.cos(np.pi * epoch / args.epochs)) + 0.0001
        for b in range(0, len(x) - batch + 1, batch):
            # Streams begin anywhere in a chunk and keep the state of the streams before them.
            rows, shift = order[b:b + batch], rng.integers(0, CHUNK)
            if b == 0:
                h = np.zeros((batch, STATE), np.float32)
            h = np.where(rng.random((batch, 1)) < 0.5, 0, h).astype(np.float32)
            for c in range(chunks - 1):
                at = shift + c * CHUNK
                part, target = x[rows, at:at + CHUNK], y[rows, at:at + CHUNK]
                count_for = weight[rows, at:at + CHUNK]
                count_for = count_for / max(count_for.sum(), 1)
                now = rounded(w) if quantise else w
                logit, saved, h = forward(now, part, h)
                cost, dlogit = loss(logit, target, count_for)
                g = backward(now, part, saved, dlogit.astype(np.float32))
                norm = np.sqrt(sum((v * v).sum() for v in g.values()))
                step += 1
                for k in w:
                    gradient = g[k] * min(1, 1.0 / (norm + 1e-9))
                    first[k] = 0.9 * first[k] + 0.1 * gradient
                    second[k] = 0.999 * second[k] + 0.001 * gradient ** 2
                    w[k] -= (rate * (first[k] / (1 - 0.9 ** step)) /
                             (np.sqrt(second[k] / (1 - 0.999 ** step)) + 1e-7)).astype(np.float32)
                total, count = total + cost, count + 1
        print('epoch %d: loss %.4f' % (epoch, total / count), flush=True)
        if epoch % 5 == 4 or epoch == args.epochs - 1:
            tell('  held out:', larger(predict(rounded(w), held_x), held_heard), held_y)
            np.savez(os.path.join(args.work, 'weights.npz'), **w)
    tell('trained on:', larger(predict(rounded(w), x[:128]),
                               None if heard is None else heard[:128]), y[:128])
    return w


def table(w, suffix):
    """The two C arrays."""
    scales, numbers = [], []
    for part in ('dense', 'input', 'state', 'out'):
        pair = []
        for name in (part, part + '_b'):
            scale = np.abs(w[name]).max() / 127
            pair.append('%.9gf' % scale)
            numbers += [int(v) for v in np.round(w[name] / scale).ravel()]
        scales.append('{' + ', '.join(pair) + '}')
    lines, line = [], '   '
    for number in numbers:
        word = ' %d,' % number
        if len(line) + len(word) > 100:
            lines.append(line)
            line = '   '
        line += word
    lines.append(line.rstrip(','))
    return ('static const float va_scales%s[4][2] = {\n    %s\n};\n'
            'static const int8_t va_table%s[%d] = {\n%s\n};\n'
            % (suffix, ',\n    '.join(scales), suffix, len(numbers), '\n'.join(lines)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tool', required=True)
    parser.add_argument('--speech', required=True)
    parser.add_argument('--raw', required=True)
    parser.add_argument('--work', default='.')
    parser.add_argument('--streams', type=int, default=640)
    parser.add_argument('--epochs', type=int, default=45)
    parser.add_argument('--stop', type=int, default=25)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--mixtures', type=int, default=1)
    parser.add_argument('--filled', action='store_true')
    parser.add_argument('--source', default='whisper_npu.c')
    parser.add_argument('--write', action='store_true')
    args = parser.parse_args()
    w = train(args)
    if args.write:
        with open(args.source, encoding='utf-8') as f:
            source = f.read()
        name = '_filled' if args.filled else ''
        source = re.sub(r'(/\* va-table%s-begin[^\n]*\n).*?(/\* va-table%s-end)'
                        % (name.replace('_', '-'), name.replace('_', '-')),
                        lambda m: m.group(1) + table(w, name) + m.group(2), source, flags=re.S)
        with open(args.source, 'w', encoding='utf-8') as f:
            f.write(source)


if __name__ == '__main__':
    main()
