/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * completion.c - completion queues: the separate receive queue, the channel shared by both, waking up and not missing
 * any, arguments, and contexts that come back exactly once.
 */

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "common/fabric.h"

#define MESSAGE 16

static struct rpma_cq *
rcq_of(const struct rpma_conn *conn)
{
	struct rpma_cq *rcq = NULL;

	OK(rpma_conn_get_rcq(conn, &rcq));
	CHECK(rcq != NULL);
	return rcq;
}

/* -- separate receive queue ----------------------------------------------------------------------------------------- */

/* Completions of received messages, of either kind, come to it and to it alone; all others to the main queue. */
static void
separate_queue_server(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(SIZE_KEEP, 10, SIZE_KEEP, SIZE_KEEP);
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr;
	struct rpma_cq *rcq;
	struct ends e;
	int fd = -1, rfd = -1;

	open_server(side, &e, cfg);
	rcq = rcq_of(e.conn);
	CHECK(rcq != e.cq);
	OK(rpma_cq_get_fd(e.cq, &fd));
	OK(rpma_cq_get_fd(rcq, &rfd));
	CHECK(fd >= 0 && rfd >= 0 && fd != rfd);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	OK(rpma_recv(e.conn, mr, 0, MESSAGE, ID(1)));
	OK(rpma_recv(e.conn, mr, 0, MESSAGE, ID(2)));
	give_mr(side, 0, mr);
	for (unsigned i = 1; i <= 2; i++) {
		struct ibv_wc wc;

		wait_readable(rfd);
		OK(rpma_cq_wait(rcq));
		OK(rpma_cq_get_wc(rcq, 1, &wc, NULL));
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		CHECK_INT(wc.wr_id, i);
		CHECK_INT(wc.opcode, i == 1 ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK_INT(wc.byte_len, MESSAGE);
		CHECK(!readable(fd));
		expect_no_wc(e.cq);
		say(side, 0, "next");
	}
	OK(rpma_send(e.conn, mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, ID(3)));
	expect_done(e.cq, e.conn, IBV_WC_SEND, 3, 0);
	expect_no_wc(rcq);
	hear(side, 0, "seen");
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	close_server(&e);
}

static void
separate_queue_client(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(SIZE_KEEP, 10, SIZE_KEEP, SIZE_KEEP);
	unsigned char *mem = memory(PAGE, 1);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, cfg);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	OK(rpma_recv(e.conn, mr, MESSAGE, MESSAGE, ID(10)));
	OK(rpma_send(e.conn, mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, ID(11)));
	expect_done(e.cq, e.conn, IBV_WC_SEND, 11, 0);
	hear(side, 0, "next");
	OK(rpma_write_with_imm(e.conn, remote, 64, mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, 5, ID(12)));
	expect_done(e.cq, e.conn, IBV_WC_RDMA_WRITE, 12, 0);
	hear(side, 0, "next");
	expect_done(rcq_of(e.conn), e.conn, IBV_WC_RECV, 10, MESSAGE);
	expect_no_wc(e.cq);
	say(side, 0, "seen");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	close_client(&e);
}

/* -- one channel for both ------------------------------------------------------------------------------------------- */

/* The next event of the connection's channel is for the queue; spare ones, for which nothing is left, are passed over. */
static void
expect_on_channel(struct rpma_conn *conn, bool is_rcq, enum ibv_wc_opcode opcode, uint64_t id)
{
	struct rpma_cq *cq = NULL, *want = is_rcq ? rcq_of(conn) : cq_of(conn);
	struct ibv_wc wc;
	bool got = !is_rcq;
	int ret;

	while ((ret = rpma_cq_get_wc(want, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION) {
		OK(rpma_conn_wait(conn, 0, &cq, &got));
		CHECK(cq == (got ? rcq_of(conn) : cq_of(conn)));
	}
	CHECK_CODE(ret, 0);
	CHECK_INT(wc.status, IBV_WC_SUCCESS);
	CHECK_INT(wc.opcode, opcode);
	CHECK_INT(wc.wr_id, id);
}

static void
shared_channel(struct side *side, struct ends *e)
{
	unsigned char *mem = memory(PAGE, 1);
	struct rpma_mr_local *mr = registered(e->peer, mem, PAGE, USAGE_ALL);
	struct rpma_cq *rcq = rcq_of(e->conn), *cq = NULL;
	bool is_rcq = false;
	int fd = -1, other = -1;
	struct ibv_wc wc;

	OK(rpma_conn_get_compl_fd(e->conn, &fd));
	CHECK(fd >= 0);
	INVAL(rpma_conn_get_compl_fd(NULL, &fd));
	INVAL(rpma_conn_get_compl_fd(e->conn, NULL));
	/* The queues have the channel's descriptor and cannot be waited for alone. */
	OK(rpma_cq_get_fd(e->cq, &other));
	CHECK_INT(other, fd);
	other = -1;
	OK(rpma_cq_get_fd(rcq, &other));
	CHECK_INT(other, fd);
	CHECK_CODE(rpma_cq_wait(e->cq), RPMA_E_SHARED_CHANNEL);
	CHECK_CODE(rpma_cq_wait(rcq), RPMA_E_SHARED_CHANNEL);
	INVAL(rpma_conn_wait(NULL, 0, &cq, &is_rcq));
	INVAL(rpma_conn_wait(e->conn, 0, NULL, &is_rcq));
	CHECK(!readable(fd));

	OK(rpma_recv(e->conn, mr, 0, MESSAGE, ID(1)));
	say(side, 0, "ready");
	hear(side, 0, "ready");
	if (e->ep != NULL) {
		/* The first event here is that of the message, and it says so. */
		wait_readable(fd);
		OK(rpma_conn_wait(e->conn, 0, &cq, &is_rcq));
		CHECK(cq == rcq);
		CHECK_INT(is_rcq, true);
		OK(rpma_cq_get_wc(cq, 1, &wc, NULL));
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		CHECK_INT(wc.opcode, IBV_WC_RECV);
		CHECK_INT(wc.wr_id, 1);
		CHECK_INT(wc.byte_len, MESSAGE);
		OK(rpma_send(e->conn, mr, 64, MESSAGE, RPMA_F_COMPLETION_ALWAYS, ID(2)));
		expect_on_channel(e->conn, false, IBV_WC_SEND, 2);
	} else {
		OK(rpma_send(e->conn, mr, 64, MESSAGE, RPMA_F_COMPLETION_ALWAYS, ID(2)));
		expect_on_channel(e->conn, false, IBV_WC_SEND, 2);
		expect_on_channel(e->conn, true, IBV_WC_RECV, 1);
	}
	/* Whose event it was need not be asked for. */
	OK(rpma_recv(e->conn, mr, 0, MESSAGE, ID(3)));
	say(side, 0, "ready");
	hear(side, 0, "ready");
	OK(rpma_send(e->conn, mr, 64, MESSAGE, RPMA_F_COMPLETION_ON_ERROR, ID(4)));
	while (rpma_cq_get_wc(rcq, 1, &wc, NULL) == RPMA_E_NO_COMPLETION)
		OK(rpma_conn_wait(e->conn, 0, &cq, NULL));
	CHECK_INT(wc.wr_id, 3);
	expect_no_wc(e->cq);
	say(side, 0, "done");
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
}

static void
shared_channel_server(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(SIZE_KEEP, 10, SIZE_KEEP, SIZE_KEEP);
	struct ends e;

	OK(rpma_conn_cfg_set_compl_channel(cfg, true));
	open_server(side, &e, cfg);
	shared_channel(side, &e);
	OK(rpma_conn_cfg_delete(&cfg));
	close_server(&e);
}

static void
shared_channel_client(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(SIZE_KEEP, 10, SIZE_KEEP, SIZE_KEEP);
	struct ends e;

	OK(rpma_conn_cfg_set_compl_channel(cfg, true));
	open_client(side, &e, cfg);
	shared_channel(side, &e);
	OK(rpma_conn_cfg_delete(&cfg));
	close_client(&e);
}

/* A connection without a shared channel says so. */
static void
no_shared_channel_server(struct side *side)
{
	struct rpma_cq *cq = NULL;
	struct ends e;
	bool is_rcq;
	int fd = -1;

	open_server(side, &e, NULL);
	CHECK_CODE(rpma_conn_get_compl_fd(e.conn, &fd), RPMA_E_NOT_SHARED_CHNL);
	CHECK_CODE(rpma_conn_wait(e.conn, 0, &cq, &is_rcq), RPMA_E_NOT_SHARED_CHNL);
	CHECK(fd == -1 && cq == NULL);
	close_server(&e);
}

static void
no_shared_channel_client(struct side *side)
{
	struct ends e;

	open_client(side, &e, NULL);
	close_client(&e);
}

/* -- waking up ------------------------------------------------------------------------------------------------------ */

static void
serve(struct side *side)
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

/*
 * Two completions and one wait: both are found, and the next wait is for what comes next, or wakes at once, once. The
 * rounds are of two writes and of two messages, in turn.
 */
static unsigned
rounds_of_two(void)
{
	return (unsigned)scaled(500, 20);
}

static void
two_for_one_server(struct side *side)
{
	unsigned messages = rounds_of_two() / 2 * 2, posted = 0;
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 0), PAGE, USAGE_ALL);
	for (; posted < 8 && posted < messages; posted++)
		OK(rpma_recv(e.conn, mr, 64, MESSAGE, ID(posted)));
	give_mr(side, 0, mr);
	for (unsigned i = 0; i < messages; i++) {
		expect_done(e.cq, e.conn, IBV_WC_RECV, i, 8);
		if (posted < messages)
			OK(rpma_recv(e.conn, mr, 64, MESSAGE, ID(posted++)));
	}
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
two_for_one_client(struct side *side)
{
	unsigned rounds = rounds_of_two(), spare = 0;
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;
	int fd = -1;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	OK(rpma_cq_get_fd(e.cq, &fd));
	for (unsigned i = 0; i < rounds; i++) {
		struct ibv_wc wc[2];
		int got = 0, n;

		for (unsigned k = 0; k < 2; k++)
			if (i % 2)
				OK(rpma_send(e.conn, mr, 8 * k, 8, RPMA_F_COMPLETION_ALWAYS, ID(2 * i + k)));
			else
				OK(rpma_write(e.conn, remote, 8 * k, mr, 8 * k, 8, RPMA_F_COMPLETION_ALWAYS, ID(2 * i + k)));
		while (got < 2) {
			int ret;

			/* If a wake-up were lost, this would never come back. */
			OK(rpma_cq_wait(e.cq));
			ret = rpma_cq_get_wc(e.cq, 2 - got, wc + got, &n);
			if (ret == RPMA_E_NO_COMPLETION) {
				spare++;
				continue;
			}
			CHECK_CODE(ret, 0);
			CHECK(n >= 1 && n <= 2 - got);
			got += n;
		}
		for (unsigned k = 0; k < 2; k++) {
			CHECK_INT(wc[k].status, IBV_WC_SUCCESS);
			CHECK_INT(wc[k].wr_id, 2 * i + k);
			CHECK_INT(wc[k].opcode, i % 2 ? IBV_WC_SEND : IBV_WC_RDMA_WRITE);
		}
		/* An event that is left announces nothing. */
		if (readable(fd)) {
			OK(rpma_cq_wait(e.cq));
			expect_no_wc(e.cq);
			spare++;
		}
	}
	/*
	 * At most one for each completion that a previous wait had not announced. On the software fabric that takes a
	 * second completion that comes just between the wait and the look, which is rare: half of the rounds is far more
	 * than that, and less than one in each.
	 */
	CHECK(spare <= (on_soft(side->addr) ? rounds / 2 : rounds));
	check_info("%u rounds, %u wake-ups with nothing to find", rounds, spare);
	say(side, 0, "done");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* A program that takes one completion each time it has waited, while others come in between: verbs do not wake it for what it
   has left behind, but many devices do, and programs rely on it. */
static void
one_for_each_wait_server(struct side *side)
{
	serve(side);
}

static void
one_for_each_wait_client(struct side *side)
{
	unsigned rounds = (unsigned)scaled(500, 20), spare = 0;
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;
	int fd;

	if (!on_soft(side->addr))
		check_skip("whether there is such an event depends on the device");
	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	OK(rpma_cq_get_fd(e.cq, &fd));
	for (unsigned i = 0; i < rounds; i++) {
		for (unsigned k = 0; k < 3; k++)
			OK(rpma_write(e.conn, remote, 8 * k, mr, 8 * k, 8, RPMA_F_COMPLETION_ALWAYS, ID(3 * i + k)));
		for (unsigned k = 0; k < 3;) {
			struct ibv_wc wc;
			int ret;

			/* In every other round it waits for the descriptor first. */
			if (i % 2)
				wait_readable(fd);
			OK(rpma_cq_wait(e.cq));
			ret = rpma_cq_get_wc(e.cq, 1, &wc, NULL);
			if (ret == RPMA_E_NO_COMPLETION) {
				spare++;
				continue;
			}
			CHECK_CODE(ret, 0);
			CHECK_INT(wc.status, IBV_WC_SUCCESS);
			CHECK_INT(wc.wr_id, 3 * i + k);
			k++;
		}
	}
	check_info("%u rounds, %u wake-ups with nothing to find", rounds, spare);
	say(side, 0, "done");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* A queue waits for its own completions, and is deleted with events that nobody has taken. */
static void
many_rounds_server(struct side *side)
{
	serve(side);
}

static void
many_rounds_client(struct side *side)
{
	unsigned rounds = (unsigned)scaled(5000, 100);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;
	int fd;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	for (unsigned i = 0; i < rounds; i++) {
		struct ibv_wc wc;

		OK(rpma_write(e.conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		do {
			OK(rpma_cq_wait(e.cq));
		} while (rpma_cq_get_wc(e.cq, 1, &wc, NULL) == RPMA_E_NO_COMPLETION);
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		CHECK_INT(wc.wr_id, i);
	}
	/* This one's event stays. */
	OK(rpma_write(e.conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(77)));
	OK(rpma_cq_get_fd(e.cq, &fd));
	wait_readable(fd);
	say(side, 0, "done");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* -- arguments of get_wc -------------------------------------------------------------------------------------------- */

static void
several_at_once_server(struct side *side)
{
	serve(side);
}

static void
several_at_once_client(struct side *side)
{
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct rpma_cq *cq = NULL;
	struct ibv_wc wc[8];
	struct ends e;
	int got = 77, fd = -1;
	uint32_t num;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	INVAL(rpma_cq_get_wc(NULL, 1, wc, &got));
	INVAL(rpma_cq_get_wc(e.cq, 0, wc, &got));
	INVAL(rpma_cq_get_wc(e.cq, -1, wc, &got));
	INVAL(rpma_cq_get_wc(e.cq, 1, NULL, &got));
	INVAL(rpma_cq_get_wc(e.cq, 2, wc, NULL));
	CHECK_INT(got, 77);
	CHECK_CODE(rpma_cq_get_wc(e.cq, 1, wc, NULL), RPMA_E_NO_COMPLETION);
	CHECK_CODE(rpma_cq_get_wc(e.cq, 8, wc, &got), RPMA_E_NO_COMPLETION);
	INVAL(rpma_cq_wait(NULL));
	INVAL(rpma_cq_get_fd(NULL, &fd));
	INVAL(rpma_cq_get_fd(e.cq, NULL));
	INVAL(rpma_conn_get_cq(NULL, &cq));
	INVAL(rpma_conn_get_cq(e.conn, NULL));
	INVAL(rpma_conn_get_rcq(NULL, &cq));
	INVAL(rpma_conn_get_rcq(e.conn, NULL));
	INVAL(rpma_conn_get_qp_num(NULL, &num));
	INVAL(rpma_conn_get_qp_num(e.conn, NULL));
	/* Five are there once the last is, and come in order, as many as asked for. */
	for (unsigned i = 0; i < 5; i++)
		OK(rpma_write(e.conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(i)));
	for (unsigned seen = 0; seen < 5; ) {
		unsigned ask = seen == 0 ? 3 : 8;
		int ret = rpma_cq_get_wc(e.cq, (int)ask, wc, &got);

		if (ret == RPMA_E_NO_COMPLETION) {
			OK(rpma_cq_wait(e.cq));
			continue;
		}
		CHECK_CODE(ret, 0);
		CHECK(got >= 1 && got <= (int)ask);
		for (int k = 0; k < got; k++) {
			CHECK_INT(wc[k].status, IBV_WC_SUCCESS);
			CHECK_INT(wc[k].wr_id, seen++);
		}
	}
	say(side, 0, "done");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* -- contexts ------------------------------------------------------------------------------------------------------- */

/*
 * A program that keeps a heap object for each request, finds it through the completion and frees it there: every context
 * comes back exactly once, whatever the status. A second time, or a wrong one, would be caught here and by memcheck.
 */
struct job {
	uint64_t magic;
	unsigned number;
};

#define JOBS 300
#define MAGIC 0x6a6f626a6f626a6fu

static void
contexts_server(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(JOBS, SIZE_KEEP, SIZE_KEEP, JOBS);
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned left = 50, done = 0;

	open_server(side, &e, cfg);
	mr = registered(e.peer, memory(PAGE, 0), PAGE, USAGE_ALL);
	for (unsigned i = 0; i < left; i++) {
		struct job *job = malloc(sizeof(*job));

		CHECK(job != NULL);
		job->magic = MAGIC;
		job->number = i;
		OK(rpma_recv(e.conn, mr, 0, MESSAGE, job));
	}
	give_mr(side, 0, mr);
	hear(side, 0, "failed");
	OK(rpma_conn_disconnect(e.conn));
	while (left > 0) {
		struct ibv_wc wc;
		struct job *job;

		next_wc(e.cq, &wc);
		job = (struct job *)(uintptr_t)wc.wr_id;
		CHECK(job->magic == MAGIC);
		CHECK_INT(job->number, done++);
		CHECK_INT(wc.status, done <= 20 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
		job->magic = 0;
		free(job);
		left--;
	}
	expect_no_wc(e.cq);
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_conn_delete(&e.conn));
	close_server(&e);
}

static void
contexts_client(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(JOBS, SIZE_KEEP, JOBS, SIZE_KEEP);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned done = 0, failed = 0;

	open_client(side, &e, cfg);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	for (unsigned i = 0; i < JOBS; i++) {
		struct job *job = malloc(sizeof(*job));

		CHECK(job != NULL);
		job->magic = MAGIC;
		job->number = i;
		/* Number 200 breaks the connection. */
		if (i < 20)
			OK(rpma_send(e.conn, mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, job));
		else if (i % 2)
			OK(rpma_read(e.conn, mr, 0, remote, 0, 8, RPMA_F_COMPLETION_ALWAYS, job));
		else
			OK(rpma_write(e.conn, remote, i == 200 ? PAGE : 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, job));
	}
	while (done < JOBS) {
		struct ibv_wc wc;
		struct job *job;

		next_wc(e.cq, &wc);
		job = (struct job *)(uintptr_t)wc.wr_id;
		CHECK(job->magic == MAGIC);
		CHECK_INT(job->number, done);
		if (done < 200)
			CHECK_INT(wc.status, IBV_WC_SUCCESS);
		else if (done == 200)
			CHECK_INT(wc.status, IBV_WC_REM_ACCESS_ERR);
		else
			CHECK_INT(wc.status, IBV_WC_WR_FLUSH_ERR);
		failed += wc.status != IBV_WC_SUCCESS;
		job->magic = 0;
		free(job);
		done++;
	}
	CHECK_INT(failed, JOBS - 200);
	expect_no_wc(e.cq);
	say(side, 0, "failed");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

static const struct test tests[] = {
	PAIR(separate_queue),
	PAIR(shared_channel),
	PAIR(no_shared_channel),
	PAIR(two_for_one),
	PAIR(one_for_each_wait),
	PAIR(many_rounds),
	PAIR(several_at_once),
	PAIR(contexts),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
