/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * harness.h - a test program holds a table of tests. A local test is one process; a pair is a server process and one or
 * more client processes, each started with exec, joined by a control channel that does not use the library. The sides
 * use it to hand over ports and descriptors and to wait for each other, so that no test has to guess a time.
 *
 *   program --list       the names of its tests, one a line
 *   program NAME         runs one; status 0 passed, 77 skipped, else failed
 *   program              runs all, one after the other
 */

#ifndef HARNESS_H
#define HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "check.h"

#define CLIENTS_MAX 64

/* One side of a pair, as it sees itself. */
struct side {
	const char *addr;		/* the address to listen on and to connect to */
	int clients;			/* number of clients of this test */
	int index;			/* a client's number, from 0 */
	pid_t server;			/* the server's process (clients only) */
	int channel[CLIENTS_MAX];	/* the control channel to each client; a client has one, to the server */
};

struct test {
	const char *name;
	void (*local)(const char *addr);
	void (*server)(struct side *side);
	void (*client)(struct side *side);
	int clients;
	bool server_is_killed;		/* a client kills the server: passed only if that happened */
	unsigned seconds;		/* time allowed, before the factor; 0 means DEFAULT_SECONDS */
};

#define DEFAULT_SECONDS 30

/* Table rows. fn stands for fn, or fn_server and fn_client. */
#define LOCAL(fn) {.name = #fn, .local = fn}
#define PAIR(fn) {.name = #fn, .server = fn##_server, .client = fn##_client, .clients = 1}
#define CROWD(fn, n) {.name = #fn, .server = fn##_server, .client = fn##_client, .clients = (n)}
#define KILLED(fn) {.name = #fn, .server = fn##_server, .client = fn##_client, .clients = 1, .server_is_killed = true}
#define END {.name = NULL}

/* The whole of a test program's main. */
int run_tests(const struct test *tests, int argc, char **argv);

/* Over the control channel: who is the client's number on the server's side and 0 on a client's side. */
void say(struct side *side, int who, const char *word);
void hear(struct side *side, int who, const char *word);
bool has_said(struct side *side, int who);	/* something that is not heard or taken yet; does not wait */
void give(struct side *side, int who, const void *data, size_t len);
void take(struct side *side, int who, void *data, size_t len);

/* Kills the server with SIGKILL and waits until the kernel has taken it down. */
void kill_server(struct side *side);

/* The test's size for this machine: n scaled by RPMA_TEST_SCALE (1 if unset), at least least. */
unsigned long scaled(unsigned long n, unsigned long least);

/* Seconds on a clock that only goes forward. */
double seconds_now(void);

/*
 * What was begun then is over within so many seconds, times RPMA_TEST_PATIENCE: a bound on hanging, far above what it takes.
 */
void check_within(const char *what, double start, double seconds);

/* True if the address under test is of the loopback network. */
bool is_loopback(const char *addr);

#ifndef HARNESS_IMPLEMENTATION
#define say(...) (CHECK_HERE(), say(__VA_ARGS__))
#define hear(...) (CHECK_HERE(), hear(__VA_ARGS__))
#define give(...) (CHECK_HERE(), give(__VA_ARGS__))
#define take(...) (CHECK_HERE(), take(__VA_ARGS__))
#define check_within(...) (CHECK_HERE(), check_within(__VA_ARGS__))
#endif

#endif
