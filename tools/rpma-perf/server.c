/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* server.c - lends memory, echoes messages, takes immediate data; a thread for each connection. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "perf.h"

/* How often a polling session looks whether the client is still there. */
#define LOOK_EVERY 256
#define WCS 32

struct session {
	struct work work;
	struct rpma_conn *conn;
	struct rpma_mr_local *mr;
	void *memory;
	size_t sends;
	unsigned place;
};

/* Parts of the file; a session has one while it lasts. */
static bool places[CONNECTIONS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned ended;
static int ended_pipe[2];

static void
receive(struct session *session, size_t slot)
{
	const void *context = (const void *)(uintptr_t)slot;

	if (session->work.op == OP_SEND)
		OK(rpma_recv(session->conn, session->mr, slot * session->work.size, session->work.size, context));
	else
		OK(rpma_recv(session->conn, session->mr, 0, 1, context));
}

/* False once the connection breaks, which flushes what is posted. */
static bool
handle(struct session *session, const struct ibv_wc *wc)
{
	size_t slot = (size_t)wc->wr_id;

	if (wc->status != IBV_WC_SUCCESS)
		return false;
	if (!(wc->opcode & IBV_WC_RECV))
		return true;
	if (session->work.op == OP_SEND)
		OK(rpma_send(session->conn, session->mr, slot * session->work.size, wc->byte_len,
			++session->sends % SIGNAL_EVERY == 0 ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, NULL));
	receive(session, slot);
	return true;
}

/* Takes what there is. False once the connection breaks. */
static bool
drain(struct session *session, struct rpma_cq *cq)
{
	struct ibv_wc wcs[WCS];
	int got = 0, ret;

	while ((ret = rpma_cq_get_wc(cq, WCS, wcs, &got)) == 0)
		for (int i = 0; i < got; i++)
			if (!handle(session, &wcs[i]))
				return false;
	if (ret != RPMA_E_NO_COMPLETION)
		die_rpma("rpma_cq_get_wc", ret);
	return true;
}

static bool
has_event(int fd)
{
	struct pollfd look = {.fd = fd, .events = POLLIN};

	return poll(&look, 1, 0) > 0;
}

/* Nothing else has the receives of a peer that has gone complete. */
static void *
disconnect_after_event(void *arg)
{
	struct session *session = arg;
	struct pollfd fd = {.events = POLLIN};

	OK(rpma_conn_get_event_fd(session->conn, &fd.fd));
	while (poll(&fd, 1, -1) < 0)
		if (errno != EINTR)
			die("poll: %s", strerror(errno));
	rpma_conn_disconnect(session->conn);
	return NULL;
}

static void
serve(struct session *session)
{
	struct rpma_cq *cq = NULL;
	pthread_t watcher;
	int event_fd;

	OK(rpma_conn_get_cq(session->conn, &cq));
	OK(rpma_conn_get_event_fd(session->conn, &event_fd));
	if (!session->work.wait) {
		for (unsigned n = 1; drain(session, cq); n++)
			if (n % LOOK_EVERY == 0 && has_event(event_fd))
				break;
		return;
	}
	if (work_receives(&session->work) == 0)
		return;
	/* A wait ends with the receives that the end of the connection flushes. */
	if (pthread_create(&watcher, NULL, disconnect_after_event, session) != 0)
		die("no thread for a connection");
	while (drain(session, cq))
		OK(rpma_cq_wait(cq));
	/* So that there is an event in any case. */
	rpma_conn_disconnect(session->conn);
	pthread_join(watcher, NULL);
}

static void *
session_main(void *arg)
{
	struct session *session = arg;
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	OK(rpma_conn_next_event(session->conn, &event));
	if (event == RPMA_CONN_ESTABLISHED) {
		serve(session);
		OK(rpma_conn_next_event(session->conn, &event));
	}
	/* A client that broke off is its own affair; the others go on. */
	if (event != RPMA_CONN_CLOSED)
		fprintf(stderr, "rpma-perf: a connection ended: %s\n", rpma_utils_conn_event_2str(event));
	rpma_conn_disconnect(session->conn);
	OK(rpma_conn_delete(&session->conn));
	OK(rpma_mr_dereg(&session->mr));
	memory_delete(session->memory, work_memory(&session->work));
	pthread_mutex_lock(&lock);
	places[session->place] = false;
	ended++;
	pthread_mutex_unlock(&lock);
	free(session);
	if (write(ended_pipe[1], "", 1) != 1)
		die("write: %s", strerror(errno));
	return NULL;
}

/* The lowest place that is free, or CONNECTIONS_MAX. */
static unsigned
take_place(void)
{
	unsigned place = 0;

	pthread_mutex_lock(&lock);
	while (place < CONNECTIONS_MAX && places[place])
		place++;
	if (place < CONNECTIONS_MAX)
		places[place] = true;
	pthread_mutex_unlock(&lock);
	return place;
}

static void
accept_one(struct rpma_peer *peer, struct rpma_ep *ep, const struct rpma_conn_cfg *cfg, int file)
{
	struct rpma_conn_req *req = NULL;
	struct rpma_conn_private_data pdata = {0};
	struct session *session = calloc(1, sizeof(*session));
	unsigned char answer[64];
	size_t desc_size = 0;
	pthread_t thread;
	int ret;

	if (session == NULL)
		die("no memory");
	ret = rpma_ep_next_conn_req(ep, cfg, &req);
	if (ret != 0) {
		free(session);
		if (ret == RPMA_E_NO_EVENT)
			return;
		die_rpma("rpma_ep_next_conn_req", ret);
	}
	OK(rpma_conn_req_get_private_data(req, &pdata));
	if (!work_unpack(&session->work, pdata.ptr, pdata.len) || (session->place = take_place()) == CONNECTIONS_MAX) {
		fprintf(stderr, "rpma-perf: refused a client that this version does not know, or one too many\n");
		OK(rpma_conn_req_delete(&req));
		free(session);
		return;
	}
	const struct work *work = &session->work;
	size_t offset = session->place * MEMORY_MAX;

	if (file >= 0 && ftruncate(file, (off_t)(CONNECTIONS_MAX * MEMORY_MAX)) != 0)
		die("cannot enlarge the file: %s", strerror(errno));
	session->memory = memory_new(work_memory(work), work->pages, file, offset);
	if (work->op == OP_READ)
		pattern_fill(session->memory, work->size, work->depth);
	OK(rpma_mr_reg(peer, session->memory, work_memory(work), RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST |
		RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | RPMA_MR_USAGE_SEND |
		RPMA_MR_USAGE_RECV, &session->mr));
	OK(rpma_mr_get_descriptor_size(session->mr, &desc_size));
	if (desc_size + 1 > sizeof(answer))
		die("a descriptor of %zu bytes", desc_size);
	answer[0] = (unsigned char)desc_size;
	OK(rpma_mr_get_descriptor(session->mr, answer + 1));
	for (size_t slot = 0; slot < work_receives(work); slot++) {
		const void *context = (const void *)(uintptr_t)slot;

		if (work->op == OP_SEND)
			OK(rpma_conn_req_recv(req, session->mr, slot * work->size, work->size, context));
		else
			/* A write's receive takes no bytes, but the call demands memory. */
			OK(rpma_conn_req_recv(req, session->mr, 0, 1, context));
	}
	pdata.ptr = answer;
	pdata.len = (uint8_t)(desc_size + 1);
	OK(rpma_conn_req_connect(&req, &pdata, &session->conn));
	if (pthread_create(&thread, NULL, session_main, session) != 0)
		die("no thread for another connection");
	pthread_detach(thread);
}

int
run_server(const struct options *options)
{
	struct rpma_peer *peer;
	struct rpma_ep *ep = NULL;
	struct rpma_conn_cfg *cfg = NULL;
	const char *device;
	sigset_t signals;
	int ep_fd, signal_fd, file = -1;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (signal_fd < 0 || pipe2(ended_pipe, O_CLOEXEC) != 0)
		die("no descriptors: %s", strerror(errno));
	if (options->file != NULL && (file = open(options->file, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0)
		die("%s: %s", options->file, strerror(errno));

	peer = peer_at(options->addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &device);
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_cq_size(cfg, SERVER_CQ));
	OK(rpma_conn_cfg_set_sq_size(cfg, SERVER_SQ));
	OK(rpma_conn_cfg_set_rq_size(cfg, SERVER_RQ));
	int ret = rpma_ep_listen(peer, options->addr, options->port, &ep);

	if (ret != 0)
		die("cannot listen on %s, port %s: %s", options->addr, options->port, rpma_err_2str(ret));
	OK(rpma_ep_get_fd(ep, &ep_fd));
	printf("ready on %s, port %s, device %s\n", options->addr, options->port, device);
	fflush(stdout);

	for (;;) {
		struct pollfd fds[3] = {
			{.fd = signal_fd, .events = POLLIN},
			{.fd = ep_fd, .events = POLLIN},
			{.fd = ended_pipe[0], .events = POLLIN},
		};
		char byte;

		if (poll(fds, 3, -1) < 0)
			die("poll: %s", strerror(errno));
		if (fds[0].revents != 0)
			break;
		if (fds[2].revents != 0 && read(ended_pipe[0], &byte, 1) == 1) {
			pthread_mutex_lock(&lock);
			bool over = options->sessions != 0 && ended >= options->sessions;
			pthread_mutex_unlock(&lock);
			if (over)
				break;
		}
		if (fds[1].revents != 0)
			accept_one(peer, ep, cfg, file);
	}
	/* Sessions that still run end with the process, and their clients are told by the fabric. */
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_conn_cfg_delete(&cfg));
	return 0;
}
