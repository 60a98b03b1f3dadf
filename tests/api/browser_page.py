"""browser_page.py - what test_browser.sh does with the page of examples/browser in a headless
Chromium: browser_page.py SITE TEST ARGUMENTS... SITE is a folder with the page and models. With
TEST_SHOTS=DIR it leaves pictures there."""
import collections
import functools
import http.server
import os
import sys
import threading

SITE = sys.argv[1]
sys.path[:0] = [SITE, os.path.join(os.path.dirname(__file__), "../lib")]
import serve  # noqa: E402
from browser import Browser  # noqa: E402

SHOTS = os.environ.get("TEST_SHOTS", SITE)
TEXT = "document.getElementById('{}').textContent"
CLICK = "document.getElementById('{}').click()"
fetched = collections.Counter()


class Counting:
    def do_GET(self):
        fetched[self.path.split("?")[0]] += 1
        super().do_GET()

    def log_message(self, *_):
        pass


class Isolated(Counting, serve.Handler):
    pass


class Plain(Counting, http.server.SimpleHTTPRequestHandler):
    pass


def start(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                             functools.partial(handler, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/"


def says(b, name, pattern, seconds=60):
    b.wait(f"/{pattern}/.test({TEXT.format(name)})", seconds)


def same(found, want):
    at = len(os.path.commonprefix((found, want)))
    assert found == want, f"{found[at - 40:at + 40]!r} instead of {want[at - 40:at + 40]!r}"


def saved(b, kind):
    """What a button would download."""
    b.run("window.saved = null; URL.createObjectURL = blob => "
          "{ blob.text().then(text => { window.saved = text; }); return '#'; }")
    b.run(f"document.querySelector('[data-save={kind}]').click()")
    b.wait("window.saved !== null", 10)
    return b.run("window.saved")


def recording(url, wav, json, srt):
    """A file, the same bytes as from the native program, with threads, and a model that is fetched
    once."""
    b = Browser(url, wav)
    try:
        b.look(900, 900, False)
        b.run(CLICK.format("load"))
        cpus = b.run("navigator.hardwareConcurrency")
        says(b, "about", f"^Ready. Instruction set: simd128; threads: {min(cpus, 8)};")
        assert fetched["/wnpu_threads.wasm" if cpus > 1 else "/wnpu.wasm"] == 1, fetched
        b.choose_file("#file", wav)
        b.wait("!document.getElementById('result').hidden", 120)
        says(b, "pace", "times as fast as it was spoken; simd128")
        with open(json, encoding="utf-8") as file:
            same(saved(b, "json"), file.read())
        with open(srt, encoding="utf-8") as file:
            same(saved(b, "srt"), file.read())
        assert saved(b, "vtt").startswith("WEBVTT\n")
        b.wait("document.querySelectorAll('.word').length > 5", 10)
        b.run("document.getElementById('player').currentTime = 2")
        b.wait("document.querySelector('.word.now') !== null", 10)
        at = b.run("view.now")
        same(b.run("document.querySelector('.word.now').textContent"),
             b.run(f"view.words[{at}].text.trim()"))
        b.run("document.getElementById('text').focus()")
        b.key("ArrowRight", 39)
        b.wait(f"view.now === {at + 1}", 10)
        b.screenshot(f"{SHOTS}/page_file.png")
        b.look(360, 740, True)
        assert b.run("document.documentElement.scrollWidth <= 360"), "wider than a phone"
        b.screenshot(f"{SHOTS}/page_phone.png")
        assert fetched["/ggml-tiny.bin"] == 1, fetched
        b.call("Page.navigate", url=url)
        b.wait("document.readyState === 'complete' && !document.querySelector('.word')", 30)
        b.run(CLICK.format("load"))
        says(b, "about", "^Ready")
        assert fetched["/ggml-tiny.bin"] == 1, "fetched again"
        b.choose_file("#file", __file__)
        says(b, "problem", "browser_page.py has no sound that this browser can decode")
    finally:
        b.close()


def microphone(url, wav, word):
    b = Browser(url, wav)
    try:
        b.look(900, 900, False)
        b.run(CLICK.format("start"))  # loads the model, too
        says(b, "status", "^Listening")
        b.wait(f"/{word}/i.test([...document.querySelectorAll('.committed')].map("
               "s => s.textContent).join(''))", 120)
        b.screenshot(f"{SHOTS}/page_live.png")
        b.run(CLICK.format("start"))
        says(b, "status", "^Stopped$", 120)
        assert b.run("document.querySelector('.tentative') === null")
    finally:
        b.close()


def errors(url, wav):
    b = Browser(url, wav, allowed=False)
    try:
        b.run(CLICK.format("start"))
        says(b, "status", "does not let this page use the microphone")
        for name, message in (("NotFoundError", "there is no microphone"),
                              ("NotReadableError", "another program uses the microphone")):
            b.run("navigator.mediaDevices.getUserMedia = () => "
                  f"Promise.reject(new DOMException('', '{name}'))")
            b.run(CLICK.format("start"))
            says(b, "status", message)
        for model, message in (("missing.bin", "404"), ("damaged.bin", "does not open: .")):
            b.call("Page.navigate", url=f"{url}?model={model}")
            b.wait(f"location.search === '?model={model}' && document.readyState === 'complete'", 30)
            b.run(CLICK.format("load"))
            says(b, "about", message)
            assert b.run("document.getElementById('about').classList.contains('bad')")
            b.choose_file("#file", wav)
            says(b, "problem", "It was not transcribed: .")
        b.run("document.getElementById('model').value = ''")
        b.run(CLICK.format("load"))
        says(b, "about", "choose a model file first")
        b.choose_file("#modelfile", f"{SITE}/ggml-tiny.bin")
        says(b, "about", "^Ready. .* threads: 1, because this page is served without the headers")
        b.screenshot(f"{SHOTS}/page_errors.png")
    finally:
        b.close()


{"recording": recording, "microphone": microphone, "errors": errors}[sys.argv[2]](
    start(Plain if sys.argv[2] == "errors" else Isolated), *sys.argv[3:])
