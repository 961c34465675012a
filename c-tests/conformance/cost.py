#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright 2026, The rpma developers

"""Instructions per call of every data-path function, ours beside the original's.

Counted by callgrind over a provider that does nothing, so the figures are the same on every run of
the same binaries. Ours may not cost more in any row.
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CALLS = 1000
# Rows in which the original does something else than ours: 1.2.0 has no native operations.
NATIVE_SINCE = (1, 3)


def measure(path, build, ways):
    rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        os.symlink(os.path.abspath(path), os.path.join(scratch, 'librpma.so.0'))
        env = dict(os.environ, LD_BIND_NOW='1', RPMA_FABRIC='verbs',
                   LD_LIBRARY_PATH=f'{scratch}:{os.path.join(build, "provider")}')
        for way in ways:
            out = os.path.join(scratch, way)
            ran = subprocess.run(['valgrind', '-q', '--tool=callgrind', f'--callgrind-out-file={out}',
                                  os.path.join(build, 'cost'), way], env=env, timeout=300)
            if ran.returncode:
                sys.exit(f'{path}: the cost program ended with {ran.returncode}')
            for dump in sorted(glob.glob(out + '.*'), key=lambda name: int(name.rpartition('.')[2])):
                text = open(dump).read()
                name = re.search(r'^desc: Trigger: Client Request: (.*)$', text, re.M)
                if name:
                    rows[name[1]] = int(re.search(r'^summary: (\d+)', text, re.M)[1]) / CALLS
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--oracle', required=True)
    parser.add_argument('--oracle-version', default='1.2.0')
    parser.add_argument('--ours', required=True)
    parser.add_argument('--build', default=os.path.join(HERE, 'build'))
    options = parser.parse_args()

    version = tuple(int(part) for part in options.oracle_version.split('.')[:2])
    ways = ['plain', 'native'] if version >= NATIVE_SINCE else ['plain']
    oracle = measure(options.oracle, options.build, ways)
    ours = measure(options.ours, options.build, ways)
    if oracle.keys() != ours.keys() or not oracle:
        sys.exit(f'rows differ: {sorted(oracle.keys() ^ ours.keys())}')

    print(f'| instructions per call | original {options.oracle_version} | ours |')
    print('|---|---:|---:|')
    dearer = 0
    for name in oracle:
        more = ours[name] > oracle[name]
        dearer += more
        print(f'| {name} | {oracle[name]:.0f} | {ours[name]:.0f}{" (more)" if more else ""} |')
    print(f'cost: {len(oracle) - dearer} passed, {dearer} failed')
    sys.exit(1 if dearer else 0)


if __name__ == '__main__':
    main()
