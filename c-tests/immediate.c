/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * immediate.c - immediate data, with messages and with writes. The caller gives it in host order; in the receiver's
 * completion it is in network order.
 */

#include <arpa/inet.h>
#include <string.h>

#include "common/fabric.h"

static const uint32_t values[] = {0, 1, 0x01020304, 0x80000000, 0xfffffffe, UINT32_MAX};

#define VALUES (sizeof(values) / sizeof(values[0]))
#define MESSAGE 100

/* The receiver's completion carries the value; opcode and length tell what it came with. */
static void
expect_immediate(struct ends *e, enum ibv_wc_opcode opcode, uint64_t id, uint32_t byte_len, uint32_t value)
{
	struct ibv_wc wc;

	memset(&wc, 0xa5, sizeof(wc));
	next_wc(e->cq, &wc);
	CHECK_INT(wc.status, IBV_WC_SUCCESS);
	CHECK_INT(wc.opcode, opcode);
	CHECK_INT(wc.wr_id, id);
	CHECK_INT(wc.byte_len, byte_len);
	CHECK_INT(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
	CHECK_INT(ntohl(wc.imm_data), value);
	CHECK_INT(wc.qp_num, qp_num_of(e->conn));
}

static void
send_with_imm_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0xee);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_RECV);
	for (unsigned i = 0; i < VALUES; i++) {
		OK(rpma_recv(e.conn, mr, 0, MESSAGE, ID(i)));
		say(side, 0, "ready");
		expect_immediate(&e, IBV_WC_RECV, i, i ? MESSAGE : 0, values[i]);
		if (i)
			check_pattern("the message", mem, MESSAGE, i, 0);
		else
			CHECK_FILL(mem, 0xee, PAGE);
	}
	/* A message without it says so. */
	OK(rpma_recv(e.conn, mr, 0, MESSAGE, ID(77)));
	say(side, 0, "ready");
	expect_done(e.cq, e.conn, IBV_WC_RECV, 77, 8);
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
send_with_imm_client(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_SEND);
	for (unsigned i = 0; i < VALUES; i++) {
		pattern(mem, MESSAGE, i);
		hear(side, 0, "ready");
		/* The first one is nothing but the value. */
		OK(rpma_send_with_imm(e.conn, i ? mr : NULL, 0, i ? MESSAGE : 0, RPMA_F_COMPLETION_ALWAYS, values[i],
			ID(100 + i)));
		expect_done(e.cq, e.conn, IBV_WC_SEND, 100 + i, 0);
	}
	hear(side, 0, "ready");
	OK(rpma_send(e.conn, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(200)));
	expect_done(e.cq, e.conn, IBV_WC_SEND, 200, 0);
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* The write's bytes go to the region that the writer names; the receive request gives only its completion. */
static void
write_with_imm_server(struct side *side)
{
	unsigned char *mem = memory(2 * PAGE, 0xee);
	struct rpma_mr_local *mr, *recv_mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_WRITE_DST);
	recv_mr = registered(e.peer, mem + PAGE, PAGE, RPMA_MR_USAGE_RECV);
	give_mr(side, 0, mr);
	for (unsigned i = 0; i < VALUES; i++) {
		/* Whether the request has a buffer makes no difference. */
		OK(rpma_recv(e.conn, i & 1 ? recv_mr : NULL, 0, i & 1 ? PAGE : 0, ID(i)));
		say(side, 0, "ready");
		expect_immediate(&e, IBV_WC_RECV_RDMA_WITH_IMM, i, i ? MESSAGE : 0, values[i]);
		if (i) {
			check_pattern("what was written", mem + i, MESSAGE, i, 0);
			CHECK_FILL(mem + i + MESSAGE, 0xee, PAGE - i - MESSAGE);
		} else {
			CHECK_FILL(mem, 0xee, PAGE);
		}
		memset(mem, 0xee, PAGE);
		CHECK_FILL(mem + PAGE, 0xee, PAGE);
	}
	OK(rpma_mr_dereg(&mr));
	OK(rpma_mr_dereg(&recv_mr));
	close_server(&e);
}

static void
write_with_imm_client(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_WRITE_SRC);
	remote = take_mr(side, 0);
	for (unsigned i = 0; i < VALUES; i++) {
		pattern(mem + 2 * i, MESSAGE, i);
		hear(side, 0, "ready");
		if (i == 0)
			OK(rpma_write_with_imm(e.conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, values[i], ID(100)));
		else
			OK(rpma_write_with_imm(e.conn, remote, i, mr, 2 * i, MESSAGE, RPMA_F_COMPLETION_ALWAYS, values[i],
				ID(100 + i)));
		expect_done(e.cq, e.conn, IBV_WC_RDMA_WRITE, 100 + i, 0);
	}
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* The value comes after the bytes of its own write and of all writes before it. */
#define WRITES 20

static void
order_server(struct side *side)
{
	unsigned char *mem = memory(WRITES * PAGE, 0xee);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, WRITES * PAGE, RPMA_MR_USAGE_WRITE_DST);
	OK(rpma_recv(e.conn, NULL, 0, 0, ID(5)));
	give_mr(side, 0, mr);
	expect_immediate(&e, IBV_WC_RECV_RDMA_WITH_IMM, 5, PAGE, 99);
	check_pattern("all that was written", mem, WRITES * PAGE, 4, 0);
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
order_client(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(SIZE_KEEP, SIZE_KEEP, WRITES, SIZE_KEEP);
	unsigned char *mem = memory(WRITES * PAGE, 0);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;

	pattern(mem, WRITES * PAGE, 4);
	open_client(side, &e, cfg);
	mr = registered(e.peer, mem, WRITES * PAGE, RPMA_MR_USAGE_WRITE_SRC);
	remote = take_mr(side, 0);
	for (unsigned i = 0; i < WRITES - 1; i++)
		OK(rpma_write(e.conn, remote, i * PAGE, mr, i * PAGE, PAGE, RPMA_F_COMPLETION_ON_ERROR, ID(i)));
	OK(rpma_write_with_imm(e.conn, remote, (WRITES - 1) * PAGE, mr, (WRITES - 1) * PAGE, PAGE, RPMA_F_COMPLETION_ALWAYS,
		99, ID(WRITES)));
	expect_done(e.cq, e.conn, IBV_WC_RDMA_WRITE, WRITES, 0);
	expect_no_wc(e.cq);
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	close_client(&e);
}

static const struct test tests[] = {
	PAIR(send_with_imm),
	PAIR(write_with_imm),
	PAIR(order),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
