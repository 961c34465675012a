/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */
#include <librpma.h>

/* Takes one client and gives the connection, or NULL. */
struct rpma_conn *
accept_one(struct rpma_ep *ep)
{
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	if (rpma_ep_next_conn_req(ep, NULL, &req) != 0)
		return NULL;
	if (rpma_conn_req_connect(&req, NULL, &conn) != 0)
		return NULL;
	if (rpma_conn_next_event(conn, &event) == 0 && event == RPMA_CONN_ESTABLISHED)
		return conn;
	rpma_conn_delete(&conn);
	return NULL;
}
