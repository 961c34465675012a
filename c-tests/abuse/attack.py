#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright 2026, The rpma developers
#
# attack.py - hostile peers against a server of the software fabric (victim.c), and hostile servers against a client
# (caller.c).
#
# usage: attack.py --bin DIR [--addr ADDR] [--passes N] [--list] [NAME...]
#
# While each attack goes on, a well-behaved client (control.c) verifies its data and must get on, and a fresh one must be
# served. After it the server has let go of everything: its connections, its descriptors. After all of them have run
# once, running them again must not need more memory. Random bytes come from fixed seeds.
#
# Speaks the protocol of src/soft/wire.rs in its own words. That it speaks it right is a test of its own, without which the
# others would prove nothing.

import argparse
import ctypes
import os
import random
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

PATIENCE = 60  # seconds that anything may take

GREETING = struct.Struct('<8sHBBHHI6BHI')
MAGIC, VERSION = b'rpmasoft', 1
REQUEST, REPLY, REJECT, RECEIVED = 1, 2, 3, 4

HEADER = struct.Struct('<BBBBIQIII4s')
SEND, SEND_IMM, WRITE, WRITE_IMM, READ, ATOMIC_WRITE, FLUSH = range(1, 8)
ACK, NAK, READ_DATA, RNR_NAK, RNR_READY = range(16, 21)
READY, DISCONNECT, DISCONNECT_REPLY, TERMINATE = range(32, 36)
KINDS = [*range(1, 8), *range(16, 21), *range(32, 36)]
REQUESTS = range(1, 8)
FIRST, LAST = 1, 2
WHOLE = FIRST | LAST
PAGE = 4096
BUFFERS_MAX = 4


class Failure(Exception):
    pass


def check(condition, what):
    if not condition:
        raise Failure(what)


def greeting(kind=REQUEST, private=b'', **fields):
    values = dict(magic=MAGIC, version=VERSION, private_len=len(private), extension=0, reserved=0, qp=0x1234,
                  params=(128, 128, 1, 7, 7, 0), reason=0, tail=0)
    values.update(fields)
    v = values
    return GREETING.pack(v['magic'], v['version'], kind, v['private_len'], v['extension'], v['reserved'], v['qp'],
                         *v['params'], v['reason'], v['tail']) + private


def frame(kind, seq=0, flags=None, code=0, addr=0, length=0, total=0, rkey=0, imm=b'\0\0\0\0', payload=b'', reserved=0):
    if flags is None:
        flags = WHOLE if kind in REQUESTS else 0
    return HEADER.pack(kind, flags, code, reserved, seq, addr, length, total, rkey, imm) + payload


def receive(sock, n):
    data = b''
    while len(data) < n:
        part = sock.recv(n - len(data))
        check(part, f'the other side ended after {len(data)} of {n} bytes')
        data += part
    return data


def receive_greeting(sock):
    fixed = receive(sock, GREETING.size)
    fields = GREETING.unpack(fixed)
    check(fields[0] == MAGIC and fields[1] == VERSION, f'not a greeting: {fixed!r}')
    return fields[2], receive(sock, fields[3] + fields[4])


def receive_frame(sock):
    names = ('kind', 'flags', 'code', 'reserved', 'seq', 'addr', 'length', 'total', 'rkey', 'imm')
    header = dict(zip(names, HEADER.unpack(receive(sock, HEADER.size))))
    payload = receive(sock, header['length']) if header['kind'] == READ_DATA else b''
    return header, payload


def wait_for_end(sock):
    """Until the other side has closed: then it has seen all that was sent to it."""
    try:
        while sock.recv(65536):
            pass
    except (ConnectionResetError, BrokenPipeError):
        pass
    except TimeoutError:
        raise Failure('the other side keeps a connection that has ended') from None


def no_more(sock):
    """Sends the end of the stream, if the other side has not ended it all."""
    try:
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def send_anyway(sock, data):
    """Sends what the other side will take; it may have had enough before the end."""
    try:
        sock.sendall(data)
    except (ConnectionResetError, BrokenPipeError):
        pass


def reset(sock):
    """Ends it as the kernel does for a killed process with unread data."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    sock.close()


class Peer:
    """A peer of the victim that has got as far as asked: connected, or established as well."""

    def __init__(self, bench, established=True, **fields):
        self.sock = bench.dial()
        self.sock.sendall(greeting(**fields))
        kind, _ = receive_greeting(self.sock)
        check(kind == RECEIVED, f'the first answer is of kind {kind}')
        kind, private = receive_greeting(self.sock)
        check(kind == REPLY, f'the second answer is of kind {kind}')
        check(len(private) == 21, f'{len(private)} bytes of private data')
        self.addr, self.size, self.rkey, _ = struct.unpack('<QQIB', private)
        self.seq = 0
        if established:
            self.sock.sendall(frame(READY))

    def request(self, kind, **fields):
        """A request with the next number, within the region unless told otherwise."""
        values = dict(seq=self.seq, addr=self.addr, rkey=self.rkey)
        values.update(fields)
        self.seq += 1
        return frame(kind, **values)

    def finish(self, data=b''):
        """Sends the last that it has to say, and waits until the other side has seen it."""
        send_anyway(self.sock, data)
        no_more(self.sock)
        wait_for_end(self.sock)
        self.sock.close()


class Bench:
    """A victim with a control client, and what can be seen of the two."""

    def __init__(self, options, *how):
        self.options = options
        self.victim = self.start('victim', options.addr, *how)
        self.port = self.expect(self.victim, 'port').split()[1]
        self.control = None
        self.rounds = 0
        if not how:
            self.control = self.start('control', options.addr, self.port)
            self.progress = threading.Condition()
            self.reader = threading.Thread(target=self.follow, daemon=True)
            self.reader.start()
            self.undisturbed()

    def start(self, name, *args):
        return subprocess.Popen([f'{self.options.bin}/{name}', *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @staticmethod
    def expect(process, word):
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if readable else '(nothing)'
        check(line.startswith(word), f'the process said "{line.strip()}", not "{word}"')
        return line

    def follow(self):
        for line in self.control.stdout:
            with self.progress:
                if line.startswith('round '):
                    self.rounds = int(line.split()[1])
                else:
                    self.last_word = line.strip()
                self.progress.notify_all()

    def undisturbed(self, rounds=20):
        """The control client gets on."""
        with self.progress:
            goal = self.rounds + rounds
            check(self.progress.wait_for(lambda: self.rounds >= goal or self.control.poll() is not None, PATIENCE),
                  f'the control connection is stuck in round {self.rounds}')
        check(self.control.poll() is None, f'the control client ended: {getattr(self, "last_word", "without a word")}')

    def serves(self):
        """A fresh client is served."""
        result = subprocess.run([f'{self.options.bin}/control', self.options.addr, self.port, '3'], stdout=subprocess.PIPE,
                                text=True, timeout=PATIENCE, check=False)
        check(result.returncode == 0 and result.stdout.endswith('end 3\n'), f'a fresh client: {result.stdout.strip()}')

    def dial(self):
        family = socket.AF_INET6 if ':' in self.options.addr else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE)
        sock.connect((self.options.addr, int(self.port)))
        return sock

    def ask_state(self):
        check(self.victim.poll() is None, f'the server ended with status {self.victim.poll()}')
        self.victim.stdin.write('state\n')
        self.victim.stdin.flush()
        _, live, accepted = self.expect(self.victim, 'state').split()
        return int(live.split('=')[1]), int(accepted.split('=')[1])

    def descriptors(self):
        """Open descriptors; without the receive buffers, of which there come to be as many as threads that receive at once."""
        names = []
        for fd in os.listdir(f'/proc/{self.victim.pid}/fd'):
            try:
                names.append(os.readlink(f'/proc/{self.victim.pid}/fd/{fd}'))
            except FileNotFoundError:
                # Closed meanwhile.
                pass
        buffers = sum(name.startswith('/memfd:') for name in names)
        check(buffers <= BUFFERS_MAX, f'{buffers} receive buffers')
        return len(names) - buffers

    def rss(self):
        """Memory in KiB that only this process has."""
        with open(f'/proc/{self.victim.pid}/status', encoding='ascii') as status:
            return next(int(line.split()[1]) for line in status if line.startswith('RssAnon:'))

    def wait_until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            check(time.monotonic() < deadline, f'not within {PATIENCE} s: {what()}')
            time.sleep(0.005)

    def wake(self):
        self.victim.stdin.write('wake\n')
        self.victim.stdin.flush()

    def settle(self, descriptors):
        """Nothing is left of the attackers; returns the descriptors that there are now, which may be fewer, as a connection's socket
        may be closed a moment after all else of it."""
        now = descriptors

        def settled():
            nonlocal now
            now = self.descriptors()
            return self.ask_state()[0] == 1 and now <= descriptors
        self.wait_until(settled, lambda: f'{self.ask_state()[0]} connections are left, {now} descriptors of {descriptors}')
        return now

    def end(self):
        if self.control:
            self.control.stdin.close()
            check(self.control.wait(PATIENCE) == 0, f'the control client: {getattr(self, "last_word", "")}')
            self.reader.join()
            check(self.last_word == f'end {self.rounds}', f'the control client: {self.last_word}')
            self.wait_until(lambda: self.ask_state()[0] == 0, lambda: 'the control connection is left')
        self.victim.stdin.write('quit\n')
        self.victim.stdin.flush()
        word = self.victim.stdout.read()
        check(self.victim.wait(PATIENCE) == 0 and word == 'end\n', f'the server: {word.strip()}')

    def kill(self):
        for process in (self.control, self.victim):
            if process and process.poll() is None:
                process.kill()
                process.wait()


# -- attacks on a server -----------------------------------------------------------------------------------------------
# Each gets the bench and leaves nothing behind.


def speaks_the_protocol(bench):
    """What follows would prove nothing if this peer were not understood."""
    peer = Peer(bench)
    data = bytes(range(256))
    peer.sock.sendall(peer.request(WRITE, length=256, total=256, payload=data) +
                      peer.request(ATOMIC_WRITE, addr=peer.addr + 512, length=0x11223344, total=0x55667788) +
                      peer.request(FLUSH, code=2, length=256))
    peer.sock.sendall(peer.request(READ, total=520))
    got = b''
    while len(got) < 520:
        header, payload = receive_frame(peer.sock)
        check(header['kind'] in (ACK, READ_DATA), f'a frame of kind {header["kind"]}')
        got += payload
    check(got == data + bytes(256) + bytes.fromhex('4433221188776655'), 'what was written is not what is read')
    peer.sock.sendall(peer.request(SEND, length=5, total=5, payload=b'hello'))
    while True:
        header = dict(zip(('kind', 'flags', 'code', 'reserved', 'seq', 'addr', 'length'),
                          HEADER.unpack(receive(peer.sock, HEADER.size))[:7]))
        if header['kind'] == SEND:
            break
        check(header['kind'] == ACK, f'a frame of kind {header["kind"]}')
    check(receive(peer.sock, header['length']) == b'hello', 'the echo')
    peer.sock.sendall(frame(ACK, seq=1) + frame(DISCONNECT))
    while receive_frame(peer.sock)[0]['kind'] != DISCONNECT_REPLY:
        pass
    peer.finish()


def garbage(bench):
    """Bytes that mean nothing; with a true beginning in half of the cases."""
    for seed in range(300):
        rng = random.Random(seed)
        data = rng.randbytes(rng.choice([1, 7, 31, 32, 33, 64, 100, 1000, 5000, 70000]))
        if seed % 2:
            data = greeting()[:rng.randrange(1, 33)] + data
        sock = bench.dial()
        send_anyway(sock, data)
        no_more(sock)
        wait_for_end(sock)
        sock.close()


def garbage_after_the_handshake(bench):
    for seed in range(300):
        rng = random.Random(seed)
        peer = Peer(bench, established=seed % 3 != 0)
        data = b''
        for _ in range(rng.randrange(1, 20)):
            # Kinds that exist, so that it gets further than the first check.
            data += bytes([rng.choice(KINDS), rng.choice([0, 1, 2, 3]), rng.choice([0, 0, 0, 1, 2]), 0])
            data += struct.pack('<I', rng.choice([0, 1, 2, 3, 0xffffffff])) + rng.randbytes(24) + rng.randbytes(rng.randrange(200))
        peer.finish(data)


def greetings_at_their_extremes(bench):
    good = greeting(private=bytes(range(56)))
    for at in range(GREETING.size):
        for value in (0, 1, 4, 5, 57, 0x7f, 0x80, 0xff):
            sock = bench.dial()
            send_anyway(sock, good[:at] + bytes([value]) + good[at + 1:] + frame(READY))
            no_more(sock)
            wait_for_end(sock)
            sock.close()
    # Every length that a greeting can be cut at.
    for cut in range(len(good)):
        sock = bench.dial()
        send_anyway(sock, good[:cut])
        no_more(sock)
        wait_for_end(sock)
        sock.close()


def silence_in_a_greeting(bench):
    """The server ends it; whoever is silent need not."""
    socks = [bench.dial() for _ in range(64)]
    for i, sock in enumerate(socks):
        sock.sendall(greeting()[:i % GREETING.size])
    bench.undisturbed()
    bench.serves()
    for sock in socks:
        wait_for_end(sock)
        sock.close()


def silence_after_the_reply(bench):
    """Half a handshake: the reply is never answered. The server's program hears of it."""
    before = bench.ask_state()[1]
    peers = [Peer(bench, established=False) for _ in range(32)]
    bench.undisturbed()
    bench.serves()
    check(bench.ask_state()[1] - before == 33, 'not all were accepted')
    # The victim deletes each connection when an event says that it will not be one, and then the socket ends.
    for peer in peers:
        wait_for_end(peer.sock)
        peer.sock.close()


def thousand_that_never_speak(bench):
    socks = [bench.dial() for _ in range(1000)]
    bench.undisturbed()
    bench.serves()
    for sock in socks:
        wait_for_end(sock)
        sock.close()


def more_than_a_listener_keeps(bench):
    """Of more silent ones than the listener has room for, the oldest go first, and others still get through."""
    socks = [bench.dial() for _ in range(1500)]
    bench.serves()
    bench.undisturbed()
    for sock in socks:
        wait_for_end(sock)
        sock.close()


def well_formed(peer, kind):
    """A frame of that kind which is right in itself, as fields."""
    fields = dict(kind=kind, flags=WHOLE if kind in REQUESTS else 0, code=0, reserved=0, seq=0, addr=peer.addr, length=0,
                  total=0, rkey=peer.rkey, imm=b'abcd')
    if kind in (SEND, SEND_IMM, WRITE, WRITE_IMM):
        fields.update(length=16, total=16)
    elif kind == READ:
        fields.update(total=16)
    elif kind == READ_DATA:
        fields.update(length=16)
    elif kind == FLUSH:
        fields.update(code=2, length=16)
    elif kind == NAK:
        fields.update(code=2)
    return fields


def frames_at_their_extremes(bench):
    """Every field of every kind at its extremes, the others being right. Sixteen bytes follow as payload."""
    words = [1, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 20, (1 << 20) + 1, PAGE, PAGE + 1]
    extremes = dict(
        flags=[0, 1, 2, 4, 7, 8, 0xff], code=[1, 3, 4, 7, 8, 0xff], reserved=[1, 0xff], seq=words, length=[0, *words],
        total=[0, *words], rkey=[0, 1, 0xffffffff])
    for kind in KINDS:
        peers = 0
        for name, values in [*extremes.items(), ('addr', None)]:
            for value in values or range(8):
                peer = Peer(bench)
                if name == 'addr':
                    value = [0, 1, (1 << 64) - 1, (1 << 63), (1 << 47), peer.addr + 1, peer.addr - 1, peer.addr + PAGE - 15][value]
                fields = well_formed(peer, kind)
                fields[name] = value
                fields['imm'] = b'\xff\xff\xff\xff'
                peer.finish(HEADER.pack(*(fields[key] for key in ('kind', 'flags', 'code', 'reserved', 'seq', 'addr',
                                                                  'length', 'total', 'rkey', 'imm'))) + bytes(16))
                peers += 1
        bench.undisturbed(1)
    # And the kinds that there are not.
    for kind in set(range(256)) - set(KINDS):
        peer = Peer(bench)
        peer.finish(frame(kind, flags=0))


def lengths_and_totals_together(bench):
    """A message's lengths go together or they are refused; nothing is stored beyond the region (the victim looks)."""
    words = [0, 1, 16, PAGE, PAGE + 1, 1 << 20, (1 << 20) + 1, 0x7fffffff, 0xffffffff]
    for kind in (SEND, WRITE, WRITE_IMM):
        for flags in (FIRST, LAST, WHOLE, 0):
            for length in words:
                for total in words:
                    if length > 1 << 20 and total != words[-1]:
                        continue
                    peer = Peer(bench)
                    peer.finish(peer.request(kind, flags=flags, length=length, total=total) + bytes(min(length, 2 * PAGE)))


def frames_out_of_state(bench):
    """Each list of frames is well-formed, and wrong where or when it comes."""
    def each(*lists):
        for make in lists:
            for established in (True, False):
                peer = Peer(bench, established)
                peer.finish(make(peer))

    # Answers to what was never asked.
    for kind in (ACK, NAK, READ_DATA, RNR_NAK, RNR_READY):
        for seq in (0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff):
            each(lambda p, k=kind, s=seq: frame(k, seq=s, code=1 if k == NAK else 0, length=8 if k == READ_DATA else 0,
                                                payload=bytes(8) if k == READ_DATA else b''))
    each(
        lambda p: greeting(),
        lambda p: greeting(kind=REPLY),
        lambda p: frame(READY) * 100,
        lambda p: frame(DISCONNECT_REPLY),
        lambda p: frame(DISCONNECT) * 100,
        lambda p: frame(DISCONNECT) + frame(TERMINATE) + frame(DISCONNECT_REPLY) + frame(READY),
        lambda p: frame(TERMINATE) * 100,
        lambda p: frame(TERMINATE) + p.request(WRITE, length=8, total=8, payload=bytes(8)) + p.request(READ, total=8),
        lambda p: frame(DISCONNECT) + p.request(SEND, length=8, total=8, payload=bytes(8)) * 20,
        # Numbers.
        lambda p: p.request(WRITE, seq=1, length=8, total=8, payload=bytes(8)),
        lambda p: p.request(WRITE, seq=0, length=8, total=8, payload=bytes(8)) * 2,
        lambda p: p.request(READ, seq=0, total=8) + p.request(READ, seq=2, total=8),
        # Segments.
        lambda p: p.request(WRITE, flags=FIRST, length=8, total=16, payload=bytes(8)),
        lambda p: p.request(WRITE, flags=LAST, length=8, total=16, payload=bytes(8)),
        lambda p: p.request(WRITE, flags=0, length=8, total=16, payload=bytes(8)),
        lambda p: p.request(WRITE, flags=FIRST, length=8, total=16, payload=bytes(8)) * 2,
        lambda p: p.request(WRITE, seq=0, flags=FIRST, length=8, total=16, payload=bytes(8)) + p.request(READ, seq=0, total=8),
        lambda p: p.request(WRITE, seq=0, flags=FIRST, length=8, total=16, payload=bytes(8)) +
        p.request(SEND, seq=0, flags=LAST, length=8, total=16, payload=bytes(8)),
        lambda p: p.request(SEND, seq=0, flags=FIRST, length=8, total=16, payload=bytes(8)) +
        p.request(SEND, seq=0, flags=LAST, length=9, total=17, payload=bytes(9)),
        lambda p: p.request(SEND, seq=0, flags=FIRST, length=8, total=16, payload=bytes(8)) +
        p.request(SEND, seq=0, flags=LAST, length=7, total=16, payload=bytes(7)),
        lambda p: p.request(SEND, seq=0, flags=FIRST, length=8, total=0xffffffff, payload=bytes(8)) + frame(DISCONNECT),
        # More messages than there are receives, each a whole one; the victim echoes and nobody acknowledges.
        lambda p: b''.join(p.request(SEND, length=64, total=64, payload=bytes(64)) for _ in range(100)),
        lambda p: b''.join(p.request(WRITE_IMM, length=64, total=64, payload=bytes(64)) for _ in range(100)),
        # Reads beyond what was agreed on.
        lambda p: b''.join(p.request(READ, total=PAGE) for _ in range(1000)),
        # After a refusal.
        lambda p: p.request(READ, rkey=p.rkey ^ 1, total=8) + b''.join(p.request(READ, total=8) for _ in range(50)),
        # A message longer than the receive.
        lambda p: p.request(SEND, length=65, total=65, payload=bytes(65)),
        lambda p: p.request(SEND, flags=FIRST, length=1 << 20, total=1 << 21, payload=bytes(1 << 20)),
        # A frame that never ends.
        lambda p: p.request(WRITE, length=PAGE, total=PAGE, payload=bytes(PAGE - 1)),
        lambda p: p.request(SEND, length=64, total=64, payload=bytes(63)),
        *(lambda p, n=n: p.request(READ, total=8)[:n] for n in range(HEADER.size)),
    )


def reads_agreed_to_be_none(bench):
    for params in ((0, 0, 0, 0, 0, 0), (255, 255, 255, 255, 255, 255), (0, 255, 1, 7, 7, 1)):
        peer = Peer(bench, params=params)
        peer.finish(b''.join(peer.request(READ, total=PAGE) for _ in range(300)))


def stops_reading(bench):
    """Asks for much and takes none of it. The server's memory does not pay for that."""
    before = bench.rss()
    peers = []
    for _ in range(8):
        peer = Peer(bench)
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sock.settimeout(None)
        peer.sock.setblocking(False)
        sent = 0
        # Never more than 100 reads are unanswered at a time as the server counts them: it may do with them as it likes.
        data = b''.join(peer.request(READ, total=PAGE) for _ in range(100)) + \
            b''.join(peer.request(FLUSH, code=1, length=8) for _ in range(100000))
        while sent < len(data):
            try:
                sent += peer.sock.send(data[sent:sent + 65536])
            except BlockingIOError:
                # Time for a busy server; one that has stopped reading will not go on.
                if not select.select([], [peer.sock], [], 2)[1]:
                    break
            except (ConnectionResetError, BrokenPipeError):
                break
        peers.append(peer)
    bench.undisturbed()
    bench.serves()
    grown = bench.rss() - before
    check(grown < 4096, f'{grown} KiB more for 8 peers that do not read')
    for peer in peers:
        reset(peer.sock)


# The points at which a peer is killed: after so many bytes of this.
def a_life(peer_addr, rkey):
    return (frame(READY) + frame(WRITE, seq=0, addr=peer_addr, rkey=rkey, length=100, total=100, payload=bytes(100)) +
            frame(READ, seq=1, addr=peer_addr, rkey=rkey, total=100) +
            frame(SEND, seq=2, length=64, total=64, payload=bytes(64)) +
            frame(WRITE, seq=3, flags=FIRST, addr=peer_addr, rkey=rkey, length=50, total=100, payload=bytes(50)) +
            frame(WRITE, seq=3, flags=LAST, addr=peer_addr, rkey=rkey, length=50, total=100, payload=bytes(50)) + frame(DISCONNECT))


def gone_at_any_byte(bench):
    """A peer that vanishes after each byte of its life; with the end of the stream, and with a reset."""
    whole = greeting(private=b'x')
    for abrupt in (False, True):
        for cut in range(len(whole) + 1):
            sock = bench.dial()
            sock.sendall(whole[:cut])
            if abrupt:
                reset(sock)
            else:
                sock.close()
        length = len(a_life(0, 0))
        for cut in range(0, length, 3):
            peer = Peer(bench, established=False)
            peer.sock.sendall(a_life(peer.addr, peer.rkey)[:cut])
            if abrupt:
                reset(peer.sock)
            else:
                peer.sock.close()


def killed_at_any_moment(bench):
    """Real clients, killed in their course: after each of their first rounds, and before the first."""
    for n in range(60):
        process = bench.start('control', bench.options.addr, bench.port)
        if n % 3:
            rounds = n // 3
            for _ in range(rounds):
                bench.expect(process, 'round ')
        else:
            # Wherever it is by the time that the server has one more, or not.
            for _ in range(n // 3):
                bench.ask_state()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


ATTACKS = [
    speaks_the_protocol, garbage, garbage_after_the_handshake, greetings_at_their_extremes, silence_in_a_greeting,
    silence_after_the_reply, thousand_that_never_speak, more_than_a_listener_keeps, frames_at_their_extremes,
    lengths_and_totals_together, frames_out_of_state, reads_agreed_to_be_none, stops_reading, gone_at_any_byte,
    killed_at_any_moment,
]


# -- attacks that need a bench of their own ------------------------------------------------------------------------------


def flood_that_asks_for_answers(options):
    """A server whose program is busy elsewhere, and a peer that asks it for the end again and again and reads nothing."""
    bench = Bench(options, 'lazy')
    try:
        peer = Peer(bench)
        # Seen by the server's fabric: it has acknowledged a request.
        peer.sock.sendall(peer.request(WRITE, length=8, total=8, payload=bytes(8)))
        check(receive_frame(peer.sock)[0]['kind'] == ACK, 'no acknowledgment')
        before = bench.rss()
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sock.setblocking(False)
        data, left = frame(DISCONNECT) * 2048, 32 << 20
        while left > 0:
            try:
                left -= peer.sock.send(data)
            except BlockingIOError:
                # Time for a busy server; one that has stopped reading will not go on.
                if not select.select([], [peer.sock], [], 5)[1]:
                    break
            except (ConnectionResetError, BrokenPipeError):
                break
        grown = bench.rss() - before
        check(grown < 2048, f'{grown} KiB more after {(32 << 20) - left >> 10} KiB of requests for the end')
        bench.wake()
        reset(peer.sock)
        bench.wait_until(lambda: bench.ask_state()[0] == 0, lambda: 'the connection is left')
        bench.end()
    finally:
        bench.kill()


def requests_that_nobody_decides(options):
    """A server whose program does not take requests: some wait, the others are refused at once, all are done with later."""
    bench = Bench(options, 'deaf')
    try:
        socks, waiting, refused = [], 0, 0
        for _ in range(1500):
            sock = bench.dial()
            sock.sendall(greeting())
            kind, _ = receive_greeting(sock)
            check(kind in (RECEIVED, REJECT), f'an answer of kind {kind}')
            waiting += kind == RECEIVED
            refused += kind == REJECT
            socks.append(sock)
        check(waiting > 0 and refused > 0, f'{waiting} wait, {refused} were refused')
        for i, sock in enumerate(socks):
            # In all ways of going away; some stay to see themselves accepted, and go then.
            if i % 3 == 0:
                reset(sock)
            elif i % 3 == 1:
                sock.close()
        bench.wake()
        bench.wait_until(lambda: bench.ask_state()[1] > 0, lambda: 'none was accepted')
        for sock in socks[2::3]:
            sock.close()
        bench.wait_until(lambda: bench.ask_state()[0] == 0, lambda: f'{bench.ask_state()[0]} connections are left')
        bench.serves()
        bench.wait_until(lambda: bench.ask_state()[0] == 0, lambda: 'the fresh client is left')
        bench.end()
        return f'{waiting} waited, {refused} were refused'
    finally:
        bench.kill()


def more_than_there_are_descriptors(options):
    """With its descriptors used up, a server waits for some to come free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        bench = Bench(options)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        before = bench.descriptors()
        socks = [bench.dial() for _ in range(200)]
        bench.undisturbed()
        for sock in socks:
            sock.close()
        bench.settle(before)
        bench.serves()
        bench.settle(before)
        bench.end()
    finally:
        bench.kill()


def hostile_server(options):
    """A client that meets a server which answers with all kinds of things comes to an end in good order."""
    family = socket.AF_INET6 if ':' in options.addr else socket.AF_INET
    # The descriptor of a page somewhere; the client will ask for it.
    descriptor = struct.pack('<QQIB', 0x10000, PAGE, 0x1234, 0x3f)
    good = greeting(kind=RECEIVED) + greeting(kind=REPLY, private=descriptor)
    answers = {
        'nothing': (b'', 'refused'),
        'garbage': (random.Random(1).randbytes(1000), 'refused'),
        'a request': (greeting(kind=REQUEST), 'refused'),
        'half': (good[:40], 'refused'),
        'a refusal': (greeting(kind=RECEIVED) + greeting(kind=REJECT, private=b'no'), 'refused'),
        'received for ever': (greeting(kind=RECEIVED) * 1000, 'refused'),
        'too much private data': (greeting(kind=REPLY, private_len=197) + bytes(197), 'refused'),
        'another version': (greeting(kind=REPLY, version=2), 'refused'),
        'no more': (good, 'established'),
        'garbage later': (good + random.Random(2).randbytes(1000), 'established'),
        'no depth': (greeting(kind=REPLY, private=descriptor, params=(0, 0, 0, 0, 0, 0)), 'established'),
    }
    for kind in KINDS:
        for seq in (0, 1, 3, 4, 0xffffffff):
            for length in (0, 8, 256, 257, 1 << 20, 0xffffffff):
                code = 2 if kind == NAK else 1 if kind == FLUSH else 0
                total = length if kind in (SEND, SEND_IMM, WRITE, WRITE_IMM) else 0
                answers[f'kind {kind} seq {seq} length {length}'] = (
                    good + frame(kind, seq=seq, code=code, length=length, total=total) + bytes(min(length, 1 << 20)), 'established')
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((options.addr, 0))
    listener.listen(16)
    listener.settimeout(PATIENCE)
    port = str(listener.getsockname()[1])
    outcomes = {}
    for name, (answer, want) in answers.items():
        process = subprocess.Popen([f'{options.bin}/caller', options.addr, port], stdout=subprocess.PIPE, text=True)
        try:
            # The client may come back if its first connection ends without an answer.
            while process.poll() is None:
                readable, _, _ = select.select([listener, process.stdout], [], [], PATIENCE)
                check(readable, f'{name}: the client hangs')
                if listener not in readable:
                    break
                sock, _ = listener.accept()
                sock.settimeout(PATIENCE)
                try:
                    receive_greeting(sock)
                    send_anyway(sock, answer)
                    no_more(sock)
                    wait_for_end(sock)
                except (Failure, OSError):
                    # It has gone already.
                    pass
                sock.close()
            said, _ = process.communicate(timeout=PATIENCE)
        except (Failure, subprocess.TimeoutExpired) as failure:
            raise Failure(f'{name}: {failure}') from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        check(process.returncode == 0 and said.endswith('end\n'), f'{name}: status {process.returncode}, {said.strip()}')
        check(said.startswith(want), f'{name}: {said.splitlines()[0]}, not {want}')
        outcomes[said.splitlines()[0]] = outcomes.get(said.splitlines()[0], 0) + 1
    listener.close()
    return ', '.join(f'{count} {word}' for word, count in sorted(outcomes.items()))


ALONE = [flood_that_asks_for_answers, requests_that_nobody_decides, more_than_there_are_descriptors, hostile_server]


# -- running them --------------------------------------------------------------------------------------------------------

# Allocators keep something back, and page by page at that; a leak of one connection's memory each time would be far more.
GROWTH_MAX = 1024  # KiB from one pass to the next


def verdict(name, run):
    start = time.monotonic()
    try:
        told = run()
        print(f'PASS {name} ({time.monotonic() - start:.2f} s)' + (f'\n     {told}' if told else ''), flush=True)
        return True
    except (Failure, OSError, TimeoutError, subprocess.SubprocessError) as failure:
        print(f'FAIL {name} ({time.monotonic() - start:.2f} s)\n     {type(failure).__name__}: {failure}', flush=True)
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--addr', default='127.0.0.1')
    parser.add_argument('--passes', type=int, default=1, help='how often all run after the pass that is the measure')
    parser.add_argument('--list', action='store_true')
    parser.add_argument('names', nargs='*')
    options = parser.parse_args()
    everything = [f.__name__ for f in ATTACKS + ALONE] + ['memory']
    if options.list:
        print('\n'.join(everything))
        return 0
    unknown = set(options.names) - set(everything)
    if unknown:
        print(f'attack: no test {", ".join(sorted(unknown))}', file=sys.stderr)
        return 2
    # This process holds the other ends.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    # A core of a server that crashed would only be in the way.
    ctypes.CDLL(None).prctl(4, 1)

    def wanted(functions):
        return [f for f in functions if not options.names or f.__name__ in options.names]

    attacks = wanted(ATTACKS)
    results = []
    bench = None
    idle = 0

    def run_in_bench(attack):
        nonlocal idle
        attack(bench)
        check(bench.victim.poll() is None, 'the server ended')
        idle = bench.settle(idle)
        bench.undisturbed(5)

    def new_bench():
        nonlocal bench, idle
        bench = Bench(options)
        # Once, for what is opened with the first use.
        speaks_the_protocol(bench)
        bench.wait_until(lambda: bench.ask_state()[0] == 1, lambda: 'a connection that was closed in good order is left')
        idle = bench.descriptors()

    if attacks or 'memory' in options.names:
        if not attacks:
            attacks = ATTACKS
        new_bench()
        try:
            for attack in attacks:
                results.append(verdict(attack.__name__, lambda a=attack: run_in_bench(a)))
                if not results[-1]:
                    # Each has a fair start.
                    bench.kill()
                    new_bench()
            if all(results) and (not options.names or 'memory' in options.names):
                def again():
                    figures = [bench.rss()]
                    for _ in range(options.passes):
                        for attack in attacks:
                            run_in_bench(attack)
                        figures.append(bench.rss())
                        check(figures[-1] - figures[-2] < GROWTH_MAX, f'KiB of memory after each pass: {figures}')
                    accepted = bench.ask_state()[1]
                    return f'KiB of memory after each pass: {figures}; {accepted} connections were accepted'

                results.append(verdict('memory', again))
            results.append(verdict('in_good_order', bench.end))
        finally:
            bench.kill()
    for attack in wanted(ALONE):
        results.append(verdict(attack.__name__, lambda a=attack: a(options)))
    print(f'{sum(results)} passed, {len(results) - sum(results)} failed')
    return 0 if all(results) else 1


if __name__ == '__main__':
    sys.exit(main())
