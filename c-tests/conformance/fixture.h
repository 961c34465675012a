/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * The objects most scenarios stand on, made and taken down through the public API in the order a
 * program would. Every step goes to the trace; a step that failed leaves its object not given, and
 * the steps that need it are left out, as a program would leave them out.
 */

#ifndef FIXTURE_H
#define FIXTURE_H

#include "driver.h"

#define MEMORY_SIZE 4096

struct fixture {
	struct rpma_peer *peer;
	struct rpma_srq_cfg *srq_cfg;
	struct rpma_srq *srq;
	struct rpma_conn_cfg *cfg;
	struct rpma_ep *ep;
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	struct rpma_cq *rcq;
	struct rpma_mr_local *mr;
	struct rpma_mr_remote *remote;
	struct rpma_peer_cfg *pcfg;
};

extern char fixture_memory[MEMORY_SIZE];

#define FIXTURE_INIT {UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED, \
	UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED}

int has(const char *variant, const char *word);

void fixture_peer(struct fixture *f);
/* All usages at once, and a remote region of the same memory through a descriptor. */
void fixture_memory_regions(struct fixture *f);
/* The configuration a variant's words ask for: rcq, shared, srq, srq-no-rcq, sizes, timeout0 */
void fixture_cfg(struct fixture *f, const char *variant);
/* A request, from address resolution ("active") or from a connect request event ("passive"). */
void fixture_request(struct fixture *f, const char *variant);
/* ... and the connection made of it, established. */
void fixture_connection(struct fixture *f, const char *variant);
void fixture_down(struct fixture *f);

#endif /* FIXTURE_H */
