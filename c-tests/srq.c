/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * srq.c - shared receive queues: ping-pong over one, where its completions arrive, many connections on one queue, the
 * mistakes that programs make with it.
 */

#include <arpa/inet.h>
#include <string.h>
#include <sys/resource.h>

#include "common/fabric.h"

#define BUFFER 64

/* A configuration whose connections take their buffers from the queue. */
static struct rpma_conn_cfg *
with_srq(struct rpma_srq *srq, uint32_t rcq_size, bool shared_channel)
{
	struct rpma_conn_cfg *cfg = sizes(SIZE_KEEP, rcq_size, SIZE_KEEP, SIZE_KEEP);
	struct rpma_srq *got = NULL;

	OK(rpma_conn_cfg_set_srq(cfg, srq));
	OK(rpma_conn_cfg_get_srq(cfg, &got));
	CHECK(got == srq);
	OK(rpma_conn_cfg_set_compl_channel(cfg, shared_channel));
	return cfg;
}

static struct rpma_srq *
new_srq(struct rpma_peer *peer, uint32_t rq_size, uint32_t rcq_size)
{
	struct rpma_srq_cfg *cfg = NULL;
	struct rpma_srq *srq = NULL;

	OK(rpma_srq_cfg_new(&cfg));
	OK(rpma_srq_cfg_set_rq_size(cfg, rq_size));
	OK(rpma_srq_cfg_set_rcq_size(cfg, rcq_size));
	OK(rpma_srq_new(peer, cfg, &srq));
	OK(rpma_srq_cfg_delete(&cfg));
	return srq;
}

/* -- ping-pong, with the completions in each of the three places ---------------------------------------------------- */

#define ROUNDS 50

/* where: 's' the shared queue's own completion queue, 'm' the connection's main one, 'r' its separate receive queue. */
static void
ping_pong(struct side *side, char where)
{
	unsigned rounds = (unsigned)scaled(ROUNDS, 10);
	struct rpma_peer *peer = peer_on(side->addr);
	uint64_t *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr = registered(peer, mem, PAGE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV);
	struct rpma_srq *srq = new_srq(peer, 5, where == 's' ? 20 : 0);
	struct rpma_conn_cfg *cfg = with_srq(srq, where == 'r' ? 10 : 0, false);
	struct rpma_cq *srq_rcq = NULL, *conn_rcq = NULL, *in;
	struct rpma_conn *conn;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	uint64_t sum = 0;

	OK(rpma_srq_get_rcq(srq, &srq_rcq));
	CHECK((srq_rcq != NULL) == (where == 's'));
	OK(rpma_srq_recv(srq, mr, 0, 8, ID(70)));
	give(side, 0, port, sizeof(port));
	conn = accept_one(ep, cfg, NULL, 0);
	OK(rpma_conn_get_rcq(conn, &conn_rcq));
	CHECK((conn_rcq != NULL) == (where == 'r'));
	in = where == 's' ? srq_rcq : where == 'r' ? conn_rcq : cq_of(conn);
	for (unsigned i = 0; i < rounds; i++) {
		if (in != cq_of(conn)) {
			expect_done(in, conn, IBV_WC_RECV, 70 + i, 8);
		} else if (i == 0) {
			expect_done(in, conn, IBV_WC_RECV, 70, 8);
		} else {
			/* The next message may be here before the word that the last answer has arrived. */
			bool sent = false, received = false;

			while (!sent || !received) {
				struct ibv_wc wc;

				next_wc(in, &wc);
				CHECK_INT(wc.status, IBV_WC_SUCCESS);
				CHECK_INT(wc.wr_id, wc.opcode == IBV_WC_RECV ? 70 + i : i - 1);
				CHECK(wc.opcode == IBV_WC_RECV ? !received : !sent);
				*(wc.opcode == IBV_WC_RECV ? &received : &sent) = true;
			}
		}
		sum += mem[0];
		OK(rpma_srq_recv(srq, mr, 0, 8, ID(71 + i)));
		mem[1] = sum;
		OK(rpma_send(conn, mr, 8, 8, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		if (in != cq_of(conn))
			expect_done(cq_of(conn), conn, IBV_WC_SEND, i, 0);
	}
	if (in == cq_of(conn))
		expect_done(in, conn, IBV_WC_SEND, rounds - 1, 0);
	expect_no_wc(cq_of(conn));
	part_after(&conn);
	/* The buffer that is left belongs to the queue, not to the connection: it is not given back. */
	if (where == 's')
		expect_no_wc(srq_rcq);
	OK(rpma_srq_delete(&srq));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
ping_pong_client(struct side *side)
{
	unsigned rounds = (unsigned)scaled(ROUNDS, 10);
	struct ends e;
	uint64_t *mem = memory(PAGE, 0), sum = 0;
	struct rpma_mr_local *mr;

	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV);
	for (unsigned i = 0; i < rounds; i++) {
		mem[1] = 3 * i + 1;
		sum += mem[1];
		OK(rpma_recv(e.conn, mr, 0, 8, ID(500)));
		OK(rpma_send(e.conn, mr, 8, 8, RPMA_F_COMPLETION_ON_ERROR, ID(501)));
		expect_done(e.cq, e.conn, IBV_WC_RECV, 500, 8);
		CHECK_INT(mem[0], sum);
	}
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

static void
own_queue_server(struct side *side)
{
	ping_pong(side, 's');
}

static void
main_queue_server(struct side *side)
{
	ping_pong(side, 'm');
}

static void
separate_queue_server(struct side *side)
{
	ping_pong(side, 'r');
}

#define own_queue_client ping_pong_client
#define main_queue_client ping_pong_client
#define separate_queue_client ping_pong_client

/* -- what is refused ------------------------------------------------------------------------------------------------ */

/* A connection on a shared queue takes no buffers of its own. */
static void
receive_on_connection_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_mr_local *mr = registered(peer, memory(PAGE, 0), PAGE, RPMA_MR_USAGE_RECV);
	struct rpma_srq *srq = new_srq(peer, 5, 10);
	struct rpma_conn_cfg *cfg = with_srq(srq, 0, false);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_cq *rcq = NULL;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	OK(rpma_srq_get_rcq(srq, &rcq));
	OK(rpma_srq_recv(srq, mr, 0, BUFFER, ID(1)));
	give(side, 0, port, sizeof(port));
	OK(rpma_ep_next_conn_req(ep, cfg, &req));
	CHECK_CODE(rpma_conn_req_recv(req, mr, BUFFER, BUFFER, ID(2)), RPMA_E_PROVIDER);
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK_CODE(rpma_recv(conn, mr, BUFFER, BUFFER, ID(3)), RPMA_E_PROVIDER);
	/* It is otherwise well. */
	expect_done(rcq, conn, IBV_WC_RECV, 1, BUFFER);
	expect_no_wc(cq_of(conn));
	say(side, 0, "seen");
	part_after(&conn);
	OK(rpma_srq_delete(&srq));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
receive_on_connection_client(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, RPMA_MR_USAGE_SEND);
	OK(rpma_send(e.conn, mr, 0, BUFFER, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	expect_done(e.cq, e.conn, IBV_WC_SEND, 1, 0);
	hear(side, 0, "seen");
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* A shared channel cannot tell of a completion queue that belongs to no connection. */
static void
shared_channel(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_srq *srq = new_srq(peer, 5, 10), *plain = new_srq(peer, 5, 0);
	struct rpma_conn_cfg *cfg = with_srq(srq, 0, true);
	struct rpma_conn_req *req = NULL;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, addr, port);

	INVAL(rpma_conn_req_new(peer, addr, port, cfg, &req));
	CHECK(req == NULL);
	OK(rpma_conn_cfg_delete(&cfg));
	cfg = with_srq(plain, 0, true);
	OK(rpma_conn_req_new(peer, addr, port, cfg, &req));
	OK(rpma_conn_req_delete(&req));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_srq_delete(&plain));
	OK(rpma_srq_delete(&srq));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* A buffer in a region that may not be received into fails at its message, on both sides. */
static void
forbidden_buffer_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0xee);
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_mr_local *mr = registered(peer, mem, PAGE, RPMA_MR_USAGE_SEND);
	struct rpma_srq *srq = new_srq(peer, 5, 10);
	struct rpma_conn_cfg *cfg = with_srq(srq, 0, false);
	struct rpma_conn *conn;
	struct rpma_cq *rcq = NULL;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	OK(rpma_srq_get_rcq(srq, &rcq));
	OK(rpma_srq_recv(srq, mr, 0, BUFFER, ID(1)));
	give(side, 0, port, sizeof(port));
	conn = accept_one(ep, cfg, NULL, 0);
	expect_status(rcq, conn, on_rxe(side->addr) ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_PROT_ERR, 1);
	CHECK_FILL(mem, 0xee, PAGE);
	hear(side, 0, "failed");
	expect_no_wc(rcq);
	OK(rpma_conn_delete(&conn));
	OK(rpma_srq_delete(&srq));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
forbidden_buffer_client(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, RPMA_MR_USAGE_SEND);
	OK(rpma_send(e.conn, mr, 0, BUFFER, RPMA_F_COMPLETION_ON_ERROR, ID(7)));
	expect_status(e.cq, e.conn, IBV_WC_REM_OP_ERR, 7);
	say(side, 0, "failed");
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

/* A full queue refuses a buffer, and takes one again once a message has used one. */
static void
full_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_mr_local *mr = registered(peer, memory(PAGE, 0), PAGE, RPMA_MR_USAGE_RECV);
	struct rpma_srq *srq = new_srq(peer, 4, 5000);
	struct rpma_conn_cfg *cfg = with_srq(srq, 0, false);
	struct rpma_conn *conn;
	struct rpma_cq *rcq = NULL;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	unsigned posted;
	int ret = 0;

	OK(rpma_srq_get_rcq(srq, &rcq));
	for (posted = 0; posted < 5000; posted++) {
		ret = rpma_srq_recv(srq, mr, 0, BUFFER, ID(posted));
		if (ret != 0)
			break;
	}
	CHECK_CODE(ret, RPMA_E_PROVIDER);
	CHECK(posted >= 4);
	check_info("a shared receive queue of 4 takes %u requests", posted);
	give(side, 0, port, sizeof(port));
	conn = accept_one(ep, cfg, NULL, 0);
	expect_done(rcq, conn, IBV_WC_RECV, 0, 8);
	OK(rpma_srq_recv(srq, mr, 0, BUFFER, ID(posted)));
	CHECK_CODE(rpma_srq_recv(srq, mr, 0, BUFFER, ID(posted + 1)), RPMA_E_PROVIDER);
	say(side, 0, "seen");
	part_after(&conn);
	OK(rpma_srq_delete(&srq));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
full_client(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, RPMA_MR_USAGE_SEND);
	OK(rpma_send(e.conn, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(1)));
	expect_done(e.cq, e.conn, IBV_WC_SEND, 1, 0);
	hear(side, 0, "seen");
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* -- the queue goes before its connections -------------------------------------------------------------------------- */

/*
 * The device keeps a queue that a connection uses, and says so; the caller's pointer is gone all the same. A message still
 * takes the buffer that was posted before. With a completion queue of its own gone as well, only the memory tells of it.
 */
static void
delete_first(struct side *side, uint32_t rcq_size)
{
	struct rpma_peer *peer = peer_on(side->addr);
	unsigned char *mem = memory(PAGE, 0xee);
	struct rpma_mr_local *mr = registered(peer, mem, PAGE, RPMA_MR_USAGE_RECV);
	struct rpma_srq *srq = new_srq(peer, 5, rcq_size);
	struct rpma_conn_cfg *cfg = with_srq(srq, 0, false);
	struct rpma_conn *conn;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	int ret;

	OK(rpma_srq_recv(srq, mr, 0, BUFFER, ID(1)));
	give(side, 0, port, sizeof(port));
	conn = accept_one(ep, cfg, NULL, 0);
	CHECK_CODE(rpma_srq_delete(&srq), RPMA_E_PROVIDER);
	CHECK(srq == NULL);
	say(side, 0, "deleted");
	if (rcq_size == 0)
		expect_done(cq_of(conn), conn, IBV_WC_RECV, 1, 8);
	hear(side, 0, "sent");
	check_pattern("the message", mem, 8, 3, 0);
	CHECK_FILL(mem + 8, 0xee, PAGE - 8);
	expect_no_wc(cq_of(conn));
	part_after(&conn);
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_ep_shutdown(&ep));
	/* Its last user has taken the queue along, or it is still in the peer's way. */
	ret = rpma_peer_delete(&peer);
	if (is_original())
		CHECK(ret == 0 || ret == RPMA_E_PROVIDER);
	else
		CHECK_CODE(ret, 0);
	CHECK(peer == NULL);
	say(side, 0, "alive");
}

static void
deleted_first_server(struct side *side)
{
	delete_first(side, 10);
	delete_first(side, 0);
}

static void
deleted_first_client(struct side *side)
{
	for (int i = 0; i < 2; i++) {
		unsigned char *mem = memory(PAGE, 0);
		struct rpma_mr_local *mr;
		struct ends e;

		pattern(mem, 8, 3);
		open_client(side, &e, NULL);
		mr = registered(e.peer, mem, PAGE, RPMA_MR_USAGE_SEND);
		hear(side, 0, "deleted");
		OK(rpma_send(e.conn, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(5)));
		expect_done(e.cq, e.conn, IBV_WC_SEND, 5, 0);
		say(side, 0, "sent");
		OK(rpma_mr_dereg(&mr));
		close_client(&e);
		hear(side, 0, "alive");
	}
}

/* -- many connections on one queue ------------------------------------------------------------------------------------ */

#define CONNECTIONS_MAX 200

static unsigned
connections(void)
{
	unsigned n = (unsigned)scaled(CONNECTIONS_MAX, 10);

	return n < CONNECTIONS_MAX ? n : CONNECTIONS_MAX;
}

/* A connection holds several descriptors. */
static void
raise_limit(void)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void
many_connections_server(struct side *side)
{
	unsigned n = connections(), from[CONNECTIONS_MAX] = {0}, filled[CONNECTIONS_MAX] = {0};
	struct rpma_peer *peer = peer_on(side->addr);
	uint32_t *mem = memory(CONNECTIONS_MAX * 4, 0xee);
	struct rpma_mr_local *mr = registered(peer, mem, CONNECTIONS_MAX * 4, RPMA_MR_USAGE_RECV);
	struct rpma_srq *srq = new_srq(peer, CONNECTIONS_MAX, CONNECTIONS_MAX);
	struct rpma_conn_cfg *cfg = with_srq(srq, 0, false);
	struct rpma_conn *conn[CONNECTIONS_MAX];
	struct rpma_cq *rcq = NULL;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	raise_limit();
	OK(rpma_srq_get_rcq(srq, &rcq));
	for (unsigned i = 0; i < n; i++)
		OK(rpma_srq_recv(srq, mr, 4 * i, 4, ID(i)));
	give(side, 0, port, sizeof(port));
	for (unsigned i = 0; i < n; i++)
		conn[i] = accept_one(ep, cfg, NULL, 0);
	say(side, 0, "all there");
	/* One message of each, in whichever order; the completion tells whose it is and where. */
	for (unsigned i = 0; i < n; i++) {
		struct ibv_wc wc;
		unsigned who = 0;

		next_wc(rcq, &wc);
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		CHECK_INT(wc.byte_len, 4);
		CHECK(wc.wr_id < n);
		CHECK_INT(filled[wc.wr_id]++, 0);
		while (who < n && qp_num_of(conn[who]) != wc.qp_num)
			who++;
		CHECK(who < n);
		CHECK_INT(mem[wc.wr_id], 1000 + who);
		CHECK_INT(from[who]++, 0);
	}
	expect_no_wc(rcq);
	say(side, 0, "all seen");
	for (unsigned i = 0; i < n; i++)
		part_after(&conn[i]);
	OK(rpma_srq_delete(&srq));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
many_connections_client(struct side *side)
{
	unsigned n = connections();
	struct rpma_peer *peer = peer_on(side->addr);
	uint32_t *mem = memory(CONNECTIONS_MAX * 4, 0);
	struct rpma_mr_local *mr = registered(peer, mem, CONNECTIONS_MAX * 4, RPMA_MR_USAGE_SEND);
	struct rpma_conn *conn[CONNECTIONS_MAX];
	char port[8];

	raise_limit();
	take(side, 0, port, sizeof(port));
	for (unsigned i = 0; i < n; i++) {
		mem[i] = 1000 + i;
		conn[i] = connect_to(peer, side->addr, port, NULL, NULL, 0);
	}
	hear(side, 0, "all there");
	for (unsigned i = n; i-- > 0; )
		OK(rpma_send(conn[i], mr, 4 * i, 4, RPMA_F_COMPLETION_ALWAYS, ID(i)));
	for (unsigned i = 0; i < n; i++)
		expect_done(cq_of(conn[i]), conn[i], IBV_WC_SEND, i, 0);
	hear(side, 0, "all seen");
	for (unsigned i = 0; i < n; i++)
		OK(rpma_conn_disconnect(conn[i]));
	for (unsigned i = 0; i < n; i++) {
		expect_event(conn[i], RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&conn[i]));
	}
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&peer));
}

static const struct test tests[] = {
	PAIR(own_queue),
	PAIR(main_queue),
	PAIR(separate_queue),
	PAIR(receive_on_connection),
	LOCAL(shared_channel),
	PAIR(forbidden_buffer),
	PAIR(full),
	PAIR(deleted_first),
	PAIR(many_connections),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
