/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * failure.c - the other side dies, or was never there: the living side hears of it without being asked to wait for ever,
 * and every request that it has outstanding completes.
 */

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/fabric.h"

/* The connection's end, as the dead leave it. */
static void
expect_end(struct rpma_conn *conn)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	OK(rpma_conn_next_event(conn, &event));
	if (event != RPMA_CONN_CLOSED && event != RPMA_CONN_LOST)
		check_fail("event %d (%s), neither closed nor lost", event, rpma_utils_conn_event_2str(event));
}

/* It was the only one. A device also tells later on that its queue pair's number is free again, as another end. */
static void
expect_no_more(struct rpma_conn *conn, const char *addr)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	int fd = -1, ret;

	if (!on_soft(addr))
		return;
	OK(rpma_conn_get_event_fd(conn, &fd));
	set_nonblocking(fd);
	ret = rpma_conn_next_event(conn, &event);
	if (ret == 0)
		check_fail("another event %d (%s)", event, rpma_utils_conn_event_2str(event));
	CHECK_CODE(ret, is_original() ? RPMA_E_PROVIDER : RPMA_E_NO_EVENT);
}

/*
 * Devices give outstanding requests back when this side ends the connection too, or only after many tries; the software
 * fabric does it by itself.
 */
static void
end_where_needed(struct rpma_conn *conn, const char *addr)
{
	if (!on_soft(addr))
		OK(rpma_conn_disconnect(conn));
}

static void
end_where_not_needed(struct rpma_conn *conn, const char *addr)
{
	if (on_soft(addr))
		OK(rpma_conn_disconnect(conn));
}

/* -- the server is killed ------------------------------------------------------------------------------------------- */

static void
killed_idle_server(struct side *side)
{
	struct ends e;

	open_server(side, &e, NULL);
	say(side, 0, "up");
	hear(side, 0, "never said");
}

static void
killed_idle_client(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 0), PAGE, RPMA_MR_USAGE_RECV);
	for (unsigned i = 0; i < 5; i++)
		OK(rpma_recv(e.conn, mr, 0, 8, ID(i)));
	hear(side, 0, "up");
	kill_server(side);
	expect_end(e.conn);
	end_where_needed(e.conn, side->addr);
	for (unsigned i = 0; i < 5; i++)
		expect_status(e.cq, e.conn, IBV_WC_WR_FLUSH_ERR, i);
	expect_no_wc(e.cq);
	expect_no_more(e.conn, side->addr);
	end_where_not_needed(e.conn, side->addr);
	expect_no_wc(e.cq);
	expect_no_more(e.conn, side->addr);
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

#define IN_FLIGHT 1000
#define PIECE (16 * 1024)

static void
killed_in_flight_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, memory(PIECE, 0), PIECE, RPMA_MR_USAGE_WRITE_DST);
	give_mr(side, 0, mr);
	hear(side, 0, "never said");
}

/*
 * The end is heard of while a thousand writes are on their way. Each completes once, in order: successes first, then one
 * that found nobody, perhaps, then those that were never tried.
 */
static void
killed_in_flight_client(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(IN_FLIGHT + 1, SIZE_KEEP, IN_FLIGHT + 1, SIZE_KEEP);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned succeeded = 0;

	open_client(side, &e, cfg);
	mr = registered(e.peer, memory(PIECE, 1), PIECE, RPMA_MR_USAGE_WRITE_SRC);
	remote = take_mr(side, 0);
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		OK(rpma_write(e.conn, remote, 0, mr, 0, PIECE, RPMA_F_COMPLETION_ALWAYS, ID(i)));
	kill_server(side);
	expect_end(e.conn);
	end_where_needed(e.conn, side->addr);
	for (unsigned i = 0; i < IN_FLIGHT; i++) {
		struct ibv_wc wc;

		next_wc(e.cq, &wc);
		CHECK_INT(wc.wr_id, i);
		if (wc.status == IBV_WC_SUCCESS) {
			CHECK_INT(succeeded, i);
			succeeded++;
		} else if (wc.status != IBV_WC_WR_FLUSH_ERR) {
			CHECK_INT(succeeded, i);
		}
	}
	/* What is asked for now is never tried. */
	OK(rpma_write(e.conn, remote, 0, mr, 0, PIECE, RPMA_F_COMPLETION_ON_ERROR, ID(IN_FLIGHT)));
	expect_status(e.cq, e.conn, IBV_WC_WR_FLUSH_ERR, IN_FLIGHT);
	expect_no_wc(e.cq);
	expect_no_more(e.conn, side->addr);
	end_where_not_needed(e.conn, side->addr);
	expect_no_wc(e.cq);
	expect_no_more(e.conn, side->addr);
	check_info("%u of %u writes succeeded", succeeded, IN_FLIGHT);
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

static void
killed_before_accept_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	int fd;

	give(side, 0, port, sizeof(port));
	OK(rpma_ep_get_fd(ep, &fd));
	wait_readable(fd);
	say(side, 0, "pending");
	hear(side, 0, "never said");
}

static void
killed_before_accept_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	char port[8];
	double start;

	take(side, 0, port, sizeof(port));
	OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	hear(side, 0, "pending");
	kill_server(side);
	start = seconds_now();
	OK(rpma_conn_next_event(conn, &event));
	check_within("the end", start, 10);
	if (event != RPMA_CONN_REJECTED && event != RPMA_CONN_UNREACHABLE)
		check_fail("event %d (%s), neither rejected nor unreachable", event, rpma_utils_conn_event_2str(event));
	OK(rpma_conn_delete(&conn));
	OK(rpma_peer_delete(&peer));
}

/* The endpoint goes while a request waits on it. */
static void
shut_before_accept_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	int fd;

	give(side, 0, port, sizeof(port));
	OK(rpma_ep_get_fd(ep, &fd));
	wait_readable(fd);
	OK(rpma_ep_shutdown(&ep));
	CHECK(ep == NULL);
	hear(side, 0, "refused");
	OK(rpma_peer_delete(&peer));
}

static void
shut_before_accept_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	char port[8];

	take(side, 0, port, sizeof(port));
	OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	OK(rpma_conn_next_event(conn, &event));
	CHECK(event == RPMA_CONN_REJECTED || event == RPMA_CONN_UNREACHABLE);
	say(side, 0, "refused");
	OK(rpma_conn_delete(&conn));
	OK(rpma_peer_delete(&peer));
}

/* -- nobody answers ------------------------------------------------------------------------------------------------- */

/*
 * Tries to connect where nobody answers. Somewhere on the way an error must come: when the address or the route is looked
 * up, when the request is sent, or as an event.
 */
static void
expect_no_answer(struct rpma_peer *peer, const char *addr, const char *port)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	int ret;

	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_timeout(cfg, 100));
	ret = rpma_conn_req_new(peer, addr, port, cfg, &req);
	if (ret == 0)
		ret = rpma_conn_req_connect(&req, NULL, &conn);
	CHECK(ret == 0 || ret == RPMA_E_PROVIDER);
	CHECK(req == NULL);
	if (ret == 0) {
		OK(rpma_conn_next_event(conn, &event));
		if (event != RPMA_CONN_UNREACHABLE && event != RPMA_CONN_REJECTED)
			check_fail("event %d (%s)", event, rpma_utils_conn_event_2str(event));
		OK(rpma_conn_delete(&conn));
	}
	check_info("%s", ret ? "an error from the request" : rpma_utils_conn_event_2str(event));
	OK(rpma_conn_cfg_delete(&cfg));
}

/* An address at which no host is: the time-out says how long that may take. */
static void
black_hole(const char *addr)
{
	double start = seconds_now();
	struct rpma_peer *peer = peer_on(addr);
	const char *hole = getenv("RPMA_TEST_BLACK_HOLE");
	char other[64], port[8];

	if (is_loopback(addr)) {
		/* A listener that is full drops what comes, as such an address would. */
		struct sockaddr_in full = {.sin_family = AF_INET};
		socklen_t len = sizeof(full);
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		full.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&full, sizeof(full)) == 0 && listen(fd, 0) == 0);
		CHECK(getsockname(fd, (struct sockaddr *)&full, &len) == 0);
		for (int i = 0; i < 8; i++) {
			int filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

			CHECK(filler >= 0);
			CHECK(connect(filler, (struct sockaddr *)&full, len) == 0 || errno == EINPROGRESS);
		}
		snprintf(port, sizeof(port), "%u", ntohs(full.sin_port));
		expect_no_answer(peer, "127.0.0.1", port);
	} else {
		/* A neighbour that is not there. */
		if (hole == NULL || *hole == '\0') {
			struct in_addr in;

			if (inet_pton(AF_INET, addr, &in) != 1)
				check_skip("RPMA_TEST_BLACK_HOLE names no address at which nobody is");
			in.s_addr ^= htonl(0x55);
			CHECK(inet_ntop(AF_INET, &in, other, sizeof(other)) != NULL);
			hole = other;
		}
		expect_no_answer(peer, hole, "7204");
	}
	check_within("to give up after 100 ms", start, 10);
	OK(rpma_peer_delete(&peer));
}

/* Somebody who takes the connection and never says a word. */
static void
silent_listener(const char *addr)
{
	struct rpma_peer *peer;
	struct sockaddr_in silent = {.sin_family = AF_INET};
	socklen_t len = sizeof(silent);
	char port[8];
	int fd;

	if (!is_loopback(addr))
		check_skip("a listener on TCP is no listener for RDMA");
	peer = peer_on(addr);
	silent.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&silent, sizeof(silent)) == 0 && listen(fd, 10) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&silent, &len) == 0);
	snprintf(port, sizeof(port), "%u", ntohs(silent.sin_port));
	expect_no_answer(peer, "127.0.0.1", port);
	close(fd);
	OK(rpma_peer_delete(&peer));
}

/* -- operations after the end ---------------------------------------------------------------------------------------- */

static void
after_the_end_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 0), PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	hear(side, 0, "part");
	OK(rpma_conn_disconnect(e.conn));
	expect_event(e.conn, RPMA_CONN_CLOSED);
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_server(&e);
}

/* Whatever is asked of a connection that has ended comes back unserved, and nothing crashes. */
static void
after_the_end_client(struct side *side)
{
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 0), PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	say(side, 0, "part");
	expect_event(e.conn, RPMA_CONN_CLOSED);
	OK(rpma_conn_disconnect(e.conn));
	OK(rpma_write(e.conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ON_ERROR, ID(1)));
	OK(rpma_read(e.conn, mr, 0, remote, 0, 8, RPMA_F_COMPLETION_ON_ERROR, ID(2)));
	OK(rpma_send(e.conn, mr, 0, 8, RPMA_F_COMPLETION_ON_ERROR, ID(3)));
	OK(rpma_atomic_write(e.conn, remote, 0, "12345678", RPMA_F_COMPLETION_ON_ERROR, ID(4)));
	OK(rpma_flush(e.conn, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ON_ERROR, ID(5)));
	for (unsigned i = 1; i <= 5; i++)
		expect_status(e.cq, e.conn, IBV_WC_WR_FLUSH_ERR, i);
	expect_no_wc(e.cq);
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

/* -- other processes -------------------------------------------------------------------------------------------------- */

static void
fork_goes_on_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned char *mem = memory(PAGE, 0);

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	for (unsigned i = 0; i < 6; i++) {
		hear(side, 0, "written");
		CHECK_INT(mem[i], 0x11 * i);
		say(side, 0, "seen");
	}
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

/* A child that ends, or that becomes another program, takes nothing of its parent's connection with it. */
static void
fork_goes_on_client(struct side *side)
{
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned char *mem = memory(PAGE, 0);

	open_client(side, &e, NULL);
	/* The source may be copied on the parent's next write, so it is not written to after the first fork. */
	for (unsigned i = 0; i < 6; i++)
		mem[i] = (unsigned char)(0x11 * i);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	for (unsigned i = 0; i < 6; i++) {
		int status = -1;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			if (i & 1)
				execl("/bin/true", "true", (char *)NULL);
			_exit(i & 1);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		OK(rpma_write(e.conn, remote, i, mr, i, 1, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		expect_done(e.cq, e.conn, IBV_WC_RDMA_WRITE, i, 0);
		say(side, 0, "written");
		hear(side, 0, "seen");
	}
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* The descriptors beyond the standard ones that would be there in a program started from here. */
static unsigned
inherited(void)
{
	unsigned n = 0;

	for (int fd = 3; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFD);

		n += flags >= 0 && (flags & FD_CLOEXEC) == 0;
	}
	return n;
}

/* None of the library's descriptors is passed on to programs that are started later. */
static void
nothing_inherited(const char *addr)
{
	unsigned before = inherited();
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_conn *active = NULL, *passive = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_srq *srq = NULL;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, addr, port);

	OK(rpma_srq_new(peer, NULL, &srq));
	OK(rpma_conn_req_new(peer, addr, port, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &active));
	OK(rpma_ep_next_conn_req(ep, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &passive));
	expect_event(active, RPMA_CONN_ESTABLISHED);
	expect_event(passive, RPMA_CONN_ESTABLISHED);
	CHECK_INT(inherited(), before);
	OK(rpma_conn_delete(&active));
	OK(rpma_conn_delete(&passive));
	OK(rpma_srq_delete(&srq));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static const struct test tests[] = {
	KILLED(killed_idle),
	KILLED(killed_in_flight),
	KILLED(killed_before_accept),
	PAIR(shut_before_accept),
	LOCAL(black_hole),
	LOCAL(silent_listener),
	PAIR(after_the_end),
	PAIR(fork_goes_on),
	LOCAL(nothing_inherited),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
