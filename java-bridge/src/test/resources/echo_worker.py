"""A small agent worker for the tests: it answers each event with the event itself.

An event "crash" kills the process, "stop" stops it, "sleep" answers nothing, "child" starts a process that outlives its
turn and answers with its id. "leave" and words start a process that tries to outlive the worker: "session" in a new
session, "orphan" without a living parent, "bare" without an environment, "quiet" without the pipes of the worker,
"stubborn" one that ignores SIGTERM.
"""

import json
import os
import pickle
import signal
import struct
import subprocess
import sys

OPEN, TURN, SESSION, CANCEL, CLOSE, PING = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
OPENED, END, PONG = 0x81, 0x84, 0x89
U32 = struct.Struct(">I")


def bytes_field(value):
    return U32.pack(len(value)) + value


def send(stream, kind, body):
    stream.write(U32.pack(len(body) + 1) + bytes([kind]) + body)
    stream.flush()


def read_turn(body):
    operator, _plan, turn, _flags, crashes, _time, number, _version = struct.unpack_from(">IIQBIqQQ", body)
    at = struct.calcsize(">IIQBIqQQ")
    fields = []
    for _ in range(2):
        (length,) = U32.unpack_from(body, at)
        fields.append(body[at + 4 : at + 4 + length])
        at += 4 + length
    return operator, turn, crashes, number, fields[0].decode(), fields[1]


def end(operator, turn, *outputs):
    body = struct.pack(">IQBB", operator, turn, 0, 0) + U32.pack(0) + U32.pack(len(outputs))
    for output in outputs:
        body += bytes_field(b"") + bytes_field(output)
    return body + bytes_field(b"")


def leave(words):
    reader, writer = os.pipe()
    program = ["import os, signal, time"]
    if b"stubborn" in words:
        program.append("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    if b"orphan" in words:
        program.append("if os.fork(): os._exit(0)")
    program += [f"os.write({writer}, str(os.getpid()).encode())", f"os.close({writer})", "time.sleep(600)"]
    started = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "\n".join(program)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if b"quiet" in words else None,
        env={} if b"bare" in words else None,
        start_new_session=b"session" in words,
        pass_fds=[writer],
    )
    if b"orphan" in words:
        started.wait()
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return pipe.read()


def answer(key, number, crashes, event):
    if event == b"crash" and crashes == 0:
        os._exit(7)
    if event == b"stop" and crashes == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    if event == b"child":
        return str(subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid)
    if event.startswith(b"leave"):
        return leave(event.split())
    if event == b"pid":
        return str(os.getpid())
    if event == b"env":
        return json.dumps(dict(os.environ))
    return f"{key}#{number}/{crashes}:{event.decode('utf-8', 'replace')}"


def main():
    os.setsid()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    print("WARN echo worker starts", file=sys.stderr, flush=True)
    as_pickle = os.environ.get("ECHO_AS_PICKLE") == "1"
    while True:
        header = source.read(4)
        if len(header) < 4:
            if os.environ.get("ECHO_IGNORES_EOF") == "1":
                signal.pause()
            return
        frame = source.read(U32.unpack(header)[0])
        kind, body = frame[0], frame[1:]
        if kind == OPEN:
            config = json.loads(body[8:])
            if "refuse" in config["plan"]:
                send(sink, 0x82, body[:4] + b"\x00" + bytes_field(config["plan"]["refuse"].encode()))
                continue
            send(sink, OPENED, body[:4] + bytes_field(json.dumps(config).encode()))
        elif kind == TURN:
            operator, turn, crashes, number, key, event = read_turn(body)
            if event == b"sleep":
                continue
            text = answer(key, number, crashes, event)
            send(sink, END, end(operator, turn, pickle.dumps(text) if as_pickle else text.encode()))
        elif kind == PING:
            send(sink, PONG, b"")
        elif kind == CLOSE and os.environ.get("ECHO_IGNORES_CLOSE") != "1":
            return


main()
