/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * report.h - figures of measurements, as a table, as JSON and as a chart.
 */

#ifndef REPORT_H
#define REPORT_H

#include "perf.h"

struct result {
	struct work work;
	size_t connections, threads;
	size_t idle;
	uint64_t operations;		/* that completed */
	double seconds;			/* from the first one posted to the last one completed */
	/* Of single operations, in nanoseconds. */
	uint64_t min, p50, p99, p999, max;
};

/* Fills in the latencies; sorts the samples. There is at least one. */
void result_latencies(struct result *result, uint64_t *samples, size_t n);

void print_table(const struct result *results, size_t n);
/* The file is written whole or the process ends; "-" is standard output. */
void write_json(const char *file, const struct result *results, size_t n, const char *device);
void write_svg(const char *file, const struct result *results, size_t n, const char *device);

#endif
