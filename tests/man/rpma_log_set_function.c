/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */
#include <stdarg.h>
#include <stdio.h>
#include <librpma.h>

/* Writes records to standard error, without the library's own prefix. */
static void
to_stderr(enum rpma_log_level level, const char *file, const int line,
		const char *function, const char *format, ...)
{
	va_list args;

	(void)file, (void)line;
	fprintf(stderr, "%d %s: ", (int)level, function);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
}

int
use_own_log(void)
{
	return rpma_log_set_function(to_stderr);
}
