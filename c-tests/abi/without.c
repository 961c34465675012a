/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * without.c -- loads the library named by the first argument where rdma-core cannot be found. What needs no rdma-core must
 * work, and what does must say that the provider failed.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define E_PROVIDER (-100002)
#define CONTEXT_LOCAL 0

/* A function's address out of an object pointer; ISO C has no cast for it. */
#define LOOK_UP(library, function) (*(void **)&(function) = dlsym(library, #function))

int
main(int argc, char *argv[])
{
	int (*rpma_conn_cfg_new)(void **);
	int (*rpma_conn_cfg_delete)(void **);
	int (*rpma_utils_get_ibv_context)(const char *, int, void **);
	void *library, *cfg = NULL, *context = NULL;
	int ret;

	if (argc != 2)
		return 2;
	library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		printf("%s\n", dlerror());
		return 1;
	}
	if (LOOK_UP(library, rpma_conn_cfg_new) == NULL || LOOK_UP(library, rpma_conn_cfg_delete) == NULL ||
			LOOK_UP(library, rpma_utils_get_ibv_context) == NULL) {
		printf("%s\n", dlerror());
		return 1;
	}
	if (rpma_conn_cfg_new(&cfg) != 0 || rpma_conn_cfg_delete(&cfg) != 0 || cfg != NULL) {
		printf("a configuration cannot be made and deleted\n");
		return 1;
	}
	ret = rpma_utils_get_ibv_context("127.0.0.1", CONTEXT_LOCAL, &context);
	if (ret != E_PROVIDER || context != NULL) {
		printf("rpma_utils_get_ibv_context returned %d, context %s\n", ret, context ? "set" : "not set");
		return 1;
	}
	return 0;
}
