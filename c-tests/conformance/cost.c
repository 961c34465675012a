/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * What one call of each data-path function costs over a provider that costs next to nothing. Run
 * under callgrind by cost.py: every row is a dump of its own, named after the row. The counts hold
 * the loop and the provider's stub too, which are the same for every librpma.
 */

#include <stdio.h>
#include <stdlib.h>

#include <valgrind/callgrind.h>

#include <librpma.h>
#include <rdma/rdma_cma.h>

#include "script.h"

#define CALLS 1000

#define MUST(call) \
	do { \
		int ret_ = (call); \
		if (ret_) { \
			fprintf(stderr, "%s: %d\n", #call, ret_); \
			exit(1); \
		} \
	} while (0)

/* The first call, which may set something up, is not counted. */
#define ROW(name, call) \
	do { \
		MUST(call); \
		CALLGRIND_ZERO_STATS; \
		for (int i_ = 0; i_ < CALLS; i_++) \
			failed += (call) != 0; \
		CALLGRIND_DUMP_STATS_AT(name); \
	} while (0)

static char memory[4096] __attribute__((aligned(4096)));

static struct rpma_conn *
connection(struct rpma_peer *peer, bool shared)
{
	struct rpma_conn_cfg *cfg;
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	MUST(rpma_conn_cfg_new(&cfg));
	MUST(rpma_conn_cfg_set_compl_channel(cfg, shared));
	MUST(rpma_conn_req_new(peer, "127.0.0.1", "7204", cfg, &req));
	MUST(rpma_conn_req_connect(&req, NULL, &conn));
	MUST(rpma_conn_cfg_delete(&cfg));
	return conn;
}

int
main(int argc, char *argv[])
{
	int native = argc > 1 && argv[1][0] == 'n';
	script_device.atomic_write = script_device.flush_global = script_device.flush_persistent = native;

	struct rpma_peer *peer;
	struct rpma_mr_local *mr;
	struct rpma_mr_remote *remote;
	struct rpma_srq *srq;
	struct rpma_cq *cq, *event_cq;
	struct ibv_wc wc[16];
	int got, failed = 0;
	static const unsigned char descriptor[21] = {0x00, 0x00, 0x10, [9] = 0x10, [20] = 0xff};

	MUST(rpma_peer_new(script_context(), &peer));
	MUST(rpma_mr_reg(peer, memory, sizeof(memory), 0xff, &mr));
	MUST(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &remote));
	MUST(rpma_srq_new(peer, NULL, &srq));
	struct rpma_conn *conn = connection(peer, false);
	struct rpma_conn *shared = connection(peer, true);
	MUST(rpma_conn_get_cq(conn, &cq));
	void *context = &failed;

	if (native) {
		ROW("atomic write, native", rpma_atomic_write(conn, remote, 8, memory,
				RPMA_F_COMPLETION_ALWAYS, context));
		ROW("flush, native", rpma_flush(conn, remote, 0, 64, RPMA_FLUSH_TYPE_VISIBILITY,
				RPMA_F_COMPLETION_ALWAYS, context));
		return failed != 0;
	}
	ROW("read", rpma_read(conn, mr, 0, remote, 0, 64, RPMA_F_COMPLETION_ALWAYS, context));
	ROW("write", rpma_write(conn, remote, 0, mr, 0, 64, RPMA_F_COMPLETION_ON_ERROR, context));
	ROW("write with immediate", rpma_write_with_imm(conn, remote, 0, mr, 0, 64,
			RPMA_F_COMPLETION_ON_ERROR, 42, context));
	ROW("atomic write", rpma_atomic_write(conn, remote, 8, memory, RPMA_F_COMPLETION_ALWAYS, context));
	ROW("flush", rpma_flush(conn, remote, 0, 64, RPMA_FLUSH_TYPE_VISIBILITY,
			RPMA_F_COMPLETION_ALWAYS, context));
	ROW("send", rpma_send(conn, mr, 0, 64, RPMA_F_COMPLETION_ON_ERROR, context));
	ROW("send with immediate", rpma_send_with_imm(conn, mr, 0, 64, RPMA_F_COMPLETION_ON_ERROR, 42,
			context));
	ROW("recv", rpma_recv(conn, mr, 0, 64, context));
	ROW("srq_recv", rpma_srq_recv(srq, mr, 0, 64, context));
	ROW("get_wc, 1 entry", rpma_cq_get_wc(cq, 1, wc, NULL));
	ROW("get_wc, 16 entries", rpma_cq_get_wc(cq, 16, wc, &got));
	ROW("cq_wait", rpma_cq_wait(cq));
	ROW("conn_wait", rpma_conn_wait(shared, 0, &event_cq, NULL));
	if (failed)
		return 1;
	script_device.cq_empty = 1;
	CALLGRIND_ZERO_STATS;
	for (int i = 0; i < CALLS; i++)
		failed += rpma_cq_get_wc(cq, 1, wc, NULL) != RPMA_E_NO_COMPLETION;
	CALLGRIND_DUMP_STATS_AT("get_wc, nothing there");
	return failed != 0;
}
