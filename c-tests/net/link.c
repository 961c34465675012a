/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * link.c - what happens between two hosts when the link between them is bad or goes away. Each side can set its own end of
 * the link up or down; RPMA_NET_SERVER_LINK and RPMA_NET_CLIENT_LINK name the devices.
 */

#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/fabric.h"

/* -- the link ----------------------------------------------------------------------------------------------------------- */

static void
set_link(const char *variable, bool up)
{
	const char *name = getenv(variable);
	struct ifreq request;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (name == NULL || *name == '\0')
		check_skip("%s does not name a device", variable);
	memset(&request, 0, sizeof(request));
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	CHECK(fd >= 0);
	CHECK(ioctl(fd, SIOCGIFFLAGS, &request) == 0);
	request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
	CHECK(ioctl(fd, SIOCSIFFLAGS, &request) == 0);
	close(fd);
}

/* How often the kernel of this host has sent again what was not acknowledged, most of its connections to the port. */
static unsigned
retransmits(const char *port)
{
	static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
	unsigned most = 0;

	for (int i = 0; i < 2; i++) {
		FILE *file = fopen(tables[i], "re");
		char line[512];

		if (file == NULL)
			continue;
		while (fgets(line, sizeof(line), file) != NULL) {
			unsigned remote_port, times;

			if (sscanf(line, " %*u: %*32[0-9A-F]:%*x %*32[0-9A-F]:%x %*x %*x:%*x %*x:%*x %x", &remote_port,
					&times) == 2 && remote_port == (unsigned)atoi(port) && times > most)
				most = times;
		}
		fclose(file);
	}
	return most;
}

/* -- a transfer over whatever link there is ------------------------------------------------------------------------------- */

#define PIECE (64 * 1024)
#define WINDOW 16

static unsigned
pieces(void)
{
	return (unsigned)scaled(256, 32);
}

struct transfer {
	struct ends e;
	unsigned char *mem;
	struct rpma_mr_local *mr;
	struct rpma_mr_remote *remote;
	char port[8];
	unsigned posted, completed;
};

static void
serve_transfer(struct side *side)
{
	size_t size = (size_t)pieces() * PIECE;
	unsigned char *mem = memory(size, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, size, USAGE_ALL);
	give_mr(side, 0, mr);
	hear(side, 0, "written");
	check_pattern("what was written", mem, size, 5, 0);
	say(side, 0, "seen");
	hear(side, 0, "read");
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "bye");
	close_server(&e);
}

static void
begin_transfer(struct side *side, struct transfer *t)
{
	struct rpma_conn_cfg *cfg = sizes(2 * WINDOW, SIZE_KEEP, 2 * WINDOW, SIZE_KEEP);
	size_t size = (size_t)pieces() * PIECE;

	memset(t, 0, sizeof(*t));
	/* Packets may get lost before there is a connection, too. */
	OK(rpma_conn_cfg_set_timeout(cfg, 20000));
	t->e.peer = peer_on(side->addr);
	take(side, 0, t->port, sizeof(t->port));
	t->e.conn = connect_to(t->e.peer, side->addr, t->port, cfg, NULL, 0);
	t->e.cq = cq_of(t->e.conn);
	OK(rpma_conn_cfg_delete(&cfg));
	t->mem = memory(size, 0);
	pattern(t->mem, size, 5);
	t->mr = registered(t->e.peer, t->mem, size, USAGE_ALL);
	t->remote = take_mr(side, 0);
}

/* Posts as many pieces as the window takes. */
static void
fill_window(struct transfer *t)
{
	while (t->posted < pieces() && t->posted - t->completed < WINDOW) {
		size_t at = (size_t)t->posted * PIECE;

		OK(rpma_write(t->e.conn, t->remote, at, t->mr, at, PIECE, RPMA_F_COMPLETION_ALWAYS, ID(t->posted)));
		t->posted++;
	}
}

/* Keeps the window full until that many pieces are written; they complete in order. */
static void
write_until(struct transfer *t, unsigned completed)
{
	while (t->completed < completed) {
		fill_window(t);
		expect_done(t->e.cq, t->e.conn, IBV_WC_RDMA_WRITE, t->completed, 0);
		t->completed++;
	}
}

/* Takes what has completed by now. */
static void
take_completed(struct transfer *t)
{
	struct ibv_wc wc;
	int ret;

	while ((ret = rpma_cq_get_wc(t->e.cq, 1, &wc, NULL)) == 0) {
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		CHECK_INT(wc.wr_id, t->completed);
		t->completed++;
	}
	CHECK_CODE(ret, RPMA_E_NO_COMPLETION);
}

/* How long the link stays down at most, in seconds: well below the time after which a connection is given up. */
#define OUTAGE 5

static time_t
seconds(void)
{
	struct timespec now;

	CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return now.tv_sec;
}

/*
 * Waits until the kernel has missed acknowledgments that often; with its own end of the link down it may not come to send again,
 * so the outage ends after a while in any case. All that was posted before the link was cut may have arrived, so the window is
 * kept full: what is posted now stays on its way, or the link is not cut.
 */
static void
wait_for_retransmits(struct transfer *t, unsigned times)
{
	static const struct timespec pause = {0, 10 * 1000 * 1000};
	time_t end = seconds() + OUTAGE;

	while (retransmits(t->port) < times && seconds() < end) {
		take_completed(t);
		fill_window(t);
		nanosleep(&pause, NULL);
	}
	take_completed(t);
	CHECK(t->completed < t->posted);
}

/* The rest of the bytes, all of them read back, and the end. */
static void
end_transfer(struct side *side, struct transfer *t)
{
	size_t size = (size_t)pieces() * PIECE;

	write_until(t, pieces());
	say(side, 0, "written");
	hear(side, 0, "seen");
	memset(t->mem, 0, size);
	OK(rpma_read(t->e.conn, t->mr, 0, t->remote, 0, size, RPMA_F_COMPLETION_ALWAYS, ID(7)));
	expect_done(t->e.cq, t->e.conn, IBV_WC_RDMA_READ, 7, (uint32_t)size);
	check_pattern("what was read", t->mem, size, 5, 0);
	expect_no_wc(t->e.cq);
	say(side, 0, "read");
	hear(side, 0, "bye");
	OK(rpma_mr_remote_delete(&t->remote));
	OK(rpma_mr_dereg(&t->mr));
	close_client(&t->e);
}

static void
transfer_server(struct side *side)
{
	serve_transfer(side);
}

static void
transfer_client(struct side *side)
{
	struct transfer t;

	begin_transfer(side, &t);
	end_transfer(side, &t);
}

/* -- lost and delayed packets: many small exchanges, each of which a lost packet would hold up -------------------------------- */

#define EXCHANGES 100

static void
exchanges_server(struct side *side)
{
	struct rpma_mr_local *mr;
	unsigned char *mem = memory(PAGE, 0);
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	OK(rpma_recv(e.conn, mr, 0, 64, ID(0)));
	say(side, 0, "ready");
	for (unsigned i = 0; i < EXCHANGES; i++) {
		expect_done(e.cq, e.conn, IBV_WC_RECV, i, 64);
		check_pattern("the message", mem + i % 2 * 64, 64, i, 0);
		memcpy(mem + 128, mem + i % 2 * 64, 64);
		OK(rpma_recv(e.conn, mr, (i + 1) % 2 * 64, 64, ID(i + 1)));
		OK(rpma_send(e.conn, mr, 128, 64, RPMA_F_COMPLETION_ALWAYS, ID(1000 + i)));
		expect_done(e.cq, e.conn, IBV_WC_SEND, 1000 + i, 0);
	}
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "bye");
	close_server(&e);
}

static void
exchanges_client(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(SIZE_KEEP, 4, SIZE_KEEP, SIZE_KEEP);
	struct rpma_mr_local *mr;
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_cq *rcq;
	struct ends e;
	char port[8];

	OK(rpma_conn_cfg_set_timeout(cfg, 20000));
	e.peer = peer_on(side->addr);
	take(side, 0, port, sizeof(port));
	e.conn = connect_to(e.peer, side->addr, port, cfg, NULL, 0);
	e.cq = cq_of(e.conn);
	OK(rpma_conn_get_rcq(e.conn, &rcq));
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	hear(side, 0, "ready");
	for (unsigned i = 0; i < EXCHANGES; i++) {
		pattern(mem, 64, i);
		memset(mem + 64, 0, 64);
		OK(rpma_recv(e.conn, mr, 64, 64, ID(i)));
		OK(rpma_send(e.conn, mr, 0, 64, RPMA_F_COMPLETION_ALWAYS, ID(2000 + i)));
		expect_done(e.cq, e.conn, IBV_WC_SEND, 2000 + i, 0);
		expect_done(rcq, e.conn, IBV_WC_RECV, i, 64);
		check_pattern("the answer", mem + 64, 64, i, 0);
	}
	expect_no_wc(e.cq);
	say(side, 0, "done");
	hear(side, 0, "bye");
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	close_client(&e);
}

/* -- cut in the middle, and restored in time -------------------------------------------------------------------------------- */

/* So often has the kernel sent again when the link comes back; the next time it does, it is heard. */
#define MISSED 3

static void
cut_here_server(struct side *side)
{
	serve_transfer(side);
}

/* The client's own end goes down: its host has no way to the server any more. */
static void
cut_here_client(struct side *side)
{
	struct transfer t;

	begin_transfer(side, &t);
	write_until(&t, pieces() / 4);
	CHECK(t.posted > t.completed);
	set_link("RPMA_NET_CLIENT_LINK", false);
	wait_for_retransmits(&t, MISSED);
	set_link("RPMA_NET_CLIENT_LINK", true);
	end_transfer(side, &t);
}

/* The far end goes down: packets get lost without a word. */
static void
cut_there_server(struct side *side)
{
	size_t size = (size_t)pieces() * PIECE;
	unsigned char *mem = memory(size, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, size, USAGE_ALL);
	give_mr(side, 0, mr);
	hear(side, 0, "cut");
	set_link("RPMA_NET_SERVER_LINK", false);
	say(side, 0, "is cut");
	hear(side, 0, "restore");
	set_link("RPMA_NET_SERVER_LINK", true);
	hear(side, 0, "written");
	check_pattern("what was written", mem, size, 5, 0);
	say(side, 0, "seen");
	hear(side, 0, "read");
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "bye");
	close_server(&e);
}

static void
cut_there_client(struct side *side)
{
	struct transfer t;

	begin_transfer(side, &t);
	write_until(&t, pieces() / 4);
	say(side, 0, "cut");
	hear(side, 0, "is cut");
	wait_for_retransmits(&t, MISSED);
	say(side, 0, "restore");
	end_transfer(side, &t);
}

/* -- cut for good ------------------------------------------------------------------------------------------------------------ */

/* The connection's end, as both sides see it when the other cannot be reached. */
static void
expect_lost(struct rpma_conn *conn)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	OK(rpma_conn_next_event(conn, &event));
	if (event != RPMA_CONN_CLOSED && event != RPMA_CONN_LOST)
		check_fail("event %d (%s), neither closed nor lost", event, rpma_utils_conn_event_2str(event));
}

static void
cut_for_good_server(struct side *side)
{
	unsigned char *mem = memory(PIECE, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PIECE, USAGE_ALL);
	for (unsigned i = 0; i < 3; i++)
		OK(rpma_recv(e.conn, mr, 0, 64, ID(i)));
	give_mr(side, 0, mr);
	/* It has nothing to send and hears nothing; still it learns that the other side is gone. */
	expect_lost(e.conn);
	OK(rpma_conn_disconnect(e.conn));
	for (unsigned i = 0; i < 3; i++)
		expect_status(e.cq, e.conn, IBV_WC_WR_FLUSH_ERR, i);
	expect_no_wc(e.cq);
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_delete(&e.conn));
	hear(side, 0, "gone");
	close_server(&e);
}

static void
cut_for_good_client(struct side *side)
{
	struct transfer t;
	unsigned succeeded = 0;
	struct ibv_wc wc;

	begin_transfer(side, &t);
	OK(rpma_recv(t.e.conn, t.mr, 0, 64, ID(500)));
	OK(rpma_write(t.e.conn, t.remote, 0, t.mr, 0, PIECE, RPMA_F_COMPLETION_ALWAYS, ID(0)));
	expect_done(t.e.cq, t.e.conn, IBV_WC_RDMA_WRITE, 0, 0);
	set_link("RPMA_NET_CLIENT_LINK", false);
	for (unsigned i = 1; i <= WINDOW; i++)
		OK(rpma_write(t.e.conn, t.remote, 0, t.mr, 0, PIECE, RPMA_F_COMPLETION_ALWAYS, ID(i)));
	/* The first that was tried got no answer; the others, and the receive, were not tried. */
	next_wc(t.e.cq, &wc);
	if (wc.wr_id == 500) {
		CHECK_INT(wc.status, IBV_WC_WR_FLUSH_ERR);
		succeeded = 1;
		next_wc(t.e.cq, &wc);
	}
	CHECK_INT(wc.wr_id, 1);
	CHECK_INT(wc.status, IBV_WC_RETRY_EXC_ERR);
	for (unsigned i = 2; i <= WINDOW; i++) {
		next_wc(t.e.cq, &wc);
		if (wc.wr_id == 500 && !succeeded) {
			CHECK_INT(wc.status, IBV_WC_WR_FLUSH_ERR);
			succeeded = 1;
			next_wc(t.e.cq, &wc);
		}
		CHECK_INT(wc.wr_id, i);
		CHECK_INT(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	if (!succeeded)
		expect_status(t.e.cq, t.e.conn, IBV_WC_WR_FLUSH_ERR, 500);
	expect_lost(t.e.conn);
	OK(rpma_conn_disconnect(t.e.conn));
	expect_no_wc(t.e.cq);
	OK(rpma_mr_remote_delete(&t.remote));
	OK(rpma_mr_dereg(&t.mr));
	OK(rpma_conn_delete(&t.e.conn));
	say(side, 0, "gone");
	close_client(&t.e);
	set_link("RPMA_NET_CLIENT_LINK", true);
}

/* -- cut before there is a connection ----------------------------------------------------------------------------------------- */

static void
cut_before_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	give(side, 0, port, sizeof(port));
	hear(side, 0, "gone");
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* An error within the timeout, or the event that says so. */
static void
cut_before_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	char port[8];
	int ret;

	take(side, 0, port, sizeof(port));
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_timeout(cfg, 500));
	set_link("RPMA_NET_CLIENT_LINK", false);
	ret = rpma_conn_req_new(peer, side->addr, port, cfg, &req);
	if (ret == 0) {
		OK(rpma_conn_req_connect(&req, NULL, &conn));
		OK(rpma_conn_next_event(conn, &event));
		CHECK_INT(event, RPMA_CONN_UNREACHABLE);
		OK(rpma_conn_delete(&conn));
	} else {
		CHECK_CODE(ret, RPMA_E_PROVIDER);
	}
	CHECK(req == NULL);
	set_link("RPMA_NET_CLIENT_LINK", true);
	say(side, 0, "gone");
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_peer_delete(&peer));
}

#define LONG(fn) {.name = #fn, .server = fn##_server, .client = fn##_client, .clients = 1, .seconds = 120}

static const struct test tests[] = {
	LONG(transfer),
	LONG(exchanges),
	LONG(cut_here),
	LONG(cut_there),
	LONG(cut_before),
	LONG(cut_for_good),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
