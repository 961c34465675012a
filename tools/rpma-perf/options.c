/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* options.c - the command line. */

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

static const char help[] =
"rpma-perf - how fast is librpma between two processes?\n"
"\n"
"usage: rpma-perf server ADDR PORT [--file FILE] [--sessions N]\n"
"       rpma-perf client ADDR PORT [option...]\n"
"\n"
"The server lends memory and answers; start it first. It says \"ready\" when it listens, serves any number of clients, and ends\n"
"with SIGINT or SIGTERM. Each measurement makes connections of its own.\n"
"\n"
"server:\n"
"  --file FILE         lend a shared mapping of this file, made if need be, instead of ordinary memory\n"
"  --sessions N        end after N connections\n"
"\n"
"client:\n"
"  -o, --op OPS        operations, with commas between, or \"all\" (write):\n"
"                        write             until its completion\n"
"                        read              until its completion\n"
"                        flush-visibility  write, then flush to visibility, until the flush's completion\n"
"                        flush-persistent  write, then flush to persistence, until the flush's completion\n"
"                        atomic            atomic write of 8 bytes, until its completion\n"
"                        send              message and the same message back, until that arrives\n"
"                        write-imm         write with immediate data, which the server receives, until its completion\n"
"  -s, --size SIZES    bytes, with commas between; 8..16M doubles from step to step; K and M are binary (8)\n"
"  -d, --depth N       operations that are under way at a time on a connection, 1 to 1024 (1)\n"
"  -n, --count N       operations measured on each connection (10000, less for large ones)\n"
"  -w, --warmup N      operations before these (a tenth of them)\n"
"  -c, --connections N all at once (1)\n"
"  -i, --idle N        connections besides, that do nothing meanwhile (0)\n"
"  -t, --threads N     that share the connections among them (1)\n"
"  -m, --mode MODE     poll: ask for completions all the time; wait: on the completion queue's descriptor (poll).\n"
"                      Applies to the server too, which in a poll asks even if it has nothing to do\n"
"  -p, --pages SIZE    default, small (4 KiB) or huge (transparent huge pages) for ordinary memory, on both sides (default)\n"
"  --json FILE         the results as JSON; - is standard output, then without a table\n"
"  --svg FILE          a chart of the median latency\n"
"  -q, --quiet         no progress, no table\n"
"  -h, --help          this text\n"
"\n"
"Latency is in microseconds, from posting an operation until its end; for send it is the round trip. After each measurement all\n"
"bytes are compared on one side with what the other one sent.\n"
"Exit status: 0, 1 if something failed, 2 for a wrong command line.\n";

static void usage(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void
usage(const char *fmt, ...)
{
	va_list ap;

	fputs("rpma-perf: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs(" (see --help)\n", stderr);
	exit(2);
}

static size_t
number(const char *name, const char *text, size_t least, size_t most)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || errno != 0)
		usage("%s: \"%s\" is no number", name, text);
	if ((*end == 'K' || *end == 'k') && end[1] == '\0' && value <= most)
		value <<= 10;
	else if ((*end == 'M' || *end == 'm') && end[1] == '\0' && value <= most)
		value <<= 20;
	else if (*end != '\0')
		usage("%s: \"%s\" is no number", name, text);
	if (value < least || value > most)
		usage("%s: %s is not between %zu and %zu", name, text, least, most);
	return (size_t)value;
}

static void
add_size(struct options *options, size_t size)
{
	if (options->n_sizes == SIZES_MAX)
		usage("--size: more than %d sizes", SIZES_MAX);
	options->sizes[options->n_sizes++] = size;
}

static void
parse_sizes(struct options *options, char *text)
{
	char *rest = NULL;

	options->n_sizes = 0;
	for (char *word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
		char *dots = strstr(word, "..");
		size_t from, to;

		if (dots != NULL)
			*dots = '\0';
		from = number("--size", word, 1, SIZE_MAX_BYTES);
		to = dots != NULL ? number("--size", dots + 2, from, SIZE_MAX_BYTES) : from;
		for (size_t size = from; size <= to; size *= 2)
			add_size(options, size);
	}
	if (options->n_sizes == 0)
		usage("--size: none given");
}

/* The index of the word among the names. */
static size_t
choice(const char *name, const char *word, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(word, names[i]) == 0)
			return i;
	usage("%s: there is no \"%s\"", name, word);
}

static void
parse_operations(struct options *options, char *text)
{
	char *rest = NULL;
	bool any = false;

	memset(options->ops, 0, sizeof(options->ops));
	for (char *word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
		any = true;
		if (strcmp(word, "all") == 0)
			memset(options->ops, true, sizeof(options->ops));
		else
			options->ops[choice("--op", word, operation_names, OPERATIONS)] = true;
	}
	if (!any)
		usage("--op: none given");
}

enum {
	OPT_JSON = 256,
	OPT_SVG,
	OPT_FILE,
	OPT_SESSIONS,
};

void
parse_options(int argc, char **argv, struct options *options)
{
	static const char *const modes[] = {"poll", "wait"};
	static const struct option server_options[] = {
		{"file", required_argument, NULL, OPT_FILE},
		{"sessions", required_argument, NULL, OPT_SESSIONS},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static const struct option client_options[] = {
		{"op", required_argument, NULL, 'o'},
		{"size", required_argument, NULL, 's'},
		{"depth", required_argument, NULL, 'd'},
		{"count", required_argument, NULL, 'n'},
		{"warmup", required_argument, NULL, 'w'},
		{"connections", required_argument, NULL, 'c'},
		{"idle", required_argument, NULL, 'i'},
		{"threads", required_argument, NULL, 't'},
		{"mode", required_argument, NULL, 'm'},
		{"pages", required_argument, NULL, 'p'},
		{"json", required_argument, NULL, OPT_JSON},
		{"svg", required_argument, NULL, OPT_SVG},
		{"quiet", no_argument, NULL, 'q'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int opt;

	memset(options, 0, sizeof(*options));
	options->ops[OP_WRITE] = true;
	add_size(options, 8);
	options->depth = options->connections = options->threads = 1;
	options->warmup = SIZE_MAX;

	if (argc < 2)
		usage("server or client?");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		fputs(help, stdout);
		exit(0);
	}
	options->is_server = strcmp(argv[1], "server") == 0;
	if (!options->is_server && strcmp(argv[1], "client") != 0)
		usage("server or client, not \"%s\"", argv[1]);

	optind = 2;
	while ((opt = getopt_long(argc, argv, options->is_server ? "h" : "o:s:d:n:w:c:i:t:m:p:qh",
			options->is_server ? server_options : client_options, NULL)) != -1)
		switch (opt) {
		case OPT_FILE:
			options->file = optarg;
			break;
		case OPT_SESSIONS:
			options->sessions = (unsigned)number("--sessions", optarg, 1, 1000000);
			break;
		case 'o':
			parse_operations(options, optarg);
			break;
		case 's':
			parse_sizes(options, optarg);
			break;
		case 'd':
			options->depth = number("--depth", optarg, 1, DEPTH_MAX);
			break;
		case 'n':
			options->operations = number("--count", optarg, 1, (size_t)100 << 20);
			break;
		case 'w':
			options->warmup = number("--warmup", optarg, 0, (size_t)100 << 20);
			break;
		case 'c':
			options->connections = number("--connections", optarg, 1, CONNECTIONS_MAX);
			break;
		case 'i':
			options->idle = number("--idle", optarg, 0, CONNECTIONS_MAX - 1);
			break;
		case 't':
			options->threads = number("--threads", optarg, 1, CONNECTIONS_MAX);
			break;
		case 'm':
			options->wait = choice("--mode", optarg, modes, 2) == 1;
			break;
		case 'p':
			options->pages = (enum pages)choice("--pages", optarg, pages_names, PAGES);
			break;
		case OPT_JSON:
			options->json = optarg;
			break;
		case OPT_SVG:
			options->svg = optarg;
			break;
		case 'q':
			options->quiet = true;
			break;
		case 'h':
			fputs(help, stdout);
			exit(0);
		default:
			/* getopt_long has said what is wrong. */
			exit(2);
		}
	if (argc - optind != 2)
		usage("an address and a port are needed, and nothing else");
	options->addr = argv[optind];
	options->port = argv[optind + 1];
	if (options->threads > options->connections)
		usage("%zu threads for %zu connections", options->threads, options->connections);
	if (options->idle + options->connections > CONNECTIONS_MAX)
		usage("more than %d connections, those that are idle included", CONNECTIONS_MAX);
	for (size_t i = 0; i < options->n_sizes; i++)
		/* Whichever the operation is: a server needs at most one place more than the depth. */
		if (options->sizes[i] * (options->depth + 1) > MEMORY_MAX)
			usage("%zu bytes %zu deep are more than %zu MiB", options->sizes[i], options->depth, MEMORY_MAX >> 20);
}
