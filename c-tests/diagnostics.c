/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * diagnostics.c - what the log says for whoever looks for a fault: for the usual causes the failing call, what it was about, why
 * it failed and what to do; and a connection's life from its beginning to its end. The original words its records otherwise.
 */

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/fabric.h"

/* All records since the last look. The software fabric logs from a thread of its own. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	size_t len;
	char text[1 << 16];
} heard = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, ""};

static void
listen_to(enum rpma_log_level level, const char *file, const int line, const char *function, const char *format, ...)
{
	static const char *const names[] = {"FATAL", "ERROR", "WARNING", "NOTICE", "INFO", "DEBUG"};
	va_list ap;

	(void) file, (void) line;
	pthread_mutex_lock(&heard.lock);
	heard.len += (size_t)snprintf(heard.text + heard.len, sizeof(heard.text) - heard.len, "%s %s: ", names[level], function);
	va_start(ap, format);
	heard.len += (size_t)vsnprintf(heard.text + heard.len, sizeof(heard.text) - heard.len, format, ap);
	va_end(ap);
	if (heard.len > sizeof(heard.text) / 2)
		abort(); /* far more than any test here gives reason for */
	pthread_cond_broadcast(&heard.more);
	pthread_mutex_unlock(&heard.lock);
}

/* From here on everything is heard. */
static void
listen_in(void)
{
	if (is_original())
		check_skip("the original words its records otherwise");
	OK(rpma_log_set_function(listen_to));
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_DEBUG));
}

/*
 * There is a record with these texts, in this order, in one line; it stays. One that another thread writes may come a little
 * later than what it tells of, so it is waited for; the error of a call is there when the call returns.
 */
static void
expect_said(const char *first, const char *second, const char *third)
{
	bool found = false;

	pthread_mutex_lock(&heard.lock);
	while (!found) {
		for (const char *line = heard.text; !found && *line; line = strchr(line, '\n') + 1) {
			const char *end = strchr(line, '\n'), *at = line;
			const char *const wanted[] = {first, second, third};

			found = true;
			for (unsigned i = 0; found && i < 3; i++) {
				const char *next = strstr(at, wanted[i]);

				found = next != NULL && next < end;
				at = next;
			}
		}
		if (found || strstr(first, "ERROR"))
			break;
		pthread_cond_wait(&heard.more, &heard.lock);
	}
	pthread_mutex_unlock(&heard.lock);
	if (!found)
		check_fail("no record \"%s ... %s ... %s\" in:\n%s", first, second, third, heard.text);
}

#define expect_said(...) (CHECK_HERE(), expect_said(__VA_ARGS__))

static void
forget(void)
{
	pthread_mutex_lock(&heard.lock);
	heard.len = 0;
	heard.text[0] = '\0';
	pthread_mutex_unlock(&heard.lock);
}

/* -- the usual causes ------------------------------------------------------------------------------------------------ */

static void
address_of_another(const char *addr)
{
	struct ibv_context *ctx = NULL;

	(void) device_of(addr);
	listen_in();
	/* of a network for documentation, which nobody has */
	CHECK_CODE(rpma_utils_get_ibv_context("192.0.2.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx), RPMA_E_PROVIDER);
	expect_said("ERROR rpma_info_bind_addr: rdma_bind_addr(addr=192.0.2.1) failed: ", strerror(errno), "one of this machine");
}

static void
port_taken(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_ep *ep, *second = NULL;
	char port[8], text[64];

	ep = listen_on(peer, addr, port);
	listen_in();
	CHECK_CODE(rpma_ep_listen(peer, addr, port, &second), RPMA_E_PROVIDER);
	snprintf(text, sizeof(text), "(addr=%s", addr);
	expect_said("ERROR ", text, "failed: Address already in use (a program listens there already");
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
port_unknown(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_ep *ep = NULL;

	listen_in();
	CHECK_CODE(rpma_ep_listen(peer, addr, "no-such-service", &ep), RPMA_E_PROVIDER);
	expect_said("ERROR rpma_info_new: rdma_getaddrinfo(node=", "service=no-such-service, Passive) failed: ", " (");
	OK(rpma_peer_delete(&peer));
}

static void
memory_not_mapped(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_mr_local *mr = NULL;
	char text[64];
	void *gone = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(gone != MAP_FAILED);
	CHECK(munmap(gone, PAGE) == 0);
	listen_in();
	CHECK_CODE(rpma_mr_reg(peer, gone, PAGE, RPMA_MR_USAGE_READ_SRC, &mr), RPMA_E_PROVIDER);
	snprintf(text, sizeof(text), "ibv_reg_mr(addr=%p, length=4096, access=0x", gone);
	expect_said("ERROR rpma_peer_setup_mr_reg: ", text, "failed: Bad address (is all of the range mapped");
	OK(rpma_peer_delete(&peer));
}

/* The software fabric locks no memory. */
static void
memory_not_lockable(const char *addr)
{
	const struct rlimit little = {1 << 16, 1 << 16};
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[2];
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_mr_local *mr = NULL;
	const size_t size = 1 << 20;
	void *ptr = memory(size, 0);

	/* who has this capability is not limited */
	CHECK(syscall(SYS_capget, &header, sets) == 0);
	sets[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	CHECK(syscall(SYS_capset, &header, sets) == 0);
	CHECK(setrlimit(RLIMIT_MEMLOCK, &little) == 0);
	listen_in();
	if (on_soft(addr)) {
		OK(rpma_mr_reg(peer, ptr, size, RPMA_MR_USAGE_READ_SRC, &mr));
		OK(rpma_mr_dereg(&mr));
	} else {
		CHECK_CODE(rpma_mr_reg(peer, ptr, size, RPMA_MR_USAGE_READ_SRC, &mr), RPMA_E_PROVIDER);
		expect_said("ERROR rpma_peer_setup_mr_reg: ibv_reg_mr(addr=", "length=1048576, ",
				"failed: Cannot allocate memory (is the limit of locked memory large enough? raise `ulimit -l`");
	}
	OK(rpma_peer_delete(&peer));
}

static void
private_data_too_long(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL, *refused = NULL;
	unsigned char data[197] = {0};
	struct rpma_conn_private_data pdata = {data, 57};
	char port[8];
	struct rpma_ep *ep = listen_on(peer, addr, port);

	listen_in();
	OK(rpma_conn_req_new(peer, addr, port, NULL, &req));
	CHECK_CODE(rpma_conn_req_connect(&req, &pdata, &conn), RPMA_E_PROVIDER);
	expect_said("ERROR rpma_conn_new_connect: ", "rdma_connect(private_data_len=57) failed: Invalid argument",
			"the private data is too long: 56 bytes fit here");
	/* The answer has more room. */
	pdata.len = 197;
	OK(rpma_conn_req_new(peer, addr, port, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	OK(rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK_CODE(rpma_conn_req_connect(&req, &pdata, &refused), RPMA_E_PROVIDER);
	CHECK(refused == NULL);
	expect_said("ERROR rpma_conn_new_accept: ", "rdma_accept(private_data_len=197) failed: Invalid argument",
			"the private data is too long: 196 bytes fit here");
	expect_event(conn, RPMA_CONN_REJECTED);
	OK(rpma_conn_delete(&conn));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
nobody_listens(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	char port[8], text[32];
	int reserved = reserve_port(addr, port);

	listen_in();
	OK(rpma_conn_req_new(peer, addr, port, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	snprintf(text, sizeof(text), "(QP %u, ", qp_num_of(conn));
	expect_event(conn, RPMA_CONN_REJECTED);
	expect_said("NOTICE rpma_conn_next_event: Connection rejected: nobody listens at this address and port ", text,
			"RDMA_CM_EVENT_REJECTED, status ");
	OK(rpma_conn_delete(&conn));
	OK(rpma_peer_delete(&peer));
	close(reserved);
}

static void
queue_full(const char *addr)
{
	struct rpma_peer *peer = peer_on(addr);
	struct rpma_conn_cfg *cfg = sizes(SIZE_KEEP, SIZE_KEEP, SIZE_KEEP, 1);
	struct rpma_mr_local *mr = registered(peer, memory(PAGE, 0), PAGE, RPMA_MR_USAGE_RECV);
	struct rpma_conn_req *req = NULL;
	char port[8];
	struct rpma_ep *ep = listen_on(peer, addr, port);
	int ret = 0, error;

	listen_in();
	OK(rpma_conn_req_new(peer, addr, port, cfg, &req));
	errno = 0;
	/* a device may have more room than it was asked for */
	for (unsigned i = 0; ret == 0 && i < 100000; i++)
		ret = rpma_conn_req_recv(req, mr, 0, 8, ID(0x77));
	error = errno;
	CHECK_CODE(ret, RPMA_E_PROVIDER);
	/* verbs need only return the number */
	if (on_soft(addr))
		CHECK_INT(error, ENOMEM);
	expect_said("ERROR rpma_mr_recv: ibv_post_recv(wr_id=0x77) failed: ", "Cannot allocate memory", "the receive queue is full");
	OK(rpma_conn_req_delete(&req));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* -- an operation that the other side refuses ----------------------------------------------------------------------- */

static void
refused_server(struct side *side)
{
	struct rpma_mr_local *mr;
	struct ends e;

	listen_in();
	open_server(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 0), PAGE, RPMA_MR_USAGE_READ_SRC);
	give_mr(side, 0, mr);
	hear(side, 0, "refused");
	if (on_soft(side->addr)) {
		char text[64];

		snprintf(text, sizeof(text), "QP %u: the peer asked for 8 bytes at ", qp_num_of(e.conn));
		expect_said("WARNING rpma_soft: ", text, "and was refused: the region was not registered for this usage");
	}
	OK(rpma_mr_dereg(&mr));
	close_server(&e);
}

static void
refused_client(struct side *side)
{
	struct rpma_mr_local *mr;
	struct rpma_mr_remote *remote;
	struct ends e;
	char text[96];

	listen_in();
	open_client(side, &e, NULL);
	mr = registered(e.peer, memory(PAGE, 0), PAGE, RPMA_MR_USAGE_WRITE_SRC);
	remote = take_mr(side, 0);
	OK(rpma_write(e.conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, ID(0x4711)));
	expect_status(e.cq, e.conn, IBV_WC_REM_ACCESS_ERR, 0x4711);
	snprintf(text, sizeof(text), "QP %u: operation wr_id=0x4711 failed: remote access error (status 10", qp_num_of(e.conn));
	expect_said("DEBUG rpma_cq_get_wc: ", text, "with the usage that this operation needs?");
	say(side, 0, "refused");
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	close_client(&e);
}

/* -- a connection's life --------------------------------------------------------------------------------------------- */

/* The end of the record that names the carrier, as far as it is known in advance. */
static const char *
carrier(void)
{
	const char *choice = getenv("RPMA_SOFT_CARRIER");

	if (choice != NULL && strcmp(choice, "tcp") == 0)
		return "of the peer, by TCP\n";
	if (choice != NULL && strcmp(choice, "local") == 0)
		return "of the peer, by shared memory\n";
	return "of the peer, by ";
}

/* What both sides see of a connection, whatever the fabric. */
static void
expect_life(unsigned num)
{
	char text[32];

	snprintf(text, sizeof(text), "(QP %u, ", num);
	expect_said("NOTICE rpma_conn_next_event: ", "Connection established ", text);
	expect_said("NOTICE rpma_conn_next_event: ", "Connection closed ", text);
}

static void
life_server(struct side *side)
{
	struct ends e;
	unsigned num;
	char text[32];

	listen_in();
	open_server(side, &e, NULL);
	num = qp_num_of(e.conn);
	close_server(&e);
	expect_life(num);
	if (!on_soft(side->addr))
		return;
	snprintf(text, sizeof(text), "QP %u: ", num);
	expect_said("DEBUG rpma_soft: ", "a request for a connection from QP ", " at ");
	expect_said("DEBUG rpma_soft: ", text, "created");
	expect_said("DEBUG rpma_soft: ", text, carrier());
	expect_said("DEBUG rpma_soft: ", text, "established (peer: QP ");
	expect_said("DEBUG rpma_soft: ", text, "disconnected: the peer asks for it");
	expect_said("DEBUG rpma_soft: ", text, "destroyed");
}

static void
life_client(struct side *side)
{
	struct ends e;
	unsigned num;
	char text[32];

	listen_in();
	open_client(side, &e, NULL);
	num = qp_num_of(e.conn);
	close_client(&e);
	snprintf(text, sizeof(text), "(QP %u)", num);
	expect_said("NOTICE rpma_conn_req_new: ", "requesting a connection to ", text);
	expect_said("NOTICE rpma_conn_disconnect: ", "requesting the end of the connection ", text);
	expect_life(num);
	if (!on_soft(side->addr))
		return;
	snprintf(text, sizeof(text), "QP %u: ", num);
	expect_said("DEBUG rpma_soft: ", text, "connecting to ");
	expect_said("DEBUG rpma_soft: ", text, carrier());
	expect_said("DEBUG rpma_soft: ", text, "established (peer: QP ");
	expect_said("DEBUG rpma_soft: ", text, "disconnecting, as this side asks");
	expect_said("DEBUG rpma_soft: ", text, "disconnected: the peer has agreed");
	expect_said("DEBUG rpma_soft: ", text, "destroyed");
}

/* The other side is gone without a word. */
static void
killed_server(struct side *side)
{
	struct ends e;

	if (is_original())
		check_skip("the original words its records otherwise");
	open_server(side, &e, NULL);
	say(side, 0, "up");
	hear(side, 0, "never said");
}

static void
killed_client(struct side *side)
{
	struct ends e;
	char text[32];
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	listen_in();
	open_client(side, &e, NULL);
	snprintf(text, sizeof(text), "QP %u: ", qp_num_of(e.conn));
	hear(side, 0, "up");
	forget();
	kill_server(side);
	OK(rpma_conn_next_event(e.conn, &event));
	if (on_soft(side->addr))
		expect_said("DEBUG rpma_soft: ", text, "disconnected: the peer, or the way to it, is gone");
	OK(rpma_conn_disconnect(e.conn));
	OK(rpma_conn_delete(&e.conn));
	close_client(&e);
}

static const struct test tests[] = {
	LOCAL(address_of_another),
	LOCAL(port_taken),
	LOCAL(port_unknown),
	LOCAL(memory_not_mapped),
	LOCAL(memory_not_lockable),
	LOCAL(private_data_too_long),
	LOCAL(nobody_listens),
	LOCAL(queue_full),
	PAIR(refused),
	PAIR(life),
	KILLED(killed),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
