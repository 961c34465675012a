/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * load.c - much of everything: small writes, large lengths, refused and short-lived connections, threads. Nothing may
 * grow, nothing may get lost. Sizes follow RPMA_TEST_SCALE; figures are reported, not judged.
 */

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "common/fabric.h"

/* -- many small writes ---------------------------------------------------------------------------------------------- */

#define WRITE 64
#define BATCH 64
#define WINDOW (1024 * 1024)

/* At scale 16 this moves 1 GiB. */
static unsigned long
total_bytes(void)
{
	return scaled(64ul << 20, WINDOW) / WINDOW * WINDOW;
}

static void
small_writes_server(struct side *side)
{
	unsigned char *mem = memory(WINDOW, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, WINDOW, RPMA_MR_USAGE_WRITE_DST);
	give_mr(side, 0, mr);
	hear(side, 0, "written");
	check_pattern("what was written", mem, WINDOW, 8, 0);
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "seen");
	close_server(&e);
}

static void
small_writes_client(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(16, SIZE_KEEP, 4 * BATCH, SIZE_KEEP);
	unsigned char *mem = memory(WINDOW, 0);
	unsigned long bytes = total_bytes(), posted = 0, completed = 0;
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;
	double start;

	pattern(mem, WINDOW, 8);
	open_client(side, &e, cfg);
	mr = registered(e.peer, mem, WINDOW, RPMA_MR_USAGE_WRITE_SRC);
	remote = take_mr(side, 0);
	start = seconds_now();
	while (completed < bytes / WRITE) {
		/* Up to four batches on their way; each one's last write answers for it. */
		while (posted < bytes / WRITE && posted - completed < 4 * BATCH) {
			size_t offset = posted * WRITE % WINDOW;
			bool last = (posted + 1) % BATCH == 0;

			OK(rpma_write(e.conn, remote, offset, mr, offset, WRITE,
				last ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, ID(posted)));
			posted++;
		}
		expect_done(e.cq, e.conn, IBV_WC_RDMA_WRITE, completed + BATCH - 1, 0);
		completed += BATCH;
	}
	check_info("%lu writes of %d bytes, %.0f a second", completed, WRITE, (double)completed / (seconds_now() - start));
	expect_no_wc(e.cq);
	say(side, 0, "written");
	hear(side, 0, "seen");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_conn_cfg_delete(&cfg));
	close_client(&e);
}

/* -- lengths at the edge of 32 bits ----------------------------------------------------------------------------------- */

static const uint64_t lengths[] = {1ull << 31, UINT32_MAX, 1ull << 32, (1ull << 32) + 1};

#define SPARSE ((1ull << 32) + PAGE)

/* Which of the lengths is read back, too. */
#define READ_TOO 0

/* Room that takes no memory until it is written to. */
static unsigned char *
sparse(void)
{
	void *ptr = mmap(NULL, SPARSE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(ptr != MAP_FAILED);
	/* Large pages where there are any: half a million small ones would take longer than the transfer. */
	(void)madvise(ptr, SPARSE, MADV_HUGEPAGE);
	return ptr;
}

/* Marks: the first and the last page whole, and the first byte of each in between; nothing else is touched. */
static uint64_t
next_mark(uint64_t at, uint64_t len)
{
	uint64_t last = len - PAGE;

	if (at < PAGE || at >= last)
		return at + 1;
	return at + PAGE < last ? at + PAGE : last;
}

static void
mark(unsigned char *mem, uint64_t len, unsigned seed)
{
	for (uint64_t at = 0; at < len; at = next_mark(at, len))
		mem[at] = pattern_at(seed, at);
}

static void
check_marks(const unsigned char *mem, uint64_t len, unsigned seed)
{
	for (uint64_t at = 0; at < len; at = next_mark(at, len))
		if (mem[at] != pattern_at(seed, at))
			check_fail("byte %llu of %llu is 0x%02x, not 0x%02x", (unsigned long long)at, (unsigned long long)len,
				mem[at], pattern_at(seed, at));
}

static bool
room_for_large(void)
{
	struct sysinfo info;

	CHECK(sysinfo(&info) == 0);
	/* Both sides may come to hold all of it, and devices pin what is registered. */
	return info.freeram * (uint64_t)info.mem_unit > 3 * SPARSE && scaled(100, 0) >= 100;
}

static void
large_lengths_server(struct side *side)
{
	struct rpma_peer *peer;
	struct rpma_ep *ep;
	unsigned char *mem;
	char port[8];

	if (!room_for_large())
		check_skip("needs 12 GiB of free memory and scale 1");
	peer = peer_on(side->addr);
	ep = listen_on(peer, side->addr, port);
	mem = sparse();
	give(side, 0, port, sizeof(port));
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct rpma_conn *conn = accept_one(ep, NULL, NULL, 0);
		struct rpma_mr_local *mr = registered(peer, mem, SPARSE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC);
		int moved = -1;

		give_mr(side, 0, mr);
		take(side, 0, &moved, sizeof(moved));
		if (moved)
			check_marks(mem, lengths[i], 1);
		else
			CHECK(mem[0] == 0 && mem[1] == 0 && mem[lengths[i] / 2] == 0 && mem[lengths[i] - 1] == 0);
		CHECK_FILL(mem + lengths[i], 0, PAGE - 1);
		if (moved && i == READ_TOO) {
			mark(mem, lengths[i], 2);
			say(side, 0, "read");
			hear(side, 0, "done");
		}
		OK(rpma_mr_dereg(&mr));
		CHECK(madvise(mem, SPARSE, MADV_DONTNEED) == 0);
		say(side, 0, "seen");
		expect_event(conn, RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&conn));
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/*
 * A length is moved whole, or it is refused and nothing moves: at the call, or (where a device takes less) as an error. The
 * software fabric moves all that 32 bits can tell.
 */
static void
large_lengths_client(struct side *side)
{
	struct rpma_peer *peer;
	unsigned char *mem;
	char port[8];

	if (!room_for_large())
		check_skip("needs 12 GiB of free memory and scale 1");
	peer = peer_on(side->addr);
	mem = sparse();
	take(side, 0, port, sizeof(port));
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct rpma_conn *conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
		struct rpma_mr_local *mr = registered(peer, mem, SPARSE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST);
		struct rpma_mr_remote *remote = take_mr(side, 0);
		int ret, moved = 0;

		if (lengths[i] <= UINT32_MAX)
			mark(mem, lengths[i], 1);
		else
			mem[0] = mem[1] = mem[lengths[i] / 2] = mem[lengths[i] - 1] = 0x33;
		mem[lengths[i]] = 0x44;
		if (lengths[i] > UINT32_MAX) {
			if (!original_lacks("lengths beyond 32 bits are cut")) {
				INVAL(rpma_write(conn, remote, 0, mr, 0, lengths[i], RPMA_F_COMPLETION_ALWAYS, ID(i)));
				INVAL(rpma_read(conn, mr, 0, remote, 0, lengths[i], RPMA_F_COMPLETION_ALWAYS, ID(i)));
				INVAL(rpma_write_with_imm(conn, remote, 0, mr, 0, lengths[i], RPMA_F_COMPLETION_ALWAYS, 1, ID(i)));
				expect_no_wc(cq_of(conn));
			}
		} else if ((ret = rpma_write(conn, remote, 0, mr, 0, lengths[i], RPMA_F_COMPLETION_ALWAYS, ID(i))) == 0) {
			struct ibv_wc wc;

			next_wc(cq_of(conn), &wc);
			CHECK_INT(wc.wr_id, i);
			moved = wc.status == IBV_WC_SUCCESS;
			check_info("%llu bytes: %s", (unsigned long long)lengths[i], ibv_wc_status_str(wc.status));
			CHECK(moved || !on_soft(side->addr));
		} else {
			CHECK_CODE(ret, RPMA_E_INVAL);
		}
		give(side, 0, &moved, sizeof(moved));
		if (moved && i == READ_TOO) {
			hear(side, 0, "read");
			OK(rpma_read(conn, mr, 0, remote, 0, lengths[i], RPMA_F_COMPLETION_ALWAYS, ID(100)));
			expect_done(cq_of(conn), conn, IBV_WC_RDMA_READ, 100, (uint32_t)lengths[i]);
			check_marks(mem, lengths[i], 2);
			CHECK_INT(mem[lengths[i]], 0x44);
			say(side, 0, "done");
		}
		hear(side, 0, "seen");
		OK(rpma_mr_remote_delete(&remote));
		OK(rpma_mr_dereg(&mr));
		CHECK(madvise(mem, SPARSE, MADV_DONTNEED) == 0);
		OK(rpma_conn_delete(&conn));
	}
	OK(rpma_peer_delete(&peer));
}

/* The same refusal without the memory: nothing is posted that could be cut. */
static void
cut_lengths_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;
	unsigned char *mem = memory(PAGE, 0xee);

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	hear(side, 0, "done");
	CHECK_FILL(mem, 0xee, PAGE);
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "seen");
	close_server(&e);
}

static void
cut_lengths_client(struct side *side)
{
	static const uint64_t long_lengths[] = {1ull << 32, (1ull << 32) + 1, (1ull << 32) + 8, 1ull << 40, SIZE_MAX};
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 1), PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	if (!original_lacks("lengths beyond 32 bits are cut")) {
		for (unsigned i = 0; i < sizeof(long_lengths) / sizeof(long_lengths[0]); i++) {
			size_t len = long_lengths[i];

			INVAL(rpma_write(e.conn, remote, 0, mr, 0, len, RPMA_F_COMPLETION_ALWAYS, ID(1)));
			INVAL(rpma_write_with_imm(e.conn, remote, 0, mr, 0, len, RPMA_F_COMPLETION_ALWAYS, 1, ID(1)));
			INVAL(rpma_read(e.conn, mr, 0, remote, 0, len, RPMA_F_COMPLETION_ALWAYS, ID(1)));
			INVAL(rpma_send(e.conn, mr, 0, len, RPMA_F_COMPLETION_ALWAYS, ID(1)));
			INVAL(rpma_send_with_imm(e.conn, mr, 0, len, RPMA_F_COMPLETION_ALWAYS, 1, ID(1)));
			INVAL(rpma_recv(e.conn, mr, 0, len, ID(1)));
		}
	}
	expect_no_wc(e.cq);
	say(side, 0, "done");
	hear(side, 0, "seen");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* -- nothing grows ---------------------------------------------------------------------------------------------------- */

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

/* Bytes of the heap in use, across all arenas: what a leak would make grow. See main() for what would blur it. */
static size_t
heap_in_use(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* A measure before and after, far enough apart for a leak of a few bytes each time to stand out from what is needed once. */
struct measure {
	unsigned descriptors;
	size_t heap;
};

static struct measure
measure(void)
{
	return (struct measure){open_descriptors(), heap_in_use()};
}

/* How long what is given back by a thread of the library may take, where that thread has to wait for a processor. */
#define SECONDS_TO_SETTLE 10

static void
expect_no_growth(struct measure before, unsigned long times)
{
	struct measure after;
	double start = seconds_now();

	/* A leak stays. */
	do {
		bool more_descriptors, more_heap;

		after = measure();
		/* One or two may come and go with what runs beside. */
		more_descriptors = after.descriptors > before.descriptors + 4;
		more_heap = after.heap > before.heap + 16 * 1024;
		if (!more_descriptors && !more_heap)
			return;
		sched_yield();
	} while (seconds_now() - start < SECONDS_TO_SETTLE);
	check_fail("%u descriptors became %u, and %zu bytes of the heap %zu, over %lu times", before.descriptors, after.descriptors,
		before.heap, after.heap, times);
}

#define WARM_UP 50

static void
rejected_requests_server(struct side *side)
{
	unsigned long times = scaled(3000, 100);
	struct rpma_peer *peer = peer_on(side->addr);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	struct measure before;

	give(side, 0, port, sizeof(port));
	for (unsigned long i = 0; i < times; i++) {
		struct rpma_conn_req *req = NULL;

		if (i == WARM_UP)
			before = measure();
		OK(rpma_ep_next_conn_req(ep, NULL, &req));
		OK(rpma_conn_req_delete(&req));
	}
	hear(side, 0, "done");
	if (!original_lacks("the ids of refused requests stay"))
		expect_no_growth(before, times - WARM_UP);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* The client's side: each request is refused, and none of them leaves anything. */
static void
are_refused(struct side *side, unsigned long times)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct measure before;
	char port[8];
	double start;

	take(side, 0, port, sizeof(port));
	start = seconds_now();
	for (unsigned long i = 0; i < times; i++) {
		struct rpma_conn_req *req = NULL;
		struct rpma_conn *conn = NULL;

		if (i == WARM_UP)
			before = measure();
		OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
		OK(rpma_conn_req_connect(&req, NULL, &conn));
		expect_event(conn, RPMA_CONN_REJECTED);
		OK(rpma_conn_delete(&conn));
	}
	check_info("%.0f refused requests a second", (double)times / (seconds_now() - start));
	expect_no_growth(before, times - WARM_UP);
	say(side, 0, "done");
	OK(rpma_peer_delete(&peer));
}

static void
rejected_requests_client(struct side *side)
{
	are_refused(side, scaled(3000, 100));
}

/* The same for requests that fail at the server: its queue cannot be had. */
static void
impossible_requests_server(struct side *side)
{
	unsigned long times = scaled(500, 100);
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_conn_cfg *cfg = sizes(0, SIZE_KEEP, SIZE_KEEP, SIZE_KEEP);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	struct measure before;

	if (is_original())
		check_skip("with the original a client whose request failed at the server is not refused");
	give(side, 0, port, sizeof(port));
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
	for (unsigned long i = 0; i < times; i++) {
		struct rpma_conn_req *req = NULL;

		if (i == WARM_UP)
			before = measure();
		/* Nothing and far too much, in turn. */
		OK(rpma_conn_cfg_set_cq_size(cfg, i % 2 ? UINT32_MAX : 0));
		CHECK_CODE(rpma_ep_next_conn_req(ep, cfg, &req), RPMA_E_PROVIDER);
		CHECK(req == NULL);
	}
	hear(side, 0, "done");
	expect_no_growth(before, times - WARM_UP);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_peer_delete(&peer));
}

static void
impossible_requests_client(struct side *side)
{
	if (is_original())
		check_skip("with the original a client whose request failed at the server is not refused");
	are_refused(side, scaled(500, 100));
}

static void
short_connections_server(struct side *side)
{
	unsigned long times = scaled(2000, 60);
	struct rpma_peer *peer = peer_on(side->addr);
	unsigned char *mem = memory(PAGE, 0);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);
	struct measure before;

	give(side, 0, port, sizeof(port));
	for (unsigned long i = 0; i < times; i++) {
		struct rpma_mr_local *mr;
		struct rpma_conn *conn;

		if (i == WARM_UP)
			before = measure();
		conn = accept_one(ep, NULL, "data", 4);
		mr = registered(peer, mem, PAGE, USAGE_ALL);
		give_mr(side, 0, mr);
		expect_event(conn, RPMA_CONN_CLOSED);
		CHECK_INT(*(uint64_t *)(void *)mem, i + 1);
		OK(rpma_conn_delete(&conn));
		OK(rpma_mr_dereg(&mr));
	}
	expect_no_growth(before, times - WARM_UP);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
short_connections_client(struct side *side)
{
	unsigned long times = scaled(2000, 60);
	struct rpma_peer *peer = peer_on(side->addr);
	struct measure before;
	char port[8];
	double start;

	take(side, 0, port, sizeof(port));
	start = seconds_now();
	for (uint64_t i = 0; i < times; i++) {
		struct rpma_mr_remote *remote;
		struct rpma_conn *conn;
		uint64_t value = i + 1;

		if (i == WARM_UP)
			before = measure();
		conn = connect_to(peer, side->addr, port, NULL, "data", 4);
		remote = take_mr(side, 0);
		OK(rpma_atomic_write(conn, remote, 0, (const char *)&value, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		expect_status(cq_of(conn), conn, IBV_WC_SUCCESS, i);
		OK(rpma_mr_remote_delete(&remote));
		part(&conn);
	}
	check_info("%.0f connections a second", (double)times / (seconds_now() - start));
	expect_no_growth(before, times - WARM_UP);
	OK(rpma_peer_delete(&peer));
}

/* -- threads ---------------------------------------------------------------------------------------------------------- */

#define THREADS 16

static struct rpma_peer *shared_peer;
static const char *server_addr, *server_port;

static void *
register_and_release(void *arg)
{
	unsigned long times = scaled(300, 20);
	unsigned seed = (unsigned)(uintptr_t)arg;
	unsigned char *mem = memory(4 * PAGE, (unsigned char)seed);

	for (unsigned long i = 0; i < times; i++) {
		struct rpma_mr_local *mr = NULL;
		size_t offset = i * 37 % (3 * PAGE), size = 1 + i * 53 % PAGE, got = 0;
		void *ptr = NULL;
		int ret = rpma_mr_reg(shared_peer, mem + offset, size, USAGE_ALL, &mr);

		check_code("rpma_mr_reg", ret, 0);
		ret = rpma_mr_get_ptr(mr, &ptr);
		check_int("the address is right", ret == 0 && ptr == mem + offset, 1);
		ret = rpma_mr_get_size(mr, &got);
		check_int("the size is right", ret == 0 && got == size, 1);
		ret = rpma_mr_dereg(&mr);
		check_code("rpma_mr_dereg", ret, 0);
	}
	return NULL;
}

static void
threads_register(const char *addr)
{
	pthread_t threads[THREADS];

	shared_peer = peer_on(addr);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, register_and_release, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	OK(rpma_peer_delete(&shared_peer));
}

/* Each thread makes its own connections over one peer, one after the other, and moves its own bytes. */
static void *
connect_and_write(void *arg)
{
	unsigned long times = scaled(20, 3);
	unsigned seed = 1 + (unsigned)(uintptr_t)arg;
	unsigned char *mem = memory(2 * PAGE, 0);
	struct rpma_mr_local *mr = NULL;
	int ret = rpma_mr_reg(shared_peer, mem, 2 * PAGE, USAGE_ALL, &mr);

	check_code("rpma_mr_reg", ret, 0);
	for (unsigned long i = 0; i < times; i++) {
		struct rpma_conn_private_data pdata;
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
		struct rpma_mr_remote *remote = NULL;
		struct rpma_conn_req *req = NULL;
		struct rpma_conn *conn = NULL;
		struct rpma_cq *cq = NULL;
		struct ibv_wc wc;

		ret = rpma_conn_req_new(shared_peer, server_addr, server_port, NULL, &req);
		check_code("rpma_conn_req_new", ret, 0);
		ret = rpma_conn_req_connect(&req, NULL, &conn);
		check_code("rpma_conn_req_connect", ret, 0);
		ret = rpma_conn_next_event(conn, &event);
		check_code("rpma_conn_next_event", ret, 0);
		check_int("the event", event, RPMA_CONN_ESTABLISHED);
		ret = rpma_conn_get_private_data(conn, &pdata);
		check_code("rpma_conn_get_private_data", ret, 0);
		ret = rpma_mr_remote_from_descriptor(pdata.ptr, pdata.len, &remote);
		check_code("rpma_mr_remote_from_descriptor", ret, 0);
		ret = rpma_conn_get_cq(conn, &cq);
		check_code("rpma_conn_get_cq", ret, 0);
		pattern(mem, PAGE, seed * 1000 + (unsigned)i);
		ret = rpma_write(conn, remote, 0, mr, 0, PAGE, RPMA_F_COMPLETION_ON_ERROR, ID(1));
		check_code("rpma_write", ret, 0);
		ret = rpma_read(conn, mr, PAGE, remote, 0, PAGE, RPMA_F_COMPLETION_ALWAYS, ID(seed));
		check_code("rpma_read", ret, 0);
		while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION) {
			ret = rpma_cq_wait(cq);
			check_code("rpma_cq_wait", ret, 0);
		}
		check_code("rpma_cq_get_wc", ret, 0);
		check_int("the status", wc.status, IBV_WC_SUCCESS);
		check_int("the context", (long long)wc.wr_id, seed);
		check_mem("what came back", mem + PAGE, mem, PAGE);
		ret = rpma_mr_remote_delete(&remote);
		check_code("rpma_mr_remote_delete", ret, 0);
		ret = rpma_conn_disconnect(conn);
		check_code("rpma_conn_disconnect", ret, 0);
		ret = rpma_conn_next_event(conn, &event);
		check_code("rpma_conn_next_event", ret, 0);
		check_int("the event", event, RPMA_CONN_CLOSED);
		ret = rpma_conn_delete(&conn);
		check_code("rpma_conn_delete", ret, 0);
	}
	ret = rpma_mr_dereg(&mr);
	check_code("rpma_mr_dereg", ret, 0);
	return NULL;
}

static void
threads_connect_client(struct side *side)
{
	pthread_t threads[THREADS];
	char port[8];

	take(side, 0, port, sizeof(port));
	shared_peer = peer_on(side->addr);
	server_addr = side->addr;
	server_port = port;
	CHECK_HERE();
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, connect_and_write, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	OK(rpma_peer_delete(&shared_peer));
	say(side, 0, "done");
}

/* A thread for each connection, which serves it to its end. */
struct served {
	struct rpma_conn *conn;
	struct rpma_mr_local *mr;
	void *mem;
};

static void *
serve_one(void *arg)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct served *served = arg;
	int ret;

	ret = rpma_conn_next_event(served->conn, &event);
	check_code("rpma_conn_next_event", ret, 0);
	check_int("the event", event, RPMA_CONN_ESTABLISHED);
	ret = rpma_conn_next_event(served->conn, &event);
	check_code("rpma_conn_next_event", ret, 0);
	check_int("the event", event, RPMA_CONN_CLOSED);
	ret = rpma_conn_disconnect(served->conn);
	check_code("rpma_conn_disconnect", ret, 0);
	ret = rpma_conn_delete(&served->conn);
	check_code("rpma_conn_delete", ret, 0);
	ret = rpma_mr_dereg(&served->mr);
	check_code("rpma_mr_dereg", ret, 0);
	munmap(served->mem, PAGE);
	free(served);
	return NULL;
}

static void
threads_connect_server(struct side *side)
{
	unsigned long times = scaled(20, 3) * THREADS;
	struct rpma_peer *peer = peer_on(side->addr);
	pthread_t *threads = calloc(times, sizeof(*threads));
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	CHECK(threads != NULL);
	give(side, 0, port, sizeof(port));
	for (unsigned long i = 0; i < times; i++) {
		struct served *served = calloc(1, sizeof(*served));
		struct rpma_conn_private_data pdata;
		struct rpma_conn_req *req = NULL;
		unsigned char desc[21];

		CHECK(served != NULL);
		served->mem = memory(PAGE, 0);
		served->mr = registered(peer, served->mem, PAGE, USAGE_ALL);
		OK(rpma_mr_get_descriptor(served->mr, desc));
		pdata.ptr = desc;
		pdata.len = sizeof(desc);
		OK(rpma_ep_next_conn_req(ep, NULL, &req));
		OK(rpma_conn_req_connect(&req, &pdata, &served->conn));
		CHECK(pthread_create(&threads[i], NULL, serve_one, served) == 0);
	}
	for (unsigned long i = 0; i < times; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	free(threads);
	hear(side, 0, "done");
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/*
 * Connections whose threads wait in different ways, all at a time, and send a number to and fro: who waits in one way may not keep
 * the others from learning what is theirs.
 */
enum way { IN_THE_LIBRARY, FOR_THE_DESCRIPTOR, WITHOUT_BLOCKING, NOT_AT_ALL };

#define WAITERS 8

struct waiter {
	struct rpma_conn *conn;
	struct rpma_mr_local *mr;
	uint64_t *mem;		/* what was received, what is sent */
	enum way way;
	bool begins;
};

static void
wait_in_way(struct rpma_cq *cq, int fd, enum way way)
{
	struct pollfd fds = {.fd = fd, .events = POLLIN};
	int ret;

	if (way == NOT_AT_ALL) {
		sched_yield();
		return;
	}
	if (way != IN_THE_LIBRARY) {
		ret = poll(&fds, 1, -1);
		check_int("poll", ret, 1);
	}
	ret = rpma_cq_wait(cq);
	if (way != WITHOUT_BLOCKING || ret != RPMA_E_NO_COMPLETION)
		check_code("rpma_cq_wait", ret, 0);
}

static void *
send_to_and_fro(void *arg)
{
	unsigned long times = scaled(500, 50);
	struct waiter *waiter = arg;
	struct rpma_cq *cq = NULL;
	bool sent = true;
	int fd = -1, ret = rpma_conn_get_cq(waiter->conn, &cq);

	check_code("rpma_conn_get_cq", ret, 0);
	ret = rpma_cq_get_fd(cq, &fd);
	check_code("rpma_cq_get_fd", ret, 0);
	if (waiter->way == WITHOUT_BLOCKING)
		set_nonblocking(fd);
	for (uint64_t i = 1; i <= times; i++) {
		bool received = false;

		for (int half = 0; half < 2; half++) {
			if ((half == 0) == waiter->begins) {
				waiter->mem[8] = waiter->begins ? i : 1000 * i;
				ret = rpma_send(waiter->conn, waiter->mr, 64, 8, RPMA_F_COMPLETION_ALWAYS, ID(2));
				check_code("rpma_send", ret, 0);
				sent = false;
				continue;
			}
			while (!received || (!sent && waiter->begins)) {
				struct ibv_wc wc;

				ret = rpma_cq_get_wc(cq, 1, &wc, NULL);
				if (ret == RPMA_E_NO_COMPLETION) {
					wait_in_way(cq, fd, waiter->way);
					continue;
				}
				check_code("rpma_cq_get_wc", ret, 0);
				check_int("the status", wc.status, IBV_WC_SUCCESS);
				received |= wc.wr_id == 1;
				sent |= wc.wr_id == 2;
			}
			check_int("the number", (long long)waiter->mem[0], (long long)(waiter->begins ? 1000 * i : i));
			ret = rpma_recv(waiter->conn, waiter->mr, 0, 8, ID(1));
			check_code("rpma_recv", ret, 0);
		}
	}
	return NULL;
}

static enum way
way_of(int number, bool begins)
{
	/* One that never sleeps is enough for a machine with few processors. */
	if (number == WAITERS - 1)
		return begins ? NOT_AT_ALL : IN_THE_LIBRARY;
	return (enum way)((number + begins) % NOT_AT_ALL);
}

static void
all_at_a_time(struct waiter *waiters)
{
	pthread_t threads[WAITERS];

	for (int i = 0; i < WAITERS; i++)
		CHECK(pthread_create(&threads[i], NULL, send_to_and_fro, &waiters[i]) == 0);
	for (int i = 0; i < WAITERS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

static void
ways_to_wait_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	static struct waiter waiters[WAITERS];
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	give(side, 0, port, sizeof(port));
	for (int i = 0; i < WAITERS; i++) {
		struct rpma_conn_req *req = NULL;

		waiters[i].mem = memory(PAGE, 0);
		waiters[i].mr = registered(peer, waiters[i].mem, PAGE, USAGE_ALL);
		waiters[i].way = way_of(i, false);
		OK(rpma_ep_next_conn_req(ep, NULL, &req));
		OK(rpma_conn_req_recv(req, waiters[i].mr, 0, 8, ID(1)));
		OK(rpma_conn_req_connect(&req, NULL, &waiters[i].conn));
		expect_event(waiters[i].conn, RPMA_CONN_ESTABLISHED);
	}
	all_at_a_time(waiters);
	for (int i = 0; i < WAITERS; i++) {
		expect_event(waiters[i].conn, RPMA_CONN_CLOSED);
		OK(rpma_conn_disconnect(waiters[i].conn));
		OK(rpma_conn_delete(&waiters[i].conn));
		OK(rpma_mr_dereg(&waiters[i].mr));
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
ways_to_wait_client(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	static struct waiter waiters[WAITERS];
	char port[8];

	take(side, 0, port, sizeof(port));
	for (int i = 0; i < WAITERS; i++) {
		struct rpma_conn_req *req = NULL;

		waiters[i].mem = memory(PAGE, 0);
		waiters[i].mr = registered(peer, waiters[i].mem, PAGE, USAGE_ALL);
		waiters[i].way = way_of(i, true);
		waiters[i].begins = true;
		OK(rpma_conn_req_new(peer, side->addr, port, NULL, &req));
		OK(rpma_conn_req_recv(req, waiters[i].mr, 0, 8, ID(1)));
		OK(rpma_conn_req_connect(&req, NULL, &waiters[i].conn));
		expect_event(waiters[i].conn, RPMA_CONN_ESTABLISHED);
	}
	all_at_a_time(waiters);
	for (int i = 0; i < WAITERS; i++) {
		part(&waiters[i].conn);
		OK(rpma_mr_dereg(&waiters[i].mr));
	}
	OK(rpma_peer_delete(&peer));
}

static const struct test tests[] = {
	{.name = "small_writes", .server = small_writes_server, .client = small_writes_client, .clients = 1, .seconds = 140},
	{.name = "large_lengths", .server = large_lengths_server, .client = large_lengths_client, .clients = 1, .seconds = 140},
	PAIR(cut_lengths),
	PAIR(rejected_requests),
	PAIR(impossible_requests),
	PAIR(short_connections),
	LOCAL(threads_register),
	PAIR(threads_connect),
	PAIR(ways_to_wait),
	END
};

int
main(int argc, char **argv)
{
	/* What threads keep of the heap for themselves, for the next time, would count as in use: they are to keep nothing. */
	if (getenv("GLIBC_TUNABLES") == NULL) {
		CHECK_INT(setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1), 0);
		execv(argv[0], argv);
		check_fail("%s cannot be run anew: %s", argv[0], strerror(errno));
	}
	return run_tests(tests, argc, argv);
}
