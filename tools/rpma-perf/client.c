/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* client.c - posts operations, takes their completions, and keeps the time. */

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "report.h"

#define WCS 64

/* One connection and what goes through it. */
struct channel {
	const struct work *work;
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	int cq_fd;
	struct rpma_mr_remote *remote;
	/* What is sent or written, and where what comes back goes. */
	unsigned char *out, *in;
	struct rpma_mr_local *out_mr, *in_mr;

	/* Counted from the connection's start: the n-th operation has slot n modulo the depth, and so has its receive. */
	size_t goal, posted, done, sends;
	size_t warmed;			/* operations before those that are measured */
	uint64_t *started;		/* by slot */
	uint64_t *samples;		/* by operation; NULL while warming up */
};

/* What the threads of one measurement share. */
struct run {
	const struct options *options;
	struct work work;
	size_t operations, warmup;
	struct rpma_peer *peer;
	struct channel *channels;
	pthread_barrier_t barrier;
};

struct worker {
	struct run *run;
	size_t first, n;		/* its channels */
	uint64_t begin, end;
	pthread_t thread;
};

static uint64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void
post(struct channel *c)
{
	const struct work *work = c->work;
	size_t slot = c->posted % work->depth, at = slot * work->size, size = work->size;
	const int always = RPMA_F_COMPLETION_ALWAYS, on_error = RPMA_F_COMPLETION_ON_ERROR;

	c->started[slot] = now();
	switch (work->op) {
	case OP_WRITE:
		OK(rpma_write(c->conn, c->remote, at, c->out_mr, at, size, always, NULL));
		break;
	case OP_READ:
		OK(rpma_read(c->conn, c->in_mr, at, c->remote, at, size, always, NULL));
		break;
	case OP_FLUSH_VISIBILITY:
	case OP_FLUSH_PERSISTENT:
		OK(rpma_write(c->conn, c->remote, at, c->out_mr, at, size, on_error, NULL));
		OK(rpma_flush(c->conn, c->remote, at, size, work->op == OP_FLUSH_PERSISTENT ? RPMA_FLUSH_TYPE_PERSISTENT :
			RPMA_FLUSH_TYPE_VISIBILITY, always, NULL));
		break;
	case OP_ATOMIC:
		OK(rpma_atomic_write(c->conn, c->remote, at, (const char *)c->out + at, always, NULL));
		break;
	case OP_SEND:
		OK(rpma_send(c->conn, c->out_mr, at, size, ++c->sends % SIGNAL_EVERY == 0 ? always : on_error, NULL));
		break;
	case OP_WRITE_IMM:
		OK(rpma_write_with_imm(c->conn, c->remote, at, c->out_mr, at, size, always, (uint32_t)slot, NULL));
		break;
	case OPERATIONS:
		break;
	}
	c->posted++;
}

static void
complete(struct channel *c, const struct ibv_wc *wc)
{
	size_t slot = c->done % c->work->depth;

	if (wc->status != IBV_WC_SUCCESS)
		die("%s of %zu bytes: operation %zu ended with status %d", operation_names[c->work->op], c->work->size, c->done,
			(int)wc->status);
	if (c->work->op == OP_SEND) {
		if (!(wc->opcode & IBV_WC_RECV))
			return;
		if (wc->byte_len != c->work->size)
			die("a message of %zu bytes came back with %u", c->work->size, wc->byte_len);
	}
	if (c->samples != NULL)
		c->samples[c->done - c->warmed] = now() - c->started[slot];
	c->done++;
	if (c->work->op == OP_SEND)
		OK(rpma_recv(c->conn, c->in_mr, slot * c->work->size, c->work->size, NULL));
}

/* Takes what has completed and posts as much again. Returns whether there was anything. */
static bool
advance(struct channel *c)
{
	struct ibv_wc wcs[WCS];
	int got = 0;
	int ret = rpma_cq_get_wc(c->cq, c->work->depth < WCS ? (int)c->work->depth : WCS, wcs, &got);

	if (ret != 0 && ret != RPMA_E_NO_COMPLETION)
		die_rpma("rpma_cq_get_wc", ret);
	if (ret != 0)
		got = 0;
	for (int i = 0; i < got; i++)
		complete(c, &wcs[i]);
	while (c->posted < c->goal && c->posted - c->done < c->work->depth)
		post(c);
	return got > 0;
}

static void
wait_for_any(struct channel *channels, size_t n)
{
	struct pollfd fds[CONNECTIONS_MAX];

	if (n == 1) {
		OK(rpma_cq_wait(channels->cq));
		return;
	}
	for (size_t i = 0; i < n; i++)
		fds[i] = (struct pollfd){.fd = channels[i].done < channels[i].goal ? channels[i].cq_fd : -1, .events = POLLIN};
	if (poll(fds, n, -1) < 0 && errno != EINTR)
		die("poll: %s", strerror(errno));
	for (size_t i = 0; i < n; i++)
		if (fds[i].revents & POLLIN)
			OK(rpma_cq_wait(channels[i].cq));
}

/* So many more operations on each channel. */
static void
drive(struct channel *channels, size_t n, size_t goal, bool wait)
{
	size_t left = n;

	if (goal == 0)
		return;
	for (size_t i = 0; i < n; i++)
		channels[i].goal += goal;
	for (bool first = true; left > 0; first = false) {
		bool any = false;

		left = 0;
		for (size_t i = 0; i < n; i++)
			if (channels[i].done < channels[i].goal) {
				any |= advance(&channels[i]);
				left += channels[i].done < channels[i].goal;
			}
		if (wait && !any && !first && left > 0)
			wait_for_any(channels, n);
	}
}

static void *
worker_main(void *arg)
{
	struct worker *worker = arg;
	struct run *run = worker->run;
	struct channel *mine = run->channels + worker->first;
	uint64_t *samples[CONNECTIONS_MAX];

	for (size_t i = 0; i < worker->n; i++) {
		samples[i] = mine[i].samples;
		mine[i].samples = NULL;
	}
	drive(mine, worker->n, run->warmup, run->work.wait);
	for (size_t i = 0; i < worker->n; i++) {
		mine[i].samples = samples[i];
		mine[i].warmed = mine[i].done;
	}
	pthread_barrier_wait(&run->barrier);
	worker->begin = now();
	drive(mine, worker->n, run->operations, run->work.wait);
	worker->end = now();
	return NULL;
}

static struct rpma_conn_req *
request(const struct run *run)
{
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_conn_req *req = NULL;
	uint32_t depth = (uint32_t)run->work.depth;

	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_sq_size(cfg, 2 * depth + 2 * SIGNAL_EVERY));
	OK(rpma_conn_cfg_set_rq_size(cfg, depth + 1));
	OK(rpma_conn_cfg_set_cq_size(cfg, 3 * depth + 2 * SIGNAL_EVERY + 1));
	OK(rpma_conn_req_new(run->peer, run->options->addr, run->options->port, cfg, &req));
	OK(rpma_conn_cfg_delete(&cfg));
	return req;
}

static void
channel_open(struct run *run, struct channel *c)
{
	const struct work *work = &run->work;
	size_t bytes = work->size * work->depth;
	unsigned char packed[WORK_BYTES];
	struct rpma_conn_private_data pdata = {.ptr = packed, .len = WORK_BYTES};
	struct rpma_conn_req *req = request(run);
	struct rpma_peer_cfg *pcfg = NULL;
	size_t remote_size = 0;

	c->work = work;
	c->out = memory_new(bytes, work->pages, -1, 0);
	c->in = memory_new(bytes, work->pages, -1, 0);
	pattern_fill(c->out, work->size, work->depth);
	OK(rpma_mr_reg(run->peer, c->out, bytes, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND, &c->out_mr));
	OK(rpma_mr_reg(run->peer, c->in, bytes, RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_RECV, &c->in_mr));
	c->started = calloc(work->depth, sizeof(*c->started));
	c->samples = calloc(run->operations, sizeof(*c->samples));
	if (c->started == NULL || c->samples == NULL)
		die("no memory");
	if (work->op == OP_SEND)
		for (size_t slot = 0; slot < work->depth; slot++)
			OK(rpma_conn_req_recv(req, c->in_mr, slot * work->size, work->size, NULL));
	work_pack(work, packed);
	OK(rpma_conn_req_connect(&req, &pdata, &c->conn));
	expect_established(c->conn);
	OK(rpma_conn_get_private_data(c->conn, &pdata));
	const unsigned char *answer = pdata.ptr;

	if (answer == NULL || pdata.len < 1 || answer[0] > pdata.len - 1)
		die("the server's answer is none of rpma-perf's");
	OK(rpma_mr_remote_from_descriptor(answer + 1, answer[0], &c->remote));
	OK(rpma_mr_remote_get_size(c->remote, &remote_size));
	if (remote_size < work_memory(work))
		die("the server lends %zu bytes instead of %zu", remote_size, work_memory(work));
	/* Whether the memory is persistent is the server's affair; here it is only asked for. */
	OK(rpma_peer_cfg_new(&pcfg));
	OK(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true));
	OK(rpma_conn_apply_remote_peer_cfg(c->conn, pcfg));
	OK(rpma_peer_cfg_delete(&pcfg));
	OK(rpma_conn_get_cq(c->conn, &c->cq));
	OK(rpma_cq_get_fd(c->cq, &c->cq_fd));
}

/* What was written is read back; what was read or came back is there already. */
static void
channel_verify(struct channel *c)
{
	const struct work *work = c->work;
	size_t used = c->done < work->depth ? c->done : work->depth;

	if (work->op != OP_READ && work->op != OP_SEND) {
		struct work reading = *work;

		reading.op = OP_READ;
		c->work = &reading;
		c->samples = NULL;
		c->goal = c->posted = c->done = 0;
		drive(c, 1, used, false);
		c->work = work;
	}
	pattern_check(c->in, work->size, used, work);
}

static void
channel_close(struct channel *c)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	size_t bytes = c->work->size * c->work->depth;

	OK(rpma_conn_disconnect(c->conn));
	OK(rpma_conn_next_event(c->conn, &event));
	if (event != RPMA_CONN_CLOSED)
		die("the connection was not closed: %s", rpma_utils_conn_event_2str(event));
	OK(rpma_mr_remote_delete(&c->remote));
	OK(rpma_conn_delete(&c->conn));
	OK(rpma_mr_dereg(&c->out_mr));
	OK(rpma_mr_dereg(&c->in_mr));
	memory_delete(c->out, bytes);
	memory_delete(c->in, bytes);
	free(c->started);
}

/* Large operations are slow enough to need no crowd of them. */
static size_t
usual_count(size_t size)
{
	size_t count = ((size_t)512 << 20) / size;

	return count > 10000 ? 10000 : count;
}

static void
measure(struct run *run, struct result *result)
{
	const struct options *options = run->options;
	size_t n = options->connections, total;
	struct worker *workers = calloc(options->threads, sizeof(*workers));
	uint64_t begin = UINT64_MAX, end = 0, *samples, *at;

	run->operations = options->operations != 0 ? options->operations : usual_count(run->work.size);
	run->warmup = options->warmup != SIZE_MAX ? options->warmup : run->operations / 10;
	run->channels = calloc(n, sizeof(*run->channels));
	total = n * run->operations;
	samples = at = calloc(total, sizeof(*samples));
	if (workers == NULL || run->channels == NULL || samples == NULL)
		die("no memory");
	for (size_t i = 0; i < n; i++)
		channel_open(run, &run->channels[i]);
	pthread_barrier_init(&run->barrier, NULL, (unsigned)options->threads);
	for (size_t i = 0; i < options->threads; i++) {
		struct worker *worker = &workers[i];

		worker->run = run;
		worker->first = n * i / options->threads;
		worker->n = n * (i + 1) / options->threads - worker->first;
		if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0)
			die("no thread");
	}
	for (size_t i = 0; i < options->threads; i++) {
		pthread_join(workers[i].thread, NULL);
		begin = workers[i].begin < begin ? workers[i].begin : begin;
		end = workers[i].end > end ? workers[i].end : end;
	}
	pthread_barrier_destroy(&run->barrier);
	result->work = run->work;
	result->connections = n;
	result->idle = options->idle;
	result->threads = options->threads;
	result->seconds = (double)(end - begin) / 1e9;
	for (size_t i = 0; i < n; i++) {
		struct channel *c = &run->channels[i];

		result->operations += c->done - c->warmed;
		memcpy(at, c->samples, run->operations * sizeof(*at));
		at += run->operations;
		free(c->samples);
		channel_verify(c);
		channel_close(c);
	}
	result_latencies(result, samples, total);
	free(samples);
	free(run->channels);
	free(workers);
}

/* Connections that are there and used for nothing. The server has no more to do for them than for any others. */
static void
idle_open(struct run *idle)
{
	idle->work = (struct work){.op = OP_WRITE, .wait = true, .pages = PAGES_DEFAULT, .size = 1, .depth = 1};
	idle->operations = 1;
	idle->channels = calloc(idle->options->idle + 1, sizeof(*idle->channels));
	if (idle->channels == NULL)
		die("no memory");
	for (size_t i = 0; i < idle->options->idle; i++)
		channel_open(idle, &idle->channels[i]);
}

static void
idle_close(struct run *idle)
{
	for (size_t i = 0; i < idle->options->idle; i++) {
		free(idle->channels[i].samples);
		channel_close(&idle->channels[i]);
	}
	free(idle->channels);
}

int
run_client(const struct options *options)
{
	struct result *results = calloc(OPERATIONS * SIZES_MAX, sizeof(*results));
	struct run run = {.options = options}, idle = {.options = options};
	bool to_stdout = options->json != NULL && strcmp(options->json, "-") == 0;
	bool progress = !options->quiet && isatty(STDERR_FILENO);
	const char *device;
	size_t n = 0;

	if (results == NULL)
		die("no memory");
	run.peer = peer_at(options->addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &device);
	idle.peer = run.peer;
	idle_open(&idle);
	for (int op = 0; op < OPERATIONS; op++)
		for (size_t i = 0; options->ops[op] && i < options->n_sizes; i++) {
			/* There is only one size for an atomic write. */
			if (op == OP_ATOMIC && i > 0)
				break;
			run.work = (struct work){
				.op = (enum operation)op,
				.wait = options->wait,
				.pages = options->pages,
				.size = op == OP_ATOMIC ? RPMA_ATOMIC_WRITE_ALIGNMENT : options->sizes[i],
				.depth = options->depth,
			};
			if (progress)
				fprintf(stderr, "\r\033[K%s, %zu bytes ...", operation_names[op], run.work.size);
			measure(&run, &results[n++]);
		}
	if (progress)
		fputs("\r\033[K", stderr);
	idle_close(&idle);
	OK(rpma_peer_delete(&run.peer));
	if (!options->quiet && !to_stdout)
		print_table(results, n);
	if (options->json != NULL)
		write_json(options->json, results, n, device);
	if (options->svg != NULL)
		write_svg(options->svg, results, n, device);
	free(results);
	return 0;
}
