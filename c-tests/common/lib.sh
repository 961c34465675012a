# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: BSD-3-Clause
# Copyright 2026, The rpma developers
#
# lib.sh - what the two runners share: finding a library, reading memcheck's reports, counting verdicts. It is sourced,
# and expects die() and $work, a folder for temporary files.

# The library in folder $1, whatever its file is called there.
library_in() {
    local file
    for file in "$1/librpma.so.0" "$1/librpma.so"; do
        [[ -e $file ]] && { readlink -f "$file"; return; }
    done
    die "no librpma.so.0 or librpma.so in $1"
}

# A folder, named after $1, that holds a copy of the library of folder $2 and nothing else, under the name that the linker
# looks for and the one that programs carry: no other library can be picked up with it, and a build that goes on
# meanwhile cannot change it.
library_dir() {
    local dir=$work/lib.$1 file
    file=$(library_in "$2") || exit 2
    mkdir -p "$dir"
    cp "$file" "$dir/librpma.so.0" || exit 2
    ln -sfn librpma.so.0 "$dir/librpma.so"
    printf '%s' "$dir"
}

# A folder in which the stand-in for the verbs libraries of folder $1 (see c-tests/softverbs) has their names; or $1 itself,
# if it holds libraries of these names.
verbs_dir() {
    local dir=$work/verbs
    if [[ -e $1/libsoftverbs.so ]]; then
        mkdir -p "$dir"
        cp "$1/libsoftverbs.so" "$dir/libibverbs.so.1" || exit 2
        ln -sfn libibverbs.so.1 "$dir/librdmacm.so.1"
        printf '%s' "$dir"
    elif [[ -e $1/libibverbs.so.1 && -e $1/librdmacm.so.1 ]]; then
        printf '%s' "$1"
    else
        die "neither libsoftverbs.so nor libibverbs.so.1 and librdmacm.so.1 in $1"
    fi
}

# The file $1, or its beginning and its end if it is long; each line indented.
excerpt() {
    awk '{ line[NR] = $0 } END {
        for (i = 1; i <= NR; i++) {
            if (NR > 60 && i == 31) { printf "     ... %d lines ...\n", NR - 60; i = NR - 29 }
            print "     " line[i]
        }
    }' "$1"
}

# memcheck's command line for a program whose reports go to folder $1. Only what nothing points at counts as leaked: Rust's
# hash tables are held by a pointer into their middle, which memcheck takes for a possible loss.
memcheck() {
    printf '%s\0' valgrind --quiet --trace-children=yes --child-silent-after-fork=yes --num-callers=40 \
        --leak-check=full --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect \
        --suppressions="$here/common/memcheck.supp" --xml=yes --xml-file="$1/%p.xml"
}

# The errors in the reports in folder $1 that have librpma in a stack, one frame a line; nothing if there are none.
memcheck_errors() {
    cat "$1"/*.xml 2>/dev/null | awk '
        function value() { gsub(/^ *<[^>]*>|<\/[^>]*> *$/, ""); gsub(/&lt;/, "<"); gsub(/&gt;/, ">"); return $0 }
        /<error>/ { text = ""; ours = 0; frames = 0; inside = 1 }
        /<obj>.*librpma\.so/ { ours = 1 }
        !inside { next }
        /<kind>/ { text = text value() }
        /<(what|text)>/ { text = text ": " value() "\n" }
        /<frame>/ { fn = "?"; file = ""; line = ""; obj = "" }
        /<fn>/ { fn = value() }
        /<file>/ { file = value() }
        /<line>/ { line = value() }
        /<obj>/ { obj = value() }
        /<\/frame>/ { if (++frames <= 16) text = text "    " fn " (" (file ? file ":" line : obj) ")\n" }
        /<\/error>/ { if (ours) printf "%s", text; inside = 0 }'
}

passed=0 failed=0 skipped=0

# Prints the verdict in file $1 and counts it.
count() {
    cat "$1"
    case $(head -c 4 "$1") in
    PASS) ((++passed)) ;;
    SKIP) ((++skipped)) ;;
    *) ((++failed)) ;;
    esac
}

# The last line, and whether all is well.
sum_up() {
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    ((failed == 0))
}
