// Types of wnpu.mjs. Times are seconds from the first sample, unless a name ends in Ms.

/** The cause and the remedy; code is a status of whisper_npu.h ("out of memory", "bad model file",
 * ...), "module" if the WebAssembly module cannot be fetched, or "worker" if the worker ended. */
export class SpeechError extends Error {
    readonly code: string;
}

/** A model file of whisper_npu: ggml, or a pack of build/pack, which opens sooner. A string is a URL
 * (in node also a path). */
export type ModelSource = string | URL | ArrayBuffer | ArrayBufferView | Blob;

export interface LoadOptions {
    /** Bytes fetched so far, and in total if the server says so. */
    onProgress?: (done: number, total: number | null) => void;
    /** Name of a cache (Cache API) that keeps what was fetched; pages only. */
    cache?: string;
    /** Checksum of the file, verified after every load; a damaged copy in the cache is replaced. */
    sha256?: string;
    /** Ends the fetch. */
    signal?: AbortSignal;
}

export interface OpenOptions extends LoadOptions {
    /** An ArrayBuffer is moved to the worker and cannot be used afterwards. */
    model: ModelSource;
    /** false: compute in this thread, which does nothing else meanwhile [true] */
    worker?: boolean;
    /** The module with 128-bit SIMD or the one without [what the host can run]. The text is the
     * same. */
    simd?: boolean;
    /** 1 to 16 [as many as there are CPUs, at most 8]. More than one needs a worker, SIMD and shared
     * memory, which pages have if they are cross-origin isolated; elsewhere it is one. The text is
     * the same. */
    threads?: number;
    /** Where the module is, if not beside wnpu.mjs. */
    module?: string | URL;
}

export interface Info {
    /** "simd128" or "scalar" */
    isa: string;
    /** How many compute. */
    threads: number;
    /** Code and name of each language that the model knows. */
    languages: [string, string][];
    /** Version of the library: 200 is 0.2.0. */
    version: number;
    /** Memory of the module after opening. */
    bytes: number;
}

/** Samples at full scale -1 to 1: 16 kHz mono; any rate from 8 to 192 kHz, interleaved channels; an
 * AudioBuffer; or the bytes of a WAV file. */
export type Recording = Float32Array | ArrayBuffer | Uint8Array |
    { samples: Float32Array; rate?: number; channels?: number } |
    { getChannelData(channel: number): Float32Array; numberOfChannels: number; sampleRate: number;
      length: number };

/** Parameters of a run by their names in whisper_npu.h (wnpu_params), with the values that
 * wnpu_params_set() takes; lists are arrays. */
export interface Params {
    task?: "transcribe" | "translate";
    /** Code or name of a language, or "auto". */
    language?: string;
    /** Measure the times of words. */
    words?: boolean;
    timestamps?: boolean;
    beam?: number;
    initial_prompt?: string;
    hotwords?: string[];
    vad?: boolean;
    [name: string]: unknown;
}

export interface Word { start: number; end: number; word: string }

export interface Segment { id: number; start: number; end: number; text: string; words: Word[] }

/** The object that the library writes as JSON, and what became of the run. */
export interface Result {
    language: string;
    duration: number;
    text: string;
    segments: { id: number; start: number; end: number; text: string; language: string;
                words?: { word: string; start: number; end: number; probability: number }[];
                [name: string]: unknown }[];
    /** Some speech has no text; the ledger says where. */
    incomplete: boolean;
    /** The signal has ended the run; what was transcribed before is here. */
    cancelled: boolean;
    /** The library's bytes, the same as those of "transcribe -f json" on any machine. */
    json: string;
    [name: string]: unknown;
}

export interface TranscribeOptions extends Params {
    /** Seconds done and in total. */
    onProgress?: (done: number, total: number | null) => void;
    /** Each segment as soon as it is final. */
    onSegment?: (segment: Segment) => void;
    /** Text while it is decoded, to be appended; restart: what the current window had so far is
     * withdrawn first. */
    onText?: (text: string, restart: boolean) => void;
    /** Ends the run: within about a second, or at the end of the window (at most 30 s of sound) in
     * pages that are not cross-origin isolated. */
    signal?: AbortSignal;
}

export interface LiveState {
    /** Somebody is speaking. */
    speaking: boolean;
    /** Everything before this time is final. */
    committed: number;
    /** Audio that was read. */
    audio: number;
    /** Audio that was lost because this computer is too slow. */
    lost: number;
    /** Audio that was pushed and has not reached the module yet. */
    waiting: number;
    /** Text that is not final; it may change. */
    tentative: string;
    /** The tentative text is another than before. */
    changed: boolean;
}

export interface ListenOptions extends Params {
    /** Of the samples that are pushed [16000] */
    rate?: number;
    /** Audio between two updates of the tentative text; 0: none [500] */
    stepMs?: number;
    onSegment?: (segment: Segment) => void;
    onLive?: (state: LiveState) => void;
    /** The run has failed: finish() says why, too. */
    onError?: (error: SpeechError) => void;
}

export interface Live {
    /** Mono samples as they are recorded; returns at once. */
    push(samples: Float32Array): void;
    /** Ends the recording and transcribes the rest. The result is that of transcribe() with
     * least_ms 3000 and pause_ms 700, if nothing was lost. */
    finish(): Promise<Result>;
    /** Ends it without the rest and discards its results. */
    abandon(): Promise<void>;
}

export type Format = "txt" | "srt" | "vtt" | "tsv" | "json" | "csv" | "lrc" | "ass" | "verbose_json";

/** One model and one session. One run at a time: another is refused while one is going on. */
export interface Speech {
    readonly info: Info;
    transcribe(recording: Recording, options?: TranscribeOptions): Promise<Result>;
    listen(options?: ListenOptions): Promise<Live>;
    /** The results of the last run; subtitles: with the usual limits of lines and times. */
    write(format: Format, options?: { subtitles?: boolean }): Promise<string>;
    /** Compares the module with known results. */
    selfTest(): Promise<void>;
    /** Ends the worker and frees all memory. */
    close(): void;
}

export function open(options: OpenOptions): Promise<Speech>;
/** The bytes of a model, from where open() would take them. */
export function loadModel(source: ModelSource, options?: LoadOptions): Promise<ArrayBuffer>;
/** Whether this host runs WebAssembly's 128-bit SIMD. */
export function hasSimd(): boolean;
