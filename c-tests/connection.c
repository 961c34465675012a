/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * connection.c - how connections come and go: the handshake, its private data and their limits, events in order,
 * refusals, addresses, queue sizes. Sides that fail or die are in failure.c.
 */

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fabric.h"

/* -- the plain case ---------------------------------------------------------------------------------------------- */

static void
connect_and_part_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_cq *rcq = (struct rpma_cq *)&req;
	struct rpma_ep *ep;
	uint32_t num;
	char port[8];
	int fd = -1;

	ep = listen_on(peer, side->addr, port);
	OK(rpma_ep_get_fd(ep, &fd));
	CHECK(fd >= 0);
	CHECK(!readable(fd));
	give(side, 0, port, sizeof(port));
	wait_readable(fd);
	OK(rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK(!readable(fd));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	CHECK(req == NULL && conn != NULL);
	OK(rpma_conn_get_event_fd(conn, &fd));
	wait_readable(fd);
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	OK(rpma_conn_get_rcq(conn, &rcq));
	CHECK(rcq == NULL);
	num = qp_num_of(conn);
	CHECK(num != 0);
	give(side, 0, &num, sizeof(num));
	CHECK(!readable(fd));
	say(side, 0, "part");
	wait_readable(fd);
	expect_event(conn, RPMA_CONN_CLOSED);
	OK(rpma_conn_disconnect(conn));
	OK(rpma_conn_delete(&conn));
	CHECK(conn == NULL);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
connect_and_part_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_cq *rcq = (struct rpma_cq *)&req;
	uint32_t num;
	char port[8];
	int fd = -1;

	take(side, 0, port, sizeof(port));
	OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	CHECK(req == NULL && conn != NULL);
	OK(rpma_conn_get_event_fd(conn, &fd));
	CHECK(fd >= 0);
	wait_readable(fd);
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(cq_of(conn) != NULL);
	OK(rpma_conn_get_rcq(conn, &rcq));
	CHECK(rcq == NULL);
	take(side, 0, &num, sizeof(num));
	/* Both queue pairs may be on one device, where numbers are unique. */
	CHECK(qp_num_of(conn) != 0 && qp_num_of(conn) != num);
	hear(side, 0, "part");
	CHECK(!readable(fd));
	OK(rpma_conn_disconnect(conn));
	wait_readable(fd);
	expect_event(conn, RPMA_CONN_CLOSED);
	OK(rpma_conn_delete(&conn));
	CHECK(conn == NULL);
	OK(rpma_peer_delete(&peer));
}

/* The passive side may be the one to part. */
static void
server_parts_server(struct side *side)
{
	struct ends e;

	open_server(side, &e, NULL);
	hear(side, 0, "up");
	part(&e.conn);
	close_server(&e);
}

static void
server_parts_client(struct side *side)
{
	struct ends e;

	open_client(side, &e, NULL);
	say(side, 0, "up");
	part_after(&e.conn);
	close_client(&e);
}

/* A connection deleted without having been parted is parted by that. */
static void
delete_parts_server(struct side *side)
{
	struct ends e;

	open_server(side, &e, NULL);
	expect_event(e.conn, RPMA_CONN_CLOSED);
	OK(rpma_conn_delete(&e.conn));
	close_server(&e);
}

static void
delete_parts_client(struct side *side)
{
	struct ends e;

	open_client(side, &e, NULL);
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

/*
 * Both ends in one process. The order is that of verbs, where an end that takes its event thereby answers the other: the
 * active end completes the handshake, and the end that was parted from lets the other one go.
 */
static void
both_ends_in_one_process(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr), *other = peer_on(addr);
	struct rpma_conn *active = NULL, *passive = NULL;
	struct rpma_conn_req *req = NULL;
	char port[8], port2[8];
	struct rpma_ep *ep = listen_on(peer, addr, port), *ep2 = listen_on(other, addr, port2);

	CHECK(strcmp(port, port2) != 0);
	for (int i = 0; i < 2; i++) {
		OK(rpma_conn_req_new(other, addr, i ? port : port2, NULL, &req));
		OK(rpma_conn_req_connect(&req, NULL, &active));
		OK(rpma_ep_next_conn_req(i ? ep : ep2, NULL, &req));
		OK(rpma_conn_req_connect(&req, NULL, &passive));
		expect_event(active, RPMA_CONN_ESTABLISHED);
		expect_event(passive, RPMA_CONN_ESTABLISHED);
		OK(rpma_conn_disconnect(active));
		expect_event(passive, RPMA_CONN_CLOSED);
		OK(rpma_conn_disconnect(passive));
		expect_event(active, RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&active));
		OK(rpma_conn_delete(&passive));
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_ep_shutdown(&ep2));
	OK(rpma_peer_delete(&peer));
	OK(rpma_peer_delete(&other));
}

/* -- the choice of the fabric ------------------------------------------------------------------------------------ */

/* Before the first call of the library, which chooses. */
static void
leave_the_choice(const char *addr)
{
	static const char devices[] = "/sys/class/infiniband";
	DIR *dir = opendir(devices);
	struct dirent *entry;

	if (is_original())
		check_skip("the original knows no other fabric than that of the devices");
	while (dir != NULL && (entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			check_skip("there is a device, %s/%s", devices, entry->d_name);
	if (dir != NULL)
		closedir(dir);
	CHECK(unsetenv("RPMA_FABRIC") == 0);
	CHECK(on_soft(addr));
}

/* Where there is no device, and nothing says which fabric to take, both sides take the software fabric, and it works. */
static void
automatic_fabric_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	leave_the_choice(side->addr);
	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	hear(side, 0, "written");
	check_pattern("what was written", mem, PAGE, 5, 0);
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "released");
	close_server(&e);
}

static void
automatic_fabric_client(struct side *side)
{
	unsigned char *mem = memory(2 * PAGE, 0);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;

	leave_the_choice(side->addr);
	open_client(side, &e, NULL);
	pattern(mem, PAGE, 5);
	mr = registered(e.peer, mem, 2 * PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	OK(rpma_write(e.conn, remote, 0, mr, 0, PAGE, RPMA_F_COMPLETION_ON_ERROR, ID(1)));
	OK(rpma_read(e.conn, mr, PAGE, remote, 0, PAGE, RPMA_F_COMPLETION_ALWAYS, ID(2)));
	expect_done(e.cq, e.conn, IBV_WC_RDMA_READ, 2, PAGE);
	check_pattern("what was read", mem + PAGE, PAGE, 5, 0);
	say(side, 0, "written");
	hear(side, 0, "released");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* -- private data ------------------------------------------------------------------------------------------------ */

#define ACTIVE_MAX 56
#define PASSIVE_MAX 196

/* One connection after the other; none may see anything of an earlier one. */
static const struct {
	uint8_t active, passive;
} exchanges[] = {{0, 0}, {1, 1}, {0, 0}, {ACTIVE_MAX, ACTIVE_MAX}, {0, 7}, {7, 0}, {ACTIVE_MAX, PASSIVE_MAX}, {0, 0}, {1, 0}};

#define EXCHANGES (sizeof(exchanges) / sizeof(exchanges[0]))

/*
 * What arrived is what was sent. InfiniBand carries no length: there the receiver sees the whole field, filled up with
 * zeros. A fabric does either, and always the same.
 */
static void
check_private_data(const struct rpma_conn_private_data *got, unsigned seed, uint8_t len, uint8_t field)
{
	static int whole_field = -1;
	int whole = got->len != len;

	if (len != field) {
		CHECK(whole_field < 0 || whole_field == whole);
		whole_field = whole;
	}
	if (whole) {
		CHECK_INT(got->len, field);
		CHECK(got->ptr != NULL);
		check_pattern("private data", got->ptr, len, seed, 0);
		CHECK_FILL((char *)got->ptr + len, 0, (size_t)field - len);
	} else if (len == 0) {
		CHECK(got->ptr == NULL);
	} else {
		CHECK(got->ptr != NULL);
		check_pattern("private data", got->ptr, len, seed, 0);
	}
}

static void
private_data_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	give(side, 0, port, sizeof(port));
	for (unsigned i = 0; i < EXCHANGES; i++) {
		struct rpma_conn_private_data pdata = {(void *)&pdata, 77};
		struct rpma_conn_req *req = NULL;
		struct rpma_conn *conn = NULL;
		unsigned char answer[PASSIVE_MAX];

		OK(rpma_ep_next_conn_req(ep, NULL, &req));
		OK(rpma_conn_req_get_private_data(req, &pdata));
		check_private_data(&pdata, i, exchanges[i].active, ACTIVE_MAX);
		pattern(answer, sizeof(answer), 100 + i);
		pdata.ptr = answer;
		pdata.len = exchanges[i].passive;
		OK(rpma_conn_req_connect(&req, pdata.len ? &pdata : NULL, &conn));
		/* What was sent has been copied. */
		memset(answer, 0xcc, sizeof(answer));
		expect_event(conn, RPMA_CONN_ESTABLISHED);
		/* It has moved from the request to the connection. */
		OK(rpma_conn_get_private_data(conn, &pdata));
		check_private_data(&pdata, i, exchanges[i].active, ACTIVE_MAX);
		part_after(&conn);
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
private_data_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	char port[8];

	take(side, 0, port, sizeof(port));
	for (unsigned i = 0; i < EXCHANGES; i++) {
		struct rpma_conn_private_data pdata, got = {(void *)&got, 77};
		struct rpma_conn_req *req = NULL;
		struct rpma_conn *conn = NULL;
		unsigned char question[ACTIVE_MAX];

		pattern(question, sizeof(question), i);
		pdata.ptr = question;
		pdata.len = exchanges[i].active;
		OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
		OK(rpma_conn_req_connect(&req, pdata.len ? &pdata : NULL, &conn));
		memset(question, 0xcc, sizeof(question));
		/* Nothing has come before the connection is established. */
		OK(rpma_conn_get_private_data(conn, &got));
		CHECK(got.ptr == NULL && got.len == 0);
		expect_event(conn, RPMA_CONN_ESTABLISHED);
		OK(rpma_conn_get_private_data(conn, &got));
		check_private_data(&got, 100 + i, exchanges[i].passive, PASSIVE_MAX);
		part(&conn);
	}
	OK(rpma_peer_delete(&peer));
}

/* What the server answers with in the end: more than fits a request, up to what fits an answer. */
static const uint8_t answers[] = {ACTIVE_MAX + 1, PASSIVE_MAX};

/* A refusal of private data, with its reason in errno. */
static void
expect_too_long(struct rpma_conn_req **req, void *data, uint8_t len)
{
	struct rpma_conn_private_data pdata = {data, len};
	struct rpma_conn *conn = NULL;
	int error;

	errno = 0;
	CHECK_CODE(rpma_conn_req_connect(req, &pdata, &conn), RPMA_E_PROVIDER);
	error = errno;
	CHECK(*req == NULL && conn == NULL);
	/* The original leaves what its log function left. */
	if (!is_original())
		CHECK_INT(error, EINVAL);
}

/* More than the fabric carries is refused, never cut, and what it carries arrives whole. */
static void
private_data_limits_server(struct side *side)
{
	static const uint8_t too_long[] = {PASSIVE_MAX + 1, 255};
	struct rpma_peer *peer = peer_on(side->addr);
	unsigned char data[255];
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	struct rpma_conn *conn;

	give(side, 0, port, sizeof(port));
	for (unsigned i = 0; i < sizeof(too_long); i++) {
		struct rpma_conn_req *req = NULL;

		OK(rpma_ep_next_conn_req(ep, NULL, &req));
		expect_too_long(&req, data, too_long[i]);
	}
	/* The endpoint is none the worse for it. */
	for (unsigned i = 0; i < sizeof(answers); i++) {
		pattern(data, sizeof(data), 1 + i);
		conn = accept_one(ep, NULL, data, answers[i]);
		part_after(&conn);
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
private_data_limits_client(struct side *side)
{
	static const uint8_t too_long[] = {ACTIVE_MAX + 1, PASSIVE_MAX, PASSIVE_MAX + 1, 255};
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_conn_private_data pdata;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	unsigned char data[255];
	char port[8];

	take(side, 0, port, sizeof(port));
	pattern(data, sizeof(data), 77);
	for (unsigned i = 0; i < sizeof(too_long); i++) {
		OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
		expect_too_long(&req, data, too_long[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
		OK(rpma_conn_req_connect(&req, NULL, &conn));
		expect_event(conn, RPMA_CONN_REJECTED);
		OK(rpma_conn_delete(&conn));
	}
	for (unsigned i = 0; i < sizeof(answers); i++) {
		conn = connect_to(peer, side->addr, port, NULL, data, ACTIVE_MAX);
		OK(rpma_conn_get_private_data(conn, &pdata));
		check_private_data(&pdata, 1 + i, answers[i], PASSIVE_MAX);
		part(&conn);
	}
	OK(rpma_peer_delete(&peer));
}

/* -- refusals ---------------------------------------------------------------------------------------------------- */

/* Deleting an undecided request refuses it. */
static void
rejected_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	give(side, 0, port, sizeof(port));
	OK(rpma_ep_next_conn_req(ep, NULL, &req));
	OK(rpma_conn_req_delete(&req));
	CHECK(req == NULL);
	conn = accept_one(ep, NULL, NULL, 0);
	part_after(&conn);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
rejected_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	char port[8];

	take(side, 0, port, sizeof(port));
	OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	expect_event(conn, RPMA_CONN_REJECTED);
	OK(rpma_conn_delete(&conn));
	CHECK(conn == NULL);
	conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
	part(&conn);
	OK(rpma_peer_delete(&peer));
}

/* Empty private data is refused, and the request is gone all the same. */
static void
empty_private_data_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	char port[8], byte = 1;
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	give(side, 0, port, sizeof(port));
	for (int i = 0; i < 3; i++) {
		struct rpma_conn_private_data pdata = {i == 0 ? &byte : NULL, i == 1 ? 1 : 0};
		struct rpma_conn_req *req = NULL;
		struct rpma_conn *conn = NULL;

		OK(rpma_ep_next_conn_req(ep, NULL, &req));
		if (i < 2)
			INVAL(rpma_conn_req_connect(&req, &pdata, &conn));
		else
			INVAL(rpma_conn_req_connect(&req, NULL, NULL));
		CHECK(req == NULL && conn == NULL);
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
empty_private_data_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_conn_private_data pdata = {&pdata, 0};
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	char port[8];

	take(side, 0, port, sizeof(port));
	OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
	INVAL(rpma_conn_req_connect(&req, &pdata, &conn));
	CHECK(req == NULL && conn == NULL);
	for (int i = 0; i < 3; i++) {
		OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
		OK(rpma_conn_req_connect(&req, NULL, &conn));
		expect_event(conn, RPMA_CONN_REJECTED);
		OK(rpma_conn_delete(&conn));
	}
	OK(rpma_peer_delete(&peer));
}

/* A configuration that the provider cannot fulfil refuses the client at once. */
static void
impossible_queue_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_conn_cfg *cfg = sizes(0, SIZE_KEEP, SIZE_KEEP, SIZE_KEEP);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	give(side, 0, port, sizeof(port));
	CHECK_CODE(rpma_ep_next_conn_req(ep, cfg, &req), RPMA_E_PROVIDER);
	CHECK(req == NULL);
	if (!original_lacks("a client whose request failed at the server is not refused")) {
		hear(side, 0, "rejected");
		OK(rpma_conn_cfg_set_cq_size(cfg, UINT32_MAX));
		CHECK_CODE(rpma_ep_next_conn_req(ep, cfg, &req), RPMA_E_PROVIDER);
		CHECK(req == NULL);
		hear(side, 0, "rejected");
	}
	conn = accept_one(ep, NULL, NULL, 0);
	part_after(&conn);
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
impossible_queue_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_conn *left_alone = NULL, *conn = NULL;
	struct rpma_conn_req *req = NULL;
	char port[8];

	take(side, 0, port, sizeof(port));
	if (is_original()) {
		OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
		OK(rpma_conn_req_connect(&req, NULL, &left_alone));
	} else {
		for (int i = 0; i < 2; i++) {
			OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
			OK(rpma_conn_req_connect(&req, NULL, &conn));
			expect_event(conn, RPMA_CONN_REJECTED);
			OK(rpma_conn_delete(&conn));
			say(side, 0, "rejected");
		}
	}
	conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
	part(&conn);
	OK(rpma_conn_delete(&left_alone));
	OK(rpma_peer_delete(&peer));
}

/* The host says so, and at once: none of the times that a host may take to answer passes. */
static void
nobody_listens(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	char port[8];
	int reserved = reserve_port(addr, port);
	double start;

	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_timeout(cfg, 20000));
	start = seconds_now();
	OK(rpma_conn_req_new(peer, addr, port, cfg, &req));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	expect_event(conn, RPMA_CONN_REJECTED);
	check_within("the refusal", start, 5);
	OK(rpma_conn_delete(&conn));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_peer_delete(&peer));
	close(reserved);
}

/* An active request can be given up before it was sent. */
static void
request_given_up(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn_private_data pdata = {&req, 77};
	char port[8];
	struct rpma_ep *ep = listen_on(peer, addr, port);
	int fd;

	OK(rpma_conn_req_new(peer, addr, port, NULL, &req));
	OK(rpma_conn_req_get_private_data(req, &pdata));
	CHECK(pdata.ptr == NULL && pdata.len == 0);
	OK(rpma_conn_req_delete(&req));
	CHECK(req == NULL);
	OK(rpma_ep_get_fd(ep, &fd));
	CHECK(!readable(fd));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* -- descriptors that do not block ------------------------------------------------------------------------------- */

/* Records that reach the log while nothing is wrong. */
static unsigned records;

static void
count_records(enum rpma_log_level level, const char *file, const int line, const char *function, const char *format, ...)
{
	(void)level; (void)file; (void)line; (void)function; (void)format;
	records++;
}

static void
nonblocking_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	enum rpma_conn_event event = RPMA_CONN_LOST;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	int fd, empty = RPMA_E_NO_EVENT;

	if (original_lacks("an empty descriptor that does not block is a logged RPMA_E_PROVIDER"))
		empty = RPMA_E_PROVIDER;
	OK(rpma_log_set_function(count_records));
	OK(rpma_ep_get_fd(ep, &fd));
	set_nonblocking(fd);
	for (int i = 0; i < 3; i++)
		CHECK_CODE(rpma_ep_next_conn_req(ep, NULL, &req), empty);
	CHECK(req == NULL);
	CHECK(records == 0 || is_original());
	give(side, 0, port, sizeof(port));
	wait_readable(fd);
	OK(rpma_ep_next_conn_req(ep, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	OK(rpma_conn_get_event_fd(conn, &fd));
	set_nonblocking(fd);
	wait_readable(fd);
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	for (int i = 0; i < 3; i++)
		CHECK_CODE(rpma_conn_next_event(conn, &event), empty);
	CHECK(records == 0 || is_original());
	say(side, 0, "part");
	wait_readable(fd);
	part_after(&conn);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
nonblocking_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	enum rpma_conn_event event = RPMA_CONN_LOST;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_cq *cq;
	struct ibv_wc wc;
	char port[8];
	int fd;

	take(side, 0, port, sizeof(port));
	OK(rpma_log_set_function(count_records));
	OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	OK(rpma_conn_get_event_fd(conn, &fd));
	set_nonblocking(fd);
	wait_readable(fd);
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	if (!is_original()) {
		CHECK_CODE(rpma_conn_next_event(conn, &event), RPMA_E_NO_EVENT);
		CHECK_INT(records, 0);
	}
	/* The completion queue's descriptor is the same. */
	cq = cq_of(conn);
	OK(rpma_cq_get_fd(cq, &fd));
	CHECK(fd >= 0);
	set_nonblocking(fd);
	CHECK_CODE(rpma_cq_wait(cq), RPMA_E_NO_COMPLETION);
	CHECK_CODE(rpma_cq_get_wc(cq, 1, &wc, NULL), RPMA_E_NO_COMPLETION);
	CHECK(records == 0 || is_original());
	hear(side, 0, "part");
	OK(rpma_conn_disconnect(conn));
	OK(rpma_conn_get_event_fd(conn, &fd));
	wait_readable(fd);
	expect_event(conn, RPMA_CONN_CLOSED);
	OK(rpma_conn_delete(&conn));
	OK(rpma_peer_delete(&peer));
}

/* -- sizes of queues --------------------------------------------------------------------------------------------- */

static void
queue_sizes(const char *addr)
{
	static const struct {
		uint32_t cq, rcq, sq, rq;
		int code;
	} cases[] = {
		{1, SIZE_KEEP, SIZE_KEEP, SIZE_KEEP, 0},
		{0, SIZE_KEEP, SIZE_KEEP, SIZE_KEEP, RPMA_E_PROVIDER},
		{UINT32_MAX, SIZE_KEEP, SIZE_KEEP, SIZE_KEEP, RPMA_E_PROVIDER},
		{INT32_MAX, SIZE_KEEP, SIZE_KEEP, SIZE_KEEP, RPMA_E_PROVIDER},
		{SIZE_KEEP, 0, SIZE_KEEP, SIZE_KEEP, 0},
		{SIZE_KEEP, 1, SIZE_KEEP, SIZE_KEEP, 0},
		{SIZE_KEEP, UINT32_MAX, SIZE_KEEP, SIZE_KEEP, RPMA_E_PROVIDER},
		{SIZE_KEEP, SIZE_KEEP, 1, 1, 0},
		{SIZE_KEEP, SIZE_KEEP, 1000, 1000, 0},
		{SIZE_KEEP, SIZE_KEEP, UINT32_MAX, SIZE_KEEP, RPMA_E_PROVIDER},
		{SIZE_KEEP, SIZE_KEEP, SIZE_KEEP, UINT32_MAX, RPMA_E_PROVIDER},
	};
	struct rpma_peer *peer = peer_on(addr);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, addr, port);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rpma_conn_cfg *cfg = sizes(cases[i].cq, cases[i].rcq, cases[i].sq, cases[i].rq);
		struct rpma_conn_req *req = NULL;
		int code;

		code = rpma_conn_req_new(peer, addr, port, cfg, &req);
		if (code != cases[i].code)
			check_fail("sizes %u, %u, %u, %u: %s, not %s", cases[i].cq, cases[i].rcq, cases[i].sq,
				cases[i].rq, code_name(code), code_name(cases[i].code));
		CHECK((req != NULL) == (code == 0));
		OK(rpma_conn_req_delete(&req));
		OK(rpma_conn_cfg_delete(&cfg));
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* -- addresses --------------------------------------------------------------------------------------------------- */

static char logged[2048];

static void
keep_records(enum rpma_log_level level, const char *file, const int line, const char *function, const char *format, ...)
{
	size_t used = strlen(logged);
	va_list ap;

	(void)level; (void)file; (void)line; (void)function;
	va_start(ap, format);
	vsnprintf(logged + used, sizeof(logged) - used, format, ap);
	va_end(ap);
}

/* The log says what the resolver said. */
static void
bad_names(const char *addr)
{
	static const struct {
		const char *host, *port;
	} names[] = {{"no-such-host.invalid", "7204"}, {"300.300.300.300", "7204"}, {NULL, "no-such-service"}};
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_conn_req *req = NULL;
	struct ibv_context *ctx = NULL;
	struct rpma_ep *ep = NULL;

	OK(rpma_log_set_function(keep_records));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *host = names[i].host ? names[i].host : addr;
		struct addrinfo *info = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
		int why = getaddrinfo(host, names[i].port, &hints, &info);

		CHECK(why != 0);
		logged[0] = '\0';
		CHECK_CODE(rpma_ep_listen(peer, host, names[i].port, &ep), RPMA_E_PROVIDER);
		if (strstr(logged, gai_strerror(why)) == NULL)
			check_fail("\"%s\" is not in the log: %s", gai_strerror(why), logged);
		logged[0] = '\0';
		CHECK_CODE(rpma_conn_req_new(peer, host, names[i].port, NULL, &req), RPMA_E_PROVIDER);
		if (strstr(logged, gai_strerror(why)) == NULL)
			check_fail("\"%s\" is not in the log: %s", gai_strerror(why), logged);
		CHECK(ep == NULL && req == NULL);
		if (names[i].host == NULL)
			continue;
		logged[0] = '\0';
		CHECK_CODE(rpma_utils_get_ibv_context(host, RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx), RPMA_E_PROVIDER);
		CHECK(strstr(logged, gai_strerror(why)) != NULL);
		logged[0] = '\0';
		CHECK_CODE(rpma_utils_get_ibv_context(host, RPMA_UTIL_IBV_CONTEXT_REMOTE, &ctx), RPMA_E_PROVIDER);
		CHECK(strstr(logged, gai_strerror(why)) != NULL);
		CHECK(ctx == NULL);
	}
	OK(rpma_peer_delete(&peer));
}

/* No port is an invalid argument; of a number that is none the resolver decides, as it does for every program. */
static void
bad_ports(const char *addr)
{
	struct addrinfo *info = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_conn_req *req = NULL;
	struct rpma_ep *ep = NULL;
	int why;

	INVAL(rpma_ep_listen(peer, addr, NULL, &ep));
	INVAL(rpma_conn_req_new(peer, addr, NULL, NULL, &req));
	CHECK(ep == NULL && req == NULL);
	OK(rpma_log_set_function(keep_records));
	why = getaddrinfo(addr, "99999", &hints, &info);
	logged[0] = '\0';
	CHECK_CODE(rpma_ep_listen(peer, addr, "99999", &ep), why ? RPMA_E_PROVIDER : 0);
	CHECK((ep == NULL) == (why != 0));
	CHECK(why == 0 || strstr(logged, gai_strerror(why)) != NULL);
	logged[0] = '\0';
	CHECK_CODE(rpma_conn_req_new(peer, addr, "99999", NULL, &req), why ? RPMA_E_PROVIDER : 0);
	CHECK((req == NULL) == (why != 0));
	CHECK(why == 0 || strstr(logged, gai_strerror(why)) != NULL);
	if (why == 0)
		freeaddrinfo(info);
	OK(rpma_conn_req_delete(&req));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* A service's name stands for its port. */
static void
service_name(const char *addr)
{
	static const char *const names[] = {"http", "https", "ldap", "kerberos", "discard", "daytime"};
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_conn *active = NULL, *passive = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_ep *ep = NULL;
	struct servent *service = NULL;
	char port[8];

	/* One that is free here, since somebody may well listen on another. */
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && ep == NULL; i++) {
		service = getservbyname(names[i], "tcp");
		if (service == NULL)
			continue;
		if (rpma_ep_listen(peer, addr, names[i], &ep) != 0)
			CHECK(ep == NULL);
	}
	if (ep == NULL)
		check_skip("no service that has a name can be listened on here (needs a right to low ports)");
	snprintf(port, sizeof(port), "%d", ntohs((uint16_t)service->s_port));
	for (int i = 0; i < 2; i++) {
		OK(rpma_conn_req_new(peer, addr, i ? service->s_name : port, NULL, &req));
		OK(rpma_conn_req_connect(&req, NULL, &active));
		OK(rpma_ep_next_conn_req(ep, NULL, &req));
		OK(rpma_conn_req_connect(&req, NULL, &passive));
		expect_event(active, RPMA_CONN_ESTABLISHED);
		expect_event(passive, RPMA_CONN_ESTABLISHED);
		OK(rpma_conn_delete(&active));
		OK(rpma_conn_delete(&passive));
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* Two endpoints cannot have one port, and errno says why. */
static void
port_in_use(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, addr, port), *second = NULL;

	errno = 0;
	CHECK_CODE(rpma_ep_listen(peer, addr, port, &second), RPMA_E_PROVIDER);
	if (!original_lacks("errno is what the log function left"))
		CHECK_INT(errno, EADDRINUSE);
	CHECK(second == NULL);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_ep_listen(peer, addr, port, &second));
	OK(rpma_ep_shutdown(&second));
	OK(rpma_peer_delete(&peer));
}

/* The same over another way to write an address. */
static void
one_connection(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_conn *active = NULL, *passive = NULL;
	struct rpma_conn_req *req = NULL;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, addr, port);

	OK(rpma_conn_req_new(peer, addr, port, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &active));
	OK(rpma_ep_next_conn_req(ep, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &passive));
	expect_event(active, RPMA_CONN_ESTABLISHED);
	expect_event(passive, RPMA_CONN_ESTABLISHED);
	OK(rpma_conn_disconnect(active));
	expect_event(passive, RPMA_CONN_CLOSED);
	OK(rpma_conn_disconnect(passive));
	expect_event(active, RPMA_CONN_CLOSED);
	OK(rpma_conn_delete(&active));
	OK(rpma_conn_delete(&passive));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* Whether this host has an IPv6 address. */
static bool
has_address(const char *text)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6};
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	bool has;

	CHECK_INT(inet_pton(AF_INET6, text, &address.sin6_addr), 1);
	has = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
	if (fd >= 0)
		CHECK_INT(close(fd), 0);
	return has;
}

static void
ipv6(const char *addr)
{
	const char *addr6 = getenv("RPMA_TEST_ADDR6");

	if (addr6 == NULL || *addr6 == '\0')
		addr6 = !is_loopback(addr) ? getenv("RXE_ADDR6") : has_address("::1") ? "::1" : NULL;
	if (addr6 == NULL)
		check_skip("there is no IPv6 address of the device: RPMA_TEST_ADDR6 may name one");
	one_connection(addr6);
}

static void
host_name(const char *addr)
{
	if (!is_loopback(addr))
		check_skip("no host name is known to stand for %s", addr);
	one_connection("localhost");
}

static const struct test tests[] = {
	PAIR(connect_and_part),
	PAIR(server_parts),
	PAIR(delete_parts),
	LOCAL(both_ends_in_one_process),
	PAIR(automatic_fabric),
	PAIR(private_data),
	PAIR(private_data_limits),
	PAIR(rejected),
	PAIR(empty_private_data),
	PAIR(impossible_queue),
	LOCAL(nobody_listens),
	LOCAL(request_given_up),
	PAIR(nonblocking),
	LOCAL(queue_sizes),
	LOCAL(bad_names),
	LOCAL(bad_ports),
	LOCAL(service_name),
	LOCAL(port_in_use),
	LOCAL(ipv6),
	LOCAL(host_name),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
