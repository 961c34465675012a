/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * log.c - thresholds, a user's log function, and the default one. They need no device: a descriptor of a remote region
 * without a usage is refused with a record at level ERROR, and a good one gives a record at level DEBUG.
 */

#include <errno.h>
#include <librpma.h>
#include <pthread.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <unistd.h>

#include "common/harness.h"

/* Makes the library write a record at level ERROR. */
static void
provoke_error(void)
{
	static const unsigned char no_usage[21];
	struct rpma_mr_remote *mr = NULL;

	INVAL(rpma_mr_remote_from_descriptor(no_usage, sizeof(no_usage), &mr));
	CHECK(mr == NULL);
}

/* What the last calls of the log function brought. */
static struct {
	unsigned count;
	unsigned at_level[RPMA_LOG_LEVEL_DEBUG + 1];
	enum rpma_log_level level;
	char file[128];
	int line;
	char function[128];
	char message[512];
} seen;

static void
note(enum rpma_log_level level, const char *file, const int line, const char *function, const char *format, ...)
{
	va_list ap;

	CHECK(level >= RPMA_LOG_LEVEL_FATAL && level <= RPMA_LOG_LEVEL_DEBUG);
	seen.count++;
	seen.at_level[level]++;
	seen.level = level;
	seen.line = line;
	snprintf(seen.file, sizeof(seen.file), "%s", file ? file : "");
	snprintf(seen.function, sizeof(seen.function), "%s", function ? function : "");
	va_start(ap, format);
	vsnprintf(seen.message, sizeof(seen.message), format, ap);
	va_end(ap);
}

static void
thresholds(const char *addr)
{
	enum rpma_log_level level = RPMA_LOG_LEVEL_DEBUG;

	(void)addr;
	OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level));
	CHECK_INT(level, RPMA_LOG_LEVEL_WARNING);
	OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_AUX, &level));
	CHECK_INT(level, RPMA_LOG_DISABLED);
	for (int l = RPMA_LOG_DISABLED; l <= RPMA_LOG_LEVEL_DEBUG; l++) {
		/* Each holds its own. */
		OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)l));
		OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, (enum rpma_log_level)(4 - l)));
		OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level));
		CHECK_INT(level, l);
		OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_AUX, &level));
		CHECK_INT(level, 4 - l);
	}
	INVAL(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)6));
	INVAL(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)-2));
	INVAL(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_MAX, RPMA_LOG_LEVEL_INFO));
	INVAL(rpma_log_set_threshold((enum rpma_log_threshold)-1, RPMA_LOG_LEVEL_INFO));
	INVAL(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_MAX, &level));
	INVAL(rpma_log_get_threshold((enum rpma_log_threshold)-1, &level));
	INVAL(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, NULL));
	/* The last good values are still there. */
	OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level));
	CHECK_INT(level, RPMA_LOG_LEVEL_DEBUG);
	OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_AUX, &level));
	CHECK_INT(level, RPMA_LOG_DISABLED);
}

static void
user_function(const char *addr)
{
	(void)addr;
	OK(rpma_log_set_function(note));
	provoke_error();
	CHECK_INT(seen.count, 1);
	CHECK_INT(seen.level, RPMA_LOG_LEVEL_ERROR);
	CHECK_STR(seen.function, "rpma_mr_remote_from_descriptor");
	CHECK(seen.file[0] != '\0');
	CHECK(seen.line > 0);
	CHECK(strstr(seen.message, "usage") != NULL);
	CHECK(strchr(seen.message, '%') == NULL);

	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_ERROR));
	provoke_error();
	CHECK_INT(seen.count, 2);
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_FATAL));
	provoke_error();
	CHECK_INT(seen.count, 2);
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
	provoke_error();
	CHECK_INT(seen.count, 2);
	/* The auxiliary threshold is for the function's own use: it lets nothing through. */
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_DEBUG));
	provoke_error();
	CHECK_INT(seen.count, 2);
	/* And it holds nothing back. */
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_DISABLED));
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_DEBUG));
	memset(&seen, 0, sizeof(seen));
	provoke_error();
	CHECK_INT(seen.at_level[RPMA_LOG_LEVEL_ERROR], 1);

	/* Back to the default function: ours is not called any more. */
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_WARNING));
	memset(&seen, 0, sizeof(seen));
	OK(rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION));
	provoke_error();
	CHECK_INT(seen.count, 0);
}

/* Makes the library write one record at level DEBUG. */
static void
debug_record(void)
{
	unsigned char desc[21] = {[20] = RPMA_MR_USAGE_READ_SRC};
	struct rpma_mr_remote *mr = NULL;

	OK(rpma_mr_remote_from_descriptor(desc, sizeof(desc), &mr));
	OK(rpma_mr_remote_delete(&mr));
}

static void
debug_records(const char *addr)
{
	(void)addr;
	OK(rpma_log_set_function(note));
	debug_record();
	CHECK_INT(seen.count, 0);
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_DEBUG));
	debug_record();
	CHECK_INT(seen.at_level[RPMA_LOG_LEVEL_DEBUG], 1);
	CHECK_STR(seen.function, "rpma_mr_remote_from_descriptor");
}

/* Stand-ins for the C library's functions: what the library under test passes to syslog. */
static struct {
	int opened, count, option, facility, priority;
	char ident[32], message[1024];
} sys;

void
openlog(const char *ident, int option, int facility)
{
	sys.opened++;
	sys.option = option;
	sys.facility = facility;
	snprintf(sys.ident, sizeof(sys.ident), "%s", ident ? ident : "");
}

void
vsyslog(int priority, const char *format, va_list ap)
{
	sys.count++;
	sys.priority = priority;
	vsnprintf(sys.message, sizeof(sys.message), format, ap);
	errno = ECONNREFUSED;
}

void
syslog(int priority, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsyslog(priority, format, ap);
	va_end(ap);
}

/* The names under which a fortified program calls the two. */
void
__vsyslog_chk(int priority, int flag, const char *format, va_list ap)
{
	(void)flag;
	vsyslog(priority, format, ap);
}

void
__syslog_chk(int priority, int flag, const char *format, ...)
{
	va_list ap;

	(void)flag;
	va_start(ap, format);
	vsyslog(priority, format, ap);
	va_end(ap);
}

static void
to_syslog(const char *addr)
{
	(void)addr;
	provoke_error();
	CHECK_INT(sys.count, 1);
	CHECK_INT(LOG_PRI(sys.priority), LOG_ERR);
	/* Opened when the library was loaded or when it was first needed. */
	CHECK(sys.opened >= 1);
	CHECK_STR(sys.ident, "rpma");
	CHECK_INT(sys.facility, LOG_LOCAL7);
	CHECK(sys.option & LOG_PID);
	CHECK(strstr(sys.message, "*ERROR*") != NULL);
	CHECK(strstr(sys.message, "rpma_mr_remote_from_descriptor") != NULL);
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
	provoke_error();
	CHECK_INT(sys.count, 1);
}

/* What a call of provoke_error() writes on standard error. */
static void
capture(char *text, size_t size)
{
	int ends[2], saved = dup(STDERR_FILENO);
	ssize_t len;

	CHECK(saved >= 0 && pipe(ends) == 0);
	CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
	close(ends[1]);
	provoke_error();
	fflush(stderr);
	CHECK(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	len = read(ends[0], text, size - 1);
	CHECK(len >= 0);
	text[len] = '\0';
	close(ends[0]);
}

static void
to_stderr(const char *addr)
{
	char text[2048];
	regex_t form;
	regmatch_t match[2];

	(void)addr;
	capture(text, sizeof(text));
	CHECK_STR(text, "");
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_FATAL));
	capture(text, sizeof(text));
	CHECK_STR(text, "");
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_ERROR));
	capture(text, sizeof(text));
	CHECK(regcomp(&form, "^[A-Z][a-z][a-z] [0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{6} \\[([0-9]+)\\] "
		"\\*ERROR\\* [A-Za-z_0-9.]+: +[0-9]+: rpma_mr_remote_from_descriptor: .*usage.*\n$",
		REG_EXTENDED) == 0);
	if (regexec(&form, text, 2, match, 0) != 0)
		check_fail("not the form of a record: %s", text);
	CHECK_INT(atol(text + match[1].rm_so), syscall(SYS_gettid));
	regfree(&form);
	/* What the main threshold holds back does not reach the default function at all. */
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
	capture(text, sizeof(text));
	CHECK_STR(text, "");
}

static void
errno_survives(const char *addr)
{
	(void)addr;
	/* This program's syslog sets errno. */
	errno = EXDEV;
	provoke_error();
	CHECK_INT(sys.count, 1);
	if (!original_lacks("errno is what the log function left"))
		CHECK_INT(errno, EXDEV);
}

/* Runs this test again with the level names in the environment, where the library finds them when it is loaded. */
static void
run_with(const char *main_level, const char *stderr_level, const char *stage)
{
	char program[4096];
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);

	CHECK(len > 0);
	program[len] = '\0';
	setenv("RPMA_LOG_LEVEL", main_level, 1);
	setenv("RPMA_LOG_STDERR_LEVEL", stderr_level, 1);
	setenv("RPMA_TEST_STAGE", stage, 1);
	execl(program, program, "levels_from_environment", (char *)NULL);
	check_fail("cannot run %s", program);
}

/* Who runs a program has its log without recompiling it, whatever the program asks for. */
static void
levels_from_environment(const char *addr)
{
	const char *stage = getenv("RPMA_TEST_STAGE");
	char text[2048];

	(void)addr;
	if (is_original())
		check_skip("the original takes no levels from the environment");
	if (stage == NULL)
		run_with("DEBUG", "error", "1");
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_DISABLED));
	capture(text, sizeof(text));
	if (strcmp(stage, "1") == 0) {
		CHECK(strstr(text, "*ERROR*") != NULL);
		CHECK_INT(sys.count, 1);
		OK(rpma_log_set_function(note));
		debug_record();
		CHECK_INT(seen.at_level[RPMA_LOG_LEVEL_DEBUG], 1);
		run_with("disabled", "Disabled", "2");
	}
	CHECK_STR(text, "");
	CHECK_INT(sys.count, 0);
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_DEBUG));
	OK(rpma_log_set_function(note));
	provoke_error();
	debug_record();
	CHECK_INT(seen.count, 0);
}

#define THREADS 4
#define ROUNDS 2000

static void *
change(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		int ret = rpma_log_set_threshold(RPMA_LOG_THRESHOLD,
			i & 1 ? RPMA_LOG_LEVEL_ERROR : RPMA_LOG_DISABLED);

		CHECK(ret == 0 || ret == RPMA_E_AGAIN);
		ret = rpma_log_set_function(i & 2 ? note : (rpma_log_function *)arg);
		CHECK(ret == 0 || ret == RPMA_E_AGAIN);
	}
	return NULL;
}

static void
ignore(enum rpma_log_level level, const char *file, const int line, const char *function, const char *format, ...)
{
	(void)level; (void)file; (void)line; (void)function; (void)format;
}

static void *
provoke(void *arg)
{
	(void)arg;
	for (int i = 0; i < ROUNDS; i++)
		provoke_error();
	return NULL;
}

static void
changed_while_used(const char *addr)
{
	pthread_t threads[THREADS];

	(void)addr;
	OK(rpma_log_set_function(ignore));
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, i & 1 ? provoke : change, ignore) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

static const struct test tests[] = {
	LOCAL(thresholds),
	LOCAL(user_function),
	LOCAL(debug_records),
	LOCAL(to_syslog),
	LOCAL(to_stderr),
	LOCAL(errno_survives),
	LOCAL(levels_from_environment),
	LOCAL(changed_while_used),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
