/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * arguments.c - arguments that are refused, of every function that has a connection, a request or an endpoint: each one
 * alone, nothing of the caller's touched, nothing posted.
 */

#include <string.h>

#include "common/fabric.h"

#define ALWAYS RPMA_F_COMPLETION_ALWAYS

/* Nothing can come back from a connection that nothing was posted on. */
static void
requests_server(struct side *side)
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
requests_client(struct side *side)
{
	struct rpma_mr_remote *r;
	struct rpma_mr_local *l;
	struct rpma_conn *c;
	struct ends e;

	open_client(side, &e, NULL);
	l = registered(e.peer, memory(PAGE, 0), PAGE, USAGE_ALL);
	r = take_mr(side, 0);
	c = e.conn;

	INVAL(rpma_read(NULL, l, 0, r, 0, 8, ALWAYS, ID(1)));
	INVAL(rpma_read(c, NULL, 0, r, 0, 8, ALWAYS, ID(1)));
	INVAL(rpma_read(c, l, 0, NULL, 0, 8, ALWAYS, ID(1)));
	INVAL(rpma_read(c, l, 0, r, 0, 8, 0, ID(1)));
	INVAL(rpma_read(c, NULL, 0, r, 0, 0, ALWAYS, ID(1)));
	INVAL(rpma_read(c, l, 0, NULL, 0, 0, ALWAYS, ID(1)));
	INVAL(rpma_read(c, NULL, 1, NULL, 0, 0, ALWAYS, ID(1)));
	INVAL(rpma_read(c, NULL, 0, NULL, 1, 0, ALWAYS, ID(1)));
	INVAL(rpma_read(c, NULL, 0, NULL, 0, 1, ALWAYS, ID(1)));
	INVAL(rpma_read(NULL, NULL, 0, NULL, 0, 0, 0, ID(1)));
	INVAL(rpma_read(c, NULL, 0, NULL, 0, 0, 0, ID(1)));

	INVAL(rpma_write(NULL, r, 0, l, 0, 8, ALWAYS, ID(1)));
	INVAL(rpma_write(c, NULL, 0, l, 0, 8, ALWAYS, ID(1)));
	INVAL(rpma_write(c, r, 0, NULL, 0, 8, ALWAYS, ID(1)));
	INVAL(rpma_write(c, r, 0, l, 0, 8, 0, ID(1)));
	INVAL(rpma_write(c, NULL, 0, l, 0, 0, ALWAYS, ID(1)));
	INVAL(rpma_write(c, r, 0, NULL, 0, 0, ALWAYS, ID(1)));
	INVAL(rpma_write(c, NULL, 1, NULL, 0, 0, ALWAYS, ID(1)));
	INVAL(rpma_write(c, NULL, 0, NULL, 1, 0, ALWAYS, ID(1)));
	INVAL(rpma_write(c, NULL, 0, NULL, 0, 1, ALWAYS, ID(1)));
	INVAL(rpma_write(c, NULL, 0, NULL, 0, 0, 0, ID(1)));

	INVAL(rpma_write_with_imm(NULL, r, 0, l, 0, 8, ALWAYS, 5, ID(1)));
	INVAL(rpma_write_with_imm(c, NULL, 0, l, 0, 8, ALWAYS, 5, ID(1)));
	INVAL(rpma_write_with_imm(c, r, 0, NULL, 0, 8, ALWAYS, 5, ID(1)));
	INVAL(rpma_write_with_imm(c, r, 0, l, 0, 8, 0, 5, ID(1)));
	INVAL(rpma_write_with_imm(c, NULL, 0, l, 0, 0, ALWAYS, 5, ID(1)));
	INVAL(rpma_write_with_imm(c, r, 0, NULL, 0, 0, ALWAYS, 5, ID(1)));
	INVAL(rpma_write_with_imm(c, NULL, 1, NULL, 0, 0, ALWAYS, 5, ID(1)));
	INVAL(rpma_write_with_imm(c, NULL, 0, NULL, 1, 0, ALWAYS, 5, ID(1)));
	INVAL(rpma_write_with_imm(c, NULL, 0, NULL, 0, 1, ALWAYS, 5, ID(1)));

	INVAL(rpma_send(NULL, l, 0, 8, ALWAYS, ID(1)));
	INVAL(rpma_send(c, l, 0, 8, 0, ID(1)));
	INVAL(rpma_send(c, NULL, 1, 0, ALWAYS, ID(1)));
	INVAL(rpma_send(c, NULL, 0, 1, ALWAYS, ID(1)));
	INVAL(rpma_send_with_imm(NULL, l, 0, 8, ALWAYS, 5, ID(1)));
	INVAL(rpma_send_with_imm(c, l, 0, 8, 0, 5, ID(1)));
	INVAL(rpma_send_with_imm(c, NULL, 1, 0, ALWAYS, 5, ID(1)));
	INVAL(rpma_send_with_imm(c, NULL, 0, 1, ALWAYS, 5, ID(1)));
	INVAL(rpma_recv(NULL, l, 0, 8, ID(1)));
	INVAL(rpma_recv(c, NULL, 1, 0, ID(1)));
	INVAL(rpma_recv(c, NULL, 0, 1, ID(1)));

	expect_no_wc(e.cq);
	say(side, 0, "done");
	OK(rpma_mr_remote_delete(&r));
	OK(rpma_mr_dereg(&l));
	close_client(&e);
}

static void
connection_server(struct side *side)
{
	struct rpma_conn_private_data pdata = {&pdata, 77};
	enum rpma_conn_event event = RPMA_CONN_LOST;
	struct ends e;
	int fd = -1;

	open_server(side, &e, NULL);
	INVAL(rpma_conn_get_event_fd(NULL, &fd));
	INVAL(rpma_conn_get_event_fd(e.conn, NULL));
	INVAL(rpma_conn_next_event(NULL, &event));
	INVAL(rpma_conn_next_event(e.conn, NULL));
	INVAL(rpma_conn_get_private_data(NULL, &pdata));
	INVAL(rpma_conn_get_private_data(e.conn, NULL));
	INVAL(rpma_conn_disconnect(NULL));
	CHECK(fd == -1 && event == RPMA_CONN_LOST && pdata.len == 77);
	say(side, 0, "done");
	close_server(&e);
}

static void
connection_client(struct side *side)
{
	struct ends e;

	open_client(side, &e, NULL);
	hear(side, 0, "done");
	close_client(&e);
}

static void
objects(const char *addr)
{
	struct rpma_conn_private_data pdata = {&pdata, 77};
	struct rpma_peer *peer = peer_on(addr), *no_peer = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_ep *ep = NULL, *no_ep = NULL;
	char port[8];
	int fd = -1;

	INVAL(rpma_ep_listen(NULL, addr, "7204", &ep));
	INVAL(rpma_ep_listen(peer, NULL, "7204", &ep));
	INVAL(rpma_ep_listen(peer, addr, NULL, &ep));
	INVAL(rpma_ep_listen(peer, addr, "7204", NULL));
	INVAL(rpma_ep_shutdown(NULL));
	OK(rpma_ep_shutdown(&no_ep));
	CHECK(ep == NULL);
	ep = listen_on(peer, addr, port);
	INVAL(rpma_ep_get_fd(NULL, &fd));
	INVAL(rpma_ep_get_fd(ep, NULL));
	INVAL(rpma_ep_next_conn_req(NULL, NULL, &req));
	INVAL(rpma_ep_next_conn_req(ep, NULL, NULL));
	CHECK(fd == -1 && req == NULL);

	INVAL(rpma_conn_req_new(NULL, addr, port, NULL, &req));
	INVAL(rpma_conn_req_new(peer, NULL, port, NULL, &req));
	INVAL(rpma_conn_req_new(peer, addr, NULL, NULL, &req));
	INVAL(rpma_conn_req_new(peer, addr, port, NULL, NULL));
	CHECK(req == NULL);
	INVAL(rpma_conn_req_delete(NULL));
	OK(rpma_conn_req_delete(&req));
	INVAL(rpma_conn_req_connect(NULL, NULL, &conn));
	INVAL(rpma_conn_req_connect(&req, NULL, &conn));
	OK(rpma_conn_req_new(peer, addr, port, NULL, &req));
	INVAL(rpma_conn_req_get_private_data(NULL, &pdata));
	INVAL(rpma_conn_req_get_private_data(req, NULL));
	CHECK_INT(pdata.len, 77);
	/* The request is used up, whatever comes of it. */
	INVAL(rpma_conn_req_connect(&req, NULL, NULL));
	CHECK(req == NULL);
	INVAL(rpma_conn_delete(NULL));
	OK(rpma_conn_delete(&conn));
	CHECK(conn == NULL);

	OK(rpma_ep_shutdown(&ep));
	CHECK(ep == NULL);
	INVAL(rpma_peer_delete(NULL));
	OK(rpma_peer_delete(&no_peer));
	OK(rpma_peer_delete(&peer));
}

static const struct test tests[] = {
	PAIR(requests),
	PAIR(connection),
	LOCAL(objects),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
