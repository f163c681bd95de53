"""Stands in for `local_engine.py`: same standard input and output, answers with its own pid."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONFIG = json.loads(sys.stdin.readline())
if "broken" in CONFIG["path"]:
    print("cannot read the weights", file=sys.stderr)
    sys.exit(1)
if "slow" in CONFIG["path"]:
    time.sleep(60)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.headers["Authorization"] == f"Bearer {CONFIG['key']}"
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        words = [
            str(os.getpid()),
            f" {body['max_tokens']}",
            f" {len(body.get('tools', []))}",
            f" {body['model']}",
        ]
        for word in words:
            chunk = {"choices": [{"index": 0, "delta": {"content": word}}]}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.flush()
        if body["messages"][-1]["content"] == "linger":
            time.sleep(0.3)
        self.wfile.write(b"data: [DONE]\n\n")


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
sys.stdin.read()
os._exit(0)
