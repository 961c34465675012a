# SPDX-License-Identifier: BSD-3-Clause
# Copyright 2026, The rpma developers
"""What is measured: rpma-perf and what else moves bytes on a machine. Each measurement is a function that runs it once and returns
microseconds, or None if that comes to nothing."""

import contextlib
import json
import os
import random
import re
import subprocess
import sys

PATIENCE = 10  # seconds for one measurement; what takes longer is reported as such
COUNTS = {8: 2000, 4096: 2000, 1 << 20: 60}
DEEP_COUNT = 10000
SLOW_COUNT = 300  # where each operation may take a time slice
FIRST_PORT, LAST_PORT = 16000, 31999
# Keeps all of a measurement's processes on one processor.
ONE_CPU = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]


def command(args, env=None):
    """Standard output, or None if it fails or takes too long."""
    try:
        done = subprocess.run(args, env=env, capture_output=True, text=True, timeout=PATIENCE)
    except (subprocess.TimeoutExpired, OSError):
        return None
    return done.stdout if done.returncode == 0 else None


def pair(server, client, env=None):
    """Runs a server without a word of readiness and its client; the client is tried until the server listens."""
    with subprocess.Popen(server, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            out = None
            while out is None and process.poll() is None:
                try:
                    done = subprocess.run(client, env=env, capture_output=True, text=True, timeout=PATIENCE)
                except subprocess.TimeoutExpired:
                    return None
                out = done.stdout if done.returncode == 0 else None
            return out
        finally:
            process.kill()


CARRIERS = {"tcp": "TCP", "local": "shared memory"}


class Perf:
    """An rpma-perf server, and measurements by clients of it."""

    def __init__(self, program, carrier, prefix=()):
        self.program = program
        self.prefix = list(prefix)
        self.name = CARRIERS[carrier]
        self.env = dict(os.environ, RPMA_FABRIC="soft", RPMA_SOFT_CARRIER=carrier)
        for _ in range(20):
            self.port = str(random.randint(FIRST_PORT, LAST_PORT))
            self.server = subprocess.Popen([*prefix, program, "server", "127.0.0.1", self.port], env=self.env, text=True,
                                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            if self.server.stdout.readline().startswith("ready"):
                return
            self.server.wait()
        sys.exit("bench: the rpma-perf server does not start")

    def client(self, *options):
        out = command([*self.prefix, self.program, "client", "127.0.0.1", self.port, "--json", "-", *map(str, options)], self.env)
        return json.loads(out)["results"] if out else None

    def chart(self, file):
        subprocess.run([self.program, "client", "127.0.0.1", self.port, "-q", "-o", "all", "-s", "8..16M", "--svg", file, "-n",
                        "40"], env=self.env, check=True)

    def stop(self):
        self.server.terminate()
        self.server.wait()


def rpma(perf, op, size, mode, *options):
    """The median latency of one operation at a time."""
    def run():
        results = perf.client("-o", op, "-s", size, "-m", mode, "-n", COUNTS[size], *options)
        return results and results[0]["latency_us"]["p50"]
    return run


def rpma_many(perf, op, size, count, *options):
    """The time for each operation, where several are under way."""
    def run():
        results = perf.client("-o", op, "-s", size, "-n", count, *options)
        return results and 1e6 / results[0]["operations_per_second"]
    return run


def baseline(program, kind, size, count=None, prefix=()):
    def run():
        out = command([*prefix, program, kind, str(size), str(count or COUNTS[size])])
        return out and float(out.split()[1])
    return run


def beside_a_busy_process(measurement):
    """The same while another process uses as much of a processor as it gets."""
    def run():
        with contextlib.ExitStack() as stack:
            busy = stack.enter_context(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
            stack.callback(busy.kill)
            return measurement()
    return run


def ucx(test, transports, size, factor):
    def run():
        port = str(random.randint(FIRST_PORT, LAST_PORT))
        options = ["-t", test, "-s", str(size), "-n", str(COUNTS[size]), "-w", str(COUNTS[size] // 10), "-f", "-v"]
        out = pair(["ucx_perftest", "-p", port], ["ucx_perftest", "127.0.0.1", "-p", port, *options],
                   dict(os.environ, UCX_TLS=transports))
        fields = out.split("\n")[-2].split(",") if out and out.count("\n") >= 2 else []
        return factor * float(fields[1]) if len(fields) > 1 and re.fullmatch(r"[\d.]+", fields[1]) else None
    return run


def fi_pingpong(provider, size):
    def run():
        port = str(random.randint(FIRST_PORT, LAST_PORT))
        options = ["-p", provider, "-e", "rdm", "-S", str(size), "-I", str(COUNTS[size])]
        out = pair(["fi_pingpong", "-B", port, *options], ["fi_pingpong", "-P", port, *options, "127.0.0.1"])
        fields = out.split("\n")[-2].split() if out and out.count("\n") >= 2 else []
        # The mean of half a round trip: it tells no median.
        return 2 * float(fields[6]) if len(fields) > 6 else None
    return run


def fi_rma(program, provider, size):
    def run():
        out = command([program, provider, str(size), str(COUNTS[size])])
        return out and float(out.split()[1])
    return run
