/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */
#include <stddef.h>
#include <librpma.h>

/* Writes len bytes and waits until they are persistent on the other side. */
int
store(struct rpma_conn *conn, struct rpma_mr_remote *there,
		struct rpma_mr_local *here, size_t len)
{
	struct rpma_cq *cq;
	struct ibv_wc wc;
	int ret = rpma_write(conn, there, 0, here, 0, len,
			RPMA_F_COMPLETION_ON_ERROR, NULL);

	if (ret == 0)
		ret = rpma_flush(conn, there, 0, len, RPMA_FLUSH_TYPE_PERSISTENT,
				RPMA_F_COMPLETION_ALWAYS, NULL);
	if (ret == 0)
		ret = rpma_conn_get_cq(conn, &cq);
	if (ret == 0)
		ret = rpma_cq_wait(cq);
	if (ret == 0)
		ret = rpma_cq_get_wc(cq, 1, &wc, NULL);
	if (ret != 0)
		return ret;
	return wc.status == IBV_WC_SUCCESS ? 0 : RPMA_E_UNKNOWN;
}
