/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * lives.c - what programs do with the library, written so that any call may fail: whatever was made is released again, and
 * the process goes on. Each test lives twice in the same process; run makes one step of the first life fail, and the
 * second has to succeed.
 *
 * A side says on standard output how each of its lives went: "all done", the first call that failed with the text of its
 * code, or that the other side did not get that far; then how many descriptors the process has. In
 * RPMA_TEST_DESCRIPTORS_server (client, alone) is how many it may have at the end: the side waits until it has no more,
 * since the fabric may be closing some.
 */

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric.h"

#define LIVES 2
#define LEN 256

/* How this life goes; only the first thing that went wrong counts. */
static char outcome[256];

static void
went_wrong(const char *what, const char *why)
{
	if (*outcome == '\0')
		snprintf(outcome, sizeof(outcome), "%s: %s", what, why);
}

/* The other side did not get that far. */
static void
let_down(const char *where)
{
	went_wrong("let down", where);
}

static int
tried(const char *call, int ret)
{
	CHECK_HERE();
	if (ret != 0)
		went_wrong(call, rpma_err_2str(ret));
	return ret;
}

/* The function goes on, or to its end if the call fails. */
#define TRY(call) do { \
		CHECK_HERE(); \
		if (tried(#call, (call)) != 0) \
			goto out; \
	} while (0)

/* A call that is made in any case. */
#define RELEASE(function, object) do { \
		CHECK_HERE(); \
		tried(#function, function(&(object))); \
		CHECK((object) == NULL); \
	} while (0)

/* What a side has. */
struct world {
	struct rpma_peer *peer;
	struct rpma_peer_cfg *pcfg;
	struct rpma_conn_cfg *cfg;
	struct rpma_srq_cfg *srq_cfg;
	struct rpma_srq *srq;
	struct rpma_ep *ep;
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	struct rpma_mr_local *mr;
	struct rpma_mr_remote *remote;
	unsigned char *memory;
};

static void
release(struct world *w)
{
	RELEASE(rpma_mr_remote_delete, w->remote);
	RELEASE(rpma_conn_delete, w->conn);
	RELEASE(rpma_conn_req_delete, w->req);
	RELEASE(rpma_ep_shutdown, w->ep);
	RELEASE(rpma_mr_dereg, w->mr);
	RELEASE(rpma_srq_delete, w->srq);
	RELEASE(rpma_srq_cfg_delete, w->srq_cfg);
	RELEASE(rpma_conn_cfg_delete, w->cfg);
	RELEASE(rpma_peer_cfg_delete, w->pcfg);
	RELEASE(rpma_peer_delete, w->peer);
	free(w->memory);
	w->memory = NULL;
}

/* between the sides: the port, and that a side's life is over */

struct note {
	int life;
	char port[8];	/* empty: it is over */
};

static int life;
static bool other_is_over;

static void
send_note(struct side *side, const char *port)
{
	struct note note = {.life = life};

	snprintf(note.port, sizeof(note.port), "%s", port);
	give(side, 0, &note, sizeof(note));
}

/* The other side's next note of this life, with a port or, if it is over, without. */
static void
next_note(struct side *side, char port[8])
{
	struct note note;

	do
		take(side, 0, &note, sizeof(note));
	while (note.life != life);
	memcpy(port, note.port, sizeof(note.port));
	if (*port == '\0')
		other_is_over = true;
}

/* Waits for the descriptor; false if the other side is over before. */
static bool
worth_waiting(struct side *side, int fd)
{
	char port[8];

	while (!other_is_over) {
		struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = side->channel[0], .events = POLLIN}};

		CHECK(poll(fds, 2, -1) > 0);
		if (fds[0].revents != 0)
			return true;
		next_note(side, port);
	}
	return readable(fd);
}

static int
descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	CHECK(dir != NULL);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

static void
say_outcome(void)
{
	char name[64];
	const char *limit;

	snprintf(name, sizeof(name), "RPMA_TEST_DESCRIPTORS_%s", check_role);
	limit = getenv(name);
	CHECK_HERE();
	while (life == LIVES && limit != NULL && descriptors() > atoi(limit))
		poll(NULL, 0, 1);
	printf("%s: life %d: %s; %d descriptors\n", check_role, life, *outcome ? outcome : "all done", descriptors());
}

/* One side's lives, one after the other, both sides in step. */
static void
live(struct side *side, void (*one_life)(struct side *, struct world *))
{
	char port[8];

	for (life = 1; life <= LIVES; life++) {
		struct world world = {0};

		*outcome = '\0';
		other_is_over = false;
		one_life(side, &world);
		release(&world);
		send_note(side, "");
		while (!other_is_over)
			next_note(side, port);
		say_outcome();
	}
}

/* steps */

static int
with_peer(struct side *side, struct world *w)
{
	struct ibv_context *ctx = NULL;

	TRY(rpma_utils_get_ibv_context(side->addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx));
	TRY(rpma_peer_new(ctx, &w->peer));
	return 0;
out:
	return -1;
}

static int
with_memory(struct world *w)
{
	w->memory = aligned_alloc(PAGE, PAGE);
	CHECK(w->memory != NULL);
	memset(w->memory, 0, PAGE);
	TRY(rpma_mr_reg(w->peer, w->memory, PAGE, USAGE_ALL, &w->mr));
	return 0;
out:
	return -1;
}

/* A port that nobody has; the library is not asked, whose failure it would be to tell from an injected one. */
static void
free_port(const char *addr, char port[8])
{
	for (unsigned attempt = 0;; attempt++) {
		struct addrinfo *info = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
		int fd, bound;

		CHECK(attempt < 100);
		snprintf(port, 8, "%u", 16000 + ((unsigned)getpid() * 61 + attempt * 397) % 16000);
		CHECK(getaddrinfo(addr, port, &hints, &info) == 0);
		fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		CHECK(fd >= 0);
		bound = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0 &&
			bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, 1) == 0;
		freeaddrinfo(info);
		close(fd);
		if (bound)
			return;
	}
}

/* A request of the client, not decided yet. */
static int
with_incoming(struct side *side, struct world *w)
{
	char port[8];
	int fd = -1;

	free_port(side->addr, port);
	TRY(rpma_ep_listen(w->peer, side->addr, port, &w->ep));
	TRY(rpma_ep_get_fd(w->ep, &fd));
	send_note(side, port);
	if (!worth_waiting(side, fd)) {
		let_down("no request");
		return -1;
	}
	TRY(rpma_ep_next_conn_req(w->ep, w->cfg, &w->req));
	return 0;
out:
	return -1;
}

static int
with_outgoing(struct side *side, struct world *w)
{
	char port[8];

	next_note(side, port);
	if (*port == '\0') {
		let_down("no port");
		return -1;
	}
	TRY(rpma_conn_req_new(w->peer, side->addr, port, w->cfg, &w->req));
	return 0;
out:
	return -1;
}

static int
expect(struct world *w, enum rpma_conn_event want)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	TRY(rpma_conn_next_event(w->conn, &event));
	if (event != want) {
		let_down(rpma_utils_conn_event_2str(event));
		return -1;
	}
	return 0;
out:
	return -1;
}

static int
connected(struct world *w, void *data, uint8_t len)
{
	struct rpma_conn_private_data pdata = {.ptr = data, .len = len};

	TRY(rpma_conn_req_connect(&w->req, len > 0 ? &pdata : NULL, &w->conn));
	CHECK(w->req == NULL && w->conn != NULL);
	return expect(w, RPMA_CONN_ESTABLISHED);
out:
	CHECK(w->req == NULL && w->conn == NULL);
	return -1;
}

/* The next completion, a success of this request. The other side may end before it comes. */
static int
completed(struct world *w, struct rpma_cq *cq, uint64_t id)
{
	struct ibv_wc wc;
	int cq_fd = -1, event_fd = -1, ret;

	TRY(rpma_cq_get_fd(cq, &cq_fd));
	TRY(rpma_conn_get_event_fd(w->conn, &event_fd));
	while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION) {
		struct pollfd fds[2] = {{.fd = cq_fd, .events = POLLIN}, {.fd = event_fd, .events = POLLIN}};

		CHECK_HERE();
		CHECK(poll(fds, 2, -1) > 0);
		if (fds[0].revents == 0) {
			let_down("the connection ended");
			return -1;
		}
		TRY(rpma_cq_wait(cq));
	}
	if (tried("rpma_cq_get_wc", ret) != 0)
		return -1;
	if (wc.status != IBV_WC_SUCCESS) {
		let_down(ibv_wc_status_str(wc.status));
		return -1;
	}
	CHECK_INT(wc.wr_id, id);
	return 0;
out:
	return -1;
}

static void
parted(struct world *w)
{
	TRY(rpma_conn_disconnect(w->conn));
	(void)expect(w, RPMA_CONN_CLOSED);
out:
	return;
}

/* memory: one-sided operations of every kind on the server's memory, told by the last of them */

static void
memory_server_life(struct side *side, struct world *w)
{
	unsigned char about[64];
	size_t mr_size = 0, pcfg_size = 0;
	struct rpma_cq *cq = NULL;

	if (with_peer(side, w) != 0 || with_memory(w) != 0)
		return;
	TRY(rpma_peer_cfg_new(&w->pcfg));
	TRY(rpma_peer_cfg_set_direct_write_to_pmem(w->pcfg, true));
	TRY(rpma_mr_get_descriptor_size(w->mr, &mr_size));
	TRY(rpma_peer_cfg_get_descriptor_size(w->pcfg, &pcfg_size));
	CHECK(mr_size + pcfg_size <= sizeof(about));
	TRY(rpma_mr_get_descriptor(w->mr, about));
	TRY(rpma_peer_cfg_get_descriptor(w->pcfg, about + mr_size));
	if (with_incoming(side, w) != 0)
		return;
	TRY(rpma_conn_req_recv(w->req, w->mr, PAGE / 2, LEN, ID(7)));
	if (connected(w, about, (uint8_t)(mr_size + pcfg_size)) != 0)
		return;
	TRY(rpma_conn_get_cq(w->conn, &cq));
	if (completed(w, cq, 7) != 0)
		return;
	check_pattern("what was written", w->memory, LEN, 1, 0);
	CHECK_MEM(w->memory + LEN, "ABCDEFGH", 8);
	(void)expect(w, RPMA_CONN_CLOSED);
	TRY(rpma_conn_disconnect(w->conn));
out:
	return;
}

static void
memory_client_life(struct side *side, struct world *w)
{
	struct rpma_conn_private_data pdata = {0};
	struct rpma_cq *cq = NULL;
	size_t mr_size = 0, size = 0;
	int flush_type = 0;

	if (with_peer(side, w) != 0 || with_memory(w) != 0 || with_outgoing(side, w) != 0 || connected(w, NULL, 0) != 0)
		return;
	TRY(rpma_mr_get_descriptor_size(w->mr, &mr_size));
	TRY(rpma_conn_get_private_data(w->conn, &pdata));
	CHECK(pdata.ptr != NULL && pdata.len > mr_size);
	TRY(rpma_mr_remote_from_descriptor(pdata.ptr, mr_size, &w->remote));
	TRY(rpma_peer_cfg_from_descriptor((char *)pdata.ptr + mr_size, pdata.len - mr_size, &w->pcfg));
	TRY(rpma_conn_apply_remote_peer_cfg(w->conn, w->pcfg));
	TRY(rpma_mr_remote_get_size(w->remote, &size));
	CHECK_INT(size, PAGE);
	TRY(rpma_mr_remote_get_flush_type(w->remote, &flush_type));
	TRY(rpma_conn_get_cq(w->conn, &cq));

	pattern(w->memory, LEN, 1);
	TRY(rpma_write(w->conn, w->remote, 0, w->mr, 0, LEN, RPMA_F_COMPLETION_ON_ERROR, ID(1)));
	TRY(rpma_flush(w->conn, w->remote, 0, LEN, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, ID(2)));
	if (completed(w, cq, 2) != 0)
		return;
	TRY(rpma_atomic_write(w->conn, w->remote, LEN, "ABCDEFGH", RPMA_F_COMPLETION_ON_ERROR, ID(3)));
	TRY(rpma_flush(w->conn, w->remote, LEN, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, ID(4)));
	if (completed(w, cq, 4) != 0)
		return;
	TRY(rpma_read(w->conn, w->mr, PAGE / 2, w->remote, 0, LEN + 8, RPMA_F_COMPLETION_ALWAYS, ID(5)));
	if (completed(w, cq, 5) != 0)
		return;
	check_pattern("what was read", w->memory + PAGE / 2, LEN, 1, 0);
	TRY(rpma_write_with_imm(w->conn, w->remote, PAGE / 2, w->mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, 99, ID(6)));
	if (completed(w, cq, 6) != 0)
		return;
	parted(w);
out:
	return;
}

/* messages: to a shared receive queue with a completion queue of its own, and back */

static void
messages_server_life(struct side *side, struct world *w)
{
	struct rpma_cq *cq = NULL, *rcq = NULL;

	if (with_peer(side, w) != 0 || with_memory(w) != 0)
		return;
	TRY(rpma_srq_cfg_new(&w->srq_cfg));
	TRY(rpma_srq_cfg_set_rq_size(w->srq_cfg, 4));
	TRY(rpma_srq_new(w->peer, w->srq_cfg, &w->srq));
	TRY(rpma_srq_get_rcq(w->srq, &rcq));
	TRY(rpma_srq_recv(w->srq, w->mr, 0, LEN, ID(1)));
	TRY(rpma_srq_recv(w->srq, w->mr, LEN, LEN, ID(2)));
	TRY(rpma_conn_cfg_new(&w->cfg));
	TRY(rpma_conn_cfg_set_srq(w->cfg, w->srq));
	if (with_incoming(side, w) != 0 || connected(w, NULL, 0) != 0)
		return;
	TRY(rpma_conn_get_cq(w->conn, &cq));
	if (completed(w, rcq, 1) != 0)
		return;
	check_pattern("the first message", w->memory, LEN, 2, 0);
	if (completed(w, rcq, 2) != 0)
		return;
	check_pattern("the second message", w->memory + LEN, LEN, 2, 0);
	TRY(rpma_send(w->conn, w->mr, 0, LEN, RPMA_F_COMPLETION_ALWAYS, ID(3)));
	if (completed(w, cq, 3) != 0)
		return;
	(void)expect(w, RPMA_CONN_CLOSED);
	TRY(rpma_conn_disconnect(w->conn));
out:
	return;
}

static void
messages_client_life(struct side *side, struct world *w)
{
	struct rpma_cq *cq = NULL, *rcq = NULL;

	if (with_peer(side, w) != 0 || with_memory(w) != 0)
		return;
	TRY(rpma_conn_cfg_new(&w->cfg));
	TRY(rpma_conn_cfg_set_rcq_size(w->cfg, 2));
	if (with_outgoing(side, w) != 0)
		return;
	if (connected(w, "hello", 6) != 0)
		return;
	TRY(rpma_conn_get_cq(w->conn, &cq));
	TRY(rpma_conn_get_rcq(w->conn, &rcq));
	TRY(rpma_recv(w->conn, w->mr, PAGE / 2, LEN, ID(4)));
	pattern(w->memory, LEN, 2);
	TRY(rpma_send(w->conn, w->mr, 0, LEN, RPMA_F_COMPLETION_ALWAYS, ID(5)));
	if (completed(w, cq, 5) != 0)
		return;
	TRY(rpma_send_with_imm(w->conn, w->mr, 0, LEN, RPMA_F_COMPLETION_ALWAYS, 77, ID(6)));
	if (completed(w, cq, 6) != 0 || completed(w, rcq, 4) != 0)
		return;
	check_pattern("the answer", w->memory + PAGE / 2, LEN, 2, 0);
	parted(w);
out:
	return;
}

/* channels: one completion channel for both queues */

static int
announced(struct world *w, bool receive, uint64_t id)
{
	struct rpma_cq *cq = NULL;
	struct ibv_wc wc;
	bool is_rcq = false;
	int channel_fd = -1, event_fd = -1, got = 0, ret;

	TRY(rpma_conn_get_compl_fd(w->conn, &channel_fd));
	TRY(rpma_conn_get_event_fd(w->conn, &event_fd));
	do {
		struct pollfd fds[2] = {{.fd = channel_fd, .events = POLLIN}, {.fd = event_fd, .events = POLLIN}};

		CHECK_HERE();
		CHECK(poll(fds, 2, -1) > 0);
		if (fds[0].revents == 0) {
			let_down("the connection ended");
			return -1;
		}
		TRY(rpma_conn_wait(w->conn, 0, &cq, &is_rcq));
		ret = rpma_cq_get_wc(cq, 1, &wc, &got);
	} while (ret == RPMA_E_NO_COMPLETION);
	if (tried("rpma_cq_get_wc", ret) != 0)
		return -1;
	if (wc.status != IBV_WC_SUCCESS) {
		let_down(ibv_wc_status_str(wc.status));
		return -1;
	}
	CHECK_INT(is_rcq, receive);
	CHECK_INT(wc.wr_id, id);
	return 0;
out:
	return -1;
}

static int
with_shared_channel(struct world *w)
{
	TRY(rpma_conn_cfg_new(&w->cfg));
	TRY(rpma_conn_cfg_set_compl_channel(w->cfg, true));
	TRY(rpma_conn_cfg_set_rcq_size(w->cfg, 4));
	TRY(rpma_conn_cfg_set_cq_size(w->cfg, 4));
	return 0;
out:
	return -1;
}

static void
channels_server_life(struct side *side, struct world *w)
{
	if (with_peer(side, w) != 0 || with_memory(w) != 0 || with_shared_channel(w) != 0 || with_incoming(side, w) != 0)
		return;
	TRY(rpma_conn_req_recv(w->req, w->mr, 0, LEN, ID(1)));
	if (connected(w, NULL, 0) != 0 || announced(w, true, 1) != 0)
		return;
	check_pattern("the message", w->memory, LEN, 3, 0);
	(void)expect(w, RPMA_CONN_CLOSED);
	TRY(rpma_conn_disconnect(w->conn));
out:
	return;
}

static void
channels_client_life(struct side *side, struct world *w)
{
	if (with_peer(side, w) != 0 || with_memory(w) != 0 || with_shared_channel(w) != 0 || with_outgoing(side, w) != 0 ||
			connected(w, NULL, 0) != 0)
		return;
	pattern(w->memory, LEN, 3);
	TRY(rpma_send(w->conn, w->mr, 0, LEN, RPMA_F_COMPLETION_ALWAYS, ID(2)));
	if (announced(w, false, 2) != 0)
		return;
	parted(w);
out:
	return;
}

/* refused: the server turns the request down, after its endpoint is gone */

static void
refused_server_life(struct side *side, struct world *w)
{
	struct rpma_conn_private_data pdata = {0};

	if (with_peer(side, w) != 0 || with_incoming(side, w) != 0)
		return;
	TRY(rpma_conn_req_get_private_data(w->req, &pdata));
	CHECK_STR(pdata.ptr, "hello");
	TRY(rpma_ep_shutdown(&w->ep));
	TRY(rpma_conn_req_delete(&w->req));
out:
	return;
}

static void
refused_client_life(struct side *side, struct world *w)
{
	struct rpma_conn_private_data pdata = {.ptr = "hello", .len = 6};

	if (with_peer(side, w) != 0 || with_outgoing(side, w) != 0)
		return;
	TRY(rpma_conn_req_connect(&w->req, &pdata, &w->conn));
	(void)expect(w, RPMA_CONN_REJECTED);
out:
	return;
}

/* alone: what needs no other side */

static void
one_alone(const char *addr)
{
	struct side side = {.addr = addr};
	struct world w = {0};
	unsigned char about[64];
	uint32_t size = 0;
	size_t len = 0, own_len = 0;
	void *ptr = NULL;
	bool flag = false;
	int fd = -1, timeout = 0;
	struct rpma_cq *rcq = NULL;

	TRY(rpma_conn_cfg_new(&w.cfg));
	TRY(rpma_conn_cfg_set_timeout(w.cfg, 77));
	TRY(rpma_conn_cfg_get_timeout(w.cfg, &timeout));
	CHECK_INT(timeout, 77);
	TRY(rpma_conn_cfg_set_sq_size(w.cfg, 3));
	TRY(rpma_conn_cfg_get_sq_size(w.cfg, &size));
	CHECK_INT(size, 3);
	TRY(rpma_conn_cfg_get_compl_channel(w.cfg, &flag));
	CHECK(!flag);
	if (with_peer(&side, &w) != 0 || with_memory(&w) != 0)
		goto out;
	TRY(rpma_mr_get_ptr(w.mr, &ptr));
	CHECK(ptr == w.memory);
	TRY(rpma_mr_get_size(w.mr, &len));
	CHECK_INT(len, PAGE);
	TRY(rpma_mr_get_descriptor_size(w.mr, &own_len));
	TRY(rpma_mr_get_descriptor(w.mr, about));
	TRY(rpma_mr_remote_from_descriptor(about, own_len, &w.remote));
	TRY(rpma_peer_cfg_new(&w.pcfg));
	TRY(rpma_peer_cfg_get_direct_write_to_pmem(w.pcfg, &flag));
	CHECK(!flag);
	TRY(rpma_srq_cfg_new(&w.srq_cfg));
	TRY(rpma_srq_cfg_get_rcq_size(w.srq_cfg, &size));
	TRY(rpma_srq_new(w.peer, w.srq_cfg, &w.srq));
	TRY(rpma_srq_get_rcq(w.srq, &rcq));
	TRY(rpma_cq_get_fd(rcq, &fd));
	TRY(rpma_srq_recv(w.srq, w.mr, 0, LEN, ID(1)));
out:
	release(&w);
}

static void
alone(const char *addr)
{
	snprintf(check_role, sizeof(check_role), "alone");
	for (life = 1; life <= LIVES; life++) {
		*outcome = '\0';
		one_alone(addr);
		say_outcome();
	}
}

#define LIFE(name) \
	static void name##_server(struct side *side) { live(side, name##_server_life); } \
	static void name##_client(struct side *side) { live(side, name##_client_life); }

LIFE(memory)
LIFE(messages)
LIFE(channels)
LIFE(refused)

static const struct test tests[] = {
	LOCAL(alone),
	PAIR(memory),
	PAIR(messages),
	PAIR(channels),
	PAIR(refused),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
