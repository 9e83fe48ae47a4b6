"""Write down what a Python process touches; Python imports this at its start from PYTHONPATH.

Each line is a kind and what was touched: ``["write", PATH]``, ``["network", ADDRESS]``, or
``["process", COMMAND]``. Loopback addresses and sockets of the file system are left out.
"""

import json
import os
import sys

_LOG = os.open(os.environ["KBQA_TEST_AUDIT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PATHS = {  # which arguments are paths, and which is the descriptor of their folder, if any
    "os.chmod": ((0,), 2),
    "os.chown": ((0,), 3),
    "os.link": ((1,), 3),
    "os.mkdir": ((0,), 2),
    "os.remove": ((0,), 1),
    "os.rename": ((0, 1), 2),
    "os.rmdir": ((0,), 1),
    "os.setxattr": ((0,), None),
    "os.symlink": ((1,), 2),
    "os.truncate": ((0,), None),
    "os.utime": ((0,), 3),
    "sqlite3.connect": ((0,), None),
}
_PROCESSES = ("os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")
_HOSTS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
_ADDRESSES = ("socket.bind", "socket.connect", "socket.sendmsg", "socket.sendto")
_LOOPBACK = ("127.0.0.1", "::1", "localhost", "None")


def _note(kind, what):
    os.write(_LOG, (json.dumps([kind, what]) + "\n").encode())


def _note_path(path, folder):
    if isinstance(path, int):
        return
    path = os.fsdecode(path)
    if path.startswith("file:"):  # SQLite's, which says whether it only reads
        if "mode=ro" in path:
            return
        path = path.removeprefix("file:").partition("?")[0]
    if path in (":memory:", ""):
        return
    if isinstance(folder, int) and folder >= 0:
        path = f"/proc/self/fd/{folder}/{path}"
    _note("write", os.path.realpath(path))


def _hook(event, args):
    if event == "open":
        if args[2] & _WRITING:
            _note_path(args[0], None)
    elif event in _PATHS:
        paths, folder = _PATHS[event]
        for at in paths:
            _note_path(args[at], None if folder is None else args[folder])
    elif event in _PROCESSES:
        command = [os.fsdecode(each) for each in args[1]] if len(args) > 1 else [str(args[0])]
        is_worker = command[1:2] == ["-P"] and "_process.py" in command[2]
        _note("process", command[0] if is_worker else " ".join(command))
    elif event in _HOSTS or event in _ADDRESSES:
        address = args[1] if event in _ADDRESSES else args[:1]
        host = str(address[0]) if isinstance(address, tuple) else None
        if host is not None and host not in _LOOPBACK:
            _note("network", host)


sys.addaudithook(_hook)
