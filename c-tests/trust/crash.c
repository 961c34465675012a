/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * crash.c - does a commit that was acknowledged survive? A writer stores records in a server's file and commits each with an
 * atomic write; server, writer or the connection between them is ended at random points, again and again; then the file is read.
 *
 * usage: crash [--addr ADDR] [--file FILE] [--victim server|client|link] [--flush native|message] [--kills N] [--seconds N]
 *              [--seed N] [--leave-out flush|order|touch] [--log FILE]
 *
 * The file begins with a page of commit words, one for each slot; the slots follow. Record n goes to slot n modulo their number:
 *
 *	word = 0, flush | data, flush | word = n, flush
 *
 * all of it posted at once and waited for at the last step: what makes this right is the order in which the fabric executes and
 * flushes. With --flush message, the server flushes on a message and answers, and the writer waits for each answer.
 *
 * To be killed loses nothing that was written to a mapped file, flushed or not. So the server has a second file, which stands for
 * the disk after a loss of power: what msync is called for is copied to it, and nothing else. Both files are read after each kill,
 * and the next round starts from the second one. Where the file is on persistent memory that is flushed by cache lines, there is
 * no msync and no second file.
 *
 * In both files: each record that was acknowledged is there, whole and committed, and no committed record is in part there.
 * --leave-out does what must lose data: no flush before the commit word, or the commit word before the data; or, where a device
 * has written into a file of the page cache, msync of pages that the processor has not written to. Then the status is 0 if losses
 * are found.
 *
 * With --log, the whole machine is what ends at a random point, and somebody outside sees to that (c-tests/rxe/reset). What was
 * begun with and what was acknowledged goes to standard output, a line for each, before anything else is done about it. The log
 * has these lines of earlier lives, each ended by the line "reset": the file is judged by them, and then goes on to be written
 * until the machine is ended. There is no second file: what was only in memory is gone.
 *
 * It is its own server and writer: started by itself with the name of the part.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/fabric.h"

#define SLOTS 64
#define SLOT_SIZE (4 * PAGE)
#define FILE_SIZE ((size_t)PAGE + SLOTS * SLOT_SIZE)
/* Records that the writer has under way at most. */
#define DEPTH 4
#define PATH_LEN 512

/* What the processes of a round share. */
struct round {
	_Atomic uint64_t ready;		/* the server listens */
	char port[8];
	_Atomic uint64_t started;	/* the last record that the writer has begun with */
	_Atomic uint64_t acked;		/* the last one that it knows to be committed */
	uint64_t durable_copy;		/* whether there is a second file */
};

struct record {
	uint64_t seq;
	uint32_t len;
	uint32_t checksum;
};

struct flush_message {
	uint64_t offset, len;
};

/* Turns of an empty loop. */
#define WRONG_FOR 200000

static const char *addr = "127.0.0.1", *file, *victim = "server", *flush_by = "native", *leave_out = "", *tells = "";
static struct round *shared;
/* By slot: a record that was begun with and never acknowledged, so that it may be missing. */
static uint64_t excused[SLOTS];
static char shared_path[PATH_LEN], durable_path[PATH_LEN];

/* ---- the server's file, and what is left of it without power ---- */

static unsigned char *base;
static int durable = -1;

/* In the place of the C library's, for the server: the library under test calls this one. */
int
msync(void *at, size_t len, int flags)
{
	if (durable >= 0 && (unsigned char *)at >= base && (unsigned char *)at < base + FILE_SIZE) {
		size_t from = (size_t)((unsigned char *)at - base) / PAGE * PAGE;
		size_t to = ((size_t)((unsigned char *)at - base) + len + PAGE - 1) / PAGE * PAGE;

		if (pwrite(durable, base + from, to - from, (off_t)from) != (ssize_t)(to - from))
			return -1;
	}
	return (int)syscall(SYS_msync, at, len, flags);
}

static unsigned char *
map_file(const char *path, bool *syncs)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *mem;

	CHECK(fd >= 0);
	mem = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	*syncs = mem == MAP_FAILED;
	if (*syncs)
		mem = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(mem != MAP_FAILED);
	CHECK_INT(close(fd), 0);
	return mem;
}

static uint32_t
checksum(const struct record *record, const unsigned char *data)
{
	uint64_t sum = record->seq * 0x9e3779b97f4a7c15u + record->len;

	for (size_t i = 0; i < record->len; i++)
		sum = (sum ^ data[i]) * 0x100000001b3u;
	return (uint32_t)(sum ^ sum >> 32);
}

/*
 * Lets the kernel know that pages have changed: of what a device has written it does not learn, and msync would pass it by. No byte
 * changes, and nothing that is written meanwhile is lost.
 */
static void
touch(unsigned char *at, size_t len)
{
	for (size_t i = 0; i < len; i += PAGE)
		atomic_fetch_or((_Atomic uint64_t *)(at + i), 0);
}

/* ---- the server ---- */

static bool
wait_for(int fd, int other)
{
	struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = other, .events = POLLIN}};

	CHECK(poll(fds, 2, -1) > 0);
	return fds[1].revents != 0;
}

static int
serve(void)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_peer_cfg *pcfg = NULL;
	struct rpma_conn_private_data pdata;
	struct rpma_conn_cfg *cfg = sizes(64, 0, 2 * DEPTH, 2 * DEPTH);
	struct flush_message *requests = memory(DEPTH * sizeof(*requests), 0);
	struct rpma_mr_local *mr, *message_mr;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_ep *ep;
	enum rpma_conn_event event;
	unsigned char offer[64] = {0};
	struct rpma_cq *cq;
	struct ibv_wc wc;
	size_t size;
	bool syncs;
	int event_fd, cq_fd;

	base = map_file(file, &syncs);
	if (*tells != '\0')
		printf("%s\n", syncs ? "msync" : "direct");
	if (syncs && *tells == '\0') {
		durable = open(durable_path, O_RDWR | O_CLOEXEC);
		CHECK(durable >= 0);
	}
	shared->durable_copy = syncs;
	mr = registered(peer, base, FILE_SIZE, RPMA_MR_USAGE_WRITE_DST |
		(strcmp(flush_by, "native") == 0 ? RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT : 0));
	message_mr = registered(peer, requests, DEPTH * sizeof(*requests), RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND);
	OK(rpma_peer_cfg_new(&pcfg));
	OK(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true));
	OK(rpma_mr_get_descriptor_size(mr, &size));
	OK(rpma_mr_get_descriptor(mr, offer));
	OK(rpma_peer_cfg_get_descriptor(pcfg, offer + size));
	pdata.ptr = offer;
	pdata.len = (uint8_t)(size + 1);
	ep = listen_on(peer, addr, shared->port);
	atomic_store(&shared->ready, 1);
	OK(rpma_ep_next_conn_req(ep, cfg, &req));
	for (unsigned i = 0; i < DEPTH; i++)
		OK(rpma_conn_req_recv(req, message_mr, i * sizeof(*requests), sizeof(*requests), ID(i)));
	OK(rpma_conn_req_connect(&req, &pdata, &conn));
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	cq = cq_of(conn);
	OK(rpma_conn_get_event_fd(conn, &event_fd));
	OK(rpma_cq_get_fd(cq, &cq_fd));
	while (!wait_for(cq_fd, event_fd)) {
		OK(rpma_cq_wait(cq));
		while (rpma_cq_get_wc(cq, 1, &wc, NULL) == 0) {
			struct flush_message *request = &requests[wc.wr_id % DEPTH];

			if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV)
				continue;
			/* What it asks for was written by the operations before the message. */
			CHECK(request->offset % PAGE == 0 && request->offset + request->len <= FILE_SIZE);
			if (strcmp(leave_out, "touch") != 0)
				touch(base + request->offset, request->len);
			CHECK_INT(msync(base + request->offset, request->len, MS_SYNC), 0);
			if (rpma_recv(conn, message_mr, wc.wr_id * sizeof(*requests), sizeof(*requests), ID(wc.wr_id)) != 0 ||
					rpma_send(conn, message_mr, 0, 0, RPMA_F_COMPLETION_ALWAYS, ID(100)) != 0)
				break;
		}
	}
	OK(rpma_conn_next_event(conn, &event));
	CHECK(event == RPMA_CONN_CLOSED || event == RPMA_CONN_LOST);
	(void)rpma_conn_disconnect(conn);
	OK(rpma_conn_delete(&conn));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_mr_dereg(&message_mr));
	OK(rpma_peer_delete(&peer));
	return 0;
}

/* ---- the writer ---- */

struct writer {
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr, *message_mr;
	struct flush_message *message;
	int cq_fd, event_fd;
	uint64_t asked, answered;
};

/* Tells who looks from outside. A pipe to there has the line when this returns. */
static void
tell(const char *what, uint64_t seq)
{
	char line[40];
	int len = snprintf(line, sizeof(line), "%s %" PRIu64 "\n", what, seq);

	if (*tells != '\0')
		CHECK_INT(write(STDOUT_FILENO, line, (size_t)len), len);
}

static void
acknowledged(uint64_t seq)
{
	atomic_store(&shared->acked, seq);
	tell("acked", seq);
}

/* Takes completions until the record is acknowledged, or answer number seq is here. False at the connection's end. */
static bool
await(struct writer *w, const uint64_t *counter, uint64_t seq)
{
	struct ibv_wc wc;
	int ret;

	while (*counter < seq) {
		while ((ret = rpma_cq_get_wc(w->cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
			/* That the other side is gone may show in an event only: what was sent has arrived, and no answer will come. */
			if (wait_for(w->cq_fd, w->event_fd) || rpma_cq_wait(w->cq) != 0)
				return false;
		if (ret != 0 || wc.status != IBV_WC_SUCCESS)
			return false;
		if (wc.opcode == IBV_WC_RECV)
			w->answered++;
		else if (wc.wr_id != 0)
			acknowledged(wc.wr_id);
	}
	return true;
}

/* Flushes a part of the file; the completion, if one is wanted, says that record seq is committed. */
static bool
flush(struct writer *w, size_t offset, size_t len, uint64_t seq)
{
	if (strcmp(flush_by, "native") == 0)
		return rpma_flush(w->conn, w->remote, offset, len, RPMA_FLUSH_TYPE_PERSISTENT,
			seq != 0 ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, ID(seq)) == 0;
	*w->message = (struct flush_message){.offset = offset, .len = len};
	if (rpma_recv(w->conn, w->message_mr, PAGE / 2, 8, ID(0)) != 0 ||
			rpma_send(w->conn, w->message_mr, 0, sizeof(*w->message), RPMA_F_COMPLETION_ALWAYS, ID(0)) != 0)
		return false;
	w->asked++;
	if (!await(w, &w->answered, w->asked))
		return false;
	if (seq != 0)
		acknowledged(seq);
	return true;
}

static bool
set_word(struct writer *w, size_t slot, uint64_t value)
{
	char bytes[8];

	memcpy(bytes, &value, sizeof(bytes));
	return rpma_atomic_write(w->conn, w->remote, slot * 8, bytes, RPMA_F_COMPLETION_ON_ERROR, ID(0)) == 0;
}

static int
write_records(void)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_peer_cfg *pcfg = NULL;
	struct rpma_conn_private_data pdata;
	struct rpma_conn_cfg *cfg = sizes(64, 0, 8 * DEPTH, 2 * DEPTH);
	unsigned char *buffers = memory(DEPTH * SLOT_SIZE, 0);
	struct writer w = {.message = memory(PAGE, 0)};
	uint64_t seq = atomic_load(&shared->acked);
	bool native = strcmp(flush_by, "native") == 0;
	int depth = native ? DEPTH : 1;

	w.mr = registered(peer, buffers, DEPTH * SLOT_SIZE, RPMA_MR_USAGE_WRITE_SRC);
	w.message_mr = registered(peer, w.message, PAGE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV);
	w.conn = connect_to(peer, addr, shared->port, cfg, NULL, 0);
	w.cq = cq_of(w.conn);
	OK(rpma_cq_get_fd(w.cq, &w.cq_fd));
	OK(rpma_conn_get_event_fd(w.conn, &w.event_fd));
	OK(rpma_conn_get_private_data(w.conn, &pdata));
	OK(rpma_mr_remote_from_descriptor(pdata.ptr, (size_t)pdata.len - 1, &w.remote));
	OK(rpma_peer_cfg_from_descriptor((char *)pdata.ptr + pdata.len - 1, 1, &pcfg));
	OK(rpma_conn_apply_remote_peer_cfg(w.conn, pcfg));
	for (;;) {
		size_t slot, offset, len;
		struct record *record;
		unsigned char *data;

		seq++;
		/* The memory of a record that is under way stays as it is. */
		if (seq > (uint64_t)depth && !await(&w, (uint64_t *)&shared->acked, seq - (uint64_t)depth))
			break;
		slot = seq % SLOTS;
		offset = PAGE + slot * SLOT_SIZE;
		record = (struct record *)(buffers + seq % DEPTH * SLOT_SIZE);
		data = (unsigned char *)(record + 1);
		record->seq = seq;
		record->len = (uint32_t)(seq * 2654435761u % (SLOT_SIZE - sizeof(*record)));
		for (size_t i = 0; i < record->len; i++)
			data[i] = (unsigned char)(seq * 31 + i * 7);
		record->checksum = checksum(record, data);
		len = sizeof(*record) + record->len;
		atomic_store(&shared->started, seq);
		tell("started", seq);
		if (!set_word(&w, slot, 0) || !flush(&w, 0, PAGE, 0))
			break;
		if (strcmp(leave_out, "order") == 0) {
			if (!set_word(&w, slot, seq) || !flush(&w, 0, PAGE, 0))
				break;
			/* As long as this takes, what is committed is not there: a kill has to hit it, whatever the fabric takes. */
			for (volatile int i = 0; i < WRONG_FOR; i++)
				;
		}
		if (rpma_write(w.conn, w.remote, offset, w.mr, seq % DEPTH * SLOT_SIZE, len, RPMA_F_COMPLETION_ON_ERROR, ID(0)) != 0)
			break;
		if (strcmp(leave_out, "flush") != 0 && !flush(&w, offset, len, 0))
			break;
		if (!set_word(&w, slot, seq) || !flush(&w, 0, PAGE, seq))
			break;
	}
	/* The other side is gone, or the connection; there is nothing to clean up that the process's end does not. */
	_exit(3);
}

/* ---- the judge ---- */

/* Reads a file as it would be found after the crash. Says what is wrong, or NULL. */
static const char *
judge(const char *path)
{
	uint64_t started = atomic_load(&shared->started), acked = atomic_load(&shared->acked);
	static unsigned char image[FILE_SIZE];
	static char wrong[160];
	const uint64_t *words = (const uint64_t *)image;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_INT(pread(fd, image, FILE_SIZE, 0), FILE_SIZE);
	CHECK_INT(close(fd), 0);
	for (size_t slot = 0; slot < SLOTS; slot++) {
		const struct record *record = (const struct record *)(image + PAGE + slot * SLOT_SIZE);
		uint64_t n = words[slot], must;

		/* The newest acknowledged record of the slot, unless the writer had begun with its successor. */
		must = acked - (acked + SLOTS - slot) % SLOTS;
		if (acked < slot || must > acked)
			must = 0;
		if (n > started || (n != 0 && n % SLOTS != slot)) {
			snprintf(wrong, sizeof(wrong), "slot %zu has %" PRIu64 ", which was never written there", slot, n);
			return wrong;
		}
		if (must != 0 && n < must && must != excused[slot] && must + SLOTS > started) {
			snprintf(wrong, sizeof(wrong), "record %" PRIu64 " was acknowledged, but its slot has %" PRIu64, must, n);
			return wrong;
		}
		if (n == 0)
			continue;
		if (record->seq != n || record->len > SLOT_SIZE - sizeof(*record) ||
				record->checksum != checksum(record, (const unsigned char *)(record + 1))) {
			snprintf(wrong, sizeof(wrong), "record %" PRIu64 " is committed and not whole (it is %s)", n,
				n <= acked ? "acknowledged" : "not acknowledged");
			return wrong;
		}
	}
	return NULL;
}

static void
copy_file(const char *from, const char *to)
{
	static unsigned char image[FILE_SIZE];
	int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	CHECK(in >= 0 && out >= 0);
	CHECK_INT(pread(in, image, FILE_SIZE, 0), FILE_SIZE);
	CHECK_INT(pwrite(out, image, FILE_SIZE, 0), FILE_SIZE);
	CHECK_INT(close(in), 0);
	CHECK_INT(close(out), 0);
}

static pid_t
start(const char *part)
{
	const char *args[] = {"crash", "--part", part, "--addr", addr, "--file", file, "--flush", flush_by,
		"--leave-out", leave_out, "--shared", shared_path, "--durable", durable_path, "--tells", tells, NULL};
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		execv("/proc/self/exe", (char **)args);
		_exit(127);
	}
	return pid;
}

/* Ends the connections of a process, without asking it. */
static void
cut(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), found = 0;

	CHECK(pidfd >= 0);
	for (int fd = 3; fd < 256; fd++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		int own = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);

		if (own < 0)
			continue;
		if (getpeername(own, (struct sockaddr *)&peer, &len) == 0 && peer.ss_family != AF_UNIX &&
				shutdown(own, SHUT_RDWR) == 0)
			found++;
		close(own);
	}
	close(pidfd);
	CHECK(found > 0);
}

static uint64_t
draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* When to give up waiting. */
static double
limit(void)
{
	const char *patience = getenv("RPMA_TEST_PATIENCE");

	return now() + 60 * (patience != NULL ? atof(patience) : 1);
}

static pid_t
start_server(void)
{
	double end = limit();
	pid_t server;
	int status;

	atomic_store(&shared->ready, 0);
	server = start("server");
	while (atomic_load(&shared->ready) == 0) {
		CHECK_INT(waitpid(server, &status, WNOHANG), 0);
		CHECK(now() < end);
		sched_yield();
	}
	return server;
}

/* The next writer goes on behind what this one had begun with. */
static void
end_life(void)
{
	for (uint64_t n = atomic_load(&shared->acked) + 1; n <= atomic_load(&shared->started); n++)
		excused[n % SLOTS] = n;
	atomic_store(&shared->acked, atomic_load(&shared->started));
}

/* One life of a server and a writer, up to a random point. */
static const char *
one_round(uint64_t *random)
{
	uint64_t goal = atomic_load(&shared->acked) + 1 + draw(random) % 40;
	uint64_t spin = draw(random) % 2000000;
	pid_t server = start_server(), writer;
	double end = limit();
	const char *wrong;
	int status;

	writer = start("writer");
	while (atomic_load(&shared->acked) < goal) {
		CHECK_INT(waitpid(writer, &status, WNOHANG), 0);
		CHECK(now() < end);
		sched_yield();
	}
	/* Into the middle of whatever it is at. */
	for (double until = now() + (double)spin * 1e-9; now() < until;)
		;
	if (strcmp(victim, "server") == 0)
		CHECK_INT(kill(server, SIGKILL), 0);
	else if (strcmp(victim, "client") == 0)
		CHECK_INT(kill(writer, SIGKILL), 0);
	else
		cut(server);
	CHECK_INT(waitpid(server, &status, 0), server);
	if (strcmp(victim, "server") == 0)
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	else
		CHECK_INT(status, 0);
	CHECK_INT(waitpid(writer, &status, 0), writer);
	if (strcmp(victim, "client") == 0)
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	else
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
	wrong = judge(file);
	if (wrong == NULL && shared->durable_copy) {
		wrong = judge(durable_path);
		copy_file(durable_path, file);
	}
	end_life();
	return wrong;
}

static void
begin_anew(void)
{
	int fd;

	memset(excused, 0, sizeof(excused));
	atomic_store(&shared->started, 0);
	atomic_store(&shared->acked, 0);
	for (int i = 0; i < 2; i++) {
		fd = open(i == 0 ? file : durable_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		CHECK(fd >= 0);
		CHECK_INT(ftruncate(fd, 0), 0);
		CHECK_INT(ftruncate(fd, (off_t)FILE_SIZE), 0);
		CHECK_INT(fsync(fd), 0);
		CHECK_INT(close(fd), 0);
	}
}

/* What earlier lives of the machine said, as if it had been said now. The number of lives. */
static unsigned long
replay(const char *path)
{
	FILE *log = fopen(path, "re");
	unsigned long lives = 0;
	char line[64];
	bool ended = true;

	CHECK(log != NULL);
	while (fgets(line, sizeof(line), log) != NULL) {
		uint64_t seq;

		if (ended && lives > 0)
			end_life();
		ended = strcmp(line, "reset\n") == 0;
		if (ended)
			lives++;
		else if (sscanf(line, "started %" SCNu64, &seq) == 1)
			atomic_store(&shared->started, seq);
		else if (sscanf(line, "acked %" SCNu64, &seq) == 1)
			atomic_store(&shared->acked, seq);
	}
	/* The last life stays open: what it has acknowledged is still to be judged. */
	CHECK(ended);
	CHECK_INT(fclose(log), 0);
	return lives;
}

/* A life that the machine's end will end; before it, the judgement on what is left of the earlier ones. */
static int
live(const char *log)
{
	unsigned long lives = replay(log);
	pid_t server, writer, gone;
	const char *wrong = NULL;
	int status;

	if (lives == 0) {
		begin_anew();
	} else {
		wrong = judge(file);
		end_life();
	}
	if (wrong != NULL) {
		printf("lost: %s\n", wrong);
		return 1;
	}
	printf("judged %lu\n", lives);
	server = start_server();
	writer = start("writer");
	gone = wait(&status);
	check_fail("the %s has ended with status %#x", gone == writer ? "writer" : gone == server ? "server" : "child", status);
}


int
main(int argc, char **argv)
{
	const char *part = "", *wrong = NULL, *log = NULL;
	unsigned long kills = 20, done = 0, losses = 0;
	uint64_t random = 88172645463325252u, commits = 0;
	double seconds = 0, end;
	int fd;

	strcpy(check_role, "crash");
	/* A line at a time, whoever writes it. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 1; i + 1 < argc; i += 2) {
		const char *name = argv[i], *value = argv[i + 1];

		if (strcmp(name, "--addr") == 0)
			addr = value;
		else if (strcmp(name, "--file") == 0)
			file = value;
		else if (strcmp(name, "--victim") == 0)
			victim = value;
		else if (strcmp(name, "--flush") == 0)
			flush_by = value;
		else if (strcmp(name, "--kills") == 0)
			kills = strtoul(value, NULL, 10);
		else if (strcmp(name, "--seconds") == 0)
			seconds = atof(value);
		else if (strcmp(name, "--seed") == 0)
			random ^= strtoull(value, NULL, 10) * 0x9e3779b97f4a7c15u;
		else if (strcmp(name, "--leave-out") == 0)
			leave_out = value;
		else if (strcmp(name, "--log") == 0)
			log = value;
		else if (strcmp(name, "--tells") == 0)
			tells = value;
		else if (strcmp(name, "--part") == 0)
			part = value;
		else if (strcmp(name, "--shared") == 0)
			snprintf(shared_path, sizeof(shared_path), "%s", value);
		else if (strcmp(name, "--durable") == 0)
			snprintf(durable_path, sizeof(durable_path), "%s", value);
		else
			check_fail("unknown option %s", name);
	}
	CHECK(file != NULL);
	if (*part == '\0') {
		/* What the processes share is none of the disk's business if the disk is under test. */
		snprintf(shared_path, sizeof(shared_path), "%s.round", log == NULL ? file : "/dev/shm/crash");
		snprintf(durable_path, sizeof(durable_path), "%s.durable", log == NULL ? file : "/dev/shm/crash");
	}
	fd = open(shared_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(shared != MAP_FAILED);
	if (strcmp(part, "server") == 0)
		return serve();
	if (strcmp(part, "writer") == 0)
		return write_records();
	if (log != NULL) {
		tells = "all";
		return live(log);
	}

	begin_anew();
	end = now() + seconds;
	while (seconds > 0 ? now() < end : done < kills) {
		uint64_t before = atomic_load(&shared->acked);
		const char *found;

		if (done % 16 == 15) {
			begin_anew();
			before = 0;
		}
		found = one_round(&random);
		done++;
		commits += atomic_load(&shared->acked) - before;
		if (found != NULL) {
			losses++;
			wrong = found;
			if (*leave_out != '\0')
				break;
			begin_anew();
		}
	}
	printf("INFO: %lu kills, %" PRIu64 " commits, %lu losses%s%s\n", done, commits, losses, wrong != NULL ? ", the last: " : "",
		wrong != NULL ? wrong : "");
	unlink(shared_path);
	unlink(durable_path);
	unlink(file);
	if (*leave_out != '\0')
		return losses > 0 ? 0 : 1;
	return losses == 0 ? 0 : 1;
}
