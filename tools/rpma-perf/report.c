/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* report.c - see report.h. */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

static int
compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The smallest sample that at least this share (per mille) of all does not exceed. */
static uint64_t
percentile(const uint64_t *sorted, size_t n, size_t per_mille)
{
	size_t rank = (n * per_mille + 999) / 1000;

	return sorted[rank > 0 ? rank - 1 : 0];
}

void
result_latencies(struct result *result, uint64_t *samples, size_t n)
{
	qsort(samples, n, sizeof(*samples), compare);
	result->min = samples[0];
	result->p50 = percentile(samples, n, 500);
	result->p99 = percentile(samples, n, 990);
	result->p999 = percentile(samples, n, 999);
	result->max = samples[n - 1];
}

static double
us(uint64_t ns)
{
	return (double)ns / 1000;
}

static double
per_second(const struct result *result)
{
	return result->seconds > 0 ? (double)result->operations / result->seconds : 0;
}

void
print_table(const struct result *results, size_t n)
{
	printf("%-17s %9s %5s %5s %5s %9s %9s %9s %9s %9s %11s %9s\n", "operation", "bytes", "mode", "depth", "conns", "min us",
		"p50 us", "p99 us", "p99.9 us", "max us", "ops/s", "MB/s");
	for (size_t i = 0; i < n; i++) {
		const struct result *r = &results[i];

		printf("%-17s %9zu %5s %5zu %5zu %9.2f %9.2f %9.2f %9.2f %9.2f %11.0f %9.1f\n", operation_names[r->work.op],
			r->work.size, r->work.wait ? "wait" : "poll", r->work.depth, r->connections, us(r->min), us(r->p50),
			us(r->p99), us(r->p999), us(r->max), per_second(r), per_second(r) * (double)r->work.size / 1e6);
	}
}

static FILE *
create(const char *file)
{
	FILE *out = strcmp(file, "-") == 0 ? stdout : fopen(file, "we");

	if (out == NULL)
		die("%s: %s", file, strerror(errno));
	return out;
}

static void
finish(FILE *out, const char *file)
{
	bool failed = fflush(out) != 0 || ferror(out);

	if (out != stdout && fclose(out) != 0)
		failed = true;
	if (failed)
		die("%s: %s", file, strerror(errno));
}

/* A device's name comes from outside. */
static void
put_name(FILE *out, const char *name)
{
	for (; *name != '\0'; name++)
		if ((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') || (*name >= '0' && *name <= '9') ||
		    strchr("_-.: ", *name) != NULL)
			fputc(*name, out);
}

void
write_json(const char *file, const struct result *results, size_t n, const char *device)
{
	FILE *out = create(file);

	fputs("{\n  \"tool\": \"rpma-perf\",\n  \"device\": \"", out);
	put_name(out, device);
	fputs("\",\n  \"results\": [", out);
	for (size_t i = 0; i < n; i++) {
		const struct result *r = &results[i];

		fprintf(out, "%s\n    {\"operation\": \"%s\", \"bytes\": %zu, \"mode\": \"%s\", \"pages\": \"%s\", \"depth\": %zu, "
			"\"connections\": %zu, \"idle\": %zu, \"threads\": %zu, \"operations\": %llu, \"seconds\": %.9f, "
			"\"operations_per_second\": %.3f, \"bytes_per_second\": %.0f, \"latency_us\": {\"min\": %.3f, \"p50\": %.3f, "
			"\"p99\": %.3f, \"p99.9\": %.3f, \"max\": %.3f}}", i > 0 ? "," : "", operation_names[r->work.op],
			r->work.size, r->work.wait ? "wait" : "poll", pages_names[r->work.pages], r->work.depth, r->connections,
			r->idle, r->threads, (unsigned long long)r->operations, r->seconds, per_second(r),
			per_second(r) * (double)r->work.size, us(r->min), us(r->p50), us(r->p99), us(r->p999), us(r->max));
	}
	fputs("\n  ]\n}\n", out);
	finish(out, file);
}

#define WIDTH 760
#define HEIGHT 460
#define LEFT 70
#define RIGHT 170
#define TOP 40
#define BOTTOM 50

/* Both scales are logarithmic: the bytes by powers of two, the time by powers of ten. */
struct scale {
	double x_from, x_to, y_from, y_to;
};

static double
x_at(const struct scale *s, double bytes)
{
	return LEFT + (log2(bytes) - s->x_from) / (s->x_to - s->x_from) * (WIDTH - LEFT - RIGHT);
}

static double
y_at(const struct scale *s, double time_us)
{
	return HEIGHT - BOTTOM - (log10(time_us) - s->y_from) / (s->y_to - s->y_from) * (HEIGHT - TOP - BOTTOM);
}

static void
put_bytes(FILE *out, size_t bytes)
{
	if (bytes >= 1 << 20)
		fprintf(out, "%zu MiB", bytes >> 20);
	else if (bytes >= 1 << 10)
		fprintf(out, "%zu KiB", bytes >> 10);
	else
		fprintf(out, "%zu B", bytes);
}

void
write_svg(const char *file, const struct result *results, size_t n, const char *device)
{
	static const char *const colours[OPERATIONS] = {
		"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#ff7f0e", "#17becf",
	};
	struct scale s = {64, 0, 64, -64};
	FILE *out = create(file);
	unsigned line = 0;

	for (size_t i = 0; i < n; i++) {
		double x = log2((double)results[i].work.size), y = log10(fmax(us(results[i].p50), 0.001));

		s.x_from = fmin(s.x_from, x);
		s.x_to = fmax(s.x_to, x);
		s.y_from = fmin(s.y_from, floor(y));
		s.y_to = fmax(s.y_to, floor(y) + 1);
	}
	if (s.x_to <= s.x_from)
		s.x_to = s.x_from + 1;

	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
		"font-size=\"12\">\n<!-- SPDX-License-Identifier: BSD-3-Clause -->\n<!-- Copyright 2026, The rpma developers -->\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"22\" font-size=\"14\">Median latency "
		"by size (", WIDTH, HEIGHT, LEFT);
	put_name(out, device);
	fputs(")</text>\n", out);
	for (double e = s.y_from; e <= s.y_to; e++) {
		double y = y_at(&s, pow(10, e));

		fprintf(out, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g us</text>\n",
			LEFT, y, WIDTH - RIGHT, LEFT - 6, y + 4, pow(10, e));
	}
	for (double e = ceil(s.x_from); e <= s.x_to; e += s.x_to - s.x_from > 12 ? 3 : 1) {
		double x = x_at(&s, exp2(e));

		fprintf(out, "<path d=\"M%.1f %dV%d\" stroke=\"#eee\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", x, TOP,
			HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18);
		put_bytes(out, (size_t)exp2(e));
		fputs("</text>\n", out);
	}
	for (int op = 0; op < OPERATIONS; op++) {
		bool any = false;

		for (size_t i = 0; i < n; i++) {
			double x, y;

			if ((int)results[i].work.op != op)
				continue;
			x = x_at(&s, (double)results[i].work.size);
			y = y_at(&s, fmax(us(results[i].p50), 0.001));
			if (!any)
				fprintf(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" d=\"M%.1f %.1fh.01", colours[op], x, y);
			else
				fprintf(out, "L%.1f %.1f", x, y);
			any = true;
		}
		if (!any)
			continue;
		fprintf(out, "\" stroke-linecap=\"round\"/>\n<text x=\"%d\" y=\"%u\" fill=\"%s\">%s</text>\n", WIDTH - RIGHT + 12,
			TOP + 10 + 18 * line++, colours[op], operation_names[op]);
	}
	fputs("</svg>\n", out);
	finish(out, file);
}
