/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* fabric.c - the steps that nearly every test takes; see fabric.h. */

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define FABRIC_IMPLEMENTATION
#include "fabric.h"

struct ibv_context *
device_of(const char *addr)
{
	struct ibv_context *ctx = NULL;

	OK(rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx));
	CHECK(ctx != NULL);
	return ctx;
}

bool
on_rxe(const char *addr)
{
	return strncmp(ibv_get_device_name(device_of(addr)->device), "rxe", 3) == 0;
}

bool
on_soft(const char *addr)
{
	return strncmp(ibv_get_device_name(device_of(addr)->device), "rpma_soft", 9) == 0;
}

struct rpma_peer *
peer_on(const char *addr)
{
	struct rpma_peer *peer = NULL;

	OK(rpma_peer_new(device_of(addr), &peer));
	CHECK(peer != NULL);
	return peer;
}

struct rpma_ep *
listen_on(struct rpma_peer *peer, const char *addr, char port[8])
{
	struct rpma_ep *ep = NULL;
	enum rpma_log_level level;

	/*
	 * Below the range from which the kernel takes ports of outgoing connections. A port that is taken is no failure,
	 * so what the library logs about it is of no interest.
	 */
	OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level));
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
	for (unsigned attempt = 0; attempt < 100 && ep == NULL; attempt++) {
		int ret;

		snprintf(port, 8, "%u", 16000 + ((unsigned)getpid() * 61 + attempt * 397) % 16000);
		ret = rpma_ep_listen(peer, addr, port, &ep);
		CHECK(ret == 0 || ret == RPMA_E_PROVIDER);
	}
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, level));
	CHECK(ep != NULL);
	return ep;
}

int
reserve_port(const char *addr, char port[8])
{
	struct addrinfo *info = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);
	int fd;

	CHECK(getaddrinfo(addr, "0", &hints, &info) == 0);
	fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	CHECK(bind(fd, info->ai_addr, info->ai_addrlen) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&own, &len) == 0);
	CHECK(getnameinfo((struct sockaddr *)&own, len, NULL, 0, port, 8, NI_NUMERICSERV) == 0);
	freeaddrinfo(info);
	return fd;
}

void
expect_event(struct rpma_conn *conn, enum rpma_conn_event want)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	OK(rpma_conn_next_event(conn, &event));
	CHECK_HERE();
	if (event != want)
		check_fail("event %d (%s), not %d (%s)", event, rpma_utils_conn_event_2str(event), want,
			rpma_utils_conn_event_2str(want));
}

/* Private data of that many bytes, or none. */
static const struct rpma_conn_private_data *
private_data(struct rpma_conn_private_data *pdata, const void *data, uint8_t len)
{
	pdata->ptr = (void *)(uintptr_t)data;
	pdata->len = len;
	return len > 0 ? pdata : NULL;
}

struct rpma_conn *
accept_one(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg, const void *data, uint8_t len)
{
	struct rpma_conn_private_data pdata;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;

	OK(rpma_ep_next_conn_req(ep, cfg, &req));
	CHECK(req != NULL);
	OK(rpma_conn_req_connect(&req, private_data(&pdata, data, len), &conn));
	CHECK(req == NULL && conn != NULL);
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	return conn;
}

struct rpma_conn *
connect_to(struct rpma_peer *peer, const char *addr, const char *port, const struct rpma_conn_cfg *cfg,
	const void *data, uint8_t len)
{
	struct rpma_conn_private_data pdata;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;

	OK(rpma_conn_req_new(peer, addr, port, cfg, &req));
	CHECK(req != NULL);
	OK(rpma_conn_req_connect(&req, private_data(&pdata, data, len), &conn));
	CHECK(req == NULL && conn != NULL);
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	return conn;
}

void
part(struct rpma_conn **conn)
{
	OK(rpma_conn_disconnect(*conn));
	expect_event(*conn, RPMA_CONN_CLOSED);
	OK(rpma_conn_delete(conn));
	CHECK(*conn == NULL);
}

void
part_after(struct rpma_conn **conn)
{
	expect_event(*conn, RPMA_CONN_CLOSED);
	OK(rpma_conn_disconnect(*conn));
	OK(rpma_conn_delete(conn));
	CHECK(*conn == NULL);
}

void *
memory(size_t size, unsigned char fill)
{
	size_t whole = size < PAGE ? PAGE : (size + PAGE - 1) / PAGE * PAGE;
	void *ptr = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(ptr != MAP_FAILED);
	memset(ptr, fill, whole);
	return ptr;
}

unsigned char
pattern_at(unsigned seed, size_t n)
{
	uint64_t x = (uint64_t)n + (uint64_t)seed * 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
	return (unsigned char)(x >> 56);
}

void
pattern(void *ptr, size_t size, unsigned seed)
{
	for (size_t i = 0; i < size; i++)
		((unsigned char *)ptr)[i] = pattern_at(seed, i);
}

void
check_pattern(const char *what, const void *ptr, size_t size, unsigned seed, size_t from)
{
	const unsigned char *got = ptr;

	CHECK_HERE();
	for (size_t i = 0; i < size; i++)
		if (got[i] != pattern_at(seed, from + i))
			check_fail("%s: byte %zu of %zu is 0x%02x, not 0x%02x", what, i, size, got[i],
				pattern_at(seed, from + i));
}

struct rpma_mr_local *
registered(struct rpma_peer *peer, void *ptr, size_t size, int usage)
{
	struct rpma_mr_local *mr = NULL;

	OK(rpma_mr_reg(peer, ptr, size, usage, &mr));
	CHECK(mr != NULL);
	return mr;
}

void
give_mr(struct side *side, int who, const struct rpma_mr_local *mr)
{
	unsigned char desc[64];
	size_t size = 0;

	OK(rpma_mr_get_descriptor_size(mr, &size));
	CHECK_INT(size, 21);
	OK(rpma_mr_get_descriptor(mr, desc));
	give(side, who, desc, size);
}

struct rpma_mr_remote *
take_mr(struct side *side, int who)
{
	struct rpma_mr_remote *mr = NULL;
	unsigned char desc[21];

	take(side, who, desc, sizeof(desc));
	OK(rpma_mr_remote_from_descriptor(desc, sizeof(desc), &mr));
	CHECK(mr != NULL);
	return mr;
}

void
next_wc(struct rpma_cq *cq, struct ibv_wc *wc)
{
	for (;;) {
		int ret = rpma_cq_get_wc(cq, 1, wc, NULL);

		if (ret == 0)
			return;
		CHECK_HERE();
		check_code("rpma_cq_get_wc", ret, RPMA_E_NO_COMPLETION);
		OK(rpma_cq_wait(cq));
	}
}

void
expect_no_wc(struct rpma_cq *cq)
{
	struct ibv_wc wc;

	CHECK_CODE(rpma_cq_get_wc(cq, 1, &wc, NULL), RPMA_E_NO_COMPLETION);
}

void
expect_done(struct rpma_cq *cq, struct rpma_conn *conn, enum ibv_wc_opcode opcode, uint64_t id, uint32_t byte_len)
{
	struct ibv_wc wc;

	memset(&wc, 0xa5, sizeof(wc));
	next_wc(cq, &wc);
	CHECK_HERE();
	if (wc.status != IBV_WC_SUCCESS)
		check_fail("request %llu: status %d (%s), not success", (unsigned long long)wc.wr_id, wc.status,
			ibv_wc_status_str(wc.status));
	check_int("wc.wr_id", (long long)wc.wr_id, (long long)id);
	check_int("wc.opcode", wc.opcode, opcode);
	if (conn != NULL)
		check_int("wc.qp_num", wc.qp_num, qp_num_of(conn));
	if (opcode == IBV_WC_RDMA_READ || opcode == IBV_WC_RECV || opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		check_int("wc.byte_len", wc.byte_len, byte_len);
	if (opcode == IBV_WC_RECV)
		check_int("wc.wc_flags & IBV_WC_WITH_IMM", wc.wc_flags & IBV_WC_WITH_IMM, 0);
}

void
expect_status(struct rpma_cq *cq, struct rpma_conn *conn, enum ibv_wc_status status, uint64_t id)
{
	struct ibv_wc wc;

	memset(&wc, 0xa5, sizeof(wc));
	next_wc(cq, &wc);
	CHECK_HERE();
	if (wc.status != status)
		check_fail("request %llu: status %d (%s), not %d (%s)", (unsigned long long)wc.wr_id, wc.status,
			ibv_wc_status_str(wc.status), status, ibv_wc_status_str(status));
	check_int("wc.wr_id", (long long)wc.wr_id, (long long)id);
	if (conn != NULL)
		check_int("wc.qp_num", wc.qp_num, qp_num_of(conn));
}

struct rpma_cq *
cq_of(const struct rpma_conn *conn)
{
	struct rpma_cq *cq = NULL;

	OK(rpma_conn_get_cq(conn, &cq));
	CHECK(cq != NULL);
	return cq;
}

uint32_t
qp_num_of(const struct rpma_conn *conn)
{
	uint32_t num = 0;

	OK(rpma_conn_get_qp_num(conn, &num));
	return num;
}

void
wait_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	while (poll(&p, 1, -1) < 0)
		CHECK(errno == EINTR);
	CHECK(p.revents & POLLIN);
}

bool
readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	CHECK(poll(&p, 1, 0) >= 0);
	return (p.revents & POLLIN) != 0;
}

void
set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	CHECK(flags >= 0);
	CHECK(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
}

void
open_server(struct side *side, struct ends *ends, const struct rpma_conn_cfg *cfg)
{
	char port[8];

	ends->peer = peer_on(side->addr);
	ends->ep = listen_on(ends->peer, side->addr, port);
	give(side, 0, port, sizeof(port));
	ends->conn = accept_one(ends->ep, cfg, NULL, 0);
	ends->cq = cq_of(ends->conn);
}

void
open_client(struct side *side, struct ends *ends, const struct rpma_conn_cfg *cfg)
{
	char port[8];

	ends->peer = peer_on(side->addr);
	ends->ep = NULL;
	take(side, 0, port, sizeof(port));
	ends->conn = connect_to(ends->peer, side->addr, port, cfg, NULL, 0);
	ends->cq = cq_of(ends->conn);
}

void
close_server(struct ends *ends)
{
	if (ends->conn != NULL)
		part_after(&ends->conn);
	OK(rpma_ep_shutdown(&ends->ep));
	OK(rpma_peer_delete(&ends->peer));
	CHECK(ends->ep == NULL && ends->peer == NULL);
}

void
close_client(struct ends *ends)
{
	if (ends->conn != NULL)
		part(&ends->conn);
	OK(rpma_peer_delete(&ends->peer));
	CHECK(ends->peer == NULL);
}

struct rpma_conn_cfg *
sizes(uint32_t cq, uint32_t rcq, uint32_t sq, uint32_t rq)
{
	struct rpma_conn_cfg *cfg = NULL;

	OK(rpma_conn_cfg_new(&cfg));
	if (cq != SIZE_KEEP)
		OK(rpma_conn_cfg_set_cq_size(cfg, cq));
	if (rcq != SIZE_KEEP)
		OK(rpma_conn_cfg_set_rcq_size(cfg, rcq));
	if (sq != SIZE_KEEP)
		OK(rpma_conn_cfg_set_sq_size(cfg, sq));
	if (rq != SIZE_KEEP)
		OK(rpma_conn_cfg_set_rq_size(cfg, rq));
	return cfg;
}
