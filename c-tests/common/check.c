/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* check.c - reporting of assertions; see check.h. */

#include <librpma.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

char check_role[32] = "test";
const char *volatile check_file = "start";
volatile int check_line;
const char *volatile check_from_file;
volatile int check_from_line;

static const char *
base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

void
check_place(char *text, size_t size)
{
	const char *from = check_from_file;

	/* A helper's line alone would not say which step of the test it was. */
	if (from != NULL && strstr(check_file, "/common/") != NULL)
		snprintf(text, size, "%s: %s:%d (from %s:%d)", check_role, base(check_file), check_line,
			base(from), check_from_line);
	else
		snprintf(text, size, "%s: %s:%d", check_role, base(check_file), check_line);
}

/* One write a report, so that the processes of a test do not mix their lines. */
static void
report(const char *head, const char *fmt, va_list ap)
{
	char line[2048];
	int len = snprintf(line, sizeof(line), "%s", head);

	len += vsnprintf(line + len, sizeof(line) - (size_t)len - 1, fmt, ap);
	if (len > (int)sizeof(line) - 2)
		len = (int)sizeof(line) - 2;
	line[len++] = '\n';
	if (write(STDOUT_FILENO, line, (size_t)len) < 0)
		_exit(1);
}

void
check_fail(const char *fmt, ...)
{
	char head[256];
	va_list ap;

	check_place(head, sizeof(head) - 2);
	strcat(head, ": ");
	va_start(ap, fmt);
	report(head, fmt, ap);
	va_end(ap);
	_exit(1);
}

void
check_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report("SKIP: ", fmt, ap);
	va_end(ap);
	_exit(STATUS_SKIP);
}

void
skip_under_memcheck(void)
{
	const char *value = getenv("RPMA_TEST_MEMCHECK");

	if (value != NULL && strcmp(value, "1") == 0)
		check_skip("memcheck takes the checks on memory that is gone for errors");
}

void
check_info(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report("INFO: ", fmt, ap);
	va_end(ap);
}

bool
is_original(void)
{
	const char *value = getenv("RPMA_TEST_ORACLE");

	return value != NULL && strcmp(value, "1") == 0;
}

bool
original_lacks(const char *why)
{
	if (!is_original())
		return false;
	check_info("left out with the original library: %s", why);
	return true;
}

const char *
code_name(int code)
{
	static const struct {
		int code;
		const char *name;
	} names[] = {
		{0, "success"},
		{RPMA_E_UNKNOWN, "RPMA_E_UNKNOWN"},
		{RPMA_E_NOSUPP, "RPMA_E_NOSUPP"},
		{RPMA_E_PROVIDER, "RPMA_E_PROVIDER"},
		{RPMA_E_NOMEM, "RPMA_E_NOMEM"},
		{RPMA_E_INVAL, "RPMA_E_INVAL"},
		{RPMA_E_NO_COMPLETION, "RPMA_E_NO_COMPLETION"},
		{RPMA_E_NO_EVENT, "RPMA_E_NO_EVENT"},
		{RPMA_E_AGAIN, "RPMA_E_AGAIN"},
		{RPMA_E_SHARED_CHANNEL, "RPMA_E_SHARED_CHANNEL"},
		{RPMA_E_NOT_SHARED_CHNL, "RPMA_E_NOT_SHARED_CHNL"},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].code == code)
			return names[i].name;
	return "no code of the library";
}

void
check_int(const char *what, long long got, long long want)
{
	if (got != want)
		check_fail("%s is %lld (0x%llx), not %lld (0x%llx)", what, got, got, want, want);
}

void
check_code(const char *what, int got, int want)
{
	if (got != want)
		check_fail("%s: %d (%s), not %d (%s)", what, got, code_name(got), want, code_name(want));
}

void
check_str(const char *what, const char *got, const char *want)
{
	if (got == NULL || strcmp(got, want) != 0)
		check_fail("%s is \"%s\", not \"%s\"", what, got ? got : "(null)", want);
}

void
check_mem(const char *what, const void *got, const void *want, size_t len)
{
	const unsigned char *g = got, *w = want;

	for (size_t i = 0; i < len; i++)
		if (g[i] != w[i])
			check_fail("%s: byte %zu of %zu is 0x%02x, not 0x%02x", what, i, len, g[i], w[i]);
}

void
check_fill(const char *what, const void *got, unsigned char want, size_t len)
{
	const unsigned char *g = got;

	for (size_t i = 0; i < len; i++)
		if (g[i] != want)
			check_fail("%s: byte %zu of %zu is 0x%02x, not 0x%02x throughout", what, i, len, g[i], want);
}
