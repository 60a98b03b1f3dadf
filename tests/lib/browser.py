"""A headless Chromium whose microphone is a WAV file, for tests/api/server_tests.py."""
import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

from server import PATIENCE, WebSocket


def find():
    return shutil.which("chromium") or shutil.which("chromium-browser") or \
        shutil.which("google-chrome")


class Browser:
    """One page, controlled over the DevTools protocol. allowed: it may use the microphone."""

    def __init__(self, url, microphone, allowed=True):
        self.folder = tempfile.mkdtemp()
        self.process = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-port=0", f"--user-data-dir={self.folder}",
             "--use-fake-device-for-media-stream",
             "--use-fake-ui-for-media-stream" if allowed else "--deny-permission-prompts",
             f"--use-file-for-fake-audio-capture={microphone}",
             "--autoplay-policy=no-user-gesture-required", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        note = os.path.join(self.folder, "DevToolsActivePort")
        until = time.monotonic() + 60 * PATIENCE
        while not (os.path.exists(note) and os.path.getsize(note)):
            assert time.monotonic() < until and self.process.poll() is None, "no browser"
            time.sleep(0.1)
        with open(note, encoding="ascii") as file:
            self.port = int(file.readline())
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/json") as answer:
            page = [p for p in json.load(answer) if p["type"] == "page"][0]
        path = page["webSocketDebuggerUrl"].split(str(self.port), 1)[1]
        self.socket = WebSocket(self, path=path)
        self.calls = 0
        self.logs = []
        for domain in ("Page", "Runtime", "DOM", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'", 30)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=300)

    def call(self, method, **params):
        self.calls += 1
        self.socket.frame(json.dumps({"id": self.calls, "method": method,
                                      "params": params}).encode())
        while True:
            message = self.socket.receive()
            if message.get("id") == self.calls:
                assert "error" not in message, message
                return message["result"]
            self.logs.append(message)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True,
                           returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition, seconds):
        until = time.monotonic() + seconds * PATIENCE
        while not self.run(condition):
            assert time.monotonic() < until, f"not within {seconds} s: {condition}"
            time.sleep(0.1)

    def reload(self):
        """The page again; a script may meet the end of the page before."""
        self.run("window.old = true")
        self.call("Page.reload")
        until = time.monotonic() + 30 * PATIENCE
        while True:
            try:
                if self.run("!window.old && document.readyState === 'complete'"):
                    return
            except AssertionError as error:
                assert "navigated" in str(error), error
            assert time.monotonic() < until, "the page does not load"
            time.sleep(0.1)

    def choose_file(self, selector, *paths):
        node = self.call("DOM.getDocument")["root"]["nodeId"]
        found = self.call("DOM.querySelector", nodeId=node, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=found, files=list(paths))

    def key(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=code)

    def look(self, width, height, dark):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(300)
        shutil.rmtree(self.folder, ignore_errors=True)
