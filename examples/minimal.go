// minimal.go - transcribes a WAV file: minimal.c in Go, with cgo.
//
//	CGO_CFLAGS=-O2 go build examples/minimal.go      with the library installed, or:
//	make shared
//	CGO_CFLAGS="-I$PWD" CGO_LDFLAGS="-L$PWD/build" go build examples/minimal.go
//	LD_LIBRARY_PATH=build ./minimal MODEL.bin RECORDING.wav
//
// cgo has no macros with arguments: instead of wnpu_get_segment() call wnpu_get_segment_sized() with
// the size of the structure.
package main

/*
#cgo LDFLAGS: -lwnpu -lm
#include <stdlib.h>
#include <whisper_npu.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"
)

// A Transcriber is a model and a session.
type Transcriber struct {
	model   *C.wnpu_model
	session *C.wnpu_session
}

// A Segment is a part of the text with its times in milliseconds.
type Segment struct {
	T0, T1 int64
	Text   string
	Voice  float32
}

func message(e *C.wnpu_error) error { return errors.New(C.GoString(&e.message[0])) }

// Open opens a model file and a session with the default configuration.
func Open(path string) (*Transcriber, error) {
	var e C.wnpu_error
	t := &Transcriber{}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if C.wnpu_model_open(&t.model, name, nil, &e) != C.WNPU_OK ||
		C.wnpu_session_open(&t.session, t.model, nil, nil, 0, &e) != C.WNPU_OK {
		t.Close()
		return nil, message(&e)
	}
	return t, nil
}

// Close frees both.
func (t *Transcriber) Close() {
	C.wnpu_session_close(t.session)
	C.wnpu_model_close(t.model)
}

// Wav transcribes a WAV file with run parameters by name.
func (t *Transcriber) Wav(wav []byte, options map[string]string) ([]Segment, error) {
	var e C.wnpu_error
	// C may keep pointers of Go's memory only during a call, so what holds pointers is C's.
	audio := (*C.wnpu_audio)(C.calloc(1, C.sizeof_wnpu_audio))
	params := (*C.wnpu_params)(C.calloc(1, C.sizeof_wnpu_params))
	data := C.CBytes(wav)
	defer C.free(unsafe.Pointer(audio))
	defer C.free(unsafe.Pointer(params))
	defer C.free(data)
	C.wnpu_params_init(params, C.sizeof_wnpu_params)
	for name, value := range options {
		n, v := C.CString(name), C.CString(value)
		defer C.free(unsafe.Pointer(n))
		defer C.free(unsafe.Pointer(v))
		if C.wnpu_params_set(params, n, v, &e) != C.WNPU_OK {
			return nil, message(&e)
		}
	}
	C.wnpu_audio_init(audio, C.sizeof_wnpu_audio)
	if C.wnpu_wav_open(audio, data, C.size_t(len(wav)), &e) != C.WNPU_OK {
		return nil, message(&e)
	}
	status := C.wnpu_transcribe(t.session, params, audio)
	var segments []Segment
	var s C.wnpu_segment
	for i := 0; C.wnpu_get_segment_sized(t.session, C.size_t(i), &s, C.sizeof_wnpu_segment) == 0; i++ {
		segments = append(segments, Segment{int64(s.t0_ms), int64(s.t1_ms), C.GoString(s.text),
			float32(s.voice)})
	}
	if status < 0 {
		return segments, errors.New(C.GoString(C.wnpu_session_error(t.session)))
	}
	return segments, nil
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: minimal MODEL.bin RECORDING.wav [NAME=VALUE...]")
		os.Exit(1)
	}
	options := map[string]string{}
	for _, argument := range os.Args[3:] {
		name, value, found := strings.Cut(argument, "=")
		if !found {
			value = "on"
		}
		options[name] = value
	}
	wav, err := os.ReadFile(os.Args[2])
	if err == nil {
		var t *Transcriber
		if t, err = Open(os.Args[1]); err == nil {
			defer t.Close()
			var segments []Segment
			segments, err = t.Wav(wav, options)
			for _, s := range segments {
				fmt.Printf("%d %d%s\n", s.T0, s.T1, s.Text)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
