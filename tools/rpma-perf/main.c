/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* main.c - rpma-perf, a benchmark on librpma's public interface; --help says what it does. */

#include <sys/resource.h>

#include "perf.h"

/* Each connection has some. */
static void
allow_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		/* If they do not suffice, what fails says so. */
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int
main(int argc, char **argv)
{
	struct options options;

	parse_options(argc, argv, &options);
	allow_descriptors();
	return options.is_server ? run_server(&options) : run_client(&options);
}
