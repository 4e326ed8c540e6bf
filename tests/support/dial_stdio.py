"""What `docker system dial-stdio` does on a machine behind ssh: it copies from and to SOCKET."""

import os
import socket
import sys
import threading

connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])


def answer() -> None:
    """Copy what the daemon sends."""
    while data := connection.recv(1 << 16):
        os.write(1, data)
    os._exit(0)


threading.Thread(target=answer, daemon=True).start()
while data := os.read(0, 1 << 16):
    connection.sendall(data)
