#!/usr/bin/env python3
"""A lakesql server for the checks beside this file: starts it on a free port, stops it, kills it, starts it again.

As a program: lakesql_server.py crash BINARY DATA PORT [FLAG ...]
kills the server that has DATA open with SIGKILL, starts it again on the same port, and returns when it answers.
"""
import os, signal, socket, subprocess, sys, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.environ.get("LAKESQL", os.path.join(ROOT, "bin", "lakesql"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def lock_pid(data):
    """The process that has the folder open: the first line of its lock file."""
    try:
        with open(os.path.join(data, "lakesql.lock")) as f:
            return int(f.readline() or 0)
    except (OSError, ValueError):
        return 0


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as s:
            s.settimeout(5)
            return bool(s.recv(1))  # the server's greeting
    except OSError:
        return False


def alive(pid):
    """Whether any thread of the process runs: the first one may have ended while others still hold the files open."""
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return False
    for task in tasks:
        try:
            with open("/proc/%d/task/%s/stat" % (pid, task)) as f:
                if f.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                    return True
        except OSError:
            pass  # it ended meanwhile
    return False


def wait(what, ok, seconds=60):
    end = time.monotonic() + seconds
    while not ok():
        if time.monotonic() > end:
            raise RuntimeError("waited %d s for %s" % (seconds, what))
        time.sleep(0.02)


def end_on_sigterm():
    """SIGTERM ends a script by an exception, so that what it started is stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


class Server:
    def __init__(self, data, port=None, flags=(), binary=BINARY):
        self.data, self.port, self.flags, self.binary = os.path.abspath(data), port or free_port(), list(flags), binary
        self.log = os.path.join(os.path.dirname(self.data), "server.log")
        self.proc = None

    def command(self):
        return [self.binary, "server", "--data", self.data, "--listen", "127.0.0.1:%d" % self.port] + self.flags

    def start(self):
        os.makedirs(self.data, exist_ok=True)
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_ready()
        return self

    def wait_ready(self):
        def ready():
            if self.proc and self.proc.poll() is not None:
                raise RuntimeError("the server ended with %d:\n%s" % (self.proc.returncode, self.tail()))
            return answers(self.port)
        wait("the server on port %d" % self.port, ready)

    def tail(self, n=20):
        with open(self.log, errors="replace") as f:
            return "".join(f.readlines()[-n:])

    def pid(self):
        """The running server's process, or 0. A crash leaves its id in the lock file, and ids are used again."""
        pid = lock_pid(self.data)
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                return pid if self.data.encode() in f.read().split(b"\0") else 0
        except OSError:
            return 0

    def kill(self):
        pid = self.pid()
        if pid:
            os.kill(pid, signal.SIGKILL)
            if self.proc and self.proc.pid == pid:
                self.proc.wait()
            wait("the end of process %d" % pid, lambda: not alive(pid))
        self.proc = None

    def stop(self, seconds=120):
        """Asks the server to end and returns whether it ended cleanly; one started by `crash` gives no exit code."""
        pid, code = self.pid(), 0
        if pid:
            os.kill(pid, signal.SIGTERM)
        if self.proc and self.proc.pid == pid:
            code = self.proc.wait(seconds)
        elif pid:
            wait("the end of process %d" % pid, lambda: not alive(pid), seconds)
        self.proc = None
        return code == 0

    def crash_command(self):
        import shlex
        return shlex.join([sys.executable, os.path.abspath(__file__), "crash", self.binary, self.data, str(self.port)] + self.flags)

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        if exc[0] is not None and self.proc and self.proc.poll() is not None:
            print(self.tail(), file=sys.stderr)
        self.stop()


if __name__ == "__main__":
    if len(sys.argv) < 5 or sys.argv[1] != "crash":
        sys.exit(__doc__)
    s = Server(sys.argv[3], int(sys.argv[4]), sys.argv[5:], sys.argv[2])
    s.kill()
    s.start()
