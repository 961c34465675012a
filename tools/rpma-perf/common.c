/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* common.c - memory, what it holds, and what client and server tell each other; see perf.h. */

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "perf.h"

#define MAGIC 0x46525052u
#define VERSION 1
#define HUGE_PAGE ((size_t)2 << 20)

const char *const operation_names[OPERATIONS] = {
	"write", "read", "flush-visibility", "flush-persistent", "atomic", "send", "write-imm",
};

const char *const pages_names[PAGES] = {"default", "small", "huge"};

void
die(const char *fmt, ...)
{
	va_list ap;

	fputs("rpma-perf: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	/* Other threads may be in the middle of something: no handlers. */
	_Exit(1);
}

void
die_rpma(const char *what, int code)
{
	die("%s: %s (RPMA_LOG_STDERR_LEVEL=error says more)", what, rpma_err_2str(code));
}

void
work_pack(const struct work *work, unsigned char bytes[WORK_BYTES])
{
	uint32_t magic = htole32(MAGIC), depth = htole32((uint32_t)work->depth);
	uint64_t size = htole64(work->size);

	memcpy(bytes, &magic, 4);
	bytes[4] = VERSION;
	bytes[5] = (unsigned char)work->op;
	bytes[6] = work->wait;
	bytes[7] = (unsigned char)work->pages;
	memcpy(bytes + 8, &depth, 4);
	memcpy(bytes + 12, &size, 8);
}

bool
work_unpack(struct work *work, const unsigned char *bytes, size_t len)
{
	uint32_t magic, depth;
	uint64_t size;

	/* A fabric may have filled up the private data. */
	if (bytes == NULL || len < WORK_BYTES)
		return false;
	memcpy(&magic, bytes, 4);
	memcpy(&depth, bytes + 8, 4);
	memcpy(&size, bytes + 12, 8);
	depth = le32toh(depth);
	size = le64toh(size);
	if (le32toh(magic) != MAGIC || bytes[4] != VERSION || bytes[5] >= OPERATIONS || bytes[6] > 1 || bytes[7] >= PAGES)
		return false;
	if (depth == 0 || depth > DEPTH_MAX || size == 0 || size > SIZE_MAX_BYTES)
		return false;
	work->op = (enum operation)bytes[5];
	work->wait = bytes[6];
	work->pages = (enum pages)bytes[7];
	work->depth = depth;
	work->size = (size_t)size;
	return work_memory(work) <= MEMORY_MAX;
}

size_t
work_receives(const struct work *work)
{
	switch (work->op) {
	case OP_SEND:
		/* One more than can be on the way: a buffer is not written to while its answer is still to be sent. */
		return work->depth + 1;
	case OP_WRITE_IMM:
		/* They take up no memory, and many of them keep the client from waiting for one. */
		return 2 * work->depth + 64;
	default:
		return 0;
	}
}

size_t
work_memory(const struct work *work)
{
	return work->size * (work->op == OP_SEND ? work_receives(work) : work->depth);
}

void *
memory_new(size_t size, enum pages pages, int fd, size_t offset)
{
	size_t whole = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	char *ptr;

	if (fd >= 0) {
		ptr = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
		if (ptr == MAP_FAILED)
			die("cannot map the file: %s", strerror(errno));
	} else {
		/* Room to begin at a huge page's boundary; what is left over costs no memory. */
		char *base = mmap(NULL, whole + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		size_t skip;

		if (base == MAP_FAILED)
			die("cannot get %zu bytes of memory: %s", size, strerror(errno));
		skip = (HUGE_PAGE - (uintptr_t)base % HUGE_PAGE) % HUGE_PAGE;
		ptr = base + skip;
		if (skip > 0)
			munmap(base, skip);
		munmap(ptr + whole, HUGE_PAGE - skip);
		if (pages != PAGES_DEFAULT &&
		    madvise(ptr, whole, pages == PAGES_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0)
			die("this kernel lets nobody choose the size of pages: %s", strerror(errno));
	}
	/* All of it is touched, so that no page is missing when it is measured. */
	memset(ptr, 0, size);
	return ptr;
}

void
memory_delete(void *ptr, size_t size)
{
	munmap(ptr, (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
}

static unsigned char
pattern_at(size_t slot, size_t n)
{
	uint64_t x = ((uint64_t)slot << 32 | n) + 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
	return (unsigned char)(x >> 56 | 1);	/* never what untouched memory has */
}

void
pattern_fill(void *ptr, size_t size, size_t slots)
{
	unsigned char *bytes = ptr;

	for (size_t slot = 0; slot < slots; slot++)
		for (size_t n = 0; n < size; n++)
			bytes[slot * size + n] = pattern_at(slot, n);
}

void
pattern_check(const void *ptr, size_t size, size_t slots, const struct work *work)
{
	const unsigned char *bytes = ptr;

	for (size_t slot = 0; slot < slots; slot++)
		for (size_t n = 0; n < size; n++)
			if (bytes[slot * size + n] != pattern_at(slot, n))
				die("%s of %zu bytes: byte %zu of slot %zu is 0x%02x, not 0x%02x", operation_names[work->op],
					size, n, slot, bytes[slot * size + n], pattern_at(slot, n));
}

struct rpma_peer *
peer_at(const char *addr, enum rpma_util_ibv_context_type type, const char **device)
{
	struct ibv_context *ctx = NULL;
	struct rpma_peer *peer = NULL;
	int ret = rpma_utils_get_ibv_context(addr, type, &ctx);

	if (ret != 0)
		die("no device for %s: %s (RPMA_LOG_STDERR_LEVEL=error says more)", addr, rpma_err_2str(ret));
	*device = ctx->device->name;
	OK(rpma_peer_new(ctx, &peer));
	return peer;
}

void
expect_established(struct rpma_conn *conn)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	OK(rpma_conn_next_event(conn, &event));
	if (event != RPMA_CONN_ESTABLISHED)
		die("no connection: %s", rpma_utils_conn_event_2str(event));
}
