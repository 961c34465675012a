/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * victim.c - the server that is abused: takes every connection, offers each a region of its own, echoes messages, and
 * lets a connection go when it ends. It is an ordinary event loop over the library's descriptors and knows nothing about
 * abuse; a call that fails because of what a peer did ends that connection.
 *
 * usage: victim ADDR [lazy|deaf]
 *
 * Says "port N" when it listens. Each line on standard input is a command: "state" is answered with
 * "state live=N accepted=N", "quit" ends it in good order. With "lazy" it takes no notice of its connections before the
 * command "wake", with "deaf" none of the requests for them. The memory around each region is checked when its connection ends: the process ends with status 1 if a
 * peer has written there.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/fabric.h"

#define MESSAGES 8
#define MESSAGE 64
#define GUARD 0xa5

/* Where a connection's memory is: a page of guard, the region, a page that begins with the messages, the rest guard. */
#define SLOT (3 * PAGE)
#define BUFFERS (2 * MESSAGES * MESSAGE)

enum what { EVENTS, COMPLETIONS };

struct served;

struct watch {
	enum what what;
	struct served *served;
};

struct served {
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	struct rpma_mr_local *region, *messages;
	unsigned char *mem;
	struct watch events, completions;
	bool leaving, over;
	struct served *next;
};

static struct rpma_peer *peer;
static struct rpma_conn_cfg *cfg;
static struct served *unused, *ended, *unwatched;
static unsigned live, accepted;
static bool lazy;
static int epoll_fd;

static void
watch(int fd, void *ptr)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = ptr};

	CHECK(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void
unwatch(int fd)
{
	CHECK(epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL) == 0);
}

static struct served *
new_served(void)
{
	struct served *served = unused;

	if (served != NULL) {
		unused = served->next;
	} else {
		served = calloc(1, sizeof(*served));
		CHECK(served != NULL);
		served->mem = memory(SLOT, GUARD);
		served->events = (struct watch){EVENTS, served};
		served->completions = (struct watch){COMPLETIONS, served};
	}
	memset(served->mem + PAGE, 0, PAGE + BUFFERS);
	served->leaving = served->over = false;
	return served;
}

static void
release(struct served *served)
{
	OK(rpma_mr_dereg(&served->region));
	OK(rpma_mr_dereg(&served->messages));
	CHECK_FILL(served->mem, GUARD, PAGE);
	CHECK_FILL(served->mem + 2 * PAGE + BUFFERS, GUARD, PAGE - BUFFERS);
	served->next = unused;
	unused = served;
}

static void
leave(struct served *served)
{
	if (served->leaving)
		return;
	served->leaving = true;
	OK(rpma_conn_disconnect(served->conn));
}

static void
watch_connection(struct served *served)
{
	int fd;

	OK(rpma_conn_get_event_fd(served->conn, &fd));
	set_nonblocking(fd);
	watch(fd, &served->events);
	OK(rpma_cq_get_fd(served->cq, &fd));
	set_nonblocking(fd);
	watch(fd, &served->completions);
}

static void
accept_next(struct rpma_ep *ep)
{
	struct rpma_conn_private_data pdata;
	struct rpma_conn_req *req = NULL;
	struct served *served;
	unsigned char desc[21];
	int ret = rpma_ep_next_conn_req(ep, cfg, &req);

	if (ret == RPMA_E_NO_EVENT)
		return;
	check_code("rpma_ep_next_conn_req", ret, 0);
	served = new_served();
	served->region = registered(peer, served->mem + PAGE, PAGE, USAGE_ALL);
	served->messages = registered(peer, served->mem + 2 * PAGE, BUFFERS, RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND);
	for (unsigned i = 0; i < MESSAGES; i++)
		OK(rpma_conn_req_recv(req, served->messages, i * MESSAGE, MESSAGE, ID(i)));
	OK(rpma_mr_get_descriptor(served->region, desc));
	pdata.ptr = desc;
	pdata.len = sizeof(desc);
	served->conn = NULL;
	/* The peer may be gone by now. */
	if (rpma_conn_req_connect(&req, &pdata, &served->conn) != 0) {
		release(served);
		return;
	}
	served->cq = cq_of(served->conn);
	if (lazy) {
		served->next = unwatched;
		unwatched = served;
	} else {
		watch_connection(served);
	}
	live++;
	accepted++;
}

static void
take_event(struct served *served)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	int ret = rpma_conn_next_event(served->conn, &event);

	if (ret == RPMA_E_NO_EVENT)
		return;
	check_code("rpma_conn_next_event", ret, 0);
	if (event == RPMA_CONN_ESTABLISHED || served->over)
		return;
	/* Whatever else happened was the end of it. Deleted after this round, whose other events may name it too. */
	served->over = true;
	served->next = ended;
	ended = served;
}

static void
take_completions(struct served *served)
{
	struct ibv_wc wc;
	int ret = rpma_cq_wait(served->cq);

	if (ret != 0)
		check_code("rpma_cq_wait", ret, RPMA_E_NO_COMPLETION);
	while ((ret = rpma_cq_get_wc(served->cq, 1, &wc, NULL)) == 0) {
		size_t at = wc.wr_id * MESSAGE;

		if (wc.status != IBV_WC_SUCCESS) {
			leave(served);
		} else if (wc.opcode == IBV_WC_RECV) {
			unsigned char *buffers = served->mem + 2 * PAGE;

			CHECK(wc.wr_id < MESSAGES && wc.byte_len <= MESSAGE);
			memcpy(buffers + MESSAGES * MESSAGE + at, buffers + at, wc.byte_len);
			if (rpma_send(served->conn, served->messages, MESSAGES * MESSAGE + at, wc.byte_len,
					RPMA_F_COMPLETION_ALWAYS, ID(wc.wr_id)) != 0)
				leave(served);
		} else if (wc.opcode == IBV_WC_SEND) {
			if (rpma_recv(served->conn, served->messages, at, MESSAGE, ID(wc.wr_id)) != 0)
				leave(served);
		} else {
			/* A write with immediate data has used up a receive. */
			CHECK_INT(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
			if (rpma_recv(served->conn, served->messages, at, MESSAGE, ID(wc.wr_id)) != 0)
				leave(served);
		}
	}
	check_code("rpma_cq_get_wc", ret, RPMA_E_NO_COMPLETION);
}

static void
delete_ended(void)
{
	while (ended != NULL) {
		struct served *served = ended;
		int fd;

		ended = served->next;
		OK(rpma_conn_get_event_fd(served->conn, &fd));
		unwatch(fd);
		OK(rpma_cq_get_fd(served->cq, &fd));
		unwatch(fd);
		/* As on hardware, a connection that was never established cannot be disconnected. */
		(void)rpma_conn_disconnect(served->conn);
		OK(rpma_conn_delete(&served->conn));
		release(served);
		live--;
	}
}

enum order { GO_ON, WAKE, QUIT };

static enum order
obey(void)
{
	char line[64];

	if (fgets(line, sizeof(line), stdin) == NULL || strcmp(line, "quit\n") == 0)
		return QUIT;
	if (strcmp(line, "wake\n") == 0) {
		lazy = false;
		for (; unwatched != NULL; unwatched = unwatched->next)
			watch_connection(unwatched);
		return WAKE;
	}
	CHECK_STR(line, "state\n");
	printf("state live=%u accepted=%u\n", live, accepted);
	return GO_ON;
}

int
main(int argc, char **argv)
{
	struct epoll_event events[64];
	struct rpma_ep *ep;
	bool going = true, deaf;
	char port[8];
	int ep_fd;

	lazy = argc == 3 && strcmp(argv[2], "lazy") == 0;
	deaf = argc == 3 && strcmp(argv[2], "deaf") == 0;
	if (argc != 2 && !lazy && !deaf) {
		fprintf(stderr, "usage: %s ADDR [lazy|deaf]\n", argv[0]);
		return 2;
	}
	snprintf(check_role, sizeof(check_role), "victim");
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	/* What the library says about bad peers is its business; a server's log is not what is tested. */
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	CHECK(epoll_fd >= 0);
	peer = peer_on(argv[1]);
	cfg = sizes(4 * MESSAGES, SIZE_KEEP, 2 * MESSAGES, 2 * MESSAGES);
	ep = listen_on(peer, argv[1], port);
	OK(rpma_ep_get_fd(ep, &ep_fd));
	set_nonblocking(ep_fd);
	if (!deaf)
		watch(ep_fd, &ep);
	watch(STDIN_FILENO, NULL);
	printf("port %s\n", port);
	while (going) {
		int n = epoll_wait(epoll_fd, events, 64, -1);

		CHECK(n >= 0 || errno == EINTR);
		for (int i = 0; i < n; i++) {
			struct watch *which = events[i].data.ptr;

			if (events[i].data.ptr == NULL) {
				enum order order = obey();

				going = order != QUIT;
				if (order == WAKE && deaf)
					watch(ep_fd, &ep);
			} else if (events[i].data.ptr == &ep) {
				accept_next(ep);
			} else if (which->what == EVENTS) {
				take_event(which->served);
			} else {
				take_completions(which->served);
			}
		}
		delete_ended();
	}
	CHECK_INT(live, 0);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_peer_delete(&peer));
	printf("end\n");
	return 0;
}
