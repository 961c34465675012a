/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * messages.c - send and receive: ping-pong, order, the receiver that is late, the buffer that is too small, full queues,
 * buffers posted before the connection stands.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "common/fabric.h"

#define BUFFER 1024

/* -- ping-pong --------------------------------------------------------------------------------------------------- */

struct ball {
	uint64_t round, sum;
};

/*
 * Takes two completions, one of a sent message (2) and one of a received one (1). They come in either order: the other side
 * may have answered before this side learns that its message has arrived.
 */
static void
sent_and_received(struct ends *e)
{
	bool sent = false, received = false;

	while (!sent || !received) {
		struct ibv_wc wc;

		next_wc(e->cq, &wc);
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		if (wc.wr_id == 1) {
			CHECK(!received);
			CHECK_INT(wc.opcode, IBV_WC_RECV);
			CHECK_INT(wc.byte_len, sizeof(struct ball));
			received = true;
		} else {
			CHECK_INT(wc.wr_id, 2);
			CHECK(!sent);
			CHECK_INT(wc.opcode, IBV_WC_SEND);
			sent = true;
		}
	}
}

/* Adds something of its own, so that neither side can pass without the other's work. */
static void
ping_pong_server(struct side *side)
{
	uint64_t rounds = scaled(1000, 20);
	struct ends e;
	struct ball *balls = memory(PAGE, 0);
	struct rpma_mr_local *mr;

	open_server(side, &e, NULL);
	mr = registered(e.peer, balls, PAGE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV);
	OK(rpma_recv(e.conn, mr, 0, sizeof(struct ball), ID(1)));
	say(side, 0, "ready");
	for (uint64_t i = 0; i < rounds; i++) {
		if (i == 0)
			expect_done(e.cq, e.conn, IBV_WC_RECV, 1, sizeof(struct ball));
		else
			sent_and_received(&e);
		CHECK_INT(balls[0].round, i);
		balls[1].round = i;
		balls[1].sum = balls[0].sum + 2 * i + 1;
		OK(rpma_recv(e.conn, mr, 0, sizeof(struct ball), ID(1)));
		OK(rpma_send(e.conn, mr, sizeof(struct ball), sizeof(struct ball), RPMA_F_COMPLETION_ALWAYS, ID(2)));
	}
	expect_done(e.cq, e.conn, IBV_WC_SEND, 2, 0);
	expect_event(e.conn, RPMA_CONN_CLOSED);
	/* The buffer that no message came for is given back when this side parts as well. */
	OK(rpma_conn_disconnect(e.conn));
	expect_status(e.cq, e.conn, IBV_WC_WR_FLUSH_ERR, 1);
	expect_no_wc(e.cq);
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_server(&e);
}

static void
ping_pong_client(struct side *side)
{
	uint64_t rounds = scaled(1000, 20), sum = 0;
	struct ends e;
	struct ball *balls = memory(PAGE, 0);
	struct rpma_mr_local *mr;

	open_client(side, &e, NULL);
	mr = registered(e.peer, balls, PAGE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV);
	hear(side, 0, "ready");
	for (uint64_t i = 0; i < rounds; i++) {
		OK(rpma_recv(e.conn, mr, 0, sizeof(struct ball), ID(1)));
		balls[1].round = i;
		balls[1].sum = sum;
		OK(rpma_send(e.conn, mr, sizeof(struct ball), sizeof(struct ball), RPMA_F_COMPLETION_ALWAYS, ID(2)));
		sent_and_received(&e);
		CHECK_INT(balls[0].round, i);
		sum += 2 * i + 1;
		CHECK_INT(balls[0].sum, sum);
	}
	CHECK_INT(sum, rounds * rounds);
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* -- order and lengths ------------------------------------------------------------------------------------------- */

static const uint32_t lengths[] = {0, 1, 2, 7, 8, 9, 63, 64, 65, 255, 1000, BUFFER};

#define MESSAGES (sizeof(lengths) / sizeof(lengths[0]))

/* Each message fills the next buffer, in the order of sending; a buffer longer than its message keeps its rest. */
static void
order_server(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(50, SIZE_KEEP, 20, 20);
	unsigned char *mem = memory(MESSAGES * BUFFER, 0xee);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, cfg);
	mr = registered(e.peer, mem, MESSAGES * BUFFER, RPMA_MR_USAGE_RECV);
	for (unsigned i = 0; i < MESSAGES; i++)
		OK(rpma_recv(e.conn, mr, i * BUFFER, BUFFER, ID(i)));
	say(side, 0, "ready");
	for (unsigned i = 0; i < MESSAGES; i++) {
		unsigned char *buffer = mem + i * BUFFER;

		expect_done(e.cq, e.conn, IBV_WC_RECV, i, lengths[i]);
		check_pattern("the message", buffer, lengths[i], i, 0);
		CHECK_FILL(buffer + lengths[i], 0xee, BUFFER - lengths[i]);
	}
	expect_no_wc(e.cq);
	say(side, 0, "seen");
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	close_server(&e);
}

static void
order_client(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(50, SIZE_KEEP, 20, 20);
	unsigned char *mem = memory(MESSAGES * BUFFER, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, cfg);
	mr = registered(e.peer, mem, MESSAGES * BUFFER, RPMA_MR_USAGE_SEND);
	hear(side, 0, "ready");
	for (unsigned i = 0; i < MESSAGES; i++) {
		pattern(mem + i * BUFFER, lengths[i], i);
		if (lengths[i] == 0)
			OK(rpma_send(e.conn, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		else
			OK(rpma_send(e.conn, mr, i * BUFFER, lengths[i], RPMA_F_COMPLETION_ALWAYS, ID(i)));
	}
	for (unsigned i = 0; i < MESSAGES; i++)
		expect_done(e.cq, e.conn, IBV_WC_SEND, i, 0);
	expect_no_wc(e.cq);
	hear(side, 0, "seen");
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	close_client(&e);
}

/* A buffer posted on the request is there before the first message can come. */
static void
posted_on_request_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr = registered(peer, mem, PAGE, RPMA_MR_USAGE_RECV);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	give(side, 0, port, sizeof(port));
	OK(rpma_ep_next_conn_req(ep, NULL, &req));
	INVAL(rpma_conn_req_recv(NULL, mr, 0, 8, ID(1)));
	INVAL(rpma_conn_req_recv(req, NULL, 0, 0, ID(1)));
	INVAL(rpma_conn_req_recv(req, NULL, 0, 8, ID(1)));
	OK(rpma_conn_req_recv(req, mr, 0, BUFFER, ID(31)));
	OK(rpma_conn_req_recv(req, mr, BUFFER, BUFFER, ID(32)));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	expect_done(cq_of(conn), conn, IBV_WC_RECV, 31, 100);
	expect_done(cq_of(conn), conn, IBV_WC_RECV, 32, 200);
	check_pattern("first", mem, 100, 1, 0);
	check_pattern("second", mem + BUFFER, 200, 2, 0);
	say(side, 0, "seen");
	part_after(&conn);
	OK(rpma_mr_dereg(&mr));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
posted_on_request_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr = registered(peer, mem, PAGE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	char port[8];

	pattern(mem, 100, 1);
	pattern(mem + 100, 200, 2);
	take(side, 0, port, sizeof(port));
	/* The active side may as well. */
	OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
	OK(rpma_conn_req_recv(req, mr, BUFFER, BUFFER, ID(33)));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	OK(rpma_send(conn, mr, 0, 100, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	OK(rpma_send(conn, mr, 100, 200, RPMA_F_COMPLETION_ALWAYS, ID(2)));
	expect_done(cq_of(conn), conn, IBV_WC_SEND, 1, 0);
	expect_done(cq_of(conn), conn, IBV_WC_SEND, 2, 0);
	hear(side, 0, "seen");
	OK(rpma_conn_disconnect(conn));
	expect_event(conn, RPMA_CONN_CLOSED);
	expect_status(cq_of(conn), conn, IBV_WC_WR_FLUSH_ERR, 33);
	OK(rpma_conn_delete(&conn));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&peer));
}

/* -- receivers that are late or too small ------------------------------------------------------------------------- */

/* A message waits for its buffer, however long that takes, while one-sided operations of the other direction go on. */
static void
late_receiver_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	hear(side, 0, "sent");
	for (unsigned i = 0; i < 20; i++) {
		OK(rpma_read(e.conn, mr, 0, remote, i, 64, RPMA_F_COMPLETION_ALWAYS, ID(100 + i)));
		expect_done(e.cq, e.conn, IBV_WC_RDMA_READ, 100 + i, 64);
		check_pattern("what was read", mem, 64, 5, i);
	}
	say(side, 0, "read");
	hear(side, 0, "still waiting");
	OK(rpma_recv(e.conn, mr, BUFFER, BUFFER, ID(1)));
	expect_done(e.cq, e.conn, IBV_WC_RECV, 1, 300);
	check_pattern("the message", mem + BUFFER, 300, 5, 0);
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
late_receiver_client(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	pattern(mem, PAGE, 5);
	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	OK(rpma_send(e.conn, mr, 0, 300, RPMA_F_COMPLETION_ALWAYS, ID(9)));
	say(side, 0, "sent");
	hear(side, 0, "read");
	expect_no_wc(e.cq);
	say(side, 0, "still waiting");
	expect_done(e.cq, e.conn, IBV_WC_SEND, 9, 0);
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* Two sides that both send before they post a buffer do not lock each other out. */
#define CROSSING 5

static void
crossing(struct side *side, struct ends *e, unsigned seed)
{
	unsigned char *mem = memory(2 * CROSSING * BUFFER, 0);
	struct rpma_mr_local *mr = registered(e->peer, mem, 2 * CROSSING * BUFFER, USAGE_ALL);
	unsigned sent = 0, received = 0;

	for (unsigned i = 0; i < CROSSING; i++) {
		pattern(mem + i * BUFFER, BUFFER, seed + i);
		OK(rpma_send(e->conn, mr, i * BUFFER, BUFFER, RPMA_F_COMPLETION_ALWAYS, ID(i)));
	}
	say(side, 0, "sent");
	hear(side, 0, "sent");
	for (unsigned i = 0; i < CROSSING; i++)
		OK(rpma_recv(e->conn, mr, (CROSSING + i) * BUFFER, BUFFER, ID(100 + i)));
	while (sent + received < 2 * CROSSING) {
		struct ibv_wc wc;

		next_wc(e->cq, &wc);
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		if (wc.wr_id >= 100) {
			CHECK_INT(wc.wr_id, 100 + received);
			CHECK_INT(wc.opcode, IBV_WC_RECV);
			CHECK_INT(wc.byte_len, BUFFER);
			check_pattern("the message", mem + (CROSSING + received) * BUFFER, BUFFER,
				(seed == 10 ? 20 : 10) + received, 0);
			received++;
		} else {
			CHECK_INT(wc.wr_id, sent);
			CHECK_INT(wc.opcode, IBV_WC_SEND);
			sent++;
		}
	}
	CHECK(sent == CROSSING && received == CROSSING);
	say(side, 0, "done");
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
}

static void
both_send_first_server(struct side *side)
{
	struct ends e;
	struct rpma_conn_cfg *cfg = sizes(20, SIZE_KEEP, SIZE_KEEP, SIZE_KEEP);

	open_server(side, &e, cfg);
	crossing(side, &e, 10);
	OK(rpma_conn_cfg_delete(&cfg));
	close_server(&e);
}

static void
both_send_first_client(struct side *side)
{
	struct ends e;
	struct rpma_conn_cfg *cfg = sizes(20, SIZE_KEEP, SIZE_KEEP, SIZE_KEEP);

	open_client(side, &e, cfg);
	crossing(side, &e, 20);
	OK(rpma_conn_cfg_delete(&cfg));
	close_client(&e);
}

/* A message longer than its buffer is an error on both sides, and nothing is written past the buffer. */
static void
small_buffer_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0xee);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_RECV);
	OK(rpma_recv(e.conn, mr, 0, 64, ID(1)));
	OK(rpma_recv(e.conn, mr, BUFFER, BUFFER, ID(2)));
	say(side, 0, "ready");
	expect_status(e.cq, e.conn, on_rxe(side->addr) ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_LEN_ERR, 1);
	CHECK_FILL(mem + 64, 0xee, PAGE - 64);
	expect_status(e.cq, e.conn, IBV_WC_WR_FLUSH_ERR, 2);
	hear(side, 0, "failed");
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_server(&e);
}

static void
small_buffer_client(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, RPMA_MR_USAGE_SEND);
	hear(side, 0, "ready");
	OK(rpma_send(e.conn, mr, 0, 65, RPMA_F_COMPLETION_ON_ERROR, ID(7)));
	expect_status(e.cq, e.conn, on_rxe(side->addr) ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR, 7);
	OK(rpma_send(e.conn, mr, 0, 1, RPMA_F_COMPLETION_ON_ERROR, ID(8)));
	expect_status(e.cq, e.conn, IBV_WC_WR_FLUSH_ERR, 8);
	say(side, 0, "failed");
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

/* A buffer in a region that may not be received into fails at its message, on both sides. */
static void
forbidden_buffer_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0xee);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_SEND);
	OK(rpma_recv(e.conn, mr, 0, 64, ID(1)));
	say(side, 0, "ready");
	expect_status(e.cq, e.conn, on_rxe(side->addr) ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_PROT_ERR, 1);
	CHECK_FILL(mem, 0xee, PAGE);
	hear(side, 0, "failed");
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_server(&e);
}

static void
forbidden_buffer_client(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, RPMA_MR_USAGE_SEND);
	hear(side, 0, "ready");
	OK(rpma_send(e.conn, mr, 0, 64, RPMA_F_COMPLETION_ON_ERROR, ID(7)));
	expect_status(e.cq, e.conn, IBV_WC_REM_OP_ERR, 7);
	say(side, 0, "failed");
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

/* -- full queues -------------------------------------------------------------------------------------------------- */

/*
 * A full queue refuses the next request with the provider's error, and takes requests again once it has room. Nothing
 * is served meanwhile, since the receiver posts no buffer. Providers may round sizes up, but not without bound.
 */
#define QUEUE 4
#define QUEUE_MAX 5000

static void
full_queues_server(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(QUEUE_MAX, SIZE_KEEP, QUEUE, QUEUE);
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned count, expected, posted, taken = 0;
	int ret = 0;

	open_server(side, &e, cfg);
	mr = registered(e.peer, memory(PAGE, 0), PAGE, RPMA_MR_USAGE_RECV);
	take(side, 0, &expected, sizeof(expected));
	for (posted = 0; posted < QUEUE_MAX; posted++) {
		/* The first buffers fill as soon as they are posted, so the queue is full some time after that. */
		ret = rpma_recv(e.conn, mr, 0, 64, ID(posted));
		if (ret != 0)
			break;
	}
	CHECK_CODE(ret, RPMA_E_PROVIDER);
	CHECK(posted >= QUEUE);
	for (count = 0; count < expected; count++) {
		expect_done(e.cq, e.conn, IBV_WC_RECV, taken++, 64);
		if (taken == posted) {
			OK(rpma_recv(e.conn, mr, 0, 64, ID(posted)));
			posted++;
		}
	}
	say(side, 0, "received");
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_conn_disconnect(e.conn));
	expect_event(e.conn, RPMA_CONN_CLOSED);
	for (; taken < posted; taken++)
		expect_status(e.cq, e.conn, IBV_WC_WR_FLUSH_ERR, taken);
	OK(rpma_conn_delete(&e.conn));
	close_server(&e);
}

static void
full_queues_client(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(QUEUE_MAX, SIZE_KEEP, QUEUE, QUEUE);
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned posted, taken = 0;
	int ret = 0, error;

	open_client(side, &e, cfg);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, RPMA_MR_USAGE_SEND);
	errno = 0;
	for (posted = 0; posted < QUEUE_MAX; posted++) {
		ret = rpma_send(e.conn, mr, 0, 64, RPMA_F_COMPLETION_ALWAYS, ID(posted));
		if (ret != 0)
			break;
	}
	error = errno;
	CHECK_CODE(ret, RPMA_E_PROVIDER);
	/* verbs need only return the number */
	if (on_soft(side->addr))
		CHECK_INT(error, ENOMEM);
	CHECK(posted >= QUEUE);
	expect_no_wc(e.cq);
	check_info("a send queue of %d takes %u requests", QUEUE, posted);
	give(side, 0, &posted, sizeof(posted));
	while (taken < posted)
		expect_done(e.cq, e.conn, IBV_WC_SEND, taken++, 0);
	hear(side, 0, "received");
	say(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	expect_event(e.conn, RPMA_CONN_CLOSED);
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

static const struct test tests[] = {
	PAIR(ping_pong),
	PAIR(order),
	PAIR(posted_on_request),
	PAIR(late_receiver),
	PAIR(both_send_first),
	PAIR(small_buffer),
	PAIR(forbidden_buffer),
	PAIR(full_queues),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
