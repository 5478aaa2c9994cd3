"""The rover itself, emulated: ``python examples/robots/rover.py [PORT]``; two seconds a metre, one a turn."""

import selectors
import socketserver
import sys
import time


class Rover(socketserver.StreamRequestHandler):
    """Takes lines and answers each; one motion at a time, ended by ``stop``."""

    def handle(self) -> None:
        ready = selectors.DefaultSelector()
        ready.register(self.connection, selectors.EVENT_READ)
        busy_until, buffer = 0.0, b""
        while True:
            if busy_until and time.monotonic() >= busy_until:
                busy_until = 0.0
                self.wfile.write(b"done\n")
            if not ready.select(0.02):
                continue
            data = self.connection.recv(4096)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for word, _, amount in (line.decode().partition(" ") for line in lines):
                print(word, amount, flush=True)
                if word == "stop":
                    self.wfile.write(b"error stopped\nstopped\n" if busy_until else b"stopped\n")
                    busy_until = 0.0
                elif busy_until:
                    self.wfile.write(b"error busy\n")
                else:
                    busy_until = time.monotonic() + (2.0 * abs(float(amount)) if word == "drive" else 1.0)


if __name__ == "__main__":
    port = sys.argv[1] if len(sys.argv) == 2 else "7777"
    if len(sys.argv) > 2 or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        sys.exit("usage: rover.py [PORT]")
    socketserver.TCPServer.allow_reuse_address = True
    with socketserver.TCPServer(("127.0.0.1", int(port)), Rover) as server:
        server.serve_forever()
