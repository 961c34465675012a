/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * soak.c - a server and clients at load for a long time: do memory, descriptors and latencies stay what they are?
 *
 * usage: soak [--addr ADDR] [--seconds N] [--clients N] [--pause MS] [--report FILE]
 *
 * Each client is a process that connects, works, and leaves in one of several ways, for ever: in good order, without a word, by an
 * operation that the server's side refuses, by a message that does not fit, killed in the middle, after a while or at once. A
 * further one is connected all the time and measures how long an 8-byte write takes to be acknowledged. With a pause between their
 * lives, clients leave room for other work on the machine.
 *
 * The server's resident memory and descriptors, and the latencies of each of 60 parts of the time, go to the report, one line
 * each: seconds, KiB, descriptors, connections so far, median us, 99 % us, 99.9 % us. The test fails if the server's memory in the
 * last third is above that of the first third by more than a twentieth and 1 MiB, if there are more descriptors than before by what
 * the connections of a moment explain, or if anything went wrong that was not meant to. The first part is not counted: there,
 * memory that is kept comes into being.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/fabric.h"

#define PARTS 60
#define AREA (32 * PAGE)
#define CONNS_MAX 256
#define CLIENTS 64
#define SAMPLES 65536

/* Who is to stop: the server comes last, since the others still talk to it. */
#define CLIENTS_ONLY 1
#define EVERYBODY 2

struct shared {
	_Atomic int ready;
	_Atomic int stop;
	_Atomic int part;
	char port[8];
	_Atomic unsigned long connections;
	/* By part. */
	unsigned long rss[PARTS], descriptors[PARTS], connected[PARTS];
	double median[PARTS], high[PARTS], highest[PARTS];
};

static const char *addr = "127.0.0.1";
static unsigned pause_ms;
static struct shared *shared;

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---- the server ---- */

static unsigned long
resident(void)
{
	unsigned long size, pages;
	FILE *file = fopen("/proc/self/statm", "r");

	CHECK(file != NULL);
	CHECK_INT(fscanf(file, "%lu %lu", &size, &pages), 2);
	fclose(file);
	return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

static unsigned long
descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned long n = 0;

	CHECK(dir != NULL);
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

struct served {
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	int fd;
};

static void
drop(struct served *s)
{
	(void)rpma_conn_disconnect(s->conn);
	OK(rpma_conn_delete(&s->conn));
}

/* Serves all connections in one thread; each message is answered. */
static void
serve(void)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_ep *ep = listen_on(peer, addr, shared->port);
	unsigned char *mem = memory(AREA, 0);
	struct rpma_mr_local *mr = registered(peer, mem, AREA, USAGE_ALL);
	static struct served conns[CONNS_MAX];
	static struct pollfd fds[1 + 2 * CONNS_MAX];
	struct rpma_conn_private_data pdata;
	struct rpma_conn_cfg *cfg = sizes(32, 0, 16, 8);
	unsigned char desc[32];
	unsigned long looks = 0;
	int n = 0, ep_fd;
	size_t size;

	OK(rpma_mr_get_descriptor_size(mr, &size));
	OK(rpma_mr_get_descriptor(mr, desc));
	pdata.ptr = desc;
	pdata.len = (uint8_t)size;
	OK(rpma_ep_get_fd(ep, &ep_fd));
	set_nonblocking(ep_fd);
	atomic_store(&shared->ready, 1);
	while (atomic_load(&shared->stop) < EVERYBODY) {
		int at = atomic_load(&shared->part), used = n;

		fds[0] = (struct pollfd){.fd = ep_fd, .events = POLLIN};
		for (int i = 0; i < n; i++) {
			fds[1 + 2 * i] = (struct pollfd){.fd = conns[i].fd, .events = POLLIN};
			CHECK_INT(rpma_cq_get_fd(conns[i].cq, &fds[2 + 2 * i].fd), 0);
			fds[2 + 2 * i].events = POLLIN;
		}
		CHECK(poll(fds, (nfds_t)(1 + 2 * n), 100) >= 0);
		for (int i = used - 1; i >= 0; i--) {
			struct served *s = &conns[i];
			bool over = false;
			struct ibv_wc wc;

			if (fds[2 + 2 * i].revents != 0)
				OK(rpma_cq_wait(s->cq));
			while (!over && rpma_cq_get_wc(s->cq, 1, &wc, NULL) == 0) {
				if (wc.status != IBV_WC_SUCCESS) {
					over = true;
				} else if (wc.opcode == IBV_WC_RECV) {
					over = rpma_recv(s->conn, mr, 0, 64, ID(1)) != 0 ||
						rpma_send(s->conn, mr, 64, 64, RPMA_F_COMPLETION_ALWAYS, ID(2)) != 0;
				}
			}
			if (!over && fds[1 + 2 * i].revents != 0) {
				enum rpma_conn_event event;

				OK(rpma_conn_next_event(s->conn, &event));
				over = event != RPMA_CONN_ESTABLISHED;
			}
			if (over) {
				drop(s);
				*s = conns[--n];
			}
		}
		if (fds[0].revents != 0 && n < CONNS_MAX) {
			struct rpma_conn_req *req = NULL;
			struct served *s = &conns[n];

			if (rpma_ep_next_conn_req(ep, cfg, &req) == 0) {
				for (int i = 0; i < 4; i++)
					OK(rpma_conn_req_recv(req, mr, 0, 64, ID(1)));
				s->conn = NULL;
				/* Whoever asked may be gone. */
				if (rpma_conn_req_connect(&req, &pdata, &s->conn) == 0) {
					OK(rpma_conn_get_event_fd(s->conn, &s->fd));
					OK(rpma_conn_get_cq(s->conn, &s->cq));
					atomic_fetch_add(&shared->connections, 1);
					n++;
				}
			}
		}
		/* What the connections of the moment take is no leak: the least of a part counts. */
		if (looks++ % 64 == 0) {
			unsigned long kib = resident(), count = descriptors();

			if (shared->rss[at] == 0 || kib < shared->rss[at])
				shared->rss[at] = kib;
			if (shared->descriptors[at] == 0 || count < shared->descriptors[at])
				shared->descriptors[at] = count;
			shared->connected[at] = atomic_load(&shared->connections);
		}
	}
	for (int i = 0; i < n; i++)
		drop(&conns[i]);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_peer_delete(&peer));
}

/* ---- clients ---- */

static bool
done_well(struct rpma_cq *cq)
{
	struct ibv_wc wc;
	int ret;

	while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
		if (rpma_cq_wait(cq) != 0)
			return false;
	return ret == 0 && wc.status == IBV_WC_SUCCESS;
}

static struct rpma_conn *
come(struct rpma_peer *peer, struct rpma_mr_remote **remote)
{
	struct rpma_conn_private_data pdata;
	struct rpma_conn_cfg *cfg = sizes(32, 0, 16, 8);
	struct rpma_conn *conn = connect_to(peer, addr, shared->port, cfg, NULL, 0);

	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_conn_get_private_data(conn, &pdata));
	OK(rpma_mr_remote_from_descriptor(pdata.ptr, pdata.len, remote));
	return conn;
}

/* One life: work, and an end of some kind. */
static void
live(unsigned number, unsigned life)
{
	struct rpma_peer *peer = peer_on(addr);
	unsigned char *mem = memory(AREA, (unsigned char)number);
	struct rpma_mr_local *mr = registered(peer, mem, AREA, USAGE_ALL);
	struct rpma_mr_remote *remote = NULL;
	struct rpma_conn *conn = come(peer, &remote);
	struct rpma_cq *cq = cq_of(conn);
	unsigned kind = (life + number) % 6, rounds = kind == 5 ? 0 : 1 + (life * 7 + number) % 60;

	for (unsigned i = 0; i < rounds; i++) {
		size_t len = (size_t)1 << (i * 5 + life) % 17;

		if (len > AREA)
			len = AREA;
		OK(rpma_write(conn, remote, 0, mr, 0, len, RPMA_F_COMPLETION_ON_ERROR, ID(1)));
		OK(rpma_read(conn, mr, 0, remote, 0, len, RPMA_F_COMPLETION_ON_ERROR, ID(2)));
		OK(rpma_flush(conn, remote, 0, len, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, ID(3)));
		CHECK(done_well(cq));
		OK(rpma_recv(conn, mr, 0, 64, ID(4)));
		OK(rpma_send(conn, mr, 0, 64, RPMA_F_COMPLETION_ON_ERROR, ID(5)));
		CHECK(done_well(cq));
	}
	switch (kind) {
	case 0: /* in good order */
		part(&conn);
		OK(rpma_mr_remote_delete(&remote));
		OK(rpma_mr_dereg(&mr));
		OK(rpma_peer_delete(&peer));
		return;
	case 1: /* beyond the end of the server's region */
		OK(rpma_write(conn, remote, AREA - 1, mr, 0, 64, RPMA_F_COMPLETION_ALWAYS, ID(6)));
		CHECK(!done_well(cq));
		break;
	case 2: /* a message that is too long */
		OK(rpma_send(conn, mr, 0, PAGE, RPMA_F_COMPLETION_ALWAYS, ID(7)));
		CHECK(!done_well(cq));
		break;
	case 3: /* killed in the middle */
		OK(rpma_write(conn, remote, 0, mr, 0, AREA, RPMA_F_COMPLETION_ON_ERROR, ID(8)));
		OK(rpma_send(conn, mr, 0, 64, RPMA_F_COMPLETION_ON_ERROR, ID(9)));
		raise(SIGKILL);
		break;
	default: /* without a word */
		break;
	}
	_exit(0);
}

/* Starts lives, one after the other. */
static void
lead_lives(unsigned number)
{
	for (unsigned life = 0; !atomic_load(&shared->stop); life++) {
		int status;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			CHECK_INT(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
			live(number, life);
			exit(0);
		}
		CHECK_INT(waitpid(pid, &status, 0), pid);
		if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
			check_fail("a client ended with status %#x", status);
		if (pause_ms != 0)
			usleep(pause_ms * 1000);
	}
}

static int
in_order(const void *a, const void *b)
{
	double difference = *(const double *)a - *(const double *)b;

	return difference < 0 ? -1 : difference > 0;
}

/* How long a small write takes, the whole time. */
static void
measure(void)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_mr_local *mr = registered(peer, memory(PAGE, 7), PAGE, USAGE_ALL);
	struct rpma_mr_remote *remote = NULL;
	struct rpma_conn *conn = come(peer, &remote);
	struct rpma_cq *cq = cq_of(conn);
	static double samples[SAMPLES];
	int counted = 0;
	size_t n = 0;

	while (!atomic_load(&shared->stop)) {
		int at = atomic_load(&shared->part);
		double start;

		if (at != counted && n > 0) {
			qsort(samples, n, sizeof(samples[0]), in_order);
			shared->median[counted] = samples[n / 2];
			shared->high[counted] = samples[n * 99 / 100];
			shared->highest[counted] = samples[n * 999 / 1000];
			counted = at;
			n = 0;
		}
		start = now();
		OK(rpma_write(conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(1)));
		CHECK(done_well(cq));
		if (n < SAMPLES)
			samples[n++] = (now() - start) * 1e6;
		/* One of many users, not one that takes a processor of its own. */
		usleep(1000);
	}
	part(&conn);
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&peer));
}

static pid_t
start(void (*body)(void), const char *role)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK_INT(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
		snprintf(check_role, sizeof(check_role), "%s", role);
		body();
		exit(0);
	}
	return pid;
}

static unsigned number_of_client;

static void
client(void)
{
	lead_lives(number_of_client);
}

/* What the middle one of these parts has. */
static double
middle(const double *values, int from, int to)
{
	double sorted[PARTS];

	memcpy(sorted, values + from, (size_t)(to - from) * sizeof(*values));
	qsort(sorted, (size_t)(to - from), sizeof(*values), in_order);
	return sorted[(to - from) / 2];
}

static unsigned long
largest(const unsigned long *values, int from, int to)
{
	unsigned long found = 0;

	for (int i = from; i < to; i++)
		if (values[i] > found)
			found = values[i];
	return found;
}

int
main(int argc, char **argv)
{
	unsigned clients = 3, failures = 0;
	const char *report = NULL;
	double seconds = 30, begin;
	pid_t pids[CLIENTS + 2];
	unsigned long early, late;
	int n = 0, status;
	FILE *out;

	strcpy(check_role, "soak");
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--addr") == 0)
			addr = argv[i + 1];
		else if (strcmp(argv[i], "--seconds") == 0)
			seconds = atof(argv[i + 1]);
		else if (strcmp(argv[i], "--clients") == 0)
			clients = (unsigned)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--pause") == 0)
			pause_ms = (unsigned)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--report") == 0)
			report = argv[i + 1];
		else
			check_fail("unknown option %s", argv[i]);
	}
	CHECK(clients >= 1 && clients <= CLIENTS && seconds >= 1);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	pids[n++] = start(serve, "server");
	while (!atomic_load(&shared->ready))
		CHECK_INT(waitpid(pids[0], &status, WNOHANG), 0);
	pids[n++] = start(measure, "measuring client");
	for (number_of_client = 0; number_of_client < clients; number_of_client++)
		pids[n++] = start(client, "client");
	begin = now();
	while (now() - begin < seconds) {
		int at = (int)((now() - begin) / seconds * PARTS);

		atomic_store(&shared->part, at < PARTS ? at : PARTS - 1);
		for (int i = 0; i < n; i++)
			if (waitpid(pids[i], &status, WNOHANG) != 0)
				check_fail("process %d of the test has ended with status %#x", i, status);
		usleep(10000);
	}
	atomic_store(&shared->stop, CLIENTS_ONLY);
	for (int i = n - 1; i >= 0; i--) {
		if (i == 0)
			atomic_store(&shared->stop, EVERYBODY);
		CHECK_INT(waitpid(pids[i], &status, 0), pids[i]);
		failures += status != 0;
	}
	out = report != NULL ? fopen(report, "w") : NULL;
	CHECK(report == NULL || out != NULL);
	for (int i = 0; out != NULL && i < PARTS; i++)
		if (shared->rss[i] != 0)
			fprintf(out, "%.1f %lu %lu %lu %.1f %.1f %.1f\n", seconds * i / PARTS, shared->rss[i], shared->descriptors[i],
				shared->connected[i], shared->median[i], shared->high[i], shared->highest[i]);
	if (out != NULL)
		fclose(out);
	early = largest(shared->rss, 1, PARTS / 3);
	late = largest(shared->rss, PARTS - PARTS / 3, PARTS);
	printf("INFO: %lu connections in %.0f s; resident memory %lu KiB at first, %lu KiB in the end; descriptors %lu, then %lu; "
		"8-byte write: median %.0f us, then %.0f us, 99 %% %.0f us, then %.0f us\n", atomic_load(&shared->connections), seconds,
		early, late, largest(shared->descriptors, 1, PARTS / 3), largest(shared->descriptors, PARTS - PARTS / 3, PARTS),
		middle(shared->median, 1, PARTS / 3), middle(shared->median, PARTS - PARTS / 3, PARTS - 1),
		middle(shared->high, 1, PARTS / 3), middle(shared->high, PARTS - PARTS / 3, PARTS - 1));
	CHECK_INT(failures, 0);
	CHECK(early > 0 && late > 0);
	CHECK(late <= early + early / 20 + 1024);
	CHECK(largest(shared->descriptors, PARTS - PARTS / 3, PARTS) <= largest(shared->descriptors, 1, PARTS / 3) + 10 * (clients + 1));
	return 0;
}
