/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */
#include <librpma.h>

/* Makes a peer on the device that an address of this machine is on, or gives NULL. */
struct rpma_peer *
peer_at(const char *addr)
{
	struct ibv_context *device = NULL;
	struct rpma_peer *peer = NULL;

	if (rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &device) != 0)
		return NULL;
	if (rpma_peer_new(device, &peer) != 0)
		return NULL;
	return peer;
}
