// minimal.rs - transcribes a WAV file: minimal.c in Rust.
//
//     make shared
//     rustc -O examples/minimal.rs -L build -l wnpu -o minimal
//     LD_LIBRARY_PATH=build ./minimal MODEL.bin RECORDING.wav
//
// The declarations below are those of whisper_npu.h that it uses. For all of them, generate a module:
//
//     bindgen whisper_npu.h --allowlist-function 'wnpu_.*' --allowlist-type 'wnpu_.*' \
//         --allowlist-var 'WNPU_.*' -o wnpu.rs
//
// Macros have no bindings: instead of wnpu_get_segment() call wnpu_get_segment_sized() with the size
// of the structure.
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::{env, fs, mem, process, ptr};

#[repr(C)]
pub struct Error {
    code: c_int,
    message: [c_char; 252],
}

#[repr(C)]
pub struct Audio {
    struct_size: u32,
    format: i32,
    rate: u32,
    channels: u32,
    channel: i32,
    data: *const c_void,
    frames: u64,
    read: Option<extern "C" fn(*mut c_void, *mut c_void, usize) -> i64>,
    user: *mut c_void,
}

#[repr(C)]
pub struct Segment {
    t0_ms: i64,
    t1_ms: i64,
    text: *const c_char,
    text_length: usize,
    tokens: *const c_void,
    n_tokens: usize,
    language: i32,
    window: i32,
    mean_logprob: f32,
    no_speech: f32,
    temperature: f32,
    compression_ratio: f32,
    first_logprob: f32,
    retries: i32,
    reasons: u32,
    accepted: i32,
    prompted: i32,
    device: i32,
    voice: f32,
    window_ms: i64,
}

extern "C" {
    fn wnpu_model_open(model: *mut *mut c_void, path: *const c_char, config: *const c_void,
                       error: *mut Error) -> c_int;
    fn wnpu_model_close(model: *mut c_void);
    fn wnpu_session_open(session: *mut *mut c_void, model: *const c_void, config: *const c_void,
                         memory: *mut c_void, size: usize, error: *mut Error) -> c_int;
    fn wnpu_session_close(session: *mut c_void);
    fn wnpu_session_error(session: *const c_void) -> *const c_char;
    fn wnpu_audio_init(audio: *mut Audio, size: usize);
    fn wnpu_wav_open(audio: *mut Audio, data: *const c_void, size: usize, error: *mut Error)
                     -> c_int;
    fn wnpu_params_init(params: *mut c_void, size: usize);
    fn wnpu_params_set(params: *mut c_void, name: *const c_char, value: *const c_char,
                       error: *mut Error) -> c_int;
    fn wnpu_transcribe(session: *mut c_void, params: *const c_void, audio: *const Audio) -> c_int;
    fn wnpu_get_segment_sized(session: *const c_void, index: usize, segment: *mut Segment,
                              size: usize) -> c_int;
}

fn text(bytes: *const c_char) -> String {
    unsafe { CStr::from_ptr(bytes) }.to_string_lossy().into_owned()
}

/// A model and a session, closed in the right order.
pub struct Transcriber {
    model: *mut c_void,
    session: *mut c_void,
}

impl Transcriber {
    pub fn open(path: &str) -> Result<Transcriber, String> {
        let mut t = Transcriber { model: ptr::null_mut(), session: ptr::null_mut() };
        let path = CString::new(path).map_err(|e| e.to_string())?;
        unsafe {
            let mut error: Error = mem::zeroed();
            if wnpu_model_open(&mut t.model, path.as_ptr(), ptr::null(), &mut error) != 0
                || wnpu_session_open(&mut t.session, t.model, ptr::null(), ptr::null_mut(), 0,
                                     &mut error) != 0
            {
                return Err(text(error.message.as_ptr()));
            }
        }
        Ok(t)
    }

    /// Transcribes a WAV file with run parameters by name, and calls each for every segment.
    pub fn wav(&mut self, bytes: &[u8], options: &[(&str, &str)], each: impl Fn(i64, i64, &str))
               -> Result<(), String> {
        // Room for wnpu_params, whose fields are not declared here. Values must outlive the run.
        let mut params = [0u64; 64];
        let params = params.as_mut_ptr() as *mut c_void;
        let mut values = Vec::new();
        unsafe {
            let mut error: Error = mem::zeroed();
            let mut audio: Audio = mem::zeroed();
            wnpu_params_init(params, 512);
            for (name, value) in options {
                values.push((CString::new(*name).unwrap(), CString::new(*value).unwrap()));
                let (name, value) = values.last().unwrap();
                if wnpu_params_set(params, name.as_ptr(), value.as_ptr(), &mut error) != 0 {
                    return Err(text(error.message.as_ptr()));
                }
            }
            wnpu_audio_init(&mut audio, mem::size_of::<Audio>());
            if wnpu_wav_open(&mut audio, bytes.as_ptr() as *const c_void, bytes.len(),
                             &mut error) != 0 {
                return Err(text(error.message.as_ptr()));
            }
            let status = wnpu_transcribe(self.session, params, &audio);
            let mut segment: Segment = mem::zeroed();
            let mut i = 0;
            while wnpu_get_segment_sized(self.session, i, &mut segment,
                                         mem::size_of::<Segment>()) == 0 {
                each(segment.t0_ms, segment.t1_ms, &text(segment.text));
                i += 1;
            }
            if status < 0 { Err(text(wnpu_session_error(self.session))) } else { Ok(()) }
        }
    }
}

impl Drop for Transcriber {
    fn drop(&mut self) {
        unsafe {
            wnpu_session_close(self.session);
            wnpu_model_close(self.model);
        }
    }
}

fn run() -> Result<(), String> {
    let args: Vec<String> = env::args().collect();
    if args.len() < 3 {
        return Err("usage: minimal MODEL.bin RECORDING.wav [NAME=VALUE...]".to_string());
    }
    let options: Vec<(&str, &str)> =
        args[3..].iter().map(|a| a.split_once('=').unwrap_or((a, "on"))).collect();
    let wav = fs::read(&args[2]).map_err(|e| e.to_string())?;
    Transcriber::open(&args[1])?.wav(&wav, &options, |t0, t1, text| println!("{t0} {t1}{text}"))
}

fn main() {
    if let Err(why) = run() {
        eprintln!("{why}");
        process::exit(1);
    }
}
