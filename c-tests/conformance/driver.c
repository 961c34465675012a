/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * Runs cases: one a line on standard input, "NAME|SCRIPT". Each runs in a child of its own; its
 * trace and how it ended go to standard output. No scenario is in here (scenarios_*.c), and no
 * judgement: comparing is the runner's.
 *
 * Words of a script that are the driver's own, not the provider's:
 *   oom=K        the K-th allocation inside the library's calls fails
 *   oom_count=1  tell how many allocations each call made
 *
 * With COLD_START in the environment the library is not called before the first case, so that a
 * case sees it set itself up.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

#define TRACE_SIZE (8 << 20)
#define CASE_SECONDS 5

static char *trace;
static int verbose; /* tell messages and look-ups too */
static volatile size_t *trace_used;

/* failing allocations */

static volatile int inside_call; /* only the library's own allocations count */
static int oom_at, oom_counting, allocations;

static int
allocation_fails(void)
{
	if (!inside_call || (!oom_at && !oom_counting))
		return 0;
	allocations++;
	if (oom_counting)
		script_say("    allocation");
	if (oom_at && allocations == oom_at) {
		inside_call = 0;
		script_say("    allocation fails");
		inside_call = 1;
		errno = ENOMEM;
		return 1;
	}
	return 0;
}

/*
 * Memory the library took inside its calls and has not given back: an open-addressed set of
 * addresses. Whatever is allocated elsewhere is not in it.
 */
#define HELD_SLOTS (1 << 14)
static void *held[HELD_SLOTS];
static int held_count;

static void
hold(void *address)
{
	if (!inside_call || address == NULL || held_count > HELD_SLOTS / 2)
		return;
	size_t slot = ((uintptr_t)address >> 4) % HELD_SLOTS;
	while (held[slot] != NULL && held[slot] != UNTOUCHED)
		slot = (slot + 1) % HELD_SLOTS;
	held[slot] = address;
	held_count++;
}

static void
give_back(void *address)
{
	if (held_count == 0 || address == NULL)
		return;
	size_t slot = ((uintptr_t)address >> 4) % HELD_SLOTS;
	for (; held[slot] != NULL; slot = (slot + 1) % HELD_SLOTS) {
		if (held[slot] == address) {
			held[slot] = UNTOUCHED; /* a grave: later slots must stay reachable */
			held_count--;
			return;
		}
	}
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *address);

static void *
held_now(void *address)
{
	hold(address);
	return address;
}

void *
malloc(size_t size)
{
	return allocation_fails() ? NULL : held_now(__libc_malloc(size));
}

void *
calloc(size_t count, size_t size)
{
	return allocation_fails() ? NULL : held_now(__libc_calloc(count, size));
}

void *
realloc(void *old, size_t size)
{
	if (allocation_fails())
		return NULL;
	give_back(old);
	return held_now(__libc_realloc(old, size));
}

void *
aligned_alloc(size_t alignment, size_t size)
{
	return allocation_fails() ? NULL : held_now(__libc_memalign(alignment, size));
}

void *
memalign(size_t alignment, size_t size)
{
	return allocation_fails() ? NULL : held_now(__libc_memalign(alignment, size));
}

int
posix_memalign(void **out, size_t alignment, size_t size)
{
	if (allocation_fails())
		return ENOMEM;
	void *got = held_now(__libc_memalign(alignment, size));
	if (got == NULL)
		return ENOMEM;
	*out = got;
	return 0;
}

void
free(void *address)
{
	give_back(address);
	__libc_free(address);
}

void *
mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (allocation_fails())
		return MAP_FAILED;
	void *got = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
	return got == MAP_FAILED ? got : held_now(got);
}

int
munmap(void *address, size_t length)
{
	give_back(address);
	return (int)syscall(SYS_munmap, address, length);
}

/* system log: told instead of sent */

static struct {
	int times;
	char ident[32];
	int option;
	int facility;
} opened;

static int normalised_line(const char *line, int with_prefix, char *out, size_t size);

void
openlog(const char *ident, int option, int facility)
{
	opened.times++;
	snprintf(opened.ident, sizeof(opened.ident), "%s", ident);
	opened.option = option;
	opened.facility = facility;
}

static void
tell_syslog(int priority, const char *format, va_list args)
{
	char line[2048], out[2048];
	vsnprintf(line, sizeof(line), format, args);
	normalised_line(line, 0, out, sizeof(out));
	script_say("    syslog priority=%d %s", priority, out);
}

void
syslog(int priority, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	tell_syslog(priority, format, args);
	va_end(args);
}

void
vsyslog(int priority, const char *format, va_list args)
{
	tell_syslog(priority, format, args);
}

void __syslog_chk(int priority, int flag, const char *format, ...);
void
__syslog_chk(int priority, int flag, const char *format, ...)
{
	(void) flag;
	va_list args;
	va_start(args, format);
	tell_syslog(priority, format, args);
	va_end(args);
}

void
say_syslog_opened(void)
{
	script_say("    openlog ident=%s option=%d facility=%d", opened.ident, opened.option,
			opened.facility >> 3);
}

/*
 * A line of the default log function with what differs from run to run checked and masked:
 * "TIME [TID] *LEVEL* FILE: LINE: FUNCTION: TEXT".
 */
static int
normalised_line(const char *line, int with_prefix, char *out, size_t size)
{
	const char *at = line;
	size_t used = 0;
	if (with_prefix) {
		struct tm tm;
		const char *after = strptime(at, "%b %d %H:%M:%S.", &tm);
		int digits = 0;
		while (after && digits < 6 && after[digits] >= '0' && after[digits] <= '9')
			digits++;
		char tid[32];
		snprintf(tid, sizeof(tid), " [%ld] ", (long)syscall(SYS_gettid));
		if (after == NULL || digits != 6 || strncmp(after + 6, tid, strlen(tid)) != 0) {
			snprintf(out, size, "malformed prefix: %s", line);
			return -1;
		}
		used += (size_t)snprintf(out, size, "TIME [TID] ");
		at = after + 6 + strlen(tid);
	}

	char file[128], function[128];
	int line_no = 0, level_length = 0, rest = 0;
	/* the level is eight columns wide with its blanks */
	if (sscanf(at, "%*8c%n", &level_length) < 0 || level_length != 8 ||
			sscanf(at + 8, "%127[^:/]: %d: %127[^:]: %n", file, &line_no, function, &rest) != 3 ||
			rest == 0) {
		snprintf(out + used, size - used, "malformed: %s", at);
		return -1;
	}
	char expected[300];
	snprintf(expected, sizeof(expected), "%s: %3d: %s: ", file, line_no, function);
	if (strncmp(at + 8, expected, strlen(expected)) != 0 || line_no <= 0) {
		snprintf(out + used, size - used, "malformed: %s", at);
		return -1;
	}
	const char *text = at + 8 + rest;
	size_t length = strlen(text);
	snprintf(out + used, size - used, "%.8sFILE: LINE: %s: TEXT%s", at, function,
			length > 0 && text[length - 1] == '\n' ? " newline" : "");
	return 0;
}

static int captured = -1;

void
capture_stderr(void)
{
	captured = memfd_create("stderr", 0);
	dup2(captured, STDERR_FILENO);
}

void
say_stderr(void)
{
	static char text[65536];
	char out[2048];
	ssize_t got = pread(captured, text, sizeof(text) - 1, 0);
	text[got > 0 ? got : 0] = '\0';
	for (char *line = text; *line;) {
		char *end = strchr(line, '\n');
		char saved = 0;
		if (end) {
			saved = end[1];
			end[1] = '\0';
		}
		normalised_line(line, 1, out, sizeof(out));
		script_say("    stderr %s", out);
		if (end == NULL)
			break;
		end[1] = saved;
		line = end + 1;
	}
	if (ftruncate(captured, 0) == 0)
		lseek(captured, 0, SEEK_SET);
}

/* a scenario's words */

void
api_begin(const char *format, ...)
{
	char call[512];
	va_list args;
	va_start(args, format);
	vsnprintf(call, sizeof(call), format, args);
	va_end(args);
	for (char *c = call; *c; c++)
		if (*c == '\n' || *c == '\t')
			*c = ' ';
	script_say("%s", call);
	(void) script_failures(1, NULL);
	errno = 0;
	inside_call = 1;
}

int
api_end(int ret)
{
	inside_call = 0;
	int saved = errno, first;
	/* where the caller is to blame, errno means nothing */
	if (ret != 0 && ret != RPMA_E_INVAL && script_failures(1, &first) > 0)
		script_say("  -> %d errno=%s%s", ret, script_errno(saved),
				saved == first ? " of the first failure" : "");
	else
		script_say("  -> %d", ret);
	return ret;
}

void
say_pointer(const char *name, const void *pointer)
{
	script_say("     %s %s", name, pointer == NULL ? "NULL" : pointer == UNTOUCHED ? "unchanged" : "set");
}

void
say_int(const char *name, long long value)
{
	if ((int)value == UNTOUCHED_INT)
		script_say("     %s unchanged", name);
	else
		script_say("     %s %lld", name, value);
}

void
say_bytes(const char *name, const void *data, size_t size)
{
	char hex[1025] = "";
	for (size_t i = 0; i < size && i < 512; i++)
		snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)data)[i]);
	script_say("     %s %s", name, hex);
}

void
say_fd(const char *name, int fd)
{
	if (fd == UNTOUCHED_INT)
		script_say("     %s unchanged", name);
	else if (fd > 2000)
		script_say("     %s evch#%d", name, fd - 2000);
	else if (fd > 1000)
		script_say("     %s channel#%d", name, fd - 1000);
	else
		script_say("     %s ?", name);
}

static void
log_to_trace(enum rpma_log_level level, const char *file, const int line, const char *function,
		const char *format, ...)
{
	static const char *const names[] = {"FATAL", "ERROR", "WARNING", "NOTICE", "INFO", "DEBUG"};
	char text[1024];
	int saved = errno;
	va_list args;
	va_start(args, format);
	int length = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	int newline = length > 0 && (size_t)length < sizeof(text) && text[length - 1] == '\n';
	for (char *c = text; *c; c++)
		if (*c == '\n')
			*c = ' ';
	/* the wording is for the reader: it is not compared */
	script_say("    log %s %s%s%s%s%s",
			(unsigned)level < 6 ? names[level] : "?", function ? function : "NULL",
			newline ? " newline" : "", file == NULL || line <= 0 ? " nowhere" : "",
			verbose ? " | " : "", verbose ? text : "");
	errno = saved;
}

void
trace_log(enum rpma_log_level threshold)
{
	(void) rpma_log_set_function(log_to_trace);
	(void) rpma_log_set_threshold(RPMA_LOG_THRESHOLD, threshold);
}

/* cases */

static int
load(char *script)
{
	/* the driver's words are taken out, the rest is the provider's */
	char rest[1024] = "";
	for (char *word = strtok(script, " \n"); word; word = strtok(NULL, " \n")) {
		if (strncmp(word, "oom=", 4) == 0)
			oom_at = atoi(word + 4);
		else if (strncmp(word, "oom_count=", 10) == 0)
			oom_counting = atoi(word + 10);
		else
			snprintf(rest + strlen(rest), sizeof(rest) - strlen(rest), "%s ", word);
	}
	return script_load(rest);
}

static int
run(const char *name)
{
	for (size_t i = 0; i < n_scenarios; i++) {
		size_t length = strlen(scenarios[i].name);
		if (strncmp(name, scenarios[i].name, length) != 0 ||
				(name[length] != '\0' && name[length] != '/'))
			continue;
		trace_log(RPMA_LOG_LEVEL_DEBUG);
		scenarios[i].run(name[length] == '/' ? name + length + 1 : "");
		return 0;
	}
	return -1;
}

static void
list(void)
{
	for (size_t i = 0; i < n_scenarios; i++) {
		const char *const *variant = scenarios[i].variants;
		if (variant == NULL)
			printf("%s\n", scenarios[i].name);
		for (; variant && *variant; variant++)
			printf("%s/%s\n", scenarios[i].name, *variant);
	}
}

/* Waits for the child, which holds the other end of the pipe while it lives, CASE_SECONDS at most. */
static void
outcome(pid_t child, int alive, char *out, size_t size)
{
	struct pollfd wait = {alive, POLLIN, 0};
	int status, hung = poll(&wait, 1, CASE_SECONDS * 1000) == 0;
	close(alive);
	if (hung)
		kill(child, SIGKILL);
	waitpid(child, &status, 0);
	if (hung)
		snprintf(out, size, "hangs");
	else if (WIFSIGNALED(status))
		snprintf(out, size, "dies of %s", sigabbrev_np(WTERMSIG(status)));
	else if (WEXITSTATUS(status) != 0)
		snprintf(out, size, "exits with %d", WEXITSTATUS(status));
	else
		snprintf(out, size, "ends");
}

int
main(int argc, char *argv[])
{
	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		list();
		return 0;
	}
	verbose = argc == 2 && strcmp(argv[1], "--verbose") == 0;
	script_tell_look_ups(verbose);

	trace = mmap(NULL, TRACE_SIZE + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	trace_used = (volatile size_t *)(trace + TRACE_SIZE);

	/* whatever the library sets up on first use is not a case's business, nor are its allocations */
	struct ibv_context *context = NULL;
	if (getenv("COLD_START") == NULL)
		(void) rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context);

	char line[2048], ended[64];
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		printf("=== %s\n", line);
		fflush(stdout);
		char *bar = strchr(line, '|');
		if (bar == NULL)
			return 2;
		*bar = '\0';

		script_forget();
		script_trace_to(trace, TRACE_SIZE, trace_used);
		int alive[2];
		if (pipe(alive))
			return 5;
		pid_t child = fork();
		if (child == 0) {
			close(alive[0]);
			if (load(bar + 1))
				_exit(3);
			(void) script_context();
			if (run(line))
				_exit(4);
			script_say_live();
			if (held_count)
				script_say("    live memory: %d blocks", held_count);
			_exit(0);
		}
		close(alive[1]);
		outcome(child, alive[0], ended, sizeof(ended));
		fwrite(trace, 1, *trace_used, stdout);
		printf("--- %s\n", ended);
	}
	return 0;
}
