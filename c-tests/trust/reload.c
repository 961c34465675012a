/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * reload.c - a program that opens the library at run time, uses it and closes it, again and again, as plugins do.
 *
 * usage: reload LIBRARY ADDR TIMES
 *
 * Every turn makes what starts the library's thread: a peer, a listener, a region. Descriptors and mapped memory may not grow.
 */

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counts what a folder of /proc/self lists. */
static int
entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	if (dir == NULL)
		return -1;
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

static int
lines(const char *path)
{
	FILE *file = fopen(path, "r");
	int n = 0, c;

	if (file == NULL)
		return -1;
	while ((c = getc(file)) != EOF)
		n += c == '\n';
	fclose(file);
	return n;
}

#define FIND(name) *(void **)&name = dlsym(library, "rpma_" #name); if (name == NULL) return "no rpma_" #name
#define DO(call) if ((call) != 0) return #call

static const char *
turn(const char *path, const char *addr)
{
	int (*utils_get_ibv_context)(const char *, int, void **), (*peer_new)(void *, void **), (*peer_delete)(void **);
	int (*ep_listen)(void *, const char *, const char *, void **), (*ep_shutdown)(void **);
	int (*mr_reg)(void *, void *, size_t, int, void **), (*mr_dereg)(void **);
	static char memory[4096];
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *device = NULL, *peer = NULL, *ep = NULL, *mr = NULL;

	if (library == NULL)
		return dlerror();
	FIND(utils_get_ibv_context);
	FIND(peer_new);
	FIND(peer_delete);
	FIND(ep_listen);
	FIND(ep_shutdown);
	FIND(mr_reg);
	FIND(mr_dereg);
	DO(utils_get_ibv_context(addr, 0, &device));
	DO(peer_new(device, &peer));
	DO(ep_listen(peer, addr, "0", &ep));
	DO(mr_reg(peer, memory, sizeof(memory), 0xff, &mr));
	DO(mr_dereg(&mr));
	DO(ep_shutdown(&ep));
	DO(peer_delete(&peer));
	if (dlclose(library) != 0)
		return dlerror();
	return NULL;
}

int
main(int argc, char **argv)
{
	int times = argc > 3 ? atoi(argv[3]) : 0, descriptors = 0, threads = 0, mappings = 0;

	if (times < 2)
		return 2;
	for (int i = 0; i < times; i++) {
		const char *wrong = turn(argv[1], argv[2]);

		if (wrong != NULL) {
			printf("turn %d: %s\n", i, wrong);
			return 1;
		}
		if (i == 0) {
			descriptors = entries("/proc/self/fd");
			threads = entries("/proc/self/task");
			mappings = lines("/proc/self/maps");
		}
	}
	printf("INFO: %d turns; descriptors %d, then %d; threads %d, then %d; mappings %d, then %d\n", times, descriptors,
		entries("/proc/self/fd"), threads, entries("/proc/self/task"), mappings, lines("/proc/self/maps"));
	if (entries("/proc/self/fd") != descriptors || entries("/proc/self/task") != threads || lines("/proc/self/maps") > mappings + 2)
		return 1;
	return 0;
}
