/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * crowd.c - many connections, many threads, and processes that fork. Sizes follow RPMA_TEST_SCALE; memory and processor
 * time are reported, growth is judged.
 */

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/fabric.h"

/* -- what the process takes ------------------------------------------------------------------------------------------- */

static unsigned
open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(dir != NULL);
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

/* Memory in KiB that belongs to this process alone. */
static unsigned long
own_memory(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long kib = 0;
	char line[256];

	CHECK(file != NULL);
	while (fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "RssAnon: %lu", &kib) == 1)
			break;
	fclose(file);
	CHECK(kib > 0);
	return kib;
}

static double
clock_now(clockid_t clock)
{
	struct timespec ts;

	CHECK(clock_gettime(clock, &ts) == 0);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Descriptors for that many connections, or the test cannot run here. */
static void
need_descriptors(unsigned long n)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_cur >= n)
		return;
	if (limit.rlim_max < n)
		check_skip("needs %lu descriptors, and no more than %lu are allowed", n, (unsigned long)limit.rlim_max);
	limit.rlim_cur = n;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* -- 64 connections of one process, from 16 threads ------------------------------------------------------------------- */

#define THREADS 16
#define EACH 4
#define CONNECTIONS (THREADS * EACH)
#define AREA (2 * PAGE)

static struct rpma_peer *shared_peer;
static const char *server_addr, *server_port;
static struct rpma_mr_remote *areas;
static unsigned long rounds;

/* Checks that may fail in several threads at once name no line of the test: CHECK_HERE() is not for threads. */
static void
take_one(struct rpma_cq *cq, uint64_t id)
{
	struct ibv_wc wc;
	int ret;

	while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
		check_code("rpma_cq_wait", rpma_cq_wait(cq), 0);
	check_code("rpma_cq_get_wc", ret, 0);
	check_int("the status", wc.status, IBV_WC_SUCCESS);
	check_int("the context", (long long)wc.wr_id, (long long)id);
}

/* Four connections at once, each with an area of its own in the server's memory. */
static void *
four_at_once(void *arg)
{
	unsigned first = (unsigned)(uintptr_t)arg * EACH;
	struct rpma_mr_local *mr = NULL;
	struct rpma_conn *conns[EACH];
	struct rpma_cq *cqs[EACH];
	unsigned char *mem = mmap(NULL, EACH * AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check_int("memory", mem != MAP_FAILED, 1);
	check_code("rpma_mr_reg", rpma_mr_reg(shared_peer, mem, EACH * AREA, USAGE_ALL, &mr), 0);
	for (unsigned i = 0; i < EACH; i++) {
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
		struct rpma_conn_req *req = NULL;

		check_code("rpma_conn_req_new", rpma_conn_req_new(shared_peer, server_addr, server_port, NULL, &req), 0);
		check_code("rpma_conn_req_connect", rpma_conn_req_connect(&req, NULL, &conns[i]), 0);
		check_code("rpma_conn_next_event", rpma_conn_next_event(conns[i], &event), 0);
		check_int("the event", event, RPMA_CONN_ESTABLISHED);
		check_code("rpma_conn_get_cq", rpma_conn_get_cq(conns[i], &cqs[i]), 0);
	}
	for (unsigned long round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < EACH; i++) {
			size_t there = (first + i) * PAGE, here = i * AREA;

			pattern(mem + here, PAGE, (first + i) * 1000 + (unsigned)round);
			check_code("rpma_write", rpma_write(conns[i], areas, there, mr, here, PAGE, RPMA_F_COMPLETION_ON_ERROR,
				ID(1)), 0);
			check_code("rpma_read", rpma_read(conns[i], mr, here + PAGE, areas, there, PAGE,
				RPMA_F_COMPLETION_ALWAYS, ID(round)), 0);
		}
		for (unsigned i = 0; i < EACH; i++) {
			take_one(cqs[i], round);
			check_mem("what came back", mem + i * AREA + PAGE, mem + i * AREA, PAGE);
		}
	}
	for (unsigned i = 0; i < EACH; i++) {
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

		check_code("rpma_conn_disconnect", rpma_conn_disconnect(conns[i]), 0);
		check_code("rpma_conn_next_event", rpma_conn_next_event(conns[i], &event), 0);
		check_int("the event", event, RPMA_CONN_CLOSED);
		check_code("rpma_conn_delete", rpma_conn_delete(&conns[i]), 0);
	}
	check_code("rpma_mr_dereg", rpma_mr_dereg(&mr), 0);
	munmap(mem, EACH * AREA);
	return NULL;
}

static unsigned long
thread_rounds(void)
{
	return scaled(500, 3);
}

static void
threads_64_client(struct side *side)
{
	pthread_t threads[THREADS];
	char port[8];

	take(side, 0, port, sizeof(port));
	areas = take_mr(side, 0);
	shared_peer = peer_on(side->addr);
	server_addr = side->addr;
	server_port = port;
	rounds = thread_rounds();
	CHECK_HERE();
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, four_at_once, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	OK(rpma_mr_remote_delete(&areas));
	OK(rpma_peer_delete(&shared_peer));
	say(side, 0, "done");
}

static void
threads_64_server(struct side *side)
{
	struct rpma_conn *conns[CONNECTIONS] = {NULL};
	struct rpma_peer *peer = peer_on(side->addr);
	unsigned char *mem = memory(CONNECTIONS * PAGE, 0);
	struct rpma_mr_local *mr;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	mr = registered(peer, mem, CONNECTIONS * PAGE, USAGE_ALL);
	give(side, 0, port, sizeof(port));
	give_mr(side, 0, mr);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		conns[i] = accept_one(ep, NULL, NULL, 0);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		part_after(&conns[i]);
	hear(side, 0, "done");
	for (unsigned i = 0; i < CONNECTIONS; i++)
		check_pattern("a thread's last page", mem + i * PAGE, PAGE, i * 1000 + (unsigned)thread_rounds() - 1, 0);
	OK(rpma_mr_dereg(&mr));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* -- 1,000 connections to one endpoint ---------------------------------------------------------------------------------- */

#define IDLE_SECONDS 2

static unsigned long
many(void)
{
	return scaled(1000, 10);
}

/* What a side takes for its connections while nothing happens on them. */
static void
report_idle(const char *who, unsigned long before, unsigned long fds_before, unsigned long n)
{
	unsigned long after = own_memory();
	unsigned fds = open_descriptors();
	double cpu = clock_now(CLOCK_PROCESS_CPUTIME_ID), wall = clock_now(CLOCK_MONOTONIC);

	/* Not to wait for anything: this is the time over which nothing is to be done. */
	while (clock_now(CLOCK_MONOTONIC) - wall < IDLE_SECONDS)
		sleep(1);
	cpu = clock_now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	wall = clock_now(CLOCK_MONOTONIC) - wall;
	check_info("%s: %.1f KiB and %.1f descriptors for each of %lu idle connections, %.2f %% of a processor for all", who,
		(double)(after - before) / (double)n, (double)(fds - fds_before) / (double)n, n, 100 * cpu / wall);
	/* Keep-alive is the kernel's; a process that polls would be far beyond this. */
	if (cpu / wall > 0.05)
		check_fail("an idle %s used %.3f s of processor time in %.3f s", who, cpu, wall);
}

static void
idle_1000_server(struct side *side)
{
	struct rpma_conn **conns = calloc(many(), sizeof(struct rpma_conn *));
	struct rpma_peer *peer;
	unsigned char *mem = memory(PAGE, 0);
	unsigned long before, fds;
	struct rpma_mr_local *mr;
	struct rpma_ep *ep;
	char port[8];

	CHECK(conns != NULL);
	need_descriptors(64 + many() * 6);
	peer = peer_on(side->addr);
	ep = listen_on(peer, side->addr, port);
	mr = registered(peer, mem, PAGE, USAGE_ALL);
	give(side, 0, port, sizeof(port));
	give_mr(side, 0, mr);
	before = own_memory();
	fds = open_descriptors();
	for (unsigned long i = 0; i < many(); i++)
		conns[i] = accept_one(ep, NULL, NULL, 0);
	hear(side, 0, "all");
	report_idle("server", before, fds, many());
	say(side, 0, "go on");
	for (unsigned long i = 0; i < many(); i++)
		part_after(&conns[i]);
	CHECK_INT(*(uint64_t *)(void *)mem, many());
	OK(rpma_mr_dereg(&mr));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* Each works after it has been idle among the others. */
static void
idle_1000_client(struct side *side)
{
	struct rpma_conn **conns = calloc(many(), sizeof(struct rpma_conn *));
	struct rpma_conn_cfg *cfg;
	struct rpma_mr_remote *remote;
	struct rpma_peer *peer;
	unsigned long before, fds;
	char port[8];

	CHECK(conns != NULL);
	need_descriptors(64 + many() * 6);
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_timeout(cfg, 20000));
	peer = peer_on(side->addr);
	take(side, 0, port, sizeof(port));
	remote = take_mr(side, 0);
	before = own_memory();
	fds = open_descriptors();
	for (unsigned long i = 0; i < many(); i++)
		conns[i] = connect_to(peer, side->addr, port, cfg, NULL, 0);
	say(side, 0, "all");
	report_idle("client", before, fds, many());
	hear(side, 0, "go on");
	for (uint64_t i = 0; i < many(); i++) {
		uint64_t value = i + 1;

		OK(rpma_atomic_write(conns[i], remote, 0, (const char *)&value, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		expect_status(cq_of(conns[i]), conns[i], IBV_WC_SUCCESS, i);
	}
	for (unsigned long i = 0; i < many(); i++)
		part(&conns[i]);
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_peer_delete(&peer));
}

/* -- connections one after the other ------------------------------------------------------------------------------------ */

static unsigned long
cycles(void)
{
	return scaled(10000, 100);
}

struct level {
	unsigned descriptors;
	unsigned long kib;
	size_t heap;
};

static struct level
level(void)
{
	struct mallinfo2 info = mallinfo2();

	return (struct level){open_descriptors(), own_memory(), info.uordblks + info.hblkhd};
}

/*
 * The first tenth is for what is needed once. A descriptor leaked each time, or the smallest piece of heap, would stand
 * out from what comes and goes with the engine's thread and from what the allocator keeps for its threads.
 */
static void
expect_level(const char *who, struct level before, unsigned long times)
{
	struct level after = level();

	check_info("%s, over %lu connections: descriptors %u to %u, memory %lu to %lu KiB, heap %zu to %zu bytes", who, times,
		before.descriptors, after.descriptors, before.kib, after.kib, before.heap, after.heap);
	if (after.descriptors > before.descriptors + 4)
		check_fail("%u descriptors became %u", before.descriptors, after.descriptors);
	if (after.heap > before.heap + 64 * 1024 && (after.heap - before.heap) / times >= 16)
		check_fail("the heap grew from %zu to %zu bytes", before.heap, after.heap);
	if (after.kib > before.kib + 1024)
		check_fail("memory grew from %lu to %lu KiB", before.kib, after.kib);
}

static void
connect_disconnect_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct level before = {0};
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	give(side, 0, port, sizeof(port));
	for (unsigned long i = 0; i < cycles(); i++) {
		struct rpma_conn *conn;

		if (i == cycles() / 10)
			before = level();
		conn = accept_one(ep, NULL, "welcome", 8);
		part_after(&conn);
	}
	expect_level("server", before, cycles() - cycles() / 10);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
connect_disconnect_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct level before = {0};
	char port[8];
	double start;

	take(side, 0, port, sizeof(port));
	start = clock_now(CLOCK_MONOTONIC);
	for (unsigned long i = 0; i < cycles(); i++) {
		struct rpma_conn_private_data pdata;
		struct rpma_conn *conn;

		if (i == cycles() / 10)
			before = level();
		conn = connect_to(peer, side->addr, port, NULL, "hello", 6);
		OK(rpma_conn_get_private_data(conn, &pdata));
		CHECK_INT(pdata.len, 8);
		CHECK_MEM(pdata.ptr, "welcome", 8);
		part(&conn);
	}
	check_info("%.0f connections a second", (double)cycles() / (clock_now(CLOCK_MONOTONIC) - start));
	expect_level("client", before, cycles() - cycles() / 10);
	OK(rpma_peer_delete(&peer));
}

/* -- processes ---------------------------------------------------------------------------------------------------------- */

/* Waits for a child that must have ended well. */
static void
expect_child(pid_t pid)
{
	int status = -1;

	CHECK(pid > 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	if (WIFSIGNALED(status))
		check_fail("the child was ended by signal %d", WTERMSIG(status));
	CHECK_INT(WEXITSTATUS(status), 0);
}

/* Writes, reads back and compares; the connection is as good as new. */
static void
works(struct ends *e, struct rpma_mr_local *mr, struct rpma_mr_remote *remote, unsigned char *mem, unsigned seed)
{
	pattern(mem, PAGE, seed);
	memset(mem + PAGE, 0, PAGE);
	OK(rpma_write(e->conn, remote, 0, mr, 0, PAGE, RPMA_F_COMPLETION_ALWAYS, ID(seed)));
	expect_done(e->cq, e->conn, IBV_WC_RDMA_WRITE, seed, 0);
	OK(rpma_read(e->conn, mr, PAGE, remote, 0, PAGE, RPMA_F_COMPLETION_ALWAYS, ID(seed + 1)));
	expect_done(e->cq, e->conn, IBV_WC_RDMA_READ, seed + 1, PAGE);
	check_pattern("what came back", mem + PAGE, PAGE, seed, 0);
	expect_no_wc(e->cq);
}

static void
serve_until_told(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "seen");
	close_server(&e);
}

struct guest {
	struct ends e;
	struct rpma_mr_local *mr;
	struct rpma_mr_remote *remote;
	unsigned char *mem;
};

static void
arrive(struct side *side, struct guest *g)
{
	open_client(side, &g->e, NULL);
	g->mem = memory(2 * PAGE, 0);
	g->mr = registered(g->e.peer, g->mem, 2 * PAGE, USAGE_ALL);
	g->remote = take_mr(side, 0);
}

static void
depart(struct side *side, struct guest *g)
{
	say(side, 0, "done");
	hear(side, 0, "seen");
	OK(rpma_mr_remote_delete(&g->remote));
	OK(rpma_mr_dereg(&g->mr));
	close_client(&g->e);
}

static void
fork_exec_server(struct side *side)
{
	serve_until_told(side);
}

/* What is executed has none of the library's descriptors, and the parent's connection stays what it was. */
static void
fork_exec_client(struct side *side)
{
	struct guest g;
	pid_t pid;

	arrive(side, &g);
	works(&g.e, g.mr, g.remote, g.mem, 10);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		/* The one socket is the control channel. */
		execl("/bin/sh", "sh", "-c",
			"seen=$(for fd in /proc/self/fd/*; do readlink $fd; done); "
			"echo \"$seen\" | grep 'eventfd\\|eventpoll\\|memfd' && exit 1; "
			"test $(echo \"$seen\" | grep -c socket:) = 1",
			(char *)NULL);
		_exit(2);
	}
	expect_child(pid);
	works(&g.e, g.mr, g.remote, g.mem, 20);
	depart(side, &g);
}

static void
exec_again_server(struct side *side)
{
	serve_until_told(side);
}

/* A process that was forked from one that uses the fabric, and executed, uses it like any other. */
static void
exec_again_client(struct side *side)
{
	struct guest g;
	pid_t pid;

	arrive(side, &g);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		unsetenv("RPMA_TEST_ROLE");
		execl("/proc/self/exe", "crowd", "one_of_each", (char *)NULL);
		_exit(2);
	}
	expect_child(pid);
	works(&g.e, g.mr, g.remote, g.mem, 20);
	depart(side, &g);
}

/* What exec_again executes; a pair of its own. */
static void
one_of_each_server(struct side *side)
{
	serve_until_told(side);
}

static void
one_of_each_client(struct side *side)
{
	struct guest g;

	arrive(side, &g);
	works(&g.e, g.mr, g.remote, g.mem, 30);
	depart(side, &g);
}

static void
fork_alone_server(struct side *side)
{
	serve_until_told(side);
}

/* Children that do nothing with the library end in the usual ways, also with requests under way. */
static void
fork_alone_client(struct side *side)
{
	struct guest g;

	arrive(side, &g);
	for (unsigned i = 0; i < 20; i++) {
		pid_t pid;

		works(&g.e, g.mr, g.remote, g.mem, 100 + 2 * i);
		OK(rpma_write(g.e.conn, g.remote, 0, g.mr, 0, PAGE, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			/* Half of them run the exit handlers as well. */
			if (i % 2)
				exit(0);
			_exit(0);
		}
		expect_done(g.e.cq, g.e.conn, IBV_WC_RDMA_WRITE, i, 0);
		works(&g.e, g.mr, g.remote, g.mem, 1000 + 2 * i);
		expect_child(pid);
		works(&g.e, g.mr, g.remote, g.mem, 2000 + 2 * i);
	}
	depart(side, &g);
}

static void
fork_and_use_server(struct side *side)
{
	serve_until_told(side);
}

/*
 * A child that uses what it has inherited gets errors or nothing, whatever it calls, and the parent does not notice. Whether
 * a call succeeds is not said anywhere; that it returns is, and that the parent's connection goes on.
 */
static void
fork_and_use_client(struct side *side)
{
	struct guest g;

	arrive(side, &g);
	for (unsigned i = 0; i < 6; i++) {
		struct rpma_conn_req *req = NULL;
		struct rpma_mr_local *mr = NULL;
		struct ibv_wc wc;
		pid_t pid;

		works(&g.e, g.mr, g.remote, g.mem, 100 + 2 * i);
		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			alarm(20);
			OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
			switch (i) {
			case 0:
				(void)rpma_write(g.e.conn, g.remote, 0, g.mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(1));
				break;
			case 1:
				(void)rpma_cq_get_wc(g.e.cq, 1, &wc, NULL);
				break;
			case 2:
				(void)rpma_conn_disconnect(g.e.conn);
				break;
			case 3:
				(void)rpma_conn_delete(&g.e.conn);
				break;
			case 4:
				if (rpma_mr_reg(g.e.peer, g.mem, PAGE, USAGE_ALL, &mr) == 0)
					(void)rpma_mr_dereg(&mr);
				break;
			default:
				CHECK(rpma_conn_req_new(g.e.peer, side->addr, "7", NULL, &req) != 0);
				break;
			}
			_exit(0);
		}
		expect_child(pid);
		works(&g.e, g.mr, g.remote, g.mem, 200 + 2 * i);
	}
	depart(side, &g);
}

static void
fork_and_begin_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	for (unsigned i = 0; i < 4; i++)
		serve_until_told(side);
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "seen");
	close_server(&e);
}

/*
 * A child, and a child of a child, makes connections of its own, like any process, while the parent's go on. What the child
 * has inherited stays the parent's.
 */
static void
fork_and_begin_client(struct side *side)
{
	struct guest g;

	arrive(side, &g);
	for (unsigned i = 0; i < 2; i++) {
		pid_t pid;

		works(&g.e, g.mr, g.remote, g.mem, 100 + 2 * i);
		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			struct rpma_mr_local *mr = NULL;
			struct guest h;
			int gate[2];
			char byte;

			alarm(60);
			CHECK(pipe(gate) == 0);
			arrive(side, &h);
			works(&h.e, h.mr, h.remote, h.mem, 300);
			CHECK_INT(rpma_mr_reg(g.e.peer, g.mem, PAGE, USAGE_ALL, &mr), RPMA_E_PROVIDER);
			CHECK_INT(rpma_write(g.e.conn, g.remote, 0, g.mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(1)), RPMA_E_PROVIDER);
			works(&h.e, h.mr, h.remote, h.mem, 302);
			fflush(NULL);
			pid = fork();
			if (pid == 0) {
				struct guest k;

				alarm(60);
				CHECK_INT(rpma_mr_reg(h.e.peer, h.mem, PAGE, USAGE_ALL, &mr), RPMA_E_PROVIDER);
				/* Until the child has done with the server. */
				close(gate[1]);
				CHECK_INT(read(gate[0], &byte, 1), 0);
				arrive(side, &k);
				works(&k.e, k.mr, k.remote, k.mem, 400);
				depart(side, &k);
				_exit(0);
			}
			works(&h.e, h.mr, h.remote, h.mem, 304);
			depart(side, &h);
			close(gate[1]);
			expect_child(pid);
			_exit(0);
		}
		works(&g.e, g.mr, g.remote, g.mem, 200 + 2 * i);
		expect_child(pid);
		works(&g.e, g.mr, g.remote, g.mem, 210 + 2 * i);
	}
	depart(side, &g);
}

static void
fork_and_go_server(struct side *side)
{
	serve_until_told(side);
}

/* The parent parts from its peer although a child still has copies of its descriptors. */
static void
fork_and_go_client(struct side *side)
{
	struct guest g;
	int gate[2];
	char byte;
	pid_t pid;

	arrive(side, &g);
	works(&g.e, g.mr, g.remote, g.mem, 10);
	CHECK(pipe(gate) == 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		close(gate[1]);
		/* Until the parent closes its end. */
		_exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
	}
	close(gate[0]);
	depart(side, &g);
	close(gate[1]);
	expect_child(pid);
}

static const struct test tests[] = {
	{.name = "threads_64", .server = threads_64_server, .client = threads_64_client, .clients = 1, .seconds = 300},
	{.name = "idle_1000", .server = idle_1000_server, .client = idle_1000_client, .clients = 1, .seconds = 120},
	{.name = "connect_disconnect", .server = connect_disconnect_server, .client = connect_disconnect_client, .clients = 1,
		.seconds = 300},
	PAIR(fork_exec),
	PAIR(exec_again),
	PAIR(one_of_each),
	PAIR(fork_alone),
	PAIR(fork_and_use),
	PAIR(fork_and_begin),
	PAIR(fork_and_go),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
