/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * fabric.h - what nearly every test does with the library, with every result checked: find a device, listen, connect,
 * take completions, part. A test of one of these steps itself calls the library directly.
 */

#ifndef FABRIC_H
#define FABRIC_H

#include <librpma.h>
#include <stdint.h>

#include "harness.h"

/* A request's context, as the library takes it, from a number. */
#define ID(n) ((const void *)(uintptr_t)(n))

/* All usage bits that let the other side and this one do anything. */
#define USAGE_ALL (RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST | \
	RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV)

#define PAGE 4096

/* The device that has the address, and a peer on it. */
struct ibv_context *device_of(const char *addr);
struct rpma_peer *peer_on(const char *addr);

/*
 * True on the kernel's soft-RoCE device, which reports some receiver's errors as others than the InfiniBand
 * specification says; the tests hold every other device to the specification.
 */
bool on_rxe(const char *addr);

/* True on the software fabric. */
bool on_soft(const char *addr);

/* Listens on the address at a port that is free; tests that run side by side get different ones. */
struct rpma_ep *listen_on(struct rpma_peer *peer, const char *addr, char port[8]);

/* A port on which nobody listens, kept from others until the descriptor is closed. */
int reserve_port(const char *addr, char port[8]);

/* The next request, answered with the private data (or none); returned once it is established. */
struct rpma_conn *accept_one(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg, const void *data, uint8_t len);

/* A connection to the address, established. */
struct rpma_conn *connect_to(struct rpma_peer *peer, const char *addr, const char *port,
	const struct rpma_conn_cfg *cfg, const void *data, uint8_t len);

/* The next event is this one. */
void expect_event(struct rpma_conn *conn, enum rpma_conn_event want);

/* Ends a connection: by this side, or after the other side did. Both see RPMA_CONN_CLOSED. */
void part(struct rpma_conn **conn);
void part_after(struct rpma_conn **conn);

/* Page-aligned memory of at least one page, filled with a byte. */
void *memory(size_t size, unsigned char fill);

/* The n-th byte of a pattern that differs by seed; no period that a copying error could hide in. */
unsigned char pattern_at(unsigned seed, size_t n);
void pattern(void *ptr, size_t size, unsigned seed);
void check_pattern(const char *what, const void *ptr, size_t size, unsigned seed, size_t from);

/* A registration, and its way to the other side. */
struct rpma_mr_local *registered(struct rpma_peer *peer, void *ptr, size_t size, int usage);
void give_mr(struct side *side, int who, const struct rpma_mr_local *mr);
struct rpma_mr_remote *take_mr(struct side *side, int who);

/* The next completion of the queue: waits for it if there is none yet. */
void next_wc(struct rpma_cq *cq, struct ibv_wc *wc);

/* There is none. */
void expect_no_wc(struct rpma_cq *cq);

/* The next completion is a success of this request; byte_len is checked where verbs defines it (receive, read). */
void expect_done(struct rpma_cq *cq, struct rpma_conn *conn, enum ibv_wc_opcode opcode, uint64_t id, uint32_t byte_len);

/* The next completion has this status and request, whatever the opcode. */
void expect_status(struct rpma_cq *cq, struct rpma_conn *conn, enum ibv_wc_status status, uint64_t id);

/* The connection's main queue. */
struct rpma_cq *cq_of(const struct rpma_conn *conn);
uint32_t qp_num_of(const struct rpma_conn *conn);

/* Waits until the descriptor is readable. */
void wait_readable(int fd);
bool readable(int fd);
void set_nonblocking(int fd);

/* What a pair's side needs first. */
struct ends {
	struct rpma_peer *peer;
	struct rpma_ep *ep;		/* server only */
	struct rpma_conn *conn;
	struct rpma_cq *cq;
};

/* Brings up the usual pair: the server listens and tells the client, one connection, no private data. */
void open_server(struct side *side, struct ends *ends, const struct rpma_conn_cfg *cfg);
void open_client(struct side *side, struct ends *ends, const struct rpma_conn_cfg *cfg);

/* And down: the client parts, the server follows. Regions must have been released before. */
void close_server(struct ends *ends);
void close_client(struct ends *ends);

/* A configuration with the sizes; SIZE_KEEP leaves the default. */
#define SIZE_KEEP 0xcafecafeu
struct rpma_conn_cfg *sizes(uint32_t cq, uint32_t rcq, uint32_t sq, uint32_t rq);

/* A failure inside a helper is reported with the line of the test that called it. */
#ifndef FABRIC_IMPLEMENTATION
#define device_of(...) (CHECK_FROM(), device_of(__VA_ARGS__))
#define peer_on(...) (CHECK_FROM(), peer_on(__VA_ARGS__))
#define listen_on(...) (CHECK_FROM(), listen_on(__VA_ARGS__))
#define reserve_port(...) (CHECK_FROM(), reserve_port(__VA_ARGS__))
#define accept_one(...) (CHECK_FROM(), accept_one(__VA_ARGS__))
#define connect_to(...) (CHECK_FROM(), connect_to(__VA_ARGS__))
#define expect_event(...) (CHECK_FROM(), expect_event(__VA_ARGS__))
#define part(...) (CHECK_FROM(), part(__VA_ARGS__))
#define part_after(...) (CHECK_FROM(), part_after(__VA_ARGS__))
#define registered(...) (CHECK_FROM(), registered(__VA_ARGS__))
#define give_mr(...) (CHECK_FROM(), give_mr(__VA_ARGS__))
#define take_mr(...) (CHECK_FROM(), take_mr(__VA_ARGS__))
#define check_pattern(...) (CHECK_FROM(), check_pattern(__VA_ARGS__))
#define next_wc(...) (CHECK_FROM(), next_wc(__VA_ARGS__))
#define expect_no_wc(...) (CHECK_FROM(), expect_no_wc(__VA_ARGS__))
#define expect_done(...) (CHECK_FROM(), expect_done(__VA_ARGS__))
#define expect_status(...) (CHECK_FROM(), expect_status(__VA_ARGS__))
#define wait_readable(...) (CHECK_FROM(), wait_readable(__VA_ARGS__))
#define open_server(...) (CHECK_FROM(), open_server(__VA_ARGS__))
#define open_client(...) (CHECK_FROM(), open_client(__VA_ARGS__))
#define close_server(...) (CHECK_FROM(), close_server(__VA_ARGS__))
#define close_client(...) (CHECK_FROM(), close_client(__VA_ARGS__))
#endif

#endif
