/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * check.h - assertions on values. A failed one says where, what came and what should have come, and ends the process
 * with status 1; nothing here knows about RDMA beyond the names of the library's codes.
 */

#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stddef.h>

/* What a test process ends with when it cannot run here; the runner counts it as skipped. */
#define STATUS_SKIP 77

/* The process's part in the test ("server", "client 2", "test"): failures are reported under it. */
extern char check_role[32];

/* Where the process has got to; reported when it runs out of time. */
extern const char *volatile check_file;
extern volatile int check_line;

#define CHECK_HERE() (check_file = __FILE__, check_line = __LINE__)

/* The line of a test that called a helper; helpers are wrapped in macros that set it. */
extern const char *volatile check_from_file;
extern volatile int check_from_line;

#define CHECK_FROM() (check_from_file = __FILE__, check_from_line = __LINE__)

/* The process's role and where it is, for a report. */
void check_place(char *text, size_t size);

/* Ends the process: the test failed. */
void check_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Ends the process: this test cannot be run here, for the given reason. */
void check_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/*
 * Ends the process in the same way under memcheck (RPMA_TEST_MEMCHECK=1): for tests on memory that is gone, where it would
 * report the very system calls that find this out.
 */
void skip_under_memcheck(void);

/* A figure or fact for whoever reads the log. */
void check_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * True if the library under test is the original, which has the weakness named by why: the assertion is left out, and
 * the runner's report says so.
 */
bool original_lacks(const char *why);

/* True under the same condition, without a word. */
bool is_original(void);

void check_int(const char *what, long long got, long long want);
void check_code(const char *what, int got, int want);
void check_str(const char *what, const char *got, const char *want);
void check_mem(const char *what, const void *got, const void *want, size_t len);
void check_fill(const char *what, const void *got, unsigned char want, size_t len);
const char *code_name(int code);

/* The condition holds. */
#define CHECK(cond) do { \
		CHECK_HERE(); \
		if (!(cond)) \
			check_fail("%s does not hold", #cond); \
	} while (0)

/* An integer has the value. */
#define CHECK_INT(got, want) do { \
		CHECK_HERE(); \
		check_int(#got, (long long)(got), (long long)(want)); \
	} while (0)

/* A call of the library returns the code. */
#define CHECK_CODE(call, want) do { \
		CHECK_HERE(); \
		int code_ = (call); \
		CHECK_HERE(); \
		check_code(#call, code_, (want)); \
	} while (0)

/* A call of the library succeeds. */
#define OK(call) CHECK_CODE(call, 0)

/* A call of the library is refused as an invalid argument. */
#define INVAL(call) CHECK_CODE(call, RPMA_E_INVAL)

#define CHECK_STR(got, want) do { CHECK_HERE(); check_str(#got, (got), (want)); } while (0)
#define CHECK_MEM(got, want, len) do { CHECK_HERE(); check_mem(#got, (got), (want), (len)); } while (0)
#define CHECK_FILL(got, want, len) do { CHECK_HERE(); check_fill(#got, (got), (want), (len)); } while (0)

#endif
