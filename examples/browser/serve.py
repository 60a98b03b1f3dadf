"""serve.py - [PORT]: this folder at http://127.0.0.1:PORT/ [8000] with the two headers that give pages
shared memory, and so threads. Any web server will do that sends them with all files."""
import functools
import http.server
import os
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    def end_headers(self):
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    address = ("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
    print(f"http://127.0.0.1:{address[1]}/")
    http.server.ThreadingHTTPServer(
        address, functools.partial(Handler, directory=folder)).serve_forever()
