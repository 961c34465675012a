#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright 2026, The rpma developers

"""Runs every scenario with two librpma binaries over the scripted provider and compares.

For each scenario: as it is, then with every call of the provider made to fail in turn, with each
errno that is told apart anywhere, then with two calls failing, then with every allocation failing.
Combinations that resemble each other are left out, unless --full asks for them.
A difference is either in the list of intended deviations or a failure of the run; so is a listed
deviation that never shows.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile

import documented

HERE = os.path.dirname(os.path.abspath(__file__))

# What each function of the provider is made to answer: e is the conventional failure with that
# errno, r a raw return value. EIO stands for all that nobody tells apart.
EPERM, EINTR, EIO, EAGAIN, ENOMEM, EFAULT, EINVAL, ENODATA, EOPNOTSUPP = (
    1, 4, 5, 11, 12, 14, 22, 61, 95)
ANSWERS = collections.defaultdict(lambda: [f'e{EIO}', f'e{ENOMEM}', 'r-1'], {
    'ibv_alloc_pd': [f'e{EIO}', f'e{ENOMEM}', 'e0', f'e{EAGAIN}'],
    'ibv_reg_mr': [f'e{EIO}', f'e{ENOMEM}', f'e{EOPNOTSUPP}', 'e0'],
    'ibv_advise_mr': [f'e{e}' for e in (EIO, EFAULT, EINVAL, EOPNOTSUPP, ENOMEM, EPERM)] + ['r-1'],
    'ibv_create_comp_channel': [f'e{EIO}', 'e0'],
    'ibv_create_cq': [f'e{EIO}', f'e{EINVAL}', 'e0'],
    'ibv_create_srq': [f'e{EIO}', f'e{ENOMEM}', 'e0'],
    'ibv_get_cq_event': [f'e{EIO}', f'e{EAGAIN}', f'e{EINTR}', 'r1'],
    'ibv_poll_cq': ['r-1', 'r-22', 'r0', 'r1000'],
    'ibv_post_send': [f'e{ENOMEM}', f'e{EINVAL}', 'r-1'],
    'ibv_post_recv': [f'e{ENOMEM}', 'r-1'],
    'ibv_post_srq_recv': [f'e{ENOMEM}', 'r-1'],
    'rdma_create_event_channel': [f'e{EIO}', 'e0'],
    'rdma_create_qp_ex': [f'e{EIO}', f'e{ENOMEM}', f'e{EINVAL}', f'e{EOPNOTSUPP}', 'r1'],
    'rdma_get_cm_event': [f'e{e}' for e in (EIO, EAGAIN, ENODATA, EINTR)] + ['r1'],
    # -1 with errno, and what a resolver answers: EAI_NONAME, EAI_SYSTEM, something positive
    'rdma_getaddrinfo': [f'e{EIO}', 'r-2', 'r-11', 'r1'],
})
# Calls that cannot fail.
VOID = {'ibv_ack_cq_events', 'rdma_destroy_qp', 'rdma_destroy_event_channel', 'rdma_freeaddrinfo',
        'wr_start', 'wr_flush', 'wr_atomic_write', 'wr_abort'}
# Where a call repeats, its later repetitions fail in one way only, and where they are many of a kind,
# only some of them fail unless all are asked for.
ALL_WAYS_UP_TO = 12
SAMPLED = re.compile(r'usages/')
SAMPLE = 16
# Asked once by some versions and three times by others, and not told when answered: only the
# first question is the same one.
LOOK_UPS = ['ibv_query_device_ex#1=e5', 'ibv_query_device_ex#1=e12', 'ibv_query_device_ex#1=r-1',
            'ibv_query_device#1=e5']
# The self-test's ways to be wrong (wrong.c), each with scenarios in which it must show.
WRONG = {'value': 'args_config|config_values', 'work-request': 'operations', 'pointer': 'peer',
         'code': 'descriptors', 'crash': 'args_completion', 'hang': 'nothing', 'errno': 'life/active$',
         'record': 'life/active$', 'leak': 'srq_life', 'extra-call': 'waits/active$',
         'out-of-memory': 'peer/plain', 'text': 'texts'}
# Two failures in one run are tried where the second may meet a clean-up: in the same public call, and in
# some scenarios, or in all if all are asked for, anywhere after it.
PAIRS_IN = re.compile(r'(life|undecided|bad_connect|endpoint|outlives|waits|srq_life)\b')
DISTANT_PAIRS_IN = re.compile(r'(life/active\+shared\+rcq|life/passive\+rcq|undecided/passive\+shared|endpoint)\|')
# What the device is, beside the default, for scenarios where it matters.
DEVICES = [
    (r'peer/', ['odp=7', 'odp=7 iwarp=1', 'no_extended_ops=1']),
    (r'advise$', ['no_extended_ops=1']),
    (r'life/', ['empty_errno=11']),
    (r'life/active$', ['odp=7', 'iwarp=1']),
    (r'events/', ['empty_errno=11', 'empty_errno=4']),
    (r'usages/infiniband', ['odp=7']),
]
# Registration refused, then refused again with on-demand paging.
TWICE = ['ibv_reg_mr#1=e95 ibv_reg_mr#2=e5', 'ibv_reg_mr#1=e95 ibv_reg_mr#2=e95', 'ibv_reg_mr#*=e95']

# Variants on devices with native flush or native atomic write, of which 1.2.0 knows nothing: there is
# nothing to compare, except where ours must do without them too.
NATIVE = re.compile(r'(atomic-write|[/+]flush(\+|$|\|))')
WITHOUT_NATIVE = re.compile(r'old-userland')
# Scenarios whose point is not in the provider's answers, or that part from the original on purpose
# before anything could fail alike.
NO_FAILURES = re.compile(r'^(long_operations|unknown_flush|thresholds|default_log|texts)|old-userland')

# One call of the provider in a trace. Moving an id back to a channel of its own is no call that can be
# made to fail; rejecting and releasing an id count by the id (rdmacm.c).
CALL = re.compile(r'^    (?!rdma_migrate_id\(id#\d+, NULL\))(\w+)\('
                  r'(?:(?:(?<=rdma_destroy_id\()|(?<=rdma_reject\())id#(\d+))?', re.M)


class Library:
    """One librpma binary, and the process that runs cases with it."""

    def __init__(self, name, path, build, scratch, preload=None):
        self.name = name
        self.build = build
        directory = os.path.join(scratch, name)
        os.makedirs(directory)
        os.symlink(os.path.abspath(path), os.path.join(directory, 'librpma.so.0'))
        self.env = dict(os.environ, RPMA_FABRIC='verbs', LC_ALL='C', LD_LIBRARY_PATH=':'.join(
            [directory, os.path.join(build, 'provider')]))
        if preload:
            self.env['LD_PRELOAD'] = preload
        self.scratch = directory

    def start(self, cases):
        asked = os.path.join(self.scratch, 'cases')
        with open(asked, 'w') as out:
            out.write(''.join(case + '\n' for case in cases))
        self.output = open(os.path.join(self.scratch, 'traces'), 'w+')
        self.process = subprocess.Popen([os.path.join(self.build, 'scenarios')], stdin=open(asked),
                                        stdout=self.output, env=self.env)

    def finish(self, timeout):
        code = self.process.wait(timeout)
        self.output.seek(0)
        text = self.output.read()
        self.output.close()
        if code != 0:
            sys.exit(f'{self.name}: the scenario program ended with {code}')
        traces = {}
        for trace in text.split('=== ')[1:]:
            case, _, rest = trace.partition('\n')
            traces[case] = rest
        return traces


def run_both(libraries, cases, timeout=600):
    """The traces of all cases, one dictionary a library, both libraries at the same time."""
    for library in libraries:
        library.start(cases)
    return [library.finish(timeout) for library in libraries]


def blocks(trace):
    """A trace cut into the public calls: a label each, and the lines under it."""
    found = []
    for line in trace.rstrip('\n').split('\n'):
        if line.startswith('    live ') or line.startswith('---'):
            if not found or found[-1][0] != 'the end':
                found.append(('the end', []))
            found[-1][1].append(line)
        elif line.startswith(' '):
            if not found:
                found.append(('the beginning', []))
            found[-1][1].append(line)
        else:
            found.append((line, []))
    return found


class Deviation:
    """One intended difference: where, which lines go, which come, why."""

    def __init__(self, name):
        self.name = name
        self.case = self.call = re.compile('')
        self.oracle = None
        self.gone = []
        self.come = []
        self.ends_case = False
        self.reason = []
        self.seen = 0

    def explains(self, case, label, gone, come):
        """The lines left over when this deviation is taken out, or None where it is not it."""
        if not self.case.search(case) or not self.call.search(label):
            return None
        groups = {'last': re.escape(last_errno(case))}
        gone, come = list(gone), list(come)
        for lines, patterns in ((gone, self.gone), (come, self.come)):
            for optional, pattern in patterns:
                filled = re.sub(r'\{(\w+)\}', lambda m: groups.get(m[1], m[0]), pattern)
                matches = [(line, re.fullmatch(filled, line.strip())) for line in lines]
                matches = [(line, match) for line, match in matches if match]
                if not matches and not optional:
                    return None
                for line, match in matches:
                    groups.update({k: re.escape(v) for k, v in match.groupdict().items()
                                   if v is not None})
                    lines.remove(line)
        return gone, come


ERRNO_NAMES = {EPERM: 'EPERM', EINTR: 'EINTR', EIO: 'EIO', EAGAIN: 'EAGAIN', ENOMEM: 'ENOMEM',
               EFAULT: 'EFAULT', EINVAL: 'EINVAL', ENODATA: 'ENODATA', EOPNOTSUPP: 'EOPNOTSUPP', 0: '0'}


def last_errno(case):
    """What errno is after the last call that the script lets fail."""
    failures = re.findall(r'#\S+=([er])(-?\d+)', case)
    if not failures:
        return 'none'
    way, number = failures[-1]
    return ERRNO_NAMES[int(number)] if way == 'e' else number


def load_deviations(path, oracle):
    """Paragraphs of `key: value`; see the file's own head for the keys."""
    deviations, current = [], None
    with open(path) as text:
        for number, line in enumerate(text, 1):
            line = line.rstrip('\n')
            if not line.strip() or line.startswith('#'):
                continue
            key, colon, value = line.partition(':')
            value = value.strip()
            if not colon:
                sys.exit(f'{path}:{number}: no key')
            if key == 'deviation':
                current = Deviation(value)
                deviations.append(current)
            elif key in ('case', 'call', 'oracle'):
                setattr(current, key, re.compile(value))
            elif key in ('-', '+', '-?', '+?'):
                (current.gone if key[0] == '-' else current.come).append((key.endswith('?'), value))
            elif key == 'then':
                current.ends_case = value == 'the case ends'
            elif key == 'reason':
                current.reason.append(value)
            else:
                sys.exit(f'{path}:{number}: unknown key {key}')
    for deviation in deviations:
        if not deviation.reason:
            sys.exit(f'{path}: {deviation.name} gives no reason')
    return [d for d in deviations if None in (oracle, d.oracle) or d.oracle.fullmatch(oracle)]


def line_difference(one, other):
    """Lines only in the one and lines only in the other, order kept: a longest common subsequence
    by lines would do as well, but the blocks are short and a changed order must show."""
    import difflib
    gone, come = [], []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag != 'equal':
            gone += one[a:b]
            come += other[c:d]
    return gone, come


class Comparison:
    """Counts cases, keeps what differs without being listed."""

    def __init__(self, deviations):
        self.deviations = deviations
        self.cases = 0
        self.calls = 0
        self.deviating = set()
        self.unlisted = collections.OrderedDict()
        self.unlisted_count = 0
        self.explained = {}
        self.seen = documented.Seen()

    def explain(self, case, label, oracle, ours):
        """What differs and no deviation explains, and the deviations that explain the rest."""
        gone, come = line_difference(oracle, ours)
        used = []
        for deviation in self.deviations:
            if not gone and not come:
                break
            left = deviation.explains(case, label, gone, come)
            if left is not None and left != (gone, come):
                gone, come = left
                used.append(deviation)
        return gone, come, used

    def block(self, case, about, label, oracle, ours):
        """True if the rest of the case is still to be compared. `about` is what explanations depend on
        besides the block: the same blocks come again and again."""
        key = (about, label, '\n'.join(oracle), '\n'.join(ours))
        if key not in self.explained:
            self.explained[key] = self.explain(case, label, oracle, ours)
        gone, come, used = self.explained[key]
        if gone or come:
            self.miss(case, label, gone, come)
            return True
        for deviation in used:
            deviation.seen += 1
            self.deviating.add(case)
        return not any(deviation.ends_case for deviation in used)

    def miss(self, case, label, gone, come):
        self.unlisted_count += 1
        # one example of each kind: numbers of objects do not make a kind
        kind = re.sub(r'#\d+', '#', f'{re.sub(r"[(].*", "", label)} {gone} {come}')
        self.unlisted.setdefault(kind, []).append((case, label, gone, come))

    def case(self, case, oracle, ours):
        self.cases += 1
        self.seen.trace(ours)
        if oracle == ours:
            self.calls += oracle.count('\n  -> ')
            return
        about = (last_errno(case), tuple(bool(d.case.search(case)) for d in self.deviations))
        one, other = blocks(oracle), blocks(ours)
        for index in range(max(len(one), len(other))):
            a = one[index] if index < len(one) else ('nothing', [])
            b = other[index] if index < len(other) else ('nothing', [])
            if a[0] != b[0]:
                self.miss(case, a[0], [a[0]], [b[0]])
                return
            self.calls += 1
            if a[1] != b[1] and not self.block(case, about, a[0], a[1], b[1]):
                return


def failing_calls(trace, after=None, anywhere=True):
    """The calls of the provider in a trace that can be made to fail, as function and number: all, or
    those after one of them, in the same public call or anywhere."""
    counts = collections.Counter()
    calls, end = [], len(trace)
    for match in CALL.finditer(trace):
        function, own_number = match.groups()
        if match.start() > end:
            break
        if function in VOID:
            continue
        counts[function] = int(own_number) if own_number else counts[function] + 1
        call = (function, counts[function])
        if after is None:
            calls.append(call)
        elif call == after:
            after = None
            if not anywhere:
                end = re.compile(r'\n(?! )').search(trace, match.end()).start()
    return calls


def chunks(items, size):
    for start in range(0, len(items), size):
        yield items[start:start + size]


def compare_failures(libraries, comparison, base, native, full, progress):
    names = subprocess.run([os.path.join(libraries[0].build, 'scenarios'), '--list'],
                           env=libraries[0].env, capture_output=True, text=True,
                           check=True).stdout.split()
    if base:
        names = [name for name in names if re.search(base, name)]
    plain = []
    for name in names:
        if not native and NATIVE.search(name) and not WITHOUT_NATIVE.search(name):
            continue
        plain.append(f'{name}|')
        for pattern, devices in DEVICES:
            if re.match(pattern, name):
                plain += [f'{name}|{device}' for device in devices]
    oracle, ours = run_both(libraries, plain)
    for case in plain:
        comparison.case(case, oracle[case], ours[case])
    progress('as it is', comparison)

    failing, pair_bases = [], []
    for case in plain:
        if NO_FAILURES.search(case):
            continue
        space = '' if case.endswith('|') else ' '
        for function, nth in failing_calls(oracle[case]):
            answers = ANSWERS[function] if nth <= ALL_WAYS_UP_TO else ANSWERS[function][:1]
            if nth > ALL_WAYS_UP_TO and nth % SAMPLE and SAMPLED.match(case) and not full:
                continue
            for number, answer in enumerate(answers):
                made = f'{case}{space}{function}#{nth}={answer}'
                failing.append(made)
                if number == 0 and space == '' and PAIRS_IN.match(case):
                    pair_bases.append((made, function, nth))
        if 'ibv_alloc_pd(' in oracle[case]:
            failing += [f'{case}{space}{answer}' for answer in LOOK_UPS]
        if 'ibv_reg_mr(' in oracle[case]:
            failing += [f'{case}{space}{answer}' for answer in TWICE]
    first_failing = {}
    wanted = {made for made, _, _ in pair_bases}
    for chunk in chunks(failing, 4000):
        oracle, ours = run_both(libraries, chunk)
        for case in chunk:
            comparison.case(case, oracle[case], ours[case])
            if case in wanted:
                first_failing[case] = oracle[case]
    progress('one call failing', comparison)

    pairs = []
    for made, function, nth in pair_bases:
        anywhere = full or DISTANT_PAIRS_IN.match(made)
        for second, second_nth in failing_calls(first_failing[made], (function, nth), anywhere):
            pairs.append(f'{made} {second}#{second_nth}={ANSWERS[second][0].replace("e5", "e14")}')
    for chunk in chunks(pairs, 4000):
        oracle, ours = run_both(libraries, chunk)
        for case in chunk:
            comparison.case(case, oracle[case], ours[case])
    progress('two calls failing', comparison)
    return names


def compare_allocations(libraries, comparison, names, progress):
    """Where the original runs out of memory, so must ours: the same code, nothing left behind.

    The two allocate differently, so allocations are not compared one by one: for each public call,
    what any failing allocation of the original makes of it is what every failing one of ours may.
    """
    names = [name for name in names if not NO_FAILURES.search(name) and not name.startswith('usages')]
    counted = [f'{name}|oom_count=1' for name in names]
    both = run_both(libraries, counted)
    outcomes = []  # a library: (scenario, index of call) -> set of (result, left alive)
    for library, traces in zip(libraries, both):
        cases = []
        for name, case in zip(names, counted):
            for nth in range(1, traces[case].count('\n    allocation\n') + 1):
                cases.append(f'{name}|oom={nth}')
        found = collections.defaultdict(dict)
        for chunk in chunks(cases, 4000):
            library.start(chunk)
            ran = library.finish(600)
            for case in chunk:
                name = case.split('|')[0]
                if library is libraries[1]:
                    comparison.seen.trace(ran[case])
                parts = blocks(ran[case])
                ended = parts[-1][1][-1]
                where, result = None, 'no result'
                for index, (label, lines) in enumerate(parts):
                    if '    allocation fails' in lines:
                        where = (index, label)
                        results = [line for line in lines if line.startswith('  -> ')]
                        outs = [line.strip() for line in lines if line.startswith('     ')]
                        result = '; '.join([r.strip() for r in results] + outs) or 'no result'
                        break
                if where is None:
                    sys.exit(f'{library.name}: {case}: no allocation failed')
                live = {line.strip() for line in parts[-1][1] if 'live' in line}
                found[(name,) + where][case] = (f'{result} | {ended}', live)
        outcomes.append(found)

    original, ours = outcomes
    failing = silent = 0
    for key, cases in ours.items():
        wanted = original.get(key, {}).values()
        spared = set().union(*[live for _, live in wanted])
        for case, (outcome, live) in cases.items():
            comparison.cases += 1
            failing += 1
            # where ours allocates and the original does not, it still may only be out of memory
            good = (outcome in [text for text, _ in wanted] if wanted else
                    outcome.startswith('-> -100003') and outcome.endswith('--- ends'))
            if not good or not live <= spared:
                comparison.miss(case, key[2], sorted({text for text, _ in wanted}) + sorted(spared),
                                [outcome] + sorted(live))
    for key in original:
        comparison.cases += len(original[key])
        if key not in ours:
            silent += 1
    progress('allocations failing', comparison)
    print(f'    {failing} failing allocations of ours; {silent} calls in which only the original allocates')


def check_cold_start(library, comparison, progress):
    """Allocations failing in the very first call, where the library sets itself up: no comparison,
    since the original sets up nothing; it may fail, cleanly."""
    library.env['COLD_START'] = '1'
    for name in ('context/local', 'peer/plain'):
        library.start([f'{name}|oom_count=1'])
        count = library.finish(60)[f'{name}|oom_count=1'].count('\n    allocation\n')
        cases = [f'{name}|oom={nth}' for nth in range(1, count + 1)]
        library.start(cases)
        for case, trace in library.finish(60).items():
            comparison.cases += 1
            comparison.seen.trace(trace)
            codes = re.findall(r'^  -> (-?\d+)', trace, re.M)
            if not trace.endswith('--- ends\n') or not set(codes) <= {'0', '-100003', '-100002'}:
                comparison.miss(case, 'the first call', [], [line for line in trace.split('\n')
                                                            if line.startswith(('  ->', '---'))])
    del library.env['COLD_START']
    progress('allocations failing in the first call', comparison)


def self_test(options):
    """The original against itself made wrong: each way must be found."""
    missed = 0
    for way, scenario in WRONG.items():
        ran = subprocess.run([sys.executable, __file__, '--oracle', options.oracle, '--ours', options.oracle,
                              '--build', options.build, '--deviations', os.devnull, '--quiet',
                              '--scenario', scenario, '--examples', '1',
                              '--ours-preload', os.path.join(options.build, 'wrong.so')],
                             env=dict(os.environ, RPMA_WRONG=way), capture_output=True, text=True)
        found = ran.returncode == 1 and 'DIFFERS' in ran.stdout
        missed += not found
        print(f'{"found" if found else "MISSED"}: {way}')
        if not found:
            print(ran.stdout + ran.stderr)
    print(f'self-test: {len(WRONG) - missed} passed, {missed} failed')
    sys.exit(1 if missed else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--oracle', help='the original librpma binary')
    parser.add_argument('--oracle-version', default='1.2.0')
    parser.add_argument('--ours', help='the librpma binary to judge')
    parser.add_argument('--ours-preload', help='a library to load before ours (self-test)')
    parser.add_argument('--build', default=os.path.join(HERE, 'build'))
    parser.add_argument('--deviations', default=os.path.join(HERE, 'deviations'))
    parser.add_argument('--scenario', help='only scenarios that match this expression')
    parser.add_argument('--full', action='store_true', help='leave out no combination of failures')
    parser.add_argument('--examples', type=int, default=40, help='how many differences to print')
    parser.add_argument('--header', help='compare the error codes that it documents with those returned')
    parser.add_argument('--quiet', action='store_true')
    parser.add_argument('--table', action='store_true', help='print the deviations as a table and end')
    parser.add_argument('--self-test', action='store_true', help='prove that differences are found')
    options = parser.parse_args()
    if options.table:
        print('| intended difference | since |\n|---|---|')
        for deviation in load_deviations(options.deviations, None):
            print(f'| {deviation.name} | {" ".join(deviation.reason)} |')
        return
    if not options.oracle:
        parser.error('--oracle is missing')
    if options.self_test:
        self_test(options)
    if not options.ours:
        parser.error('--ours is missing')

    deviations = load_deviations(options.deviations, options.oracle_version)
    comparison = Comparison(deviations)
    native = tuple(int(part) for part in options.oracle_version.split('.')[:2]) >= (1, 3)

    def progress(what, counts):
        if not options.quiet:
            print(f'  {what}: {counts.cases} cases so far, {counts.unlisted_count} unlisted differences',
                  flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        libraries = [Library('oracle', options.oracle, options.build, scratch),
                     Library('ours', options.ours, options.build, scratch, options.ours_preload)]
        names = compare_failures(libraries, comparison, options.scenario,
                                 native, options.full, progress)
        compare_allocations(libraries, comparison, names, progress)
        if not options.scenario:
            check_cold_start(libraries[1], comparison, progress)

    print(f'conformance with librpma {options.oracle_version}: {comparison.cases} cases, '
          f'{comparison.calls} calls compared, {len(comparison.deviating)} cases with a listed deviation, '
          f'{comparison.unlisted_count} unlisted differences of {len(comparison.unlisted)} kinds')
    for deviation in deviations:
        if deviation.seen and not options.quiet:
            print(f'  deviation {deviation.name}: seen {deviation.seen} times')
    for kind in list(comparison.unlisted)[:options.examples]:
        examples = comparison.unlisted[kind]
        case, label, gone, come = examples[0]
        print(f'\nDIFFERS ({len(examples)} times) in {case}\n  {label}')
        for line in gone:
            print(f'    - {line.strip()}')
        for line in come:
            print(f'    + {line.strip()}')
    stale = [d.name for d in deviations if not d.seen] if not options.scenario else []
    for name in stale:
        print(f'\nSTALE: the deviation {name} is listed and never showed')
    wrong = []
    if options.header and native and not options.scenario:
        count, wrong = documented.differences(comparison.seen, options.header)
        print(f'error codes in the documentation: {count} functions, {len(wrong)} differences')
        for line in wrong:
            print(f'\nDOCUMENTED WRONGLY: {line}')
    sys.exit(1 if comparison.unlisted or stale or wrong else 0)


if __name__ == '__main__':
    main()
