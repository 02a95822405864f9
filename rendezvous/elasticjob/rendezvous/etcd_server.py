"""A local etcd server in a subprocess, for tests and for several workers on one machine.

The server listens on a random free port of the loopback interface and is stopped at exit at the latest. It offers the
v3 API, and the old v2 API as well if the executable still has it (up to 3.5).
"""

import atexit
import contextlib
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import IO

from elasticjob.rendezvous.backends.etcd_v2_keys import connect
from elasticjob.rendezvous.backends.extras import ThirdParty, require
from elasticjob.rendezvous.backends.options import EtcdOptions
from elasticjob.rendezvous.errors import RendezvousConnectionError

BINARY_VARIABLE = "TORCHELASTIC_ETCD_BINARY_PATH"

_HOST = "localhost"
_FIRST_WITHOUT_V2 = (3, 6)
_CLIENT_TIMEOUT = 10
_PROBE_TIMEOUT = 2.0
_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0

_logger = logging.getLogger(__name__)


def find_free_port() -> socket.socket:
    """A socket bound to a free port of localhost; close it right before the port is used.

    Raises:
        RuntimeError: No address of localhost can be bound.
    """
    errors = []
    for family, kind, proto, _, address in socket.getaddrinfo(_HOST, 0, type=socket.SOCK_STREAM):
        bound = socket.socket(family, kind, proto)
        try:
            bound.bind(address)
            bound.listen(0)
        except OSError as error:
            bound.close()
            errors.append(str(error))
        else:
            return bound
    raise RuntimeError(f"no free port on {_HOST}: {'; '.join(errors)}")


def find_etcd() -> Path:
    """The etcd executable: that of `TORCHELASTIC_ETCD_BINARY_PATH`, `bin/etcd` next to this file, or that on PATH.

    Raises:
        FileNotFoundError: There is none, or the variable names no file.
    """
    chosen = os.environ.get(BINARY_VARIABLE)
    if chosen:
        if not Path(chosen).is_file():
            raise FileNotFoundError(f"{BINARY_VARIABLE} names {chosen!r}, which is no file")
        return Path(chosen)
    bundled = Path(__file__).parent / "bin" / "etcd"
    if bundled.is_file():
        return bundled
    found = shutil.which("etcd")
    if found is None:
        raise FileNotFoundError(f"there is no etcd executable: set {BINARY_VARIABLE}, or put etcd on PATH")
    return Path(found)


class EtcdServer:
    """Starts and stops one server.

    Usage:
        server = EtcdServer()
        server.start()
        client = server.get_client()
        server.stop()
    """

    def __init__(self, data_dir: str | None = None) -> None:
        """Start nothing yet.

        Args:
            data_dir: Where the server keeps its data, which then outlives it. A temporary directory unless given.
        """
        self._data_dir = data_dir
        self._temporary: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = -1
        self._offers_v2 = False

    def start(self, timeout: float = 60, num_retries: int = 3, stderr: int | IO[bytes] | None = None) -> None:
        """Start the server and wait until it answers.

        Args:
            timeout: Seconds that one attempt may take.
            num_retries: How many attempts to make; another process may grab the port in between.
            stderr: Where the server writes its log, as for `subprocess.Popen`.

        Raises:
            FileNotFoundError: There is no etcd executable.
            TimeoutError: The server did not answer in time.
            RuntimeError: The server runs already, or ended at once.
        """
        if self._process is not None:
            raise RuntimeError("the etcd server has been started already")
        executable = find_etcd()
        self._offers_v2 = _version(executable) < _FIRST_WITHOUT_V2
        atexit.register(self.stop)
        for attempt in range(1, num_retries + 1):
            try:
                self._start(executable, timeout, stderr)
            except (RuntimeError, TimeoutError) as error:
                self._end_process()
                _logger.warning("attempt %d of %d to start etcd failed: %s", attempt, num_retries, error)
                if attempt >= num_retries:
                    self.stop()
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop the server and remove its temporary data; does nothing when it does not run."""
        self._end_process()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None
        atexit.unregister(self.stop)

    def get_host(self) -> str:
        """The host of the server."""
        return _HOST

    def get_port(self) -> int:
        """The port of the server, -1 before the start."""
        return self._port

    def get_endpoint(self) -> str:
        """Host and port."""
        return f"{_HOST}:{self._port}"

    def get_client(self) -> ThirdParty:
        """An `etcd.Client` of python-etcd, for the v2 API.

        Raises:
            RendezvousConnectionError: The server does not offer the v2 API.
            ModuleNotFoundError: python-etcd is not installed.
        """
        if self._process is not None and not self._offers_v2:
            raise RendezvousConnectionError(
                f"etcd at {self.get_endpoint()}: the server does not offer the v2 API, which ended with etcd 3.5; "
                "use get_v3_client()"
            )
        return connect(EtcdOptions(host=_HOST, port=self._port, read_timeout=_CLIENT_TIMEOUT))

    def get_v3_client(self) -> ThirdParty:
        """An `etcd3gw.Etcd3Client`, for the v3 API.

        Raises:
            ModuleNotFoundError: etcd3gw is not installed.
        """
        etcd3gw = require("etcd3gw", needed_by="the etcd v3 API", extra="etcd")
        return etcd3gw.client(host=_HOST, port=self._port, timeout=_CLIENT_TIMEOUT)

    def _start(self, executable: Path, timeout: float, stderr: int | IO[bytes] | None) -> None:
        command = self._command(executable)
        _logger.info("starting %s", " ".join(command))
        self._process = subprocess.Popen(command, close_fds=True, stderr=stderr)
        deadline = time.monotonic() + timeout
        while not _answers(self.get_endpoint()):
            exit_code = self._process.poll()
            if exit_code is not None:
                raise RuntimeError(f"etcd ended at once with exit code {exit_code}: {' '.join(command)}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"etcd at {self.get_endpoint()} did not answer within {timeout:g} s")
            time.sleep(_POLL_SECONDS)

    def _command(self, executable: Path) -> list[str]:
        with find_free_port() as client, find_free_port() as peer:
            self._port = client.getsockname()[1]
            peer_port = peer.getsockname()[1]
        url, peer_url = f"http://{_HOST}:{self._port}", f"http://{_HOST}:{peer_port}"
        command = [
            str(executable),
            f"--data-dir={self._data_directory()}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
        ]
        return [*command, "--enable-v2"] if self._offers_v2 else command

    def _data_directory(self) -> str:
        if self._data_dir is not None:
            Path(self._data_dir).mkdir(parents=True, exist_ok=True)
            return self._data_dir
        if self._temporary is not None:
            # What a failed attempt has left behind names other ports.
            shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary = tempfile.mkdtemp(prefix="elasticjob_etcd_")
        return self._temporary

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _version(executable: Path) -> tuple[int, int]:
    output = subprocess.run([executable, "--version"], capture_output=True, check=True, text=True).stdout
    found = re.search(r"etcd Version: (\d+)\.(\d+)", output)
    if found is None:
        raise RuntimeError(f"{executable} --version does not tell a version of etcd: {output[:200]!r}")
    return int(found[1]), int(found[2])


def _answers(endpoint: str) -> bool:
    # Without the proxies of the environment: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with (
        contextlib.suppress(OSError, ValueError),
        opener.open(f"http://{endpoint}/health", timeout=_PROBE_TIMEOUT) as answer,
    ):
        return str(json.load(answer).get("health")) == "true"
    return False
