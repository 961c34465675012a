/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * What a scenario says with: every public call goes through API() or APIF(), which put the call, its
 * result and, where the provider failed, errno into the trace. The driver around the scenarios
 * (driver.c) runs one in a child process per case, so that crashes and hangs are outcomes too.
 */

#ifndef DRIVER_H
#define DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#include <librpma.h>
#include <rdma/rdma_cma.h>

#include "script.h"

/* A pointer no function may leave in place when it says it succeeded. */
#define UNTOUCHED ((void *)(uintptr_t)0x5a5a5a5a5a5a5a50)
#define UNTOUCHED_INT 0x5a5a5a5a

void api_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
int api_end(int ret);

/* A call told by its own text, and one told by a format of the scenario's. */
#define API(call) (api_begin("%s", #call), api_end(call))
#define APIF(call, ...) (api_begin(__VA_ARGS__), api_end(call))

/* What a caller sees afterwards. */
void say_pointer(const char *name, const void *pointer);
void say_int(const char *name, long long value);
void say_bytes(const char *name, const void *data, size_t size);
/* A descriptor is told by the channel it belongs to. */
void say_fd(const char *name, int fd);

/* Is it an object the library gave? */
static inline bool
given(const void *pointer)
{
	return pointer != NULL && pointer != UNTOUCHED;
}

/* The library's calls of the log function go to the trace from now on. */
void trace_log(enum rpma_log_level threshold);

/* Everything the default log function wrote to syslog and to stderr since the last call. */
void capture_stderr(void);
void say_stderr(void);
void say_syslog_opened(void);

/* The scenarios, found by name; what follows the name's second slash is the scenario's own. */
typedef void scenario_function(const char *variant);
struct scenario {
	const char *name;
	scenario_function *run;
	/* NULL-terminated, or NULL for a scenario without variants */
	const char *const *variants;
};
extern const struct scenario scenarios[];
extern const size_t n_scenarios;

#endif /* DRIVER_H */
