/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * hosts.c - preloaded into a test's processes, puts its server and its clients on different hosts, which are network
 * namespaces: the C tests run between two hosts as they are. The starter is where the server is.
 *
 * RPMA_NET_CLIENT names the client host's namespace (a path such as /proc/PID/ns/net). A client's process enters it before
 * anything else. As the one address that the tests know is the server's, a client looks its device up by the way there.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <librpma.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_client;

static void __attribute__((constructor))
enter(void)
{
	const char *role = getenv("RPMA_TEST_ROLE"), *name = getenv("RPMA_NET_CLIENT");
	int fd;

	if (role == NULL || name == NULL || strcmp(role, "server") == 0)
		return;
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
		perror(name);
		_exit(1);
	}
	close(fd);
	is_client = 1;
}

int
rpma_utils_get_ibv_context(const char *addr, enum rpma_util_ibv_context_type type, struct ibv_context **ibv_ctx_ptr)
{
	int (*next)(const char *, enum rpma_util_ibv_context_type, struct ibv_context **);

	*(void **)&next = dlsym(RTLD_NEXT, "rpma_utils_get_ibv_context");
	if (next == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		_exit(1);
	}
	if (is_client && type == RPMA_UTIL_IBV_CONTEXT_LOCAL)
		type = RPMA_UTIL_IBV_CONTEXT_REMOTE;
	return next(addr, type, ibv_ctx_ptr);
}
