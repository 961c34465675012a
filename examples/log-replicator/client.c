/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * client.c - appends records to the log in a server's memory and waits until each is durable there.
 *
 * usage: client [-n RECORDS] [-b BATCH] [-p EVERY] ADDR PORT
 *
 *   -n RECORDS   how many records to append (1000)
 *   -b BATCH     how many at a time (1)
 *   -p EVERY     how often to say how far it got, in records (100)
 *
 * A batch takes four operations, which are posted together: the server's side executes them in this order, and the client waits for
 * the last one only.
 *
 *	write         the records, behind the tail
 *	flush         the records: now they are durable, but nobody sees them
 *	atomic write  the tail: now everybody sees all of them
 *	flush         the tail: now that is durable too
 *
 * On standard output it prints "acknowledged N" lines on the way and one "result" line at the end, for people and scripts alike.
 * Exit status: 0 all records are acknowledged, 3 the server went away in the middle (the result line says how far it got), 1 some
 * other failure, 2 wrong usage.
 */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <librpma.h>

#include "log.h"

#define CONNECT_TIMEOUT_MS 5000
#define RECORD_MAX (sizeof(struct log_record) + LOG_DATA_MAX) /* a multiple of 8 */
#define BATCH_MAX 1024

struct client {
	struct rpma_peer *peer;
	struct rpma_conn_cfg *cfg;
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	int cq_fd, event_fd;

	/* where a batch is put together */
	char *batch;
	struct rpma_mr_local *batch_mr;

	/* the server's log */
	struct rpma_mr_remote *log;
	size_t log_size;
	enum rpma_flush_type flush_type;
	uint64_t tail;  /* where the next batch goes */
	uint64_t sent;  /* the last record that was posted */
	uint64_t acked; /* the last record that is known to be durable */

	/* for the figures */
	uint64_t first, bytes, elapsed; /* the record before the first, bytes of data acknowledged, nanoseconds */
	uint64_t *latencies;            /* of each record, in nanoseconds */
};

/* How a step ended. */
enum outcome { DONE, SERVER_GONE, FAILED };

/* Says what failed and why. What a provider's call failed with is in errno. */
static enum outcome
failed(const char *what, int ret)
{
	if (ret == RPMA_E_PROVIDER)
		fprintf(stderr, "client: %s: %s (%s)\n", what, rpma_err_2str(ret), strerror(errno));
	else
		fprintf(stderr, "client: %s: %s\n", what, rpma_err_2str(ret));
	return FAILED;
}

static uint64_t
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Takes over what the server said when it accepted: where its log is, and what can be done with it. */
static enum outcome
take_offer(struct client *c)
{
	struct rpma_conn_private_data pdata;
	struct rpma_peer_cfg *pcfg = NULL;
	struct log_offer offer;
	bool durable;
	int ret;

	ret = rpma_conn_get_private_data(c->conn, &pdata);
	if (ret)
		return failed("rpma_conn_get_private_data", ret);
	/* A fabric may deliver more bytes than were sent, zeros behind them, but never less. */
	if (pdata.ptr == NULL || pdata.len < sizeof(offer)) {
		fprintf(stderr, "client: this is not a log server\n");
		return FAILED;
	}
	memcpy(&offer, pdata.ptr, sizeof(offer));
	if ((size_t)offer.mr_desc_size + offer.pcfg_desc_size > sizeof(offer.descs) || offer.tail < LOG_START) {
		fprintf(stderr, "client: the server's offer makes no sense\n");
		return FAILED;
	}
	c->tail = offer.tail;
	c->first = c->sent = c->acked = offer.seq;

	ret = rpma_mr_remote_from_descriptor(offer.descs, offer.mr_desc_size, &c->log);
	if (ret)
		return failed("rpma_mr_remote_from_descriptor", ret);
	ret = rpma_mr_remote_get_size(c->log, &c->log_size);
	if (ret)
		return failed("rpma_mr_remote_get_size", ret);

	/* Only with the server's own configuration applied are flushes to persistence possible. */
	ret = rpma_peer_cfg_from_descriptor(offer.descs + offer.mr_desc_size, offer.pcfg_desc_size, &pcfg);
	if (ret)
		return failed("rpma_peer_cfg_from_descriptor", ret);
	ret = rpma_conn_apply_remote_peer_cfg(c->conn, pcfg);
	if (ret == 0)
		ret = rpma_peer_cfg_get_direct_write_to_pmem(pcfg, &durable);
	rpma_peer_cfg_delete(&pcfg);
	if (ret)
		return failed("the server's peer configuration", ret);
	c->flush_type = durable ? RPMA_FLUSH_TYPE_PERSISTENT : RPMA_FLUSH_TYPE_VISIBILITY;
	fprintf(stderr, "client: connected; the log has %" PRIu64 " records; flushing to %s\n", c->acked,
		durable ? "persistence" : "visibility only, since the server promises no more");
	return DONE;
}

/* Connects to the server and gets ready to write. */
static enum outcome
client_connect(struct client *c, const char *addr, const char *port, size_t batch)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_req *req = NULL;
	struct ibv_context *device = NULL;
	int ret;

	/* Which device leads to that address? */
	ret = rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &device);
	if (ret)
		return failed(addr, ret);
	ret = rpma_peer_new(device, &c->peer);
	if (ret)
		return failed("rpma_peer_new", ret);

	/* Memory that a device reads from has to be registered with it. */
	c->batch = calloc(batch, RECORD_MAX);
	if (c->batch == NULL)
		return failed("calloc", RPMA_E_NOMEM);
	ret = rpma_mr_reg(c->peer, c->batch, batch * RECORD_MAX, RPMA_MR_USAGE_WRITE_SRC, &c->batch_mr);
	if (ret)
		return failed("rpma_mr_reg", ret);

	/* The default sizes of the queues are good for the four operations that are under way at a time. */
	ret = rpma_conn_cfg_new(&c->cfg);
	if (ret)
		return failed("rpma_conn_cfg_new", ret);
	ret = rpma_conn_cfg_set_timeout(c->cfg, CONNECT_TIMEOUT_MS);
	if (ret)
		return failed("rpma_conn_cfg_set_timeout", ret);
	ret = rpma_conn_req_new(c->peer, addr, port, c->cfg, &req);
	if (ret)
		return failed("rpma_conn_req_new", ret);
	ret = rpma_conn_req_connect(&req, NULL, &c->conn);
	if (ret)
		return failed("rpma_conn_req_connect", ret);
	ret = rpma_conn_next_event(c->conn, &event);
	if (ret)
		return failed("rpma_conn_next_event", ret);
	if (event != RPMA_CONN_ESTABLISHED) {
		fprintf(stderr, "client: no connection to %s port %s: %s\n", addr, port, rpma_utils_conn_event_2str(event));
		return FAILED;
	}

	ret = rpma_conn_get_cq(c->conn, &c->cq);
	if (ret)
		return failed("rpma_conn_get_cq", ret);
	ret = rpma_cq_get_fd(c->cq, &c->cq_fd);
	if (ret)
		return failed("rpma_cq_get_fd", ret);
	ret = rpma_conn_get_event_fd(c->conn, &c->event_fd);
	if (ret)
		return failed("rpma_conn_get_event_fd", ret);
	return take_offer(c);
}

/* Makes a record at the given place: some text of some length. Returns how many bytes the record takes. */
static size_t
make_record(char *at, uint64_t seq)
{
	struct log_record record = {.seq = seq};
	char *data = at + sizeof(record);
	int used;

	record.len = 64 + (uint32_t)(seq * 2654435761u % (LOG_DATA_MAX - 64));
	memset(at, 0, log_record_size(record.len));
	used = snprintf(data, record.len, "record %" PRIu64 ": ", seq);
	memset(data + used, 'a' + (int)(seq % 26), record.len - (uint32_t)used);
	record.checksum = log_checksum(&record, data);
	memcpy(at, &record, sizeof(record));
	return log_record_size(record.len);
}

/* Posts all that it takes to append a batch of len bytes, which ends with record last. */
static enum outcome
post_batch(struct client *c, size_t len, uint64_t last)
{
	uint64_t tail = c->tail + len;
	int ret;

	/* The records of a batch lie side by side here, and will do so there: one write carries them all. */
	ret = rpma_write(c->conn, c->log, c->tail, c->batch_mr, 0, len, RPMA_F_COMPLETION_ON_ERROR, NULL);
	if (ret)
		return failed("rpma_write", ret);
	ret = rpma_flush(c->conn, c->log, c->tail, len, c->flush_type, RPMA_F_COMPLETION_ON_ERROR, NULL);
	if (ret)
		return failed("rpma_flush", ret);
	ret = rpma_atomic_write(c->conn, c->log, offsetof(struct log_head, tail), (const char *)&tail,
		RPMA_F_COMPLETION_ON_ERROR, NULL);
	if (ret)
		return failed("rpma_atomic_write", ret);
	/* When this one completes, so have all before it. */
	ret = rpma_flush(c->conn, c->log, offsetof(struct log_head, tail), sizeof(tail), c->flush_type,
		RPMA_F_COMPLETION_ALWAYS, (const void *)(uintptr_t)last);
	if (ret)
		return failed("rpma_flush", ret);
	c->tail = tail;
	c->sent = last;
	return DONE;
}

/*
 * Waits until the batch that ends with record last is acknowledged. A server that dies may be noticed in either of two ways: an
 * operation completes with an error, or the connection gets an event. Looking at both finds out sooner.
 */
static enum outcome
wait_acknowledged(struct client *c, uint64_t last)
{
	struct pollfd fds[2] = {{.fd = c->cq_fd, .events = POLLIN}, {.fd = c->event_fd, .events = POLLIN}};
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct ibv_wc wc;
	int ret;

	for (;;) {
		if (poll(fds, 2, -1) < 0) {
			if (errno == EINTR)
				continue;
			fprintf(stderr, "client: poll: %s\n", strerror(errno));
			return FAILED;
		}
		/* The completion first: what was acknowledged before the server went counts. */
		if (fds[0].revents != 0) {
			ret = rpma_cq_wait(c->cq);
			if (ret && ret != RPMA_E_NO_COMPLETION)
				return failed("rpma_cq_wait", ret);
			ret = rpma_cq_get_wc(c->cq, 1, &wc, NULL);
			if (ret == 0 && wc.status == IBV_WC_SUCCESS && wc.wr_id == last)
				return DONE;
			if (ret == 0) {
				/* Programs that link with libibverbs get a text for the status from ibv_wc_status_str(). */
				if (wc.status == IBV_WC_RETRY_EXC_ERR)
					fprintf(stderr, "client: the server no longer answers\n");
				else
					fprintf(stderr, "client: an operation failed with status %d\n", (int)wc.status);
				return SERVER_GONE;
			}
			if (ret != RPMA_E_NO_COMPLETION)
				return failed("rpma_cq_get_wc", ret);
		} else if (fds[1].revents != 0) {
			ret = rpma_conn_next_event(c->conn, &event);
			if (ret == RPMA_E_NO_EVENT)
				continue;
			if (ret)
				return failed("rpma_conn_next_event", ret);
			fprintf(stderr, "client: the server has gone (%s)\n", rpma_utils_conn_event_2str(event));
			return SERVER_GONE;
		}
	}
}

/* Appends records in batches, and keeps the figures. */
static enum outcome
append(struct client *c, uint64_t records, size_t batch, uint64_t every)
{
	uint64_t start = now();
	enum outcome outcome = DONE;

	while (outcome == DONE && c->acked < c->first + records) {
		uint64_t last = c->acked, bytes = 0, posted, took;
		size_t len = 0;

		while (last < c->first + records && last - c->acked < batch) {
			const struct log_record *record = (const struct log_record *)(c->batch + len);

			len += make_record(c->batch + len, ++last);
			bytes += record->len;
		}
		if (len > c->log_size - c->tail) {
			fprintf(stderr, "client: the log is full\n");
			outcome = FAILED;
			break;
		}

		posted = now();
		outcome = post_batch(c, len, last);
		if (outcome == DONE)
			outcome = wait_acknowledged(c, last);
		if (outcome != DONE)
			break;
		took = now() - posted;

		c->bytes += bytes;
		while (c->acked < last) {
			c->latencies[c->acked - c->first] = took;
			if (++c->acked % every == 0)
				printf("acknowledged %" PRIu64 "\n", c->acked);
		}
	}
	c->elapsed = now() - start;
	return outcome;
}

static int
compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The latency that so many hundredths of the records do not exceed, in microseconds. */
static uint64_t
percentile(const struct client *c, uint64_t hundredths)
{
	uint64_t count = c->acked - c->first;

	return count > 0 ? c->latencies[(count * hundredths + 99) / 100 - 1] / 1000 : 0;
}

static void
print_result(struct client *c)
{
	uint64_t count = c->acked - c->first;
	double seconds = (double)c->elapsed / 1e9;

	qsort(c->latencies, count, sizeof(*c->latencies), compare);
	printf("result records %" PRIu64 " bytes %" PRIu64 " seconds %.3f per_second %.0f median_us %" PRIu64 " p99_us %" PRIu64
		" acknowledged %" PRIu64 " sent %" PRIu64 "\n", count, c->bytes, seconds,
		seconds > 0 ? (double)count / seconds : 0.0, percentile(c, 50), percentile(c, 99), c->acked, c->sent);
}

/* Says farewell and waits until the server has understood. */
static enum outcome
client_disconnect(struct client *c)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	int ret;

	ret = rpma_conn_disconnect(c->conn);
	if (ret)
		return failed("rpma_conn_disconnect", ret);
	ret = rpma_conn_next_event(c->conn, &event);
	if (ret)
		return failed("rpma_conn_next_event", ret);
	if (event != RPMA_CONN_CLOSED) {
		fprintf(stderr, "client: not closed but %s\n", rpma_utils_conn_event_2str(event));
		return FAILED;
	}
	return DONE;
}

/* Releases everything; what was never made is NULL, which is fine with all of these. The connection goes before its memory. */
static enum outcome
client_close(struct client *c)
{
	enum outcome outcome = DONE;
	int ret;

	if ((ret = rpma_conn_delete(&c->conn)))
		outcome = failed("rpma_conn_delete", ret);
	if ((ret = rpma_conn_cfg_delete(&c->cfg)))
		outcome = failed("rpma_conn_cfg_delete", ret);
	if ((ret = rpma_mr_remote_delete(&c->log)))
		outcome = failed("rpma_mr_remote_delete", ret);
	if ((ret = rpma_mr_dereg(&c->batch_mr)))
		outcome = failed("rpma_mr_dereg", ret);
	if ((ret = rpma_peer_delete(&c->peer)))
		outcome = failed("rpma_peer_delete", ret);
	free(c->batch);
	free(c->latencies);
	return outcome;
}

int
main(int argc, char *argv[])
{
	uint64_t records = 1000, batch = 1, every = 100;
	struct client c = {0};
	enum outcome outcome;
	int opt;
	bool usage = false;

	while ((opt = getopt(argc, argv, "n:b:p:")) != -1) {
		switch (opt) {
		case 'n':
			records = strtoull(optarg, NULL, 10);
			break;
		case 'b':
			batch = strtoull(optarg, NULL, 10);
			break;
		case 'p':
			every = strtoull(optarg, NULL, 10);
			break;
		default:
			usage = true;
		}
	}
	if (usage || records == 0 || every == 0 || batch == 0 || batch > BATCH_MAX || argc - optind != 2) {
		fprintf(stderr, "usage: %s [-n RECORDS] [-b BATCH (at most %d)] [-p EVERY] ADDR PORT\n", argv[0], BATCH_MAX);
		return 2;
	}
	/* Whoever reads this through a pipe wants each line when it is written. */
	setvbuf(stdout, NULL, _IOLBF, 0);

	c.latencies = calloc(records, sizeof(*c.latencies));
	if (c.latencies == NULL) {
		failed("calloc", RPMA_E_NOMEM);
		return 1;
	}
	outcome = client_connect(&c, argv[optind], argv[optind + 1], batch);
	if (outcome == DONE) {
		outcome = append(&c, records, batch, every);
		print_result(&c);
		if (outcome == DONE)
			outcome = client_disconnect(&c);
		else
			rpma_conn_disconnect(c.conn); /* there may be nobody left to be told */
	}
	if (client_close(&c) != DONE && outcome == DONE)
		outcome = FAILED;
	return outcome == DONE ? 0 : outcome == SERVER_GONE ? 3 : 1;
}
