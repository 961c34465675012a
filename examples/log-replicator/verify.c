/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * verify.c - reads a log's file, as whoever comes after a crash would, and checks every record in it.
 *
 * usage: verify FILE [AT-LEAST [AT-MOST]]
 *
 * AT-LEAST is the last record that was acknowledged to the client, AT-MOST the last one that the client sent. Exit status: 0 if
 * the log is whole and its last record is within these bounds, else 1. This program has nothing to do with RDMA.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

int
main(int argc, char *argv[])
{
	struct log_found found;
	struct stat status;
	uint64_t at_least, at_most;
	const char *wrong;
	char *base;
	int fd;

	if (argc < 2 || argc > 4) {
		fprintf(stderr, "usage: %s FILE [AT-LEAST [AT-MOST]]\n", argv[0]);
		return 2;
	}
	at_least = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	at_most = argc > 3 ? strtoull(argv[3], NULL, 10) : UINT64_MAX;

	fd = open(argv[1], O_RDONLY);
	if (fd < 0 || fstat(fd, &status) != 0) {
		fprintf(stderr, "verify: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	if (status.st_size == 0) {
		fprintf(stderr, "verify: %s is empty\n", argv[1]);
		close(fd);
		return 1;
	}
	base = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (base == MAP_FAILED) {
		fprintf(stderr, "verify: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	wrong = log_walk(base, (size_t)status.st_size, &found);
	munmap(base, (size_t)status.st_size);

	printf("found %" PRIu64 " records, %" PRIu64 " bytes of data, tail at %" PRIu64 "\n", found.records, found.bytes, found.tail);
	if (wrong != NULL) {
		printf("WRONG: after record %" PRIu64 ": %s\n", found.records, wrong);
		return 1;
	}
	if (found.records < at_least) {
		printf("WRONG: record %" PRIu64 " was acknowledged and is not there\n", at_least);
		return 1;
	}
	if (found.records > at_most) {
		printf("WRONG: record %" PRIu64 " was never sent\n", found.records);
		return 1;
	}
	return 0;
}
