/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * perf.h - what the parts of rpma-perf share: the operations, the options, and what a client tells a server.
 */

#ifndef PERF_H
#define PERF_H

#include <librpma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum operation {
	OP_WRITE,
	OP_READ,
	OP_FLUSH_VISIBILITY,
	OP_FLUSH_PERSISTENT,
	OP_ATOMIC,
	OP_SEND,
	OP_WRITE_IMM,
	OPERATIONS,
};

extern const char *const operation_names[OPERATIONS];

enum pages {
	PAGES_DEFAULT,		/* whatever the system does */
	PAGES_SMALL,		/* 4 KiB */
	PAGES_HUGE,		/* transparent huge pages */
	PAGES,
};

extern const char *const pages_names[PAGES];

#define SIZES_MAX 64
#define SIZE_MAX_BYTES ((size_t)16 << 20)
#define DEPTH_MAX 1024
#define CONNECTIONS_MAX 1024
/* Of one connection on one side. */
#define MEMORY_MAX ((size_t)1 << 30)

/* A send is signalled once in so many, so that the queue gets its places back. */
#define SIGNAL_EVERY 16

/* What a server's queues are made for, as it learns of the depth only with the request. */
#define SERVER_SQ (DEPTH_MAX + 2 * SIGNAL_EVERY)
#define SERVER_RQ (2 * DEPTH_MAX + 64)
#define SERVER_CQ (SERVER_SQ + SERVER_RQ)

struct options {
	bool is_server;
	const char *addr, *port;

	/* server */
	const char *file;		/* maps this file instead of ordinary memory */
	unsigned sessions;		/* ends after so many connections; 0: never */

	/* client */
	bool ops[OPERATIONS];
	size_t sizes[SIZES_MAX];
	size_t n_sizes;
	size_t depth;
	size_t operations, warmup;	/* of each connection; 0 and SIZE_MAX: by the size */
	size_t connections, threads;
	size_t idle;			/* connections that nothing is done with */
	bool wait;			/* on the queue's descriptor, instead of polling */
	enum pages pages;
	const char *json, *svg;
	bool quiet;
};

/* What one measurement is. */
struct work {
	enum operation op;
	bool wait;
	enum pages pages;
	size_t size, depth;
};

/* The work as private data of the connection's request; the length of what was written. */
#define WORK_BYTES 20
void work_pack(const struct work *work, unsigned char bytes[WORK_BYTES]);
/* False if that is no work that this version does. */
bool work_unpack(struct work *work, const unsigned char *bytes, size_t len);

/* Messages that a server can take before it has to post again. */
size_t work_receives(const struct work *work);
/* The bytes that a server needs. */
size_t work_memory(const struct work *work);

/* Ends the process with status 1; die_rpma says what the library's code means. */
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
void die_rpma(const char *what, int code) __attribute__((noreturn));
#define OK(call) do { \
		int code_ = (call); \
		if (code_ != 0) \
			die_rpma(#call, code_); \
	} while (0)

/* Zeroed memory in whole pages; of the file from the offset on if there is a descriptor (not -1). */
void *memory_new(size_t size, enum pages pages, int fd, size_t offset);
void memory_delete(void *ptr, size_t size);

/* What each slot of `size` bytes holds at the side where the bytes come from. */
void pattern_fill(void *ptr, size_t size, size_t slots);
/* Ends the process if a slot holds anything else. */
void pattern_check(const void *ptr, size_t size, size_t slots, const struct work *work);

/* Also says which device it is. */
struct rpma_peer *peer_at(const char *addr, enum rpma_util_ibv_context_type type, const char **device);
void expect_established(struct rpma_conn *conn);

void parse_options(int argc, char **argv, struct options *options);
int run_server(const struct options *options);
int run_client(const struct options *options);

#endif
