/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */
#include <stdint.h>
#include <librpma.h>

/* Registers memory that clients write to and flush, and makes its descriptor. */
int
offer(struct rpma_peer *peer, void *memory, size_t size, struct rpma_mr_local **mr,
		uint8_t descriptor[256], size_t *descriptor_size)
{
	int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;
	int ret = rpma_mr_reg(peer, memory, size, usage, mr);

	if (ret != 0)
		return ret;
	ret = rpma_mr_get_descriptor_size(*mr, descriptor_size);
	if (ret == 0)
		ret = rpma_mr_get_descriptor(*mr, descriptor);
	if (ret != 0)
		rpma_mr_dereg(mr);
	return ret;
}
