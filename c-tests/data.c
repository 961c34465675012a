/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * data.c - one-sided reads and writes: every byte where it belongs and none elsewhere, completions only when asked for,
 * what the other side sees without a call of its own, rights and bounds.
 */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/fabric.h"

#define REGION (64 * 1024)

/* Where a piece goes, and how long it is. */
static const struct {
	size_t here, there, len;
} pieces[] = {
	{0, 0, 1}, {1, 0, 1}, {0, 1, 1}, {3, 5, 7}, {8, 8, 8}, {13, 4093, 4096}, {4096, 0, 4097}, {1, 1, 1023}, {1, 3, 1025},
	{0, 0, REGION}, {REGION - 1, REGION - 1, 1}, {17, 29, 40000},
};

#define PIECES (sizeof(pieces) / sizeof(pieces[0]))

/* A server that only serves: everything is done to its memory while it waits for a word. */
static void
serve(struct side *side, int usage, unsigned seed, unsigned char fill)
{
	struct ends e;
	unsigned char *mem = memory(REGION, fill);
	struct rpma_mr_local *mr;

	if (seed)
		pattern(mem, REGION, seed);
	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, REGION, usage);
	give_mr(side, 0, mr);
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "released");
	close_server(&e);
}

static void
read_pieces_server(struct side *side)
{
	serve(side, RPMA_MR_USAGE_READ_SRC, 11, 0);
}

static void
read_pieces_client(struct side *side)
{
	struct ends e;
	unsigned char *mem = memory(REGION, 0);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	size_t size = 0;

	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, REGION, RPMA_MR_USAGE_READ_DST);
	remote = take_mr(side, 0);
	OK(rpma_mr_remote_get_size(remote, &size));
	CHECK_INT(size, REGION);
	for (unsigned i = 0; i < PIECES; i++) {
		size_t here = pieces[i].here, len = pieces[i].len;

		memset(mem, 0x5a, REGION);
		OK(rpma_read(e.conn, mr, here, remote, pieces[i].there, len, RPMA_F_COMPLETION_ALWAYS, ID(1000 + i)));
		expect_done(e.cq, e.conn, IBV_WC_RDMA_READ, 1000 + i, (uint32_t)len);
		CHECK_FILL(mem, 0x5a, here);
		check_pattern("what was read", mem + here, len, 11, pieces[i].there);
		CHECK_FILL(mem + here + len, 0x5a, REGION - here - len);
	}
	expect_no_wc(e.cq);
	say(side, 0, "done");
	hear(side, 0, "released");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

static void
write_pieces_server(struct side *side)
{
	struct ends e;
	unsigned char *mem = memory(REGION, 0x5a);
	struct rpma_mr_local *mr;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, REGION, RPMA_MR_USAGE_WRITE_DST);
	give_mr(side, 0, mr);
	for (unsigned i = 0; i < PIECES; i++) {
		size_t there = pieces[i].there, len = pieces[i].len;

		hear(side, 0, "written");
		CHECK_FILL(mem, 0x5a, there);
		check_pattern("what was written", mem + there, len, 12, pieces[i].here);
		CHECK_FILL(mem + there + len, 0x5a, REGION - there - len);
		memset(mem, 0x5a, REGION);
		say(side, 0, "seen");
	}
	expect_no_wc(e.cq);
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
write_pieces_client(struct side *side)
{
	struct ends e;
	unsigned char *mem = memory(REGION, 0);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;

	pattern(mem, REGION, 12);
	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, REGION, RPMA_MR_USAGE_WRITE_SRC);
	remote = take_mr(side, 0);
	for (unsigned i = 0; i < PIECES; i++) {
		OK(rpma_write(e.conn, remote, pieces[i].there, mr, pieces[i].here, pieces[i].len,
			RPMA_F_COMPLETION_ALWAYS, ID(2000 + i)));
		expect_done(e.cq, e.conn, IBV_WC_RDMA_WRITE, 2000 + i, 0);
		say(side, 0, "written");
		hear(side, 0, "seen");
	}
	check_pattern("the source", mem, REGION, 12, 0);
	expect_no_wc(e.cq);
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* Operations on nothing are legal, complete in order, and touch nothing. */
static void
empty_server(struct side *side)
{
	serve(side, USAGE_ALL, 0, 0x77);
}

static void
empty_client(struct side *side)
{
	struct ends e;
	unsigned char *mem = memory(PAGE, 0x33);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;

	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	OK(rpma_write(e.conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	expect_done(e.cq, e.conn, IBV_WC_RDMA_WRITE, 1, 0);
	OK(rpma_read(e.conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, ID(2)));
	expect_done(e.cq, e.conn, IBV_WC_RDMA_READ, 2, 0);
	OK(rpma_write(e.conn, remote, 5, mr, 6, 0, RPMA_F_COMPLETION_ALWAYS, ID(3)));
	expect_done(e.cq, e.conn, IBV_WC_RDMA_WRITE, 3, 0);
	OK(rpma_read(e.conn, mr, 5, remote, 6, 0, RPMA_F_COMPLETION_ALWAYS, ID(4)));
	expect_done(e.cq, e.conn, IBV_WC_RDMA_READ, 4, 0);
	CHECK_FILL(mem, 0x33, PAGE);
	OK(rpma_read(e.conn, mr, 0, remote, 0, PAGE, RPMA_F_COMPLETION_ALWAYS, ID(5)));
	expect_done(e.cq, e.conn, IBV_WC_RDMA_READ, 5, PAGE);
	CHECK_FILL(mem, 0x77, PAGE);
	say(side, 0, "done");
	hear(side, 0, "released");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* What a read after a write brings back is what the write left, at every length and without waiting in between. */
static void
read_after_write_server(struct side *side)
{
	serve(side, RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST, 0, 0);
}

static void
read_after_write_client(struct side *side)
{
	struct ends e;
	unsigned char *src = memory(REGION, 0), *dst = memory(REGION, 0);
	struct rpma_mr_local *src_mr, *dst_mr;
	struct rpma_mr_remote *remote;

	open_client(side, &e, NULL);
	src_mr = registered(e.peer, src, REGION, RPMA_MR_USAGE_WRITE_SRC);
	dst_mr = registered(e.peer, dst, REGION, RPMA_MR_USAGE_READ_DST);
	remote = take_mr(side, 0);
	for (unsigned round = 1; round <= 20; round++) {
		size_t len = round * 3001;

		pattern(src, len, round);
		OK(rpma_write(e.conn, remote, 0, src_mr, 0, len, RPMA_F_COMPLETION_ON_ERROR, ID(1)));
		OK(rpma_read(e.conn, dst_mr, 0, remote, 0, len, RPMA_F_COMPLETION_ALWAYS, ID(round)));
		expect_done(e.cq, e.conn, IBV_WC_RDMA_READ, round, (uint32_t)len);
		check_pattern("what came back", dst, len, round, 0);
	}
	say(side, 0, "done");
	hear(side, 0, "released");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&src_mr));
	OK(rpma_mr_dereg(&dst_mr));
	close_client(&e);
}

/*
 * A completion is given only if it was asked for, and it stands for all before it: their queue slots are free again and
 * their data is there.
 */
#define UNSIGNALLED 100

static void
unsignalled_server(struct side *side)
{
	serve(side, RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST, 0, 0);
}

static void
unsignalled_client(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(1, SIZE_KEEP, UNSIGNALLED + 1, SIZE_KEEP);
	struct ends e;
	unsigned char *src = memory(REGION, 0), *dst = memory(REGION, 0);
	struct rpma_mr_local *src_mr, *dst_mr;
	struct rpma_mr_remote *remote;
	size_t piece = REGION / UNSIGNALLED;

	open_client(side, &e, cfg);
	src_mr = registered(e.peer, src, REGION, RPMA_MR_USAGE_WRITE_SRC);
	dst_mr = registered(e.peer, dst, REGION, RPMA_MR_USAGE_READ_DST);
	remote = take_mr(side, 0);
	/* More rounds than the queue would hold if its slots were not reclaimed. */
	for (unsigned round = 1; round <= 5; round++) {
		pattern(src, REGION, round);
		memset(dst, 0, REGION);
		for (unsigned i = 0; i < UNSIGNALLED; i++)
			OK(rpma_write(e.conn, remote, i * piece, src_mr, i * piece, piece, RPMA_F_COMPLETION_ON_ERROR,
				ID(i)));
		OK(rpma_read(e.conn, dst_mr, 0, remote, 0, piece * UNSIGNALLED, RPMA_F_COMPLETION_ALWAYS, ID(777)));
		expect_done(e.cq, e.conn, IBV_WC_RDMA_READ, 777, (uint32_t)(piece * UNSIGNALLED));
		check_pattern("what came back", dst, piece * UNSIGNALLED, round, 0);
		expect_no_wc(e.cq);
	}
	say(side, 0, "done");
	hear(side, 0, "released");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&src_mr));
	OK(rpma_mr_dereg(&dst_mr));
	OK(rpma_conn_cfg_delete(&cfg));
	close_client(&e);
}

/* -- rights and bounds ------------------------------------------------------------------------------------------- */

/*
 * Each violation ends its connection, so the server makes a new one for each: it tells which usage its region has, then
 * waits for the verdict. The first request fails with the given status, one queued behind it with a flush error.
 */
static const struct violation {
	const char *what;
	int there, here;		/* usage of the server's region and of the client's */
	char op;			/* 'w' or 'r' */
	size_t offset, offset_here, len;
	unsigned flip;			/* bit of the key to flip, from 1 */
	enum ibv_wc_status status;
} violations[] = {
	{"write without WRITE_DST there", RPMA_MR_USAGE_READ_SRC, USAGE_ALL, 'w', 0, 0, 8, 0, IBV_WC_REM_ACCESS_ERR},
	{"write to a receive buffer", RPMA_MR_USAGE_RECV, USAGE_ALL, 'w', 0, 0, 8, 0, IBV_WC_REM_ACCESS_ERR},
	{"read without READ_SRC there", RPMA_MR_USAGE_WRITE_DST, USAGE_ALL, 'r', 0, 0, 8, 0, IBV_WC_REM_ACCESS_ERR},
	{"read from a send buffer", RPMA_MR_USAGE_SEND, USAGE_ALL, 'r', 0, 0, 8, 0, IBV_WC_REM_ACCESS_ERR},
	{"read without READ_DST here", USAGE_ALL, RPMA_MR_USAGE_SEND, 'r', 0, 0, 8, 0, IBV_WC_LOC_PROT_ERR},
	{"write past the end there", USAGE_ALL, USAGE_ALL, 'w', PAGE - 7, 0, 8, 0, IBV_WC_REM_ACCESS_ERR},
	{"write beyond the end there", USAGE_ALL, USAGE_ALL, 'w', PAGE, 0, 1, 0, IBV_WC_REM_ACCESS_ERR},
	{"write far away there", USAGE_ALL, USAGE_ALL, 'w', (size_t)1 << 40, 0, 8, 0, IBV_WC_REM_ACCESS_ERR},
	{"write before the start there", USAGE_ALL, USAGE_ALL, 'w', (size_t)-8, 0, 16, 0, IBV_WC_REM_ACCESS_ERR},
	{"write that wraps around", USAGE_ALL, USAGE_ALL, 'w', (size_t)-8, 0, 8, 0, IBV_WC_REM_ACCESS_ERR},
	{"read past the end there", USAGE_ALL, USAGE_ALL, 'r', PAGE - 7, 0, 8, 0, IBV_WC_REM_ACCESS_ERR},
	{"write from past the end here", USAGE_ALL, USAGE_ALL, 'w', 0, PAGE - 7, 8, 0, IBV_WC_LOC_PROT_ERR},
	{"read to past the end here", USAGE_ALL, USAGE_ALL, 'r', 0, PAGE - 7, 8, 0, IBV_WC_LOC_PROT_ERR},
	{"write with bit 0 of the key flipped", USAGE_ALL, USAGE_ALL, 'w', 0, 0, 8, 1, IBV_WC_REM_ACCESS_ERR},
	{"write with bit 13 of the key flipped", USAGE_ALL, USAGE_ALL, 'w', 0, 0, 8, 14, IBV_WC_REM_ACCESS_ERR},
	{"read with bit 31 of the key flipped", USAGE_ALL, USAGE_ALL, 'r', 0, 0, 8, 32, IBV_WC_REM_ACCESS_ERR},
};

#define VIOLATIONS (sizeof(violations) / sizeof(violations[0]))

static void
violations_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	unsigned char *mem = memory(PAGE, 0x77);

	give(side, 0, port, sizeof(port));
	for (unsigned i = 0; i < VIOLATIONS; i++) {
		struct rpma_conn *conn = accept_one(ep, NULL, NULL, 0);
		struct rpma_mr_local *mr = registered(peer, mem, PAGE, violations[i].there);

		give_mr(side, 0, mr);
		hear(side, 0, "failed");
		CHECK_FILL(mem, 0x77, PAGE);
		OK(rpma_mr_dereg(&mr));
		/* The connection may have been parted by the error or by the client: there is one event. */
		expect_event(conn, RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&conn));
		say(side, 0, "next");
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
violations_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	unsigned char *mem = memory(PAGE, 0x33);
	char port[8];

	take(side, 0, port, sizeof(port));
	for (unsigned i = 0; i < VIOLATIONS; i++) {
		const struct violation *v = &violations[i];
		struct rpma_conn *conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
		struct rpma_mr_local *mr = registered(peer, mem, PAGE, v->here);
		struct rpma_mr_remote *remote = NULL;
		unsigned char desc[21];
		struct ibv_wc wc;

		take(side, 0, desc, sizeof(desc));
		if (v->flip)
			desc[16 + (v->flip - 1) / 8] ^= (unsigned char)(1 << (v->flip - 1) % 8);
		OK(rpma_mr_remote_from_descriptor(desc, sizeof(desc), &remote));
		if (v->op == 'w')
			OK(rpma_write(conn, remote, v->offset, mr, v->offset_here, v->len, RPMA_F_COMPLETION_ON_ERROR,
				ID(100 + i)));
		else
			OK(rpma_read(conn, mr, v->offset_here, remote, v->offset, v->len, RPMA_F_COMPLETION_ON_ERROR,
				ID(100 + i)));
		next_wc(cq_of(conn), &wc);
		/* Newer kernels' soft-RoCE may forget the reason of a local error when it flushes the queue. */
		if (wc.status != v->status && !(v->status == IBV_WC_LOC_PROT_ERR && wc.status == IBV_WC_WR_FLUSH_ERR &&
				on_rxe(side->addr)))
			check_fail("%s: status %d (%s), not %d (%s)", v->what, wc.status, ibv_wc_status_str(wc.status),
				v->status, ibv_wc_status_str(v->status));
		CHECK_INT(wc.wr_id, 100 + i);
		CHECK_INT(wc.qp_num, qp_num_of(conn));
		/* The connection is of no more use; what is asked of it comes back unserved. */
		OK(rpma_write(conn, remote, 0, mr, 0, 1, RPMA_F_COMPLETION_ON_ERROR, ID(200 + i)));
		expect_status(cq_of(conn), conn, IBV_WC_WR_FLUSH_ERR, 200 + i);
		expect_no_wc(cq_of(conn));
		CHECK_FILL(mem, 0x33, PAGE);
		say(side, 0, "failed");
		OK(rpma_mr_remote_delete(&remote));
		OK(rpma_mr_dereg(&mr));
		OK(rpma_conn_delete(&conn));
		hear(side, 0, "next");
	}
	OK(rpma_peer_delete(&peer));
}

/*
 * For what is only read from here verbs ask for no right: its own memory a side may always read. So a write or a message
 * goes out of any region, with the original as with this library.
 */
static const int any_usages[] = {RPMA_MR_USAGE_READ_SRC, RPMA_MR_USAGE_READ_DST, RPMA_MR_USAGE_WRITE_SRC, RPMA_MR_USAGE_WRITE_DST,
	RPMA_MR_USAGE_SEND, RPMA_MR_USAGE_RECV};

#define ANY_USAGES (sizeof(any_usages) / sizeof(any_usages[0]))
#define ANY_LEN 200

static void
any_source_server(struct side *side)
{
	struct ends e;
	unsigned char *mem = memory(PAGE, 0x77);
	struct rpma_mr_local *mr;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_RECV);
	for (unsigned i = 0; i < ANY_USAGES; i++)
		OK(rpma_recv(e.conn, mr, (ANY_USAGES + i) * ANY_LEN, ANY_LEN, ID(i)));
	give_mr(side, 0, mr);
	for (unsigned i = 0; i < ANY_USAGES; i++)
		expect_done(e.cq, e.conn, IBV_WC_RECV, i, ANY_LEN);
	hear(side, 0, "done");
	for (unsigned i = 0; i < ANY_USAGES; i++) {
		check_pattern("what was written", mem + i * ANY_LEN, ANY_LEN, i, 0);
		check_pattern("the message", mem + (ANY_USAGES + i) * ANY_LEN, ANY_LEN, 100 + i, 0);
	}
	CHECK_FILL(mem + 2 * ANY_USAGES * ANY_LEN, 0x77, PAGE - 2 * ANY_USAGES * ANY_LEN);
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "released");
	close_server(&e);
}

static void
any_source_client(struct side *side)
{
	struct ends e;
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_remote *remote;

	open_client(side, &e, NULL);
	remote = take_mr(side, 0);
	for (unsigned i = 0; i < ANY_USAGES; i++) {
		struct rpma_mr_local *mr = registered(e.peer, mem, PAGE, any_usages[i]);

		pattern(mem, ANY_LEN, i);
		pattern(mem + ANY_LEN, ANY_LEN, 100 + i);
		OK(rpma_write(e.conn, remote, i * ANY_LEN, mr, 0, ANY_LEN, RPMA_F_COMPLETION_ALWAYS, ID(10 + i)));
		OK(rpma_send(e.conn, mr, ANY_LEN, ANY_LEN, RPMA_F_COMPLETION_ALWAYS, ID(20 + i)));
		expect_done(e.cq, e.conn, IBV_WC_RDMA_WRITE, 10 + i, 0);
		expect_done(e.cq, e.conn, IBV_WC_SEND, 20 + i, 0);
		OK(rpma_mr_dereg(&mr));
	}
	expect_no_wc(e.cq);
	say(side, 0, "done");
	hear(side, 0, "released");
	OK(rpma_mr_remote_delete(&remote));
	close_client(&e);
}

/* A key is of use only while its region is registered, and only in its own protection domain. */
static void
stale_key_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr), *other = peer_on(side->addr);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	unsigned char *mem = memory(PAGE, 0x77);

	give(side, 0, port, sizeof(port));
	for (int i = 0; i < 2; i++) {
		struct rpma_conn *conn = accept_one(ep, NULL, NULL, 0);
		struct rpma_mr_local *mr = registered(i == 0 ? peer : other, mem, PAGE, USAGE_ALL);

		give_mr(side, 0, mr);
		if (i == 0) {
			hear(side, 0, "works");
			memset(mem, 0x77, PAGE);
			OK(rpma_mr_dereg(&mr));
			say(side, 0, "released");
		}
		hear(side, 0, "failed");
		CHECK_FILL(mem, 0x77, PAGE);
		if (i == 1)
			OK(rpma_mr_dereg(&mr));
		expect_event(conn, RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&conn));
		say(side, 0, "next");
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
	OK(rpma_peer_delete(&other));
}

static void
stale_key_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_mr_local *mr = registered(peer, memory(PAGE, 0x33), PAGE, USAGE_ALL);
	char port[8];

	take(side, 0, port, sizeof(port));
	for (int i = 0; i < 2; i++) {
		struct rpma_conn *conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
		struct rpma_mr_remote *remote = take_mr(side, 0);

		if (i == 0) {
			OK(rpma_write(conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(1)));
			expect_done(cq_of(conn), conn, IBV_WC_RDMA_WRITE, 1, 0);
			say(side, 0, "works");
			hear(side, 0, "released");
		}
		OK(rpma_write(conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(2)));
		expect_status(cq_of(conn), conn, IBV_WC_REM_ACCESS_ERR, 2);
		say(side, 0, "failed");
		OK(rpma_mr_remote_delete(&remote));
		OK(rpma_conn_delete(&conn));
		hear(side, 0, "next");
	}
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&peer));
}

/*
 * Memory that its program has given back while it was registered. A device that holds on to the pages serves the request,
 * another one fails it; neither side dies of it.
 */
static void
memory_given_back_server(struct side *side)
{
	struct rpma_peer *peer;
	struct rpma_ep *ep;
	char port[8];

	skip_under_memcheck();
	peer = peer_on(side->addr);
	ep = listen_on(peer, side->addr, port);
	give(side, 0, port, sizeof(port));
	for (int i = 0; i < 3; i++) {
		unsigned char *mem = memory(REGION, 0x77);
		struct rpma_conn *conn = accept_one(ep, NULL, NULL, 0);
		struct rpma_mr_local *mr = registered(peer, mem, REGION, USAGE_ALL);

		if (i < 2)
			CHECK(munmap(mem, REGION) == 0);
		give_mr(side, 0, mr);
		hear(side, 0, "tried");
		expect_event(conn, RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&conn));
		OK(rpma_mr_dereg(&mr));
		say(side, 0, "next");
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
memory_given_back_client(struct side *side)
{
	struct rpma_peer *peer;
	char port[8];

	skip_under_memcheck();
	peer = peer_on(side->addr);
	take(side, 0, port, sizeof(port));
	for (int i = 0; i < 3; i++) {
		unsigned char *mem = memory(REGION, 0x33);
		struct rpma_conn *conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
		struct rpma_mr_local *mr = registered(peer, mem, REGION, USAGE_ALL);
		struct rpma_mr_remote *remote = take_mr(side, 0);
		struct ibv_wc wc;

		if (i == 2)
			CHECK(munmap(mem, REGION) == 0);
		if (i == 1)
			OK(rpma_read(conn, mr, 0, remote, 0, REGION, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		else
			OK(rpma_write(conn, remote, 0, mr, 0, REGION, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		next_wc(cq_of(conn), &wc);
		CHECK_INT(wc.wr_id, i);
		if (i < 2)
			CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_OP_ERR ||
				wc.status == IBV_WC_REM_ACCESS_ERR);
		else
			CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_LOC_PROT_ERR ||
				wc.status == IBV_WC_LOC_QP_OP_ERR);
		check_info("%s memory: %s", i == 2 ? "this side's" : "the other side's", ibv_wc_status_str(wc.status));
		say(side, 0, "tried");
		OK(rpma_mr_remote_delete(&remote));
		OK(rpma_conn_delete(&conn));
		OK(rpma_mr_dereg(&mr));
		hear(side, 0, "next");
	}
	OK(rpma_peer_delete(&peer));
}

static const struct test tests[] = {
	PAIR(read_pieces),
	PAIR(write_pieces),
	PAIR(empty),
	PAIR(read_after_write),
	PAIR(unsignalled),
	PAIR(violations),
	PAIR(any_source),
	PAIR(stale_key),
	PAIR(memory_given_back),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
