/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * epoll.c - one thread serves several clients with one epoll loop: the endpoint's descriptor, and of each client that of
 * its events and that of its completions. The server reads a name out of each client's memory and parts from it. More
 * clients come than there are places; those that find none are refused and come again.
 */

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/fabric.h"

#define CLIENTS 6
#define PLACES 3
#define NAME_SIZE 32

enum kind {
	ENDPOINT,
	EVENTS,
	COMPLETIONS,
};

struct place {
	struct rpma_conn *conn;
	struct rpma_mr_remote *remote;
	size_t offset;
	bool established;
	bool asked;
};

struct server {
	int epoll;
	struct rpma_peer *peer;
	struct rpma_ep *ep;
	struct rpma_conn_cfg *cfg;
	bool shared_channel;
	char *names;
	struct rpma_mr_local *mr;
	struct place places[PLACES];
	unsigned served, refused;
	bool seen[CLIENTS];
};

static void
watch(struct server *server, int fd, enum kind kind, unsigned place)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)kind << 32 | place};

	set_nonblocking(fd);
	CHECK(epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

static int
completion_fd(struct server *server, struct rpma_conn *conn)
{
	int fd = -1;

	if (server->shared_channel)
		OK(rpma_conn_get_compl_fd(conn, &fd));
	else
		OK(rpma_cq_get_fd(cq_of(conn), &fd));
	return fd;
}

static void
on_request(struct server *server)
{
	struct rpma_conn_private_data pdata;
	struct rpma_conn_req *req = NULL;
	struct place *place = NULL;
	int fd, n;

	OK(rpma_ep_next_conn_req(server->ep, server->cfg, &req));
	for (n = 0; n < PLACES; n++)
		if (server->places[n].conn == NULL)
			break;
	if (n == PLACES) {
		OK(rpma_conn_req_delete(&req));
		server->refused++;
		return;
	}
	place = &server->places[n];
	/* The client's region comes with its request. */
	OK(rpma_conn_req_get_private_data(req, &pdata));
	CHECK(pdata.ptr != NULL && pdata.len >= 21);
	OK(rpma_mr_remote_from_descriptor(pdata.ptr, pdata.len, &place->remote));
	OK(rpma_conn_req_connect(&req, NULL, &place->conn));
	place->established = place->asked = false;
	place->offset = (size_t)n * NAME_SIZE;
	OK(rpma_conn_get_event_fd(place->conn, &fd));
	watch(server, fd, EVENTS, (unsigned)n);
	watch(server, completion_fd(server, place->conn), COMPLETIONS, (unsigned)n);
}

static void
on_event(struct server *server, struct place *place)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	int fd;

	OK(rpma_conn_next_event(place->conn, &event));
	if (event == RPMA_CONN_ESTABLISHED) {
		CHECK(!place->established);
		place->established = place->asked = true;
		OK(rpma_read(place->conn, server->mr, place->offset, place->remote, 0, NAME_SIZE, RPMA_F_COMPLETION_ALWAYS,
			place));
		return;
	}
	CHECK_INT(event, RPMA_CONN_CLOSED);
	CHECK(place->established && !place->asked);
	OK(rpma_conn_get_event_fd(place->conn, &fd));
	CHECK(epoll_ctl(server->epoll, EPOLL_CTL_DEL, fd, NULL) == 0);
	CHECK(epoll_ctl(server->epoll, EPOLL_CTL_DEL, completion_fd(server, place->conn), NULL) == 0);
	OK(rpma_mr_remote_delete(&place->remote));
	OK(rpma_conn_delete(&place->conn));
	server->served++;
}

static void
on_completion(struct server *server, struct place *place)
{
	struct rpma_cq *cq = cq_of(place->conn);
	unsigned char *name = (unsigned char *)server->names + place->offset;
	struct ibv_wc wc;
	unsigned who;
	int ret;

	if (server->shared_channel) {
		struct rpma_cq *which = NULL;
		bool is_rcq = true;

		ret = rpma_conn_wait(place->conn, 0, &which, &is_rcq);
		CHECK(ret == RPMA_E_NO_COMPLETION || (ret == 0 && which == cq && !is_rcq));
	} else {
		ret = rpma_cq_wait(cq);
		CHECK(ret == RPMA_E_NO_COMPLETION || ret == 0);
	}
	ret = rpma_cq_get_wc(cq, 1, &wc, NULL);
	if (ret == RPMA_E_NO_COMPLETION)
		return;
	CHECK_CODE(ret, 0);
	CHECK_INT(wc.status, IBV_WC_SUCCESS);
	CHECK_INT(wc.opcode, IBV_WC_RDMA_READ);
	CHECK_INT(wc.byte_len, NAME_SIZE);
	CHECK(wc.wr_id == (uintptr_t)place);
	CHECK(place->asked);
	place->asked = false;
	who = name[0];
	CHECK(who < CLIENTS && !server->seen[who]);
	server->seen[who] = true;
	check_pattern("the name", name + 1, NAME_SIZE - 1, who, 1);
	OK(rpma_conn_disconnect(place->conn));
}

static void
serve(struct side *side, bool shared_channel)
{
	struct server server = {.epoll = epoll_create1(EPOLL_CLOEXEC), .shared_channel = shared_channel};
	struct epoll_event events[8];
	char port[8];
	int fd;

	CHECK(server.epoll >= 0);
	server.peer = peer_on(side->addr);
	server.names = memory(PLACES * NAME_SIZE, 0);
	server.mr = registered(server.peer, server.names, PLACES * NAME_SIZE, RPMA_MR_USAGE_READ_DST);
	OK(rpma_conn_cfg_new(&server.cfg));
	OK(rpma_conn_cfg_set_compl_channel(server.cfg, shared_channel));
	server.ep = listen_on(server.peer, side->addr, port);
	OK(rpma_ep_get_fd(server.ep, &fd));
	watch(&server, fd, ENDPOINT, 0);
	for (int i = 0; i < CLIENTS; i++)
		give(side, i, port, sizeof(port));
	while (server.served < CLIENTS) {
		int n = epoll_wait(server.epoll, events, 8, -1);

		CHECK(n > 0 || errno == EINTR);
		for (int i = 0; i < n; i++) {
			struct place *place = &server.places[events[i].data.u64 & 0xffffffff];

			if (events[i].data.u64 >> 32 == ENDPOINT)
				on_request(&server);
			else if (place->conn == NULL)
				/* Its end was among the same events. */
				continue;
			else if (events[i].data.u64 >> 32 == EVENTS)
				on_event(&server, place);
			else
				on_completion(&server, place);
		}
	}
	for (int i = 0; i < CLIENTS; i++)
		CHECK(server.seen[i]);
	check_info("%u clients served in %d places, %u requests refused", server.served, PLACES, server.refused);
	OK(rpma_ep_shutdown(&server.ep));
	OK(rpma_conn_cfg_delete(&server.cfg));
	OK(rpma_mr_dereg(&server.mr));
	OK(rpma_peer_delete(&server.peer));
}

static void
client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	unsigned char *mem = memory(PAGE, 0), desc[21];
	struct rpma_mr_local *mr = registered(peer, mem, NAME_SIZE, RPMA_MR_USAGE_READ_SRC);
	struct rpma_conn_private_data pdata = {desc, sizeof(desc)};
	enum rpma_conn_event event = RPMA_CONN_REJECTED;
	char port[8];

	pattern(mem, NAME_SIZE, (unsigned)side->index);
	mem[0] = (unsigned char)side->index;
	OK(rpma_mr_get_descriptor(mr, desc));
	take(side, 0, port, sizeof(port));
	while (event == RPMA_CONN_REJECTED) {
		struct rpma_conn_req *req = NULL;
		struct rpma_conn *conn = NULL;

		OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
		OK(rpma_conn_req_connect(&req, &pdata, &conn));
		OK(rpma_conn_next_event(conn, &event));
		CHECK(event == RPMA_CONN_REJECTED || event == RPMA_CONN_ESTABLISHED);
		if (event == RPMA_CONN_ESTABLISHED)
			part_after(&conn);
		else
			OK(rpma_conn_delete(&conn));
	}
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&peer));
}

static void
many_clients_server(struct side *side)
{
	serve(side, false);
}

static void
many_clients_shared_channel_server(struct side *side)
{
	serve(side, true);
}

#define many_clients_client client
#define many_clients_shared_channel_client client

static const struct test tests[] = {
	CROWD(many_clients, CLIENTS),
	CROWD(many_clients_shared_channel, CLIENTS),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
