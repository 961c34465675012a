/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * oddities.c - what happens to programs that do nothing wrong: signals all the time, limits that are reached, a disk that is full,
 * a clock that jumps, a peer that is stopped, threads that end, an end without cleaning up.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/fabric.h"

#define AREA (64 * PAGE)

static void
only_on_the_software_fabric(const char *addr)
{
	if (!on_soft(addr))
		check_skip("of a device's driver it is not this library that has to see to it");
	if (is_original())
		check_skip("the original does not promise it");
}

/* ---- signals ---- */

static volatile sig_atomic_t signals;

static void
count_signal(int signo)
{
	(void)signo;
	signals++;
}

/* Of the handler below: whether the kernel starts again what it interrupts. */
static int signal_flags;

/* A signal every 100 us. */
static void
signals_on(void)
{
	struct sigaction action = {.sa_handler = count_signal, .sa_flags = signal_flags};
	struct itimerval often = {{0, 100}, {0, 100}};

	CHECK_INT(sigaction(SIGALRM, &action, NULL), 0);
	CHECK_INT(setitimer(ITIMER_REAL, &often, NULL), 0);
}

static void
signals_off(void)
{
	struct itimerval never = {{0, 0}, {0, 0}};

	CHECK_INT(setitimer(ITIMER_REAL, &never, NULL), 0);
}

/* A completion; a wait may be interrupted, a completion may not get lost by that. */
static void
next_despite_signals(struct rpma_cq *cq, struct ibv_wc *wc)
{
	int ret;

	while ((ret = rpma_cq_get_wc(cq, 1, wc, NULL)) == RPMA_E_NO_COMPLETION) {
		ret = rpma_cq_wait(cq);
		if (ret != 0) {
			CHECK_INT(errno, EINTR);
			CHECK_CODE(ret, RPMA_E_NO_COMPLETION);
			CHECK_INT(signal_flags & SA_RESTART, 0);
		}
	}
	CHECK_CODE(ret, 0);
}

/* The alarm also ends a test that hangs, so the traffic is what runs under signals, with that clock put aside. */
static void
interrupted_server(struct side *side)
{
	unsigned char *mem = memory(AREA, 0);
	struct rpma_mr_local *mr;
	unsigned left = (alarm(0), 200);
	struct ibv_wc wc;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, AREA, USAGE_ALL);
	OK(rpma_recv(e.conn, mr, 0, 8, ID(1)));
	give_mr(side, 0, mr);
	signals_on();
	while (left-- > 0) {
		next_despite_signals(e.cq, &wc);
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		CHECK_INT(wc.opcode, IBV_WC_RECV);
		if (left > 0)
			OK(rpma_recv(e.conn, mr, 0, 8, ID(1)));
		OK(rpma_send(e.conn, mr, 0, 8, RPMA_F_COMPLETION_ON_ERROR, ID(2)));
	}
	signals_off();
	CHECK(signals > 0);
	hear(side, 0, "done");
	check_pattern("what was written", mem + PAGE, AREA - PAGE, 199, 0);
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
interrupted_client(struct side *side)
{
	unsigned char *mem = memory(AREA, 0), *back = memory(AREA, 0);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr, *back_mr;
	struct ibv_wc wc;
	struct ends e;

	alarm(0);
	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, AREA, USAGE_ALL);
	back_mr = registered(e.peer, back, AREA, USAGE_ALL);
	remote = take_mr(side, 0);
	signals_on();
	for (unsigned i = 0; i < 200; i++) {
		pattern(mem + PAGE, AREA - PAGE, i);
		OK(rpma_recv(e.conn, back_mr, 0, 8, ID(1)));
		OK(rpma_write(e.conn, remote, PAGE, mr, PAGE, AREA - PAGE, RPMA_F_COMPLETION_ON_ERROR, ID(2)));
		OK(rpma_read(e.conn, back_mr, PAGE, remote, PAGE, AREA - PAGE, RPMA_F_COMPLETION_ALWAYS, ID(3)));
		next_despite_signals(e.cq, &wc);
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		CHECK_INT(wc.wr_id, 3);
		check_pattern("what was read", back + PAGE, AREA - PAGE, i, 0);
		OK(rpma_send(e.conn, mr, 0, 8, RPMA_F_COMPLETION_ON_ERROR, ID(4)));
		next_despite_signals(e.cq, &wc);
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		CHECK_INT(wc.wr_id, 1);
	}
	signals_off();
	CHECK(signals > 0);
	say(side, 0, "done");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_mr_dereg(&back_mr));
	close_client(&e);
}

/* Waiting goes on after a signal that is to restart system calls. */
static void
restarted_server(struct side *side)
{
	signal_flags = SA_RESTART;
	interrupted_server(side);
}

static void
restarted_client(struct side *side)
{
	signal_flags = SA_RESTART;
	interrupted_client(side);
}

/* The same in a program that also has a handler of the other kind, for a signal that does not come. */
static void
handle_both_ways(void)
{
	struct sigaction other = {.sa_handler = count_signal};
	struct sigaction alarm_too = {.sa_handler = count_signal, .sa_flags = SA_RESTART};

	signal_flags = SA_RESTART;
	CHECK_INT(sigaction(SIGUSR2, &other, NULL), 0);
	CHECK_INT(sigaction(SIGALRM, &alarm_too, NULL), 0);
}

static void
restarted_among_others_server(struct side *side)
{
	handle_both_ways();
	interrupted_server(side);
}

static void
restarted_among_others_client(struct side *side)
{
	handle_both_ways();
	interrupted_client(side);
}

/* A wait that nothing else ends is ended by a signal that does not restart system calls. */
static void
signal_ends_a_wait_server(struct side *side)
{
	struct ends e;

	open_server(side, &e, NULL);
	hear(side, 0, "done");
	close_server(&e);
}

static void
signal_ends_a_wait_client(struct side *side)
{
	struct ends e;

	open_client(side, &e, NULL);
	/* Often: before it sleeps, while it sleeps, when it has slept. */
	for (int i = 0; i < 200; i++) {
		signals_on();
		CHECK_CODE(rpma_cq_wait(e.cq), RPMA_E_NO_COMPLETION);
		CHECK_INT(errno, EINTR);
	}
	signals_off();
	CHECK(signals >= 200);
	say(side, 0, "done");
	close_client(&e);
}

/* A handler that waits itself, in a thread that waits: what it needs is handled, by whom ever. */
static struct {
	struct rpma_conn *conn;
	struct rpma_mr_local *mr;
	struct rpma_mr_remote *remote;
	_Atomic int done;
} by_handler;

static void
write_and_wait(int signo)
{
	struct ibv_wc wc;

	(void)signo;
	OK(rpma_write(by_handler.conn, by_handler.remote, 0, by_handler.mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(3)));
	next_wc(cq_of(by_handler.conn), &wc);
	CHECK_INT(wc.status, IBV_WC_SUCCESS);
	CHECK_INT(wc.wr_id, 3);
	OK(rpma_conn_disconnect(by_handler.conn));
	expect_event(by_handler.conn, RPMA_CONN_CLOSED);
	by_handler.done = 1;
}

/* Whether a thread of this process sleeps. */
static bool
sleeps(pid_t thread)
{
	char path[64], text[512] = "", *state;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	file = fopen(path, "r");
	CHECK(file != NULL);
	CHECK(fgets(text, sizeof(text), file) != NULL);
	CHECK_INT(fclose(file), 0);
	state = strrchr(text, ')');
	CHECK(state != NULL);
	return state[2] == 'S';
}

static struct {
	pid_t thread;
	pthread_t id;
	struct side *side;
} waiter;

/* The calling thread is who waits, and is signalled. */
static void
be_the_waiter(struct side *side)
{
	waiter.thread = (pid_t)syscall(SYS_gettid);
	waiter.id = pthread_self();
	waiter.side = side;
}

/* Signals the waiter, when it has nothing left to do, and has the other side end its wait. */
static void *
signal_the_waiter(void *unused)
{
	(void)unused;
	while (!sleeps(waiter.thread))
		sched_yield();
	CHECK_INT(pthread_kill(waiter.id, SIGUSR1), 0);
	while (!by_handler.done)
		sched_yield();
	say(waiter.side, 0, "handled");
	return NULL;
}

static void
handler_waits_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr;
	struct rpma_conn *other;
	struct ends e;

	only_on_the_software_fabric(side->addr);
	open_server(side, &e, NULL);
	other = accept_one(e.ep, NULL, NULL, 0);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	expect_event(other, RPMA_CONN_CLOSED);
	CHECK_FILL(mem, 5, 8);
	hear(side, 0, "handled");
	OK(rpma_conn_disconnect(other));
	OK(rpma_conn_delete(&other));
	OK(rpma_send(e.conn, mr, 0, 8, RPMA_F_COMPLETION_ON_ERROR, ID(1)));
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

/* Makes a function SIGUSR1's handler, and all handlers such that system calls go on after them. */
static void
handle_restarting(void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, clock;

	/* A sanitizer's signal() does not restart system calls, and beside such a handler a signal may end the wait. */
	CHECK_INT(sigaction(SIGALRM, NULL, &clock), 0);
	clock.sa_flags |= SA_RESTART;
	CHECK_INT(sigaction(SIGALRM, &clock, NULL), 0);
	CHECK_INT(sigaction(SIGUSR1, &action, NULL), 0);
}

static void
handler_waits_client(struct side *side)
{
	struct rpma_mr_local *mr;
	struct rpma_peer *peer;
	struct rpma_conn *conn;
	pthread_t thread;
	char port[8];

	only_on_the_software_fabric(side->addr);
	peer = peer_on(side->addr);
	take(side, 0, port, sizeof(port));
	conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
	by_handler.conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
	mr = registered(peer, memory(PAGE, 5), PAGE, USAGE_ALL);
	by_handler.mr = mr;
	by_handler.remote = take_mr(side, 0);
	OK(rpma_recv(conn, mr, PAGE / 2, 8, ID(2)));
	handle_restarting(write_and_wait);
	be_the_waiter(side);
	CHECK_INT(pthread_create(&thread, NULL, signal_the_waiter, NULL), 0);
	expect_done(cq_of(conn), conn, IBV_WC_RECV, 2, 8);
	CHECK_INT(by_handler.done, 1);
	CHECK_INT(pthread_join(thread, NULL), 0);
	OK(rpma_conn_delete(&by_handler.conn));
	OK(rpma_mr_remote_delete(&by_handler.remote));
	OK(rpma_mr_dereg(&mr));
	say(side, 0, "done");
	part(&conn);
	OK(rpma_peer_delete(&peer));
}

/* A handler that takes as long as the peer needs to write into this process, which costs this process nothing. */
static struct {
	uint64_t *written;
	_Atomic uint64_t expected;
	_Atomic int waits, runs, done;
	bool asleep;
} slow;

/* In the first of these rounds the signal finds its thread asleep, in the others just about to wait. */
#define SLOW_ROUNDS 6

static void
await_the_write(int signo)
{
	(void)signo;
	slow.runs = 1;
	while (__atomic_load_n(slow.written, __ATOMIC_ACQUIRE) != slow.expected)
		;
	slow.done = 1;
}

static void *
signal_and_tell(void *unused)
{
	(void)unused;
	while (slow.asleep ? !sleeps(waiter.thread) : !slow.waits)
		sched_yield();
	CHECK_INT(pthread_kill(waiter.id, SIGUSR1), 0);
	while (!slow.runs)
		sched_yield();
	say(waiter.side, 0, "in the handler");
	return NULL;
}

static void
handler_takes_long_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr;
	pthread_t thread;
	struct ends e;
	int round;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	slow.written = (uint64_t *)mem;
	handle_restarting(await_the_write);
	be_the_waiter(side);
	for (round = 1; round <= SLOW_ROUNDS; round++) {
		OK(rpma_recv(e.conn, mr, PAGE / 2, 8, ID(round)));
		slow.expected = 0x0101010101010101 * (uint64_t)round;
		slow.waits = slow.runs = slow.done = 0;
		slow.asleep = round == 1;
		CHECK_INT(pthread_create(&thread, NULL, signal_and_tell, NULL), 0);
		slow.waits = 1;
		expect_done(cq_of(e.conn), e.conn, IBV_WC_RECV, (uint64_t)round, 8);
		CHECK_INT(slow.done, 1);
		CHECK_INT(pthread_join(thread, NULL), 0);
		CHECK_FILL(mem, round, 8);
		CHECK_FILL(mem + PAGE / 2, round, 8);
		/* Else the signal might come in the middle of it. */
		hear(side, 0, "nothing is under way");
	}
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
handler_takes_long_client(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ends e;
	int round;

	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	for (round = 1; round <= SLOW_ROUNDS; round++) {
		hear(side, 0, "in the handler");
		memset(mem, round, 8);
		OK(rpma_write(e.conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(2)));
		expect_done(cq_of(e.conn), e.conn, IBV_WC_RDMA_WRITE, 2, 8);
		OK(rpma_send(e.conn, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(3)));
		expect_done(cq_of(e.conn), e.conn, IBV_WC_SEND, 3, 8);
		say(side, 0, "nothing is under way");
	}
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

static void
spend(int us)
{
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 < us);
}

/* There, if it is that sanitizer's program. */
extern void __tsan_init(void) __attribute__((weak));

static void
only_where_threads_may_be_cancelled(void)
{
	if (is_original())
		check_skip("the original does not promise it");
	if (__tsan_init != NULL)
		check_skip("ThreadSanitizer does not get over threads that are cancelled in a system call");
}

static _Atomic int waits;

static void *
wait_in_vain(void *arg)
{
	waits++;
	rpma_cq_wait(arg);
	check_fail("a wait has ended");
	return NULL;
}

/* Cancels so many threads that wait, each a little later than the one before: it looks, and then sleeps. */
static void
cancel_waits(struct rpma_cq *cq, int times, int step_us)
{
	for (int i = 0; i < times; i++) {
		pthread_t thread;
		void *result;

		waits = 0;
		CHECK_INT(pthread_create(&thread, NULL, wait_in_vain, cq), 0);
		while (waits == 0)
			sched_yield();
		spend(i * step_us);
		CHECK_INT(pthread_cancel(thread), 0);
		CHECK_INT(pthread_join(thread, &result), 0);
		CHECK(result == PTHREAD_CANCELED);
	}
}

/* Threads that are cancelled while they wait for what does not come leave nothing behind that others need. */
static void
cancelled_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr;
	struct ibv_wc wc;
	struct ends e;

	only_where_threads_may_be_cancelled();
	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	OK(rpma_recv(e.conn, mr, 0, 8, ID(1)));
	give_mr(side, 0, mr);
	next_wc(e.cq, &wc);
	CHECK_INT(wc.opcode, IBV_WC_RECV);
	check_pattern("the message", mem, 8, 3, 0);
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
cancelled_client(struct side *side)
{
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	unsigned char *mem = memory(PAGE, 0);
	struct ibv_wc wc;
	struct ends e;

	only_where_threads_may_be_cancelled();
	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	cancel_waits(e.cq, 50, 10);
	pattern(mem, 8, 3);
	OK(rpma_read(e.conn, mr, 64, remote, 0, 64, RPMA_F_COMPLETION_ALWAYS, ID(2)));
	next_wc(e.cq, &wc);
	CHECK_INT(wc.wr_id, 2);
	CHECK_INT(wc.status, IBV_WC_SUCCESS);
	OK(rpma_send(e.conn, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(3)));
	next_wc(e.cq, &wc);
	CHECK_INT(wc.wr_id, 3);
	CHECK_INT(wc.status, IBV_WC_SUCCESS);
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* The other side writes and reads all the time, until it is told to stop by what it reads. */
static void
disturbed_server(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ibv_wc wc;
	struct ends e;

	only_on_the_software_fabric(side->addr);
	only_where_threads_may_be_cancelled();
	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	remote = take_mr(side, 0);
	while (mem[64] == 0) {
		OK(rpma_write(e.conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ON_ERROR, ID(1)));
		OK(rpma_read(e.conn, mr, 64, remote, 64, 8, RPMA_F_COMPLETION_ALWAYS, ID(2)));
		next_wc(e.cq, &wc);
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
	}
	say(side, 0, "done");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

/* Waits on a busy connection can be interrupted and cancelled as others can. */
static void
disturbed_client(struct side *side)
{
	unsigned char *mem = memory(PAGE, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	only_on_the_software_fabric(side->addr);
	only_where_threads_may_be_cancelled();
	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	give_mr(side, 0, mr);
	cancel_waits(e.cq, 20, 100);
	for (int i = 0; i < 200; i++) {
		signals_on();
		CHECK_CODE(rpma_cq_wait(e.cq), RPMA_E_NO_COMPLETION);
		CHECK_INT(errno, EINTR);
		signals_off();
	}
	mem[64] = 1;
	hear(side, 0, "done");
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* Connections come and go between signals, too. Waiting for an event may be interrupted. */
static enum rpma_conn_event
event_despite_signals(struct rpma_conn *conn)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	int ret;

	while ((ret = rpma_conn_next_event(conn, &event)) != 0)
		CHECK_INT(errno, EINTR);
	return event;
}

static void
interrupted_handshakes_server(struct side *side)
{
	struct rpma_peer *peer;
	struct rpma_ep *ep;
	char port[8];

	only_on_the_software_fabric(side->addr);
	alarm(0);
	peer = peer_on(side->addr);
	ep = listen_on(peer, side->addr, port);
	give(side, 0, port, sizeof(port));
	signals_on();
	for (int i = 0; i < 50; i++) {
		struct rpma_conn_req *req = NULL;
		struct rpma_conn *conn = NULL;

		while (rpma_ep_next_conn_req(ep, NULL, &req) != 0)
			CHECK_INT(errno, EINTR);
		OK(rpma_conn_req_connect(&req, NULL, &conn));
		CHECK_INT(event_despite_signals(conn), RPMA_CONN_ESTABLISHED);
		CHECK_INT(event_despite_signals(conn), RPMA_CONN_CLOSED);
		OK(rpma_conn_disconnect(conn));
		OK(rpma_conn_delete(&conn));
	}
	signals_off();
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
interrupted_handshakes_client(struct side *side)
{
	struct rpma_peer *peer;
	char port[8];

	only_on_the_software_fabric(side->addr);
	alarm(0);
	peer = peer_on(side->addr);
	take(side, 0, port, sizeof(port));
	signals_on();
	for (int i = 0; i < 50; i++) {
		struct rpma_conn_req *req = NULL;
		struct rpma_conn *conn = NULL;

		while (rpma_conn_req_new(peer, side->addr, port, NULL, &req) != 0)
			CHECK_INT(errno, EINTR);
		OK(rpma_conn_req_connect(&req, NULL, &conn));
		CHECK_INT(event_despite_signals(conn), RPMA_CONN_ESTABLISHED);
		OK(rpma_conn_disconnect(conn));
		CHECK_INT(event_despite_signals(conn), RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&conn));
	}
	signals_off();
	OK(rpma_peer_delete(&peer));
}

/* ---- limits ---- */

static int
lowest_free_descriptor(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_INT(close(fd), 0);
	return fd;
}

static void
limit_descriptors(rlim_t n)
{
	struct rlimit limit;

	CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = n;
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Both ends of a connection in this process. The step at which it ended: negative if it did not. */
static int
both_ends(const char *addr, const char *port)
{
	struct ibv_context *device = NULL;
	struct rpma_conn *active = NULL, *passive = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_peer *peer = NULL;
	struct rpma_ep *ep = NULL;
	int step = 0, fd = -1;

	if (rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &device) != 0 || device == NULL)
		return step;
	step++;
	if (rpma_peer_new(device, &peer) != 0)
		return step;
	step++;
	if (rpma_ep_listen(peer, addr, port, &ep) == 0) {
		step++;
		if (rpma_conn_req_new(peer, addr, port, NULL, &req) == 0) {
			step++;
			if (rpma_conn_req_connect(&req, NULL, &active) == 0) {
				struct pollfd came;

				step++;
				OK(rpma_ep_get_fd(ep, &fd));
				came = (struct pollfd){.fd = fd, .events = POLLIN};
				/* Without a descriptor to accept it with, the request does not come. */
				if (poll(&came, 1, 300) == 1) {
					step++;
					if (rpma_ep_next_conn_req(ep, NULL, &req) == 0) {
						step++;
						if (rpma_conn_req_connect(&req, NULL, &passive) == 0) {
							expect_event(passive, RPMA_CONN_ESTABLISHED);
							expect_event(active, RPMA_CONN_ESTABLISHED);
							step = -1;
						}
					}
				}
			}
		}
	}
	CHECK(req == NULL);
	OK(rpma_conn_delete(&active));
	OK(rpma_conn_delete(&passive));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
	return step;
}

/* However few descriptors there are: an error, nothing worse, nothing kept; and with enough of them all goes well. */
static void
no_descriptors(const char *addr)
{
	int steps[16] = {0}, before, reserved, n;
	struct rlimit limit;
	char port[8];

	only_on_the_software_fabric(addr);
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
	reserved = reserve_port(addr, port);
	CHECK_INT(close(reserved), 0);
	before = lowest_free_descriptor();
	for (n = 0; n < 200; n++) {
		int step;

		limit_descriptors((rlim_t)(before + n));
		step = both_ends(addr, port);
		limit_descriptors(limit.rlim_cur);
		if (step < 0)
			break;
		CHECK(step < 16);
		steps[step]++;
	}
	CHECK(n > 5 && n < 200);
	check_info("%d descriptors are enough; with fewer it ended at finding the device %d times, the peer %d, listening %d, asking %d, "
		"connecting %d, waiting for the request %d, taking it %d, accepting it %d", n, steps[0], steps[1], steps[2], steps[3],
		steps[4], steps[5], steps[6], steps[7]);
	CHECK(steps[0] + steps[1] > 0 && steps[2] + steps[3] > 0);
	for (int i = 0; i < 3; i++)
		CHECK_INT(both_ends(addr, port), -1);
	/* The device, and the fabric's thread, keep theirs; two more rounds do not take more. */
	n = lowest_free_descriptor();
	CHECK_INT(both_ends(addr, port), -1);
	CHECK_INT(lowest_free_descriptor(), n);
}

/* The software fabric locks no memory, so that limit does not concern it. */
static void
no_locked_memory(const char *addr)
{
	struct rlimit none = {0, 0};
	struct rpma_mr_local *mr;
	struct rpma_peer *peer;

	only_on_the_software_fabric(addr);
	CHECK_INT(setrlimit(RLIMIT_MEMLOCK, &none), 0);
	peer = peer_on(addr);
	mr = registered(peer, memory(64 * AREA, 0), 64 * AREA, USAGE_ALL);
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&peer));
}

/* ---- memory that its file cannot back ---- */

/* A file system with room for half of the file. */
static int
file_on_small_disk(char *why, size_t size)
{
	char options[64], path[] = "/tmp/rpma-small-disk-XXXXXX", file[64];
	int fd;

	if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
		snprintf(why, size, "no namespace to mount in: %s", strerror(errno));
		return -1;
	}
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mkdtemp(path) == NULL) {
		snprintf(why, size, "no folder to mount on: %s", strerror(errno));
		return -1;
	}
	snprintf(options, sizeof(options), "size=%d", AREA / 2);
	if (mount("none", path, "tmpfs", 0, options) != 0) {
		snprintf(why, size, "no file system to fill: %s", strerror(errno));
		rmdir(path);
		return -1;
	}
	snprintf(file, sizeof(file), "%s/file", path);
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && ftruncate(fd, AREA) == 0);
	/* It ends with its last user. */
	CHECK_INT(umount2(path, MNT_DETACH), 0);
	CHECK_INT(rmdir(path), 0);
	return fd;
}

/*
 * Two files that the client writes to and flushes: one on a disk that becomes full, one that becomes shorter. What has no room
 * fails, in the client's completion; the server lives, and the next connection works.
 */
static void
no_room_server(struct side *side)
{
	char path[] = "/tmp/rpma-short-file-XXXXXX", why[128] = "";
	struct rpma_peer *peer;
	struct rpma_ep *ep;
	char port[8];

	skip_under_memcheck();
	only_on_the_software_fabric(side->addr);
	peer = peer_on(side->addr);
	ep = listen_on(peer, side->addr, port);
	give(side, 0, port, sizeof(port));
	for (int i = 0; i < 3; i++) {
		bool is_short = i == 1;
		int fd = is_short ? mkstemp(path) : file_on_small_disk(why, sizeof(why)), there;
		struct rpma_conn *conn;
		struct rpma_mr_local *mr;
		unsigned char *mem;

		there = fd >= 0;
		give(side, 0, &there, sizeof(there));
		if (!there) {
			check_info("%s", why);
			continue;
		}
		if (is_short)
			CHECK(unlink(path) == 0 && ftruncate(fd, AREA) == 0);
		mem = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(mem != MAP_FAILED);
		mr = registered(peer, mem, AREA, USAGE_ALL);
		if (is_short)
			CHECK_INT(ftruncate(fd, AREA / 2), 0);
		conn = accept_one(ep, NULL, NULL, 0);
		give_mr(side, 0, mr);
		hear(side, 0, "tried");
		expect_event(conn, RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&conn));
		OK(rpma_mr_dereg(&mr));
		CHECK_INT(munmap(mem, AREA), 0);
		CHECK_INT(close(fd), 0);
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
no_room_client(struct side *side)
{
	struct rpma_peer *peer;
	struct rpma_peer_cfg *pcfg = NULL;
	char port[8];

	skip_under_memcheck();
	only_on_the_software_fabric(side->addr);
	peer = peer_on(side->addr);
	OK(rpma_peer_cfg_new(&pcfg));
	OK(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true));
	take(side, 0, port, sizeof(port));
	for (int i = 0; i < 3; i++) {
		unsigned char *mem = memory(AREA, 1);
		struct rpma_mr_remote *remote;
		struct rpma_mr_local *mr;
		struct rpma_conn *conn;
		struct ibv_wc wc;
		int there;
		size_t at;

		take(side, 0, &there, sizeof(there));
		if (!there)
			continue;
		conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
		OK(rpma_conn_apply_remote_peer_cfg(conn, pcfg));
		mr = registered(peer, mem, AREA, USAGE_ALL);
		remote = take_mr(side, 0);
		/* A quarter at a time, small and large writes by turns, each flushed. */
		for (at = 0; at < AREA; at += AREA / 4) {
			OK(rpma_write(conn, remote, at, mr, at, i == 0 ? PAGE : AREA / 4, RPMA_F_COMPLETION_ON_ERROR, ID(1)));
			OK(rpma_flush(conn, remote, at, i == 0 ? PAGE : AREA / 4, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS,
				ID(2)));
			next_wc(cq_of(conn), &wc);
			if (wc.status != IBV_WC_SUCCESS)
				break;
		}
		if (i == 0) {
			/* Single pages of each quarter: there is room for them. */
			CHECK_INT(at, AREA);
		} else {
			CHECK_INT(at, AREA / 2);
			CHECK(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_OP_ERR);
			CHECK_INT(wc.wr_id, 1);
		}
		say(side, 0, "tried");
		OK(rpma_mr_remote_delete(&remote));
		OK(rpma_conn_delete(&conn));
		OK(rpma_mr_dereg(&mr));
	}
	OK(rpma_peer_cfg_delete(&pcfg));
	OK(rpma_peer_delete(&peer));
}

/* ---- a clock that jumps ---- */

static _Atomic bool clock_jumps;
static _Atomic unsigned jumps;

static long
jump(void)
{
	/* Years ahead, and back again. */
	return clock_jumps ? (++jumps % 2 != 0 ? 1 : -1) * 300000000L : 0;
}

/* In the place of the C library's, also for the library under test. */
int
clock_gettime(clockid_t which, struct timespec *time)
{
	int ret = (int)syscall(SYS_clock_gettime, which, time);

	if (ret == 0 && which == CLOCK_REALTIME)
		time->tv_sec += jump();
	return ret;
}

static void
clock_jumps_server(struct side *side)
{
	struct ends e;

	clock_jumps = true;
	open_server(side, &e, NULL);
	close_server(&e);
}

static void
clock_jumps_client(struct side *side)
{
	unsigned char *mem = memory(PAGE, 1);
	struct rpma_mr_local *mr;
	struct timespec time;
	struct ibv_wc wc;
	struct ends e;

	clock_jumps = true;
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_DEBUG);
	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, PAGE, USAGE_ALL);
	for (unsigned i = 0; i < 20; i++) {
		OK(rpma_write(e.conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		next_wc(e.cq, &wc);
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		CHECK_INT(wc.wr_id, i);
	}
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
	CHECK_INT(clock_gettime(CLOCK_REALTIME, &time), 0);
	CHECK(jumps > 0);
}

/* ---- a peer that is stopped ---- */

static char
state_of(pid_t pid)
{
	char path[64], line[512], *end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	n = read(fd, line, sizeof(line) - 1);
	CHECK(n > 0);
	line[n] = '\0';
	CHECK_INT(close(fd), 0);
	end = strrchr(line, ')');
	CHECK(end != NULL && end[1] == ' ');
	return end[2];
}

static void
stopped_server(struct side *side)
{
	unsigned char *mem = memory(AREA, 0);
	struct rpma_mr_local *mr;
	struct ends e;

	open_server(side, &e, NULL);
	mr = registered(e.peer, mem, AREA, USAGE_ALL);
	give_mr(side, 0, mr);
	hear(side, 0, "done");
	check_pattern("what was written", mem, AREA, 19, 0);
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
stopped_client(struct side *side)
{
	unsigned char *mem = memory(AREA, 0);
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *mr;
	struct ibv_wc wc;
	struct ends e;

	open_client(side, &e, NULL);
	mr = registered(e.peer, mem, AREA, USAGE_ALL);
	remote = take_mr(side, 0);
	for (unsigned i = 0; i < 20; i++) {
		pattern(mem, AREA, i);
		if (i % 2 == 0) {
			CHECK_INT(kill(side->server, SIGSTOP), 0);
			while (state_of(side->server) != 'T')
				sched_yield();
		}
		for (unsigned j = 0; j < 4; j++)
			OK(rpma_write(e.conn, remote, j * AREA / 4, mr, j * AREA / 4, AREA / 4,
				j == 3 ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, ID(i)));
		if (i % 2 == 0) {
			/* Software that is stopped executes nothing. */
			if (on_soft(side->addr))
				expect_no_wc(e.cq);
			CHECK_INT(kill(side->server, SIGCONT), 0);
		}
		next_wc(e.cq, &wc);
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		CHECK_INT(wc.wr_id, i);
	}
	say(side, 0, "done");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* ---- an end without cleaning up ---- */

static void *
wait_for_ever(void *cq)
{
	(void)rpma_cq_wait(cq);
	return NULL;
}

/* A process with connections, regions, and threads that wait, simply ends. */
static void
leaves_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	give(side, 0, port, sizeof(port));
	for (int way = 0; way < 3; way++) {
		struct rpma_conn *conn = accept_one(ep, NULL, NULL, 0);

		expect_event(conn, RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&conn));
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
leaves_client(struct side *side)
{
	char port[8];

	take(side, 0, port, sizeof(port));
	for (int way = 0; way < 3; way++) {
		int status;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			/* Still there, so that nothing is leaked either. */
			static struct rpma_peer *volatile peer;
			static struct rpma_conn *volatile conn;
			static struct rpma_mr_local *volatile mr;
			pthread_t thread;

			peer = peer_on(side->addr);
			conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
			mr = registered(peer, memory(AREA, 0), AREA, USAGE_ALL);
			OK(rpma_recv(conn, mr, 0, 8, ID(1)));
			CHECK_INT(pthread_create(&thread, NULL, wait_for_ever, cq_of(conn)), 0);
			if (way == 0)
				exit(7);
			if (way == 1)
				quick_exit(7);
			_exit(7);
		}
		CHECK_INT(waitpid(pid, &status, 0), pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
}

/* ---- an end with the last message ---- */

#define GOODBYES 10

/* What has arrived has arrived, though its receiver ends as soon as it knows. */
static void
ends_with_a_message_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	struct rpma_mr_local *mr = registered(peer, memory(PAGE, 3), PAGE, USAGE_ALL);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	give(side, 0, port, sizeof(port));
	for (int i = 0; i < GOODBYES; i++) {
		struct rpma_conn *conn = accept_one(ep, NULL, NULL, 0);
		struct ibv_wc wc;

		OK(rpma_send(conn, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(i)));
		next_wc(cq_of(conn), &wc);
		CHECK_INT(wc.status, IBV_WC_SUCCESS);
		CHECK_INT(wc.wr_id, i);
		expect_event(conn, RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&conn));
	}
	OK(rpma_mr_dereg(&mr));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
ends_with_a_message_client(struct side *side)
{
	char port[8];

	take(side, 0, port, sizeof(port));
	for (int i = 0; i < GOODBYES; i++) {
		int status;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			/* Still there, so that nothing is leaked either. */
			static struct rpma_peer *volatile peer;
			static struct rpma_conn *volatile conn;
			static struct rpma_mr_local *volatile mr;
			unsigned char *mem = memory(PAGE, 0);
			struct ibv_wc wc;
			int got;

			peer = peer_on(side->addr);
			mr = registered(peer, mem, PAGE, USAGE_ALL);
			conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
			OK(rpma_recv(conn, mr, 0, 8, ID(i)));
			/* One that polls, and one that waits, hear of it in different ways. */
			if (i % 2 == 0)
				OK(rpma_cq_wait(cq_of(conn)));
			do
				got = rpma_cq_get_wc(cq_of(conn), 1, &wc, NULL);
			while (got == RPMA_E_NO_COMPLETION);
			CHECK_INT(got, 0);
			CHECK_INT(wc.status, IBV_WC_SUCCESS);
			CHECK_FILL(mem, 3, 8);
			exit(7);
		}
		CHECK_INT(waitpid(pid, &status, 0), pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
}

/* ---- threads that end ---- */

struct handed_on {
	const char *addr;
	const char *port;
	struct rpma_peer *peer;
	struct rpma_conn *conn;
	struct rpma_mr_local *mr;
	unsigned char *mem;
};

static void *
open_and_end(void *arg)
{
	struct handed_on *h = arg;

	h->peer = peer_on(h->addr);
	h->conn = connect_to(h->peer, h->addr, h->port, NULL, NULL, 0);
	h->mr = registered(h->peer, h->mem, PAGE, USAGE_ALL);
	return NULL;
}

static void *
use_and_end(void *arg)
{
	struct handed_on *h = arg;
	struct ibv_wc wc;

	OK(rpma_write(h->conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, ID(5)));
	next_wc(cq_of(h->conn), &wc);
	CHECK_INT(wc.status, IBV_WC_SUCCESS);
	OK(rpma_recv(h->conn, h->mr, 0, 8, ID(6)));
	pthread_exit(NULL);
}

static void *
close_and_end(void *arg)
{
	struct handed_on *h = arg;

	part(&h->conn);
	OK(rpma_mr_dereg(&h->mr));
	OK(rpma_peer_delete(&h->peer));
	return NULL;
}

/* What one thread has made, another uses, and a third one releases; none of them is there any more when the next one comes. */
static void
threads_end_server(struct side *side)
{
	struct rpma_peer *peer = peer_on(side->addr);
	char port[8];
	struct rpma_ep *ep = listen_on(peer, side->addr, port);

	give(side, 0, port, sizeof(port));
	for (int i = 0; i < 20; i++) {
		struct rpma_conn *conn = accept_one(ep, NULL, NULL, 0);

		part_after(&conn);
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
threads_end_client(struct side *side)
{
	char port[8];
	struct handed_on h = {.addr = side->addr, .port = port, .mem = memory(PAGE, 0)};

	take(side, 0, port, sizeof(port));
	for (int i = 0; i < 20; i++) {
		void *(*const steps[])(void *) = {open_and_end, use_and_end, close_and_end};

		for (size_t step = 0; step < 3; step++) {
			pthread_t thread;

			CHECK_INT(pthread_create(&thread, NULL, steps[step], &h), 0);
			CHECK_INT(pthread_join(thread, NULL), 0);
		}
	}
}

static const struct test tests[] = {
	PAIR(interrupted),
	PAIR(restarted),
	PAIR(restarted_among_others),
	PAIR(signal_ends_a_wait),
	PAIR(handler_waits),
	PAIR(handler_takes_long),
	PAIR(cancelled),
	PAIR(disturbed),
	PAIR(interrupted_handshakes),
	LOCAL(no_descriptors),
	LOCAL(no_locked_memory),
	PAIR(no_room),
	PAIR(clock_jumps),
	PAIR(stopped),
	PAIR(leaves),
	PAIR(ends_with_a_message),
	PAIR(threads_end),
	END,
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
