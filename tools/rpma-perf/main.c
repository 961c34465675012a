/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* main.c - rpma-perf, a benchmark on librpma's public interface; --help says what it does. */

#include "perf.h"

int
main(int argc, char **argv)
{
	struct options options;

	parse_options(argc, argv, &options);
	return options.is_server ? run_server(&options) : run_client(&options);
}
