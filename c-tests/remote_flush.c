/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * remote_flush.c - persistence by the server's own action: the client writes into the server's file, then sends a message
 * that asks for a range to be flushed; the server does it with msync and answers. Over a separate channel for each queue
 * and over a shared one.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/fabric.h"

#define FILE_SIZE (8 * PAGE)
#define ROUNDS 8
#define DEPTH 4

struct flush_request {
	uint64_t offset, length, op;
	uint32_t finished, spare;
};

struct flush_answer {
	uint64_t op;
	int64_t result;
};

/* The next completion, however the connection's channels are made. */
static void
await(struct ends *e, struct ibv_wc *wc, bool shared_channel)
{
	int ret;

	while ((ret = rpma_cq_get_wc(e->cq, 1, wc, NULL)) == RPMA_E_NO_COMPLETION) {
		if (shared_channel) {
			struct rpma_cq *cq = NULL;
			bool is_rcq = true;

			OK(rpma_conn_wait(e->conn, 0, &cq, &is_rcq));
			CHECK(cq == e->cq && !is_rcq);
		} else {
			OK(rpma_cq_wait(e->cq));
		}
	}
	CHECK_CODE(ret, 0);
	CHECK_INT(wc->status, IBV_WC_SUCCESS);
}

static struct rpma_conn_cfg *
configuration(bool shared_channel)
{
	struct rpma_conn_cfg *cfg = sizes(30, 0, 10, 10);

	OK(rpma_conn_cfg_set_compl_channel(cfg, shared_channel));
	return cfg;
}

static void
serve(struct side *side, bool shared_channel)
{
	struct rpma_conn_cfg *cfg = configuration(shared_channel);
	struct rpma_peer *peer = peer_on(side->addr);
	struct flush_request *requests = memory(DEPTH * sizeof(*requests), 0);
	struct flush_answer *answer = memory(sizeof(*answer), 0);
	struct rpma_mr_local *mr, *request_mr, *answer_mr;
	struct rpma_conn_req *req = NULL;
	unsigned flushed = 0;
	bool finished = false;
	char path[256], port[8];
	unsigned char *mem;
	struct ends e = {.peer = peer};
	int fd;

	take(side, 0, path, sizeof(path));
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	mem = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(mem != MAP_FAILED);
	close(fd);
	mr = registered(peer, mem, FILE_SIZE, RPMA_MR_USAGE_WRITE_DST);
	request_mr = registered(peer, requests, DEPTH * sizeof(*requests), RPMA_MR_USAGE_RECV);
	answer_mr = registered(peer, answer, sizeof(*answer), RPMA_MR_USAGE_SEND);
	e.ep = listen_on(peer, side->addr, port);
	give(side, 0, port, sizeof(port));
	OK(rpma_ep_next_conn_req(e.ep, cfg, &req));
	/* Buffers are there before the first message can be. */
	for (unsigned i = 0; i < DEPTH; i++)
		OK(rpma_conn_req_recv(req, request_mr, i * sizeof(*requests), sizeof(*requests), ID(i)));
	OK(rpma_conn_req_connect(&req, NULL, &e.conn));
	expect_event(e.conn, RPMA_CONN_ESTABLISHED);
	e.cq = cq_of(e.conn);
	give_mr(side, 0, mr);
	while (!finished) {
		struct flush_request request;
		struct ibv_wc wc;

		await(&e, &wc, shared_channel);
		if (wc.opcode == IBV_WC_SEND)
			continue;
		CHECK_INT(wc.opcode, IBV_WC_RECV);
		CHECK_INT(wc.byte_len, sizeof(request));
		CHECK_INT(wc.wr_id, flushed % DEPTH);
		request = requests[wc.wr_id];
		CHECK_INT(request.op, flushed);
		OK(rpma_recv(e.conn, request_mr, wc.wr_id * sizeof(*requests), sizeof(*requests), ID(wc.wr_id)));
		CHECK(request.offset % PAGE == 0 && request.length <= FILE_SIZE && request.offset <= FILE_SIZE - request.length);
		/* The message comes after the writes before it. */
		check_pattern("what was written", mem + request.offset, request.length, flushed + 1, 0);
		answer->op = request.op;
		answer->result = msync(mem + request.offset, request.length, MS_SYNC);
		OK(rpma_send(e.conn, answer_mr, 0, sizeof(*answer), RPMA_F_COMPLETION_ALWAYS, ID(100)));
		flushed++;
		finished = request.finished != 0;
	}
	CHECK_INT(flushed, ROUNDS);
	expect_event(e.conn, RPMA_CONN_CLOSED);
	OK(rpma_conn_disconnect(e.conn));
	OK(rpma_conn_delete(&e.conn));
	OK(rpma_mr_dereg(&answer_mr));
	OK(rpma_mr_dereg(&request_mr));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	close_server(&e);
	CHECK(munmap(mem, FILE_SIZE) == 0);
}

static void
use(struct side *side, bool shared_channel)
{
	struct rpma_conn_cfg *cfg = configuration(shared_channel);
	const char *dir = getenv("TMPDIR");
	unsigned char *mem = memory(FILE_SIZE, 0), *back = memory(FILE_SIZE, 0);
	struct flush_request *request = memory(sizeof(*request), 0);
	struct flush_answer *answer = memory(sizeof(*answer), 0);
	struct rpma_mr_local *mr, *request_mr, *answer_mr;
	struct rpma_mr_remote *remote;
	char path[256] = "";
	struct ends e;
	int fd;

	snprintf(path, sizeof(path), "%s/rpma-remote-flush-XXXXXX", dir != NULL && *dir != '\0' ? dir : "/tmp");
	fd = mkstemp(path);
	CHECK(fd >= 0 && ftruncate(fd, FILE_SIZE) == 0);
	give(side, 0, path, sizeof(path));
	open_client(side, &e, cfg);
	remote = take_mr(side, 0);
	CHECK(unlink(path) == 0);
	mr = registered(e.peer, mem, FILE_SIZE, RPMA_MR_USAGE_WRITE_SRC);
	request_mr = registered(e.peer, request, sizeof(*request), RPMA_MR_USAGE_SEND);
	answer_mr = registered(e.peer, answer, sizeof(*answer), RPMA_MR_USAGE_RECV);
	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t offset = i * PAGE, length = PAGE - 100 * i;
		bool sent = false, answered = false;

		pattern(mem + offset, length, i + 1);
		OK(rpma_recv(e.conn, answer_mr, 0, sizeof(*answer), ID(1)));
		OK(rpma_write(e.conn, remote, offset, mr, offset, length, RPMA_F_COMPLETION_ON_ERROR, ID(2)));
		*request = (struct flush_request){.offset = offset, .length = length, .op = i, .finished = i == ROUNDS - 1};
		OK(rpma_send(e.conn, request_mr, 0, sizeof(*request), RPMA_F_COMPLETION_ALWAYS, ID(3)));
		while (!sent || !answered) {
			struct ibv_wc wc;

			await(&e, &wc, shared_channel);
			if (wc.wr_id == 3) {
				CHECK_INT(wc.opcode, IBV_WC_SEND);
				CHECK(!sent);
				sent = true;
			} else {
				CHECK_INT(wc.wr_id, 1);
				CHECK_INT(wc.opcode, IBV_WC_RECV);
				CHECK_INT(wc.byte_len, sizeof(*answer));
				CHECK(!answered);
				answered = true;
			}
		}
		CHECK_INT(answer->op, i);
		CHECK_INT(answer->result, 0);
		CHECK(pread(fd, back, length, (off_t)offset) == (ssize_t)length);
		check_pattern("the file", back, length, i + 1, 0);
	}
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_mr_dereg(&request_mr));
	OK(rpma_mr_dereg(&answer_mr));
	OK(rpma_conn_cfg_delete(&cfg));
	close_client(&e);
	close(fd);
}

static void
by_message_server(struct side *side)
{
	serve(side, false);
}

static void
by_message_client(struct side *side)
{
	use(side, false);
}

static void
by_message_shared_channel_server(struct side *side)
{
	serve(side, true);
}

static void
by_message_shared_channel_client(struct side *side)
{
	use(side, true);
}

static const struct test tests[] = {
	PAIR(by_message),
	PAIR(by_message_shared_channel),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
