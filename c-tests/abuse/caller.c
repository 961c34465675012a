/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * caller.c - a client that calls a server which is not one of ours: connects, and if that succeeds posts receives, reads
 * and writes what it is allowed to, and waits for the end of everything. Whatever the server says, it must come to an end
 * in good order.
 *
 * usage: caller ADDR PORT
 *
 * Says what became of it: "refused" if there was no connection, else "established", then "completion ID STATUS" for each
 * request in order of completion, then the event that ended the connection. The descriptor of a region is taken from the
 * private data, if it is one.
 */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/fabric.h"

#define GUARD 0xa5
#define RECEIVES 4
#define REQUESTS 4
#define PATIENCE 60 /* seconds */

int
main(int argc, char **argv)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_private_data pdata;
	struct rpma_mr_remote *remote = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *mr;
	struct rpma_peer *peer;
	struct rpma_cq *cq, *rcq;
	struct rpma_conn_cfg *cfg;
	unsigned char *mem;
	struct ibv_wc wc;
	int ret;

	if (argc != 3) {
		fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
		return 2;
	}
	snprintf(check_role, sizeof(check_role), "caller");
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(PATIENCE);
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
	peer = peer_on(argv[1]);
	cfg = sizes(SIZE_KEEP, RECEIVES, SIZE_KEEP, SIZE_KEEP);
	mem = memory(3 * PAGE, GUARD);
	mr = registered(peer, mem + PAGE, PAGE, USAGE_ALL);
	ret = rpma_conn_req_new(peer, argv[1], argv[2], cfg, &req);
	if (ret == 0)
		ret = rpma_conn_req_connect(&req, NULL, &conn);
	if (ret == 0)
		OK(rpma_conn_next_event(conn, &event));
	if (event != RPMA_CONN_ESTABLISHED) {
		printf("refused\n");
	} else {
		unsigned sent = 0, received = 0;

		printf("established\n");
		cq = cq_of(conn);
		OK(rpma_conn_get_rcq(conn, &rcq));
		OK(rpma_conn_get_private_data(conn, &pdata));
		(void)rpma_mr_remote_from_descriptor(pdata.ptr, pdata.len, &remote);
		/* The connection may be broken before a request is posted; what was posted must complete. */
		while (received < RECEIVES && rpma_recv(conn, mr, received * 64, 64, ID(10 + received)) == 0)
			received++;
		while (remote != NULL && sent < REQUESTS) {
			ret = sent % 2 ? rpma_read(conn, mr, 0, remote, 0, 256, RPMA_F_COMPLETION_ALWAYS, ID(sent)) :
				rpma_write(conn, remote, 0, mr, 0, 256, RPMA_F_COMPLETION_ALWAYS, ID(sent));
			if (ret != 0)
				break;
			sent++;
		}
		OK(rpma_conn_next_event(conn, &event));
		(void)rpma_conn_disconnect(conn);
		for (unsigned i = 0; i < sent; i++) {
			next_wc(cq, &wc);
			CHECK_INT(wc.wr_id, i);
			printf("completion %u %s\n", i, ibv_wc_status_str(wc.status));
		}
		for (unsigned i = 0; i < received; i++) {
			next_wc(rcq, &wc);
			CHECK_INT(wc.wr_id, 10 + i);
			printf("completion %u %s\n", 10 + i, ibv_wc_status_str(wc.status));
		}
		expect_no_wc(cq);
		expect_no_wc(rcq);
		printf("%s\n", rpma_utils_conn_event_2str(event));
		if (remote != NULL)
			OK(rpma_mr_remote_delete(&remote));
	}
	if (conn != NULL)
		OK(rpma_conn_delete(&conn));
	OK(rpma_mr_dereg(&mr));
	CHECK_FILL(mem, GUARD, PAGE);
	CHECK_FILL(mem + 2 * PAGE, GUARD, PAGE);
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_peer_delete(&peer));
	printf("end\n");
	return 0;
}
