/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */
#include <stdio.h>
#include <librpma.h>

/* Handles what has completed and gives how many there were, or an error code. */
int
handle_completions(struct rpma_cq *cq)
{
	struct ibv_wc wc[16];
	int got = 0;
	int ret = rpma_cq_get_wc(cq, 16, wc, &got);

	if (ret == RPMA_E_NO_COMPLETION)
		return 0;
	if (ret != 0)
		return ret;
	for (int i = 0; i < got; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			fprintf(stderr, "operation %#llx: %s\n",
					(unsigned long long)wc[i].wr_id,
					ibv_wc_status_str(wc[i].status));
	return got;
}
