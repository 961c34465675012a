/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* atomic.c - the atomic write of eight bytes: arguments, place, order after the writes before it, and that it never tears. */

#include <stdlib.h>
#include <string.h>

#include "common/fabric.h"

static void
serve(struct side *side, unsigned char *mem, size_t size)
{
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, size, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
	give_mr(side, 0, mr);
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "released");
	close_server(&e);
}

static void
places_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0xee);

	serve(side, mem, PAGE);
	for (size_t i = 0; i < PAGE / 8; i++) {
		if (i == 0 || i == 1 || i == 100 || i == PAGE / 8 - 1) {
			CHECK_INT(mem[8 * i], i & 0xff);
			CHECK_MEM(mem + 8 * i + 1, "atomic!", 7);
		} else {
			CHECK_FILL(mem + 8 * i, 0xee, 8);
		}
	}
}

static void
places_client(struct side *side)
{
	static const size_t places[] = {0, 1, 100, PAGE / 8 - 1};
	struct rpma_mr_remote *remote;
	struct ends e;
	char value[8] = {0};

	open_client(side, &e, NULL);
	remote = take_mr(side, 0);
	memcpy(value + 1, "atomic!", 7);
	for (unsigned i = 0; i < 4; i++) {
		value[0] = (char)(places[i] & 0xff);
		OK(rpma_atomic_write(e.conn, remote, 8 * places[i], value, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		/* The value was taken at the call. */
		value[0] = 'x';
		/* The opcode depends on how the device does it. */
		expect_status(e.cq, e.conn, IBV_WC_SUCCESS, i);
	}
	value[0] = 'y';
	for (size_t offset = 1; offset < 8; offset++)
		INVAL(rpma_atomic_write(e.conn, remote, offset, value, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	INVAL(rpma_atomic_write(e.conn, remote, PAGE - 4, value, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	INVAL(rpma_atomic_write(NULL, remote, 0, value, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	INVAL(rpma_atomic_write(e.conn, NULL, 0, value, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	INVAL(rpma_atomic_write(e.conn, remote, 0, NULL, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	INVAL(rpma_atomic_write(e.conn, remote, 0, value, 0, ID(1)));
	expect_no_wc(e.cq);
	say(side, 0, "done");
	hear(side, 0, "released");
	OK(rpma_mr_remote_delete(&remote));
	close_client(&e);
}

static void
violation_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned char *mem = memory(PAGE, 0xee);

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_READ_SRC);
	give_mr(side, 0, mr);
	hear(side, 0, "failed");
	CHECK_FILL(mem, 0xee, PAGE);
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_server(&e);
}

static void
violation_client(struct side *side)
{
	struct rpma_mr_remote *remote;
	struct ends e;

	open_client(side, &e, NULL);
	remote = take_mr(side, 0);
	OK(rpma_atomic_write(e.conn, remote, 0, "12345678", RPMA_F_COMPLETION_ON_ERROR, ID(5)));
	expect_status(e.cq, e.conn, IBV_WC_REM_ACCESS_ERR, 5);
	say(side, 0, "failed");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

/* A log: records are written and flushed, then the atomic write publishes how far they go. */
#define RECORD 64
#define RECORDS 63

static void
publish_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned char *mem = memory(PAGE, 0);
	const uint64_t *tail = (const uint64_t *)(const void *)mem;
	uint64_t seen = 0;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
	give_mr(side, 0, mr);
	/* Whatever the tail says is there in full. */
	while (seen < RECORDS) {
		uint64_t now = __atomic_load_n(tail, __ATOMIC_ACQUIRE);

		CHECK(now >= seen && now <= RECORDS);
		for (; seen < now; seen++)
			check_pattern("a published record", mem + RECORD * (seen + 1), RECORD, (unsigned)seen + 1, 0);
	}
	say(side, 0, "seen");
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
publish_client(struct side *side)
{
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned char *mem = memory(PAGE, 0);

	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_WRITE_SRC);
	remote = take_mr(side, 0);
	for (uint64_t i = 1; i <= RECORDS; i++) {
		pattern(mem + RECORD * i, RECORD, (unsigned)i);
		OK(rpma_write(e.conn, remote, RECORD * i, mr, RECORD * i, RECORD, RPMA_F_COMPLETION_ON_ERROR, ID(i)));
		OK(rpma_flush(e.conn, remote, RECORD * i, RECORD, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ON_ERROR, ID(i)));
		OK(rpma_atomic_write(e.conn, remote, 0, (const char *)&i, RPMA_F_COMPLETION_ALWAYS, ID(1000 + i)));
		expect_status(e.cq, e.conn, IBV_WC_SUCCESS, 1000 + i);
	}
	expect_no_wc(e.cq);
	hear(side, 0, "seen");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* Two values that share no byte, one after the other: whoever looks sees the one or the other. */
#define ONE 0x1111111111111111u
#define TWO 0xeeeeeeeeeeeeeeeeu

static void
never_torn_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;
	uint64_t *mem = memory(PAGE, 0), looks = 0;
	bool two = false, both = false;

	*mem = ONE;
	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
	give_mr(side, 0, mr);
	/* The second word says that it is over. */
	while (__atomic_load_n(mem + 1, __ATOMIC_ACQUIRE) == 0) {
		uint64_t value = __atomic_load_n(mem, __ATOMIC_RELAXED);

		CHECK(value == ONE || value == TWO);
		two |= value == TWO;
		/* The first one has not been written by the client. */
		if (two && value == ONE && !both) {
			both = true;
			say(side, 0, "seen");
		}
		looks++;
	}
	CHECK(both);
	check_info("looked %llu times", (unsigned long long)looks);
	say(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
never_torn_client(struct side *side)
{
	unsigned long rounds = scaled(20000, 200);
	struct rpma_mr_remote *remote;
	struct ends e;
	uint64_t one = ONE, two = TWO;

	open_client(side, &e, NULL);
	remote = take_mr(side, 0);
	/* And until the server has seen both: whoever shares a processor with the client may look late. */
	for (unsigned long i = 1; i <= rounds || !has_said(side, 0); i++) {
		bool ask = i % 8 == 0 || i >= rounds;

		OK(rpma_atomic_write(e.conn, remote, 0, (const char *)(i & 1 ? &two : &one),
			ask ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, ID(i)));
		if (ask)
			expect_status(e.cq, e.conn, IBV_WC_SUCCESS, i);
	}
	OK(rpma_atomic_write(e.conn, remote, 8, (const char *)&one, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	expect_status(e.cq, e.conn, IBV_WC_SUCCESS, 1);
	hear(side, 0, "seen");
	hear(side, 0, "done");
	OK(rpma_mr_remote_delete(&remote));
	close_client(&e);
}

/* A region whose start is not aligned: the write is refused, or it is done, and then whole as any other. */
typedef uint64_t odd_word __attribute__((aligned(1)));

static void
odd_base_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned char *mem = memory(PAGE, 0xee);
	int done = -1;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem + 3, 64, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
	give_mr(side, 0, mr);
	take(side, 0, &done, sizeof(done));
	if (done)
		CHECK_MEM(mem + 3 + 8, "12345678", 8);
	else
		CHECK_FILL(mem + 3 + 8, 0xee, 8);
	CHECK_FILL(mem, 0xee, 3 + 8);
	CHECK_FILL(mem + 3 + 16, 0xee, PAGE - 3 - 16);
	if (done) {
		/* In a half of a cache line, so that a look does not tear either. */
		volatile odd_word *word = (odd_word *)(void *)(mem + 3);

		*word = ONE;
		say(side, 0, "look");
		while (!has_said(side, 0))
			for (int i = 0; i < 1000; i++) {
				uint64_t value = *word;

				CHECK(value == ONE || value == TWO);
			}
		hear(side, 0, "done");
	}
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "released");
	OK(rpma_conn_delete(&e.conn));
	close_server(&e);
}

static void
odd_base_client(struct side *side)
{
	struct rpma_mr_remote *remote;
	struct ibv_wc wc;
	struct ends e;
	int ret, done = 0;

	open_client(side, &e, NULL);
	remote = take_mr(side, 0);
	ret = rpma_atomic_write(e.conn, remote, 8, "12345678", RPMA_F_COMPLETION_ALWAYS, ID(5));
	if (ret != 0) {
		CHECK_CODE(ret, RPMA_E_INVAL);
	} else {
		next_wc(e.cq, &wc);
		CHECK_INT(wc.wr_id, 5);
		done = wc.status == IBV_WC_SUCCESS;
		CHECK(done || wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_ACCESS_ERR);
	}
	check_info("%s", done ? "done" : "refused");
	give(side, 0, &done, sizeof(done));
	if (done) {
		unsigned long rounds = scaled(20000, 200);
		uint64_t one = ONE, two = TWO;

		hear(side, 0, "look");
		for (unsigned long i = 1; i <= rounds; i++) {
			OK(rpma_atomic_write(e.conn, remote, 0, (const char *)(i & 1 ? &two : &one), RPMA_F_COMPLETION_ALWAYS, ID(i)));
			expect_status(e.cq, e.conn, IBV_WC_SUCCESS, i);
		}
		say(side, 0, "done");
	}
	hear(side, 0, "released");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

static const struct test tests[] = {
	PAIR(places),
	PAIR(violation),
	PAIR(publish),
	PAIR(never_torn),
	PAIR(odd_base),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
