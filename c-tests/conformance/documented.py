# SPDX-License-Identifier: BSD-3-Clause
# Copyright 2026, The rpma developers

"""The error codes that the header documents for each function, and those that a run has seen."""

import collections
import re

# Documented, and not to be had from the scenarios: why it is documented all the same.
ELSEWHERE = {
    ('rpma_conn_req_new', 'RPMA_E_UNKNOWN'): 'no scenario has an address that is found and on no device',
    ('rpma_ep_next_conn_req', 'RPMA_E_UNKNOWN'): 'no scenario has a request that is on no device',
    ('rpma_log_set_function', 'RPMA_E_AGAIN'): 'part of the interface; says itself that there is none',
}


class Seen:
    """What the functions of a library returned."""

    def __init__(self):
        self.codes = collections.defaultdict(set)

    def trace(self, text):
        function = None
        for line in text.split('\n'):
            if not line.startswith(' '):
                # Or what the scenario did instead of a call that it names.
                function = line.partition('(')[0] if line.startswith('rpma_') else None
            elif line.startswith('  -> -') and function:
                code = int(re.match(r'-?\d+', line[5:])[0])
                if code <= -100000:
                    self.codes[function].add(code)


def documented(path):
    """The numbers of the codes by name, and the names of the codes by function."""
    with open(path) as file:
        header = file.read()
    numbers = {name: int(number) for name, number in
               re.findall(r'^#define (RPMA_E_\w+) \((-\d+)\)$', header, re.M)}
    functions = {}
    for comment, prototype in re.findall(r'/\*\*\n((?: \*.*\n)*?) \*/\n([^/{}#]*?);', header):
        name = re.search(r'\b(rpma_\w+)\(', prototype)
        text = re.sub(r'\s+', ' ', re.sub(r'^ \*', '', comment, flags=re.M))
        returns = re.search(r'Returns (.*?) Thread safety:', text)
        if name and returns:
            functions[name[1]] = set(re.findall(r'RPMA_E_\w+', returns[1]))
    return numbers, functions


def differences(seen, path):
    """A line for each code that was returned and is not documented, or the reverse."""
    numbers, functions = documented(path)
    names = {number: name for name, number in numbers.items()}
    found = []
    for function in sorted(functions):
        returned = {names.get(code, str(code)) for code in seen.codes[function]}
        for code in sorted(returned - functions[function]):
            found.append(f'{function} returned {code}, which is not documented')
        for code in sorted(functions[function] - returned):
            if (function, code) not in ELSEWHERE:
                found.append(f'{function} is documented to return {code} and never did')
    for function in sorted(set(seen.codes) - set(functions)):
        found.append(f'{function} is not in the header')
    return len(functions), found
