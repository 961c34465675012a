/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * flush.c - the flush operation: which type is possible on which region, that it comes after the writes before it, and
 * that what was flushed to persistence outlives the server.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/fabric.h"

#define VISIBILITY RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY
#define PERSISTENT RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT

/* Tells the connection what the other side can do. */
static void
apply(struct rpma_conn *conn, bool direct)
{
	struct rpma_peer_cfg *cfg = NULL;

	OK(rpma_peer_cfg_new(&cfg));
	OK(rpma_peer_cfg_set_direct_write_to_pmem(cfg, direct));
	OK(rpma_conn_apply_remote_peer_cfg(conn, cfg));
	OK(rpma_peer_cfg_delete(&cfg));
}

/* -- what is possible --------------------------------------------------------------------------------------------- */

static const int usages[] = {0, VISIBILITY, PERSISTENT, VISIBILITY | PERSISTENT};

static void
matrix_server(struct side *side)
{
	struct rpma_mr_local *mrs[4];
	struct ends e;

	open_server(side, &e, NULL);
	for (int u = 0; u < 4; u++) {
		mrs[u] = registered(e.peer, memory(PAGE, 0), PAGE, RPMA_MR_USAGE_WRITE_DST | usages[u]);
		give_mr(side, 0, mrs[u]);
	}
	hear(side, 0, "done");
	for (int u = 0; u < 4; u++)
		OK(rpma_mr_dereg(&mrs[u]));
	close_server(&e);
}

/* Both types on regions of each usage, before a configuration was applied, and with direct write off, on and off again. */
static void
matrix_client(struct side *side)
{
	struct rpma_mr_remote *mrs[4];
	struct ends e;
	uint64_t id = 0;

	open_client(side, &e, NULL);
	for (int u = 0; u < 4; u++) {
		int type = 77;

		mrs[u] = take_mr(side, 0);
		OK(rpma_mr_remote_get_flush_type(mrs[u], &type));
		CHECK_INT(type, usages[u]);
	}
	for (int configured = 0; configured < 4; configured++) {
		if (configured > 0)
			apply(e.conn, configured == 2);
		for (int u = 0; u < 4; u++) {
			for (int t = 0; t < 2; t++) {
				enum rpma_flush_type type = t ? RPMA_FLUSH_TYPE_VISIBILITY : RPMA_FLUSH_TYPE_PERSISTENT;
				bool possible = t ? (usages[u] & VISIBILITY) != 0 : (usages[u] & PERSISTENT) != 0 &&
					configured == 2;

				CHECK_CODE(rpma_flush(e.conn, mrs[u], 0, PAGE, type, RPMA_F_COMPLETION_ALWAYS, ID(++id)),
					possible ? 0 : RPMA_E_NOSUPP);
				/* The completion's opcode depends on how the device flushes. */
				if (possible)
					expect_status(e.cq, e.conn, IBV_WC_SUCCESS, id);
				expect_no_wc(e.cq);
			}
		}
	}
	say(side, 0, "done");
	for (int u = 0; u < 4; u++)
		OK(rpma_mr_remote_delete(&mrs[u]));
	close_client(&e);
}

static void
arguments_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 0), PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
arguments_client(struct side *side)
{
	struct rpma_peer_cfg *cfg = NULL;
	struct rpma_mr_remote *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = take_mr(side, 0);
	OK(rpma_peer_cfg_new(&cfg));
	INVAL(rpma_conn_apply_remote_peer_cfg(NULL, cfg));
	INVAL(rpma_conn_apply_remote_peer_cfg(e.conn, NULL));
	OK(rpma_peer_cfg_delete(&cfg));
	INVAL(rpma_flush(NULL, mr, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	INVAL(rpma_flush(e.conn, NULL, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	INVAL(rpma_flush(e.conn, mr, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, 0, ID(1)));
	/* An argument's error goes before a lack of support. */
	INVAL(rpma_flush(e.conn, mr, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, 0, ID(1)));
	if (!original_lacks("an unknown flush type is taken")) {
		INVAL(rpma_flush(e.conn, mr, 0, 8, (enum rpma_flush_type)77, RPMA_F_COMPLETION_ALWAYS, ID(1)));
		INVAL(rpma_flush(e.conn, mr, 0, 8, (enum rpma_flush_type)2, RPMA_F_COMPLETION_ALWAYS, ID(1)));
		INVAL(rpma_flush(e.conn, mr, 0, 8, (enum rpma_flush_type)-1, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	}
	expect_no_wc(e.cq);
	OK(rpma_flush(e.conn, mr, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, ID(2)));
	expect_status(e.cq, e.conn, IBV_WC_SUCCESS, 2);
	say(side, 0, "done");
	OK(rpma_mr_remote_delete(&mr));
	close_client(&e);
}

/* -- edges -------------------------------------------------------------------------------------------------------- */

static void
edges_server(struct side *side)
{
	struct rpma_mr_local *page, *small;
	struct ends e;
	unsigned char *mem = memory(2 * PAGE, 0);

	open_server(side, &e, NULL);
	page = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_WRITE_DST | VISIBILITY | PERSISTENT);
	small = registered(e.peer, mem + PAGE, 4, RPMA_MR_USAGE_WRITE_DST | VISIBILITY | PERSISTENT);
	give_mr(side, 0, page);
	give_mr(side, 0, small);
	hear(side, 0, "done");
	CHECK_FILL(mem + PAGE, 0x44, 4);
	CHECK_FILL(mem + PAGE + 4, 0, PAGE - 4);
	OK(rpma_mr_dereg(&page));
	OK(rpma_mr_dereg(&small));
	close_server(&e);
}

/* The last bytes of a region, a region of less than eight bytes, and no bytes at all can be flushed. */
static void
edges_client(struct side *side)
{
	struct rpma_mr_remote *page, *small;
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 0x44), PAGE, RPMA_MR_USAGE_WRITE_SRC);
	page = take_mr(side, 0);
	small = take_mr(side, 0);
	apply(e.conn, true);
	OK(rpma_flush(e.conn, page, PAGE - 8, 8, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	expect_status(e.cq, e.conn, IBV_WC_SUCCESS, 1);
	OK(rpma_flush(e.conn, page, 0, 0, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, ID(2)));
	expect_status(e.cq, e.conn, IBV_WC_SUCCESS, 2);
	if (original_lacks("a flush reaches over the end of a region's last bytes")) {
		OK(rpma_write(e.conn, small, 0, mr, 0, 4, RPMA_F_COMPLETION_ALWAYS, ID(10)));
		expect_done(e.cq, e.conn, IBV_WC_RDMA_WRITE, 10, 0);
	} else {
		for (unsigned n = 1; n < 8; n++) {
			OK(rpma_flush(e.conn, page, PAGE - n, n, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, ID(n)));
			expect_status(e.cq, e.conn, IBV_WC_SUCCESS, n);
		}
		OK(rpma_write(e.conn, small, 0, mr, 0, 4, RPMA_F_COMPLETION_ON_ERROR, ID(10)));
		OK(rpma_flush(e.conn, small, 0, 4, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, ID(11)));
		expect_status(e.cq, e.conn, IBV_WC_SUCCESS, 11);
		OK(rpma_flush(e.conn, small, 3, 1, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, ID(12)));
		expect_status(e.cq, e.conn, IBV_WC_SUCCESS, 12);
		/* No bytes, at the very end. */
		OK(rpma_flush(e.conn, page, PAGE, 0, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, ID(13)));
		expect_status(e.cq, e.conn, IBV_WC_SUCCESS, 13);
	}
	expect_no_wc(e.cq);
	say(side, 0, "done");
	OK(rpma_mr_remote_delete(&page));
	OK(rpma_mr_remote_delete(&small));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* -- order -------------------------------------------------------------------------------------------------------- */

#define WRITES 20

/* When the flush has completed, what was written before it is there, with no completion of the writes themselves. */
static void
after_writes_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned char *mem = memory(WRITES * PAGE, 0);

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, WRITES * PAGE, RPMA_MR_USAGE_WRITE_DST | VISIBILITY);
	give_mr(side, 0, mr);
	for (unsigned round = 1; round <= 5; round++) {
		hear(side, 0, "flushed");
		check_pattern("what was flushed", mem, WRITES * PAGE, round, 0);
		say(side, 0, "seen");
	}
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
after_writes_client(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(1, SIZE_KEEP, WRITES + 1, SIZE_KEEP);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned char *mem = memory(WRITES * PAGE, 0);

	open_client(side, &e, cfg);
	mr = registered(e.peer, mem, WRITES * PAGE, RPMA_MR_USAGE_WRITE_SRC);
	remote = take_mr(side, 0);
	for (unsigned round = 1; round <= 5; round++) {
		pattern(mem, WRITES * PAGE, round);
		for (unsigned i = 0; i < WRITES; i++)
			OK(rpma_write(e.conn, remote, i * PAGE, mr, i * PAGE, PAGE, RPMA_F_COMPLETION_ON_ERROR, ID(i)));
		OK(rpma_flush(e.conn, remote, 0, WRITES * PAGE, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
			ID(1000 + round)));
		expect_status(e.cq, e.conn, IBV_WC_SUCCESS, 1000 + round);
		expect_no_wc(e.cq);
		say(side, 0, "flushed");
		hear(side, 0, "seen");
	}
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	close_client(&e);
}

/* A flush that was not asked to complete does not, and fails like any request. */
static void
unsignalled_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 0), PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	hear(side, 0, "release");
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "released");
	hear(side, 0, "failed");
	OK(rpma_conn_delete(&e.conn));
	close_server(&e);
}

static void
unsignalled_client(struct side *side)
{
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned char *mem = memory(PAGE, 1);

	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	OK(rpma_flush(e.conn, remote, 0, PAGE, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ON_ERROR, ID(1)));
	OK(rpma_write(e.conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(2)));
	expect_done(e.cq, e.conn, IBV_WC_RDMA_WRITE, 2, 0);
	expect_no_wc(e.cq);
	say(side, 0, "release");
	hear(side, 0, "released");
	OK(rpma_flush(e.conn, remote, 0, PAGE, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ON_ERROR, ID(3)));
	expect_status(e.cq, e.conn, IBV_WC_REM_ACCESS_ERR, 3);
	OK(rpma_flush(e.conn, remote, 0, PAGE, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ON_ERROR, ID(4)));
	expect_status(e.cq, e.conn, IBV_WC_WR_FLUSH_ERR, 4);
	say(side, 0, "failed");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

/* -- persistence -------------------------------------------------------------------------------------------------- */

#define FILE_SIZE (16 * PAGE)

/* A file of the size; on persistent memory if RPMA_TEST_PMEM or the RDMA guest names a folder there. */
static int
make_file(char *path, size_t size)
{
	const char *dir = getenv("RPMA_TEST_PMEM");
	int fd;

	if (dir == NULL || *dir == '\0')
		dir = getenv("TMPDIR");
	snprintf(path, size, "%s/rpma-flush-XXXXXX", dir != NULL && *dir != '\0' ? dir : "/tmp");
	fd = mkstemp(path);
	CHECK(fd >= 0);
	CHECK(ftruncate(fd, FILE_SIZE) == 0);
	return fd;
}

static void
outlives_server_server(struct side *side)
{
	struct rpma_mr_local *mr = NULL;
	char path[256];
	struct ends e;
	void *mem;
	int fd;

	take(side, 0, path, sizeof(path));
	fd = open(path, O_RDWR);
	CHECK(fd >= 0);
	mem = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(mem != MAP_FAILED);
	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, FILE_SIZE, RPMA_MR_USAGE_WRITE_DST | PERSISTENT);
	give_mr(side, 0, mr);
	hear(side, 0, "never said");
}

/* What was flushed is in the file after the server has been killed. */
static void
outlives_server_client(struct side *side)
{
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	enum rpma_conn_event event;
	char path[256] = "";
	struct ends e;
	unsigned char *mem = memory(FILE_SIZE, 0), *back = memory(FILE_SIZE, 0);
	int fd = make_file(path, sizeof(path));

	pattern(mem, FILE_SIZE, 21);
	give(side, 0, path, sizeof(path));
	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, FILE_SIZE, RPMA_MR_USAGE_WRITE_SRC);
	remote = take_mr(side, 0);
	apply(e.conn, true);
	for (unsigned i = 0; i < FILE_SIZE / PAGE; i++) {
		OK(rpma_write(e.conn, remote, i * PAGE, mr, i * PAGE, PAGE, RPMA_F_COMPLETION_ON_ERROR, ID(i)));
		OK(rpma_flush(e.conn, remote, i * PAGE, PAGE, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS,
			ID(100 + i)));
		expect_status(e.cq, e.conn, IBV_WC_SUCCESS, 100 + i);
	}
	kill_server(side);
	CHECK(unlink(path) == 0);
	CHECK(pread(fd, back, FILE_SIZE, 0) == FILE_SIZE);
	check_pattern("the file", back, FILE_SIZE, 21, 0);
	OK(rpma_conn_next_event(e.conn, &event));
	CHECK(event == RPMA_CONN_CLOSED || event == RPMA_CONN_LOST);
	close(fd);
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

static const struct test tests[] = {
	PAIR(matrix),
	PAIR(arguments),
	PAIR(edges),
	PAIR(after_writes),
	PAIR(unsignalled),
	KILLED(outlives_server),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
