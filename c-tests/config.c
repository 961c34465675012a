/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* config.c - the three configuration objects: defaults, every getter and setter, arguments. They need no device. */

#include <limits.h>
#include <librpma.h>
#include <pthread.h>

#include "common/harness.h"

static void
conn_cfg_defaults(const char *addr)
{
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_srq *srq = (struct rpma_srq *)&cfg;
	bool shared = true;
	uint32_t n = 77;
	int ms = 77;

	(void)addr;
	OK(rpma_conn_cfg_new(&cfg));
	CHECK(cfg != NULL);
	OK(rpma_conn_cfg_get_timeout(cfg, &ms));
	CHECK_INT(ms, 1000);
	CHECK_INT(ms, RPMA_DEFAULT_TIMEOUT_MS);
	OK(rpma_conn_cfg_get_cq_size(cfg, &n));
	CHECK_INT(n, 10);
	OK(rpma_conn_cfg_get_rcq_size(cfg, &n));
	CHECK_INT(n, 0);
	OK(rpma_conn_cfg_get_sq_size(cfg, &n));
	CHECK_INT(n, 10);
	OK(rpma_conn_cfg_get_rq_size(cfg, &n));
	CHECK_INT(n, 10);
	OK(rpma_conn_cfg_get_compl_channel(cfg, &shared));
	CHECK_INT(shared, false);
	OK(rpma_conn_cfg_get_srq(cfg, &srq));
	CHECK(srq == NULL);
	OK(rpma_conn_cfg_delete(&cfg));
	CHECK(cfg == NULL);
}

static void
conn_cfg_values(const char *addr)
{
	static const uint32_t values[] = {0, 1, 2, 4096, INT_MAX, (uint32_t)INT_MAX + 1, UINT32_MAX};
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_srq *srq, *some = (struct rpma_srq *)0x1000;
	uint32_t n;
	bool shared;
	int ms;

	(void)addr;
	OK(rpma_conn_cfg_new(&cfg));
	/* Each field holds its own value: all differ before any is read. */
	OK(rpma_conn_cfg_set_timeout(cfg, 123));
	OK(rpma_conn_cfg_set_cq_size(cfg, 21));
	OK(rpma_conn_cfg_set_rcq_size(cfg, 22));
	OK(rpma_conn_cfg_set_sq_size(cfg, 23));
	OK(rpma_conn_cfg_set_rq_size(cfg, 24));
	OK(rpma_conn_cfg_set_compl_channel(cfg, true));
	OK(rpma_conn_cfg_set_srq(cfg, some));
	OK(rpma_conn_cfg_get_timeout(cfg, &ms));
	CHECK_INT(ms, 123);
	OK(rpma_conn_cfg_get_cq_size(cfg, &n));
	CHECK_INT(n, 21);
	OK(rpma_conn_cfg_get_rcq_size(cfg, &n));
	CHECK_INT(n, 22);
	OK(rpma_conn_cfg_get_sq_size(cfg, &n));
	CHECK_INT(n, 23);
	OK(rpma_conn_cfg_get_rq_size(cfg, &n));
	CHECK_INT(n, 24);
	OK(rpma_conn_cfg_get_compl_channel(cfg, &shared));
	CHECK_INT(shared, true);
	OK(rpma_conn_cfg_get_srq(cfg, &srq));
	CHECK(srq == some);

	/* The getters give back what was set, also beyond what a provider takes. */
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		OK(rpma_conn_cfg_set_cq_size(cfg, values[i]));
		OK(rpma_conn_cfg_set_rcq_size(cfg, values[i]));
		OK(rpma_conn_cfg_set_sq_size(cfg, values[i]));
		OK(rpma_conn_cfg_set_rq_size(cfg, values[i]));
		OK(rpma_conn_cfg_get_cq_size(cfg, &n));
		CHECK_INT(n, values[i]);
		OK(rpma_conn_cfg_get_rcq_size(cfg, &n));
		CHECK_INT(n, values[i]);
		OK(rpma_conn_cfg_get_sq_size(cfg, &n));
		CHECK_INT(n, values[i]);
		OK(rpma_conn_cfg_get_rq_size(cfg, &n));
		CHECK_INT(n, values[i]);
	}
	OK(rpma_conn_cfg_set_timeout(cfg, INT_MAX));
	OK(rpma_conn_cfg_get_timeout(cfg, &ms));
	CHECK_INT(ms, INT_MAX);
	OK(rpma_conn_cfg_set_timeout(cfg, 0));
	INVAL(rpma_conn_cfg_set_timeout(cfg, -1));
	INVAL(rpma_conn_cfg_set_timeout(cfg, INT_MIN));
	OK(rpma_conn_cfg_get_timeout(cfg, &ms));
	CHECK_INT(ms, 0);
	OK(rpma_conn_cfg_set_compl_channel(cfg, false));
	OK(rpma_conn_cfg_get_compl_channel(cfg, &shared));
	CHECK_INT(shared, false);
	/* What was set stays: there is no going back to none. */
	INVAL(rpma_conn_cfg_set_srq(cfg, NULL));
	OK(rpma_conn_cfg_get_srq(cfg, &srq));
	CHECK(srq == some);
	OK(rpma_conn_cfg_delete(&cfg));
}

static void
conn_cfg_arguments(const char *addr)
{
	struct rpma_conn_cfg *cfg = NULL, *none = NULL;
	struct rpma_srq *srq;
	uint32_t n = 77;
	bool shared = true;
	int ms = 77;

	(void)addr;
	INVAL(rpma_conn_cfg_new(NULL));
	INVAL(rpma_conn_cfg_delete(NULL));
	OK(rpma_conn_cfg_delete(&none));
	OK(rpma_conn_cfg_new(&cfg));
	INVAL(rpma_conn_cfg_set_timeout(NULL, 1));
	INVAL(rpma_conn_cfg_get_timeout(NULL, &ms));
	INVAL(rpma_conn_cfg_get_timeout(cfg, NULL));
	INVAL(rpma_conn_cfg_set_cq_size(NULL, 1));
	INVAL(rpma_conn_cfg_get_cq_size(NULL, &n));
	INVAL(rpma_conn_cfg_get_cq_size(cfg, NULL));
	INVAL(rpma_conn_cfg_set_rcq_size(NULL, 1));
	INVAL(rpma_conn_cfg_get_rcq_size(NULL, &n));
	INVAL(rpma_conn_cfg_get_rcq_size(cfg, NULL));
	INVAL(rpma_conn_cfg_set_sq_size(NULL, 1));
	INVAL(rpma_conn_cfg_get_sq_size(NULL, &n));
	INVAL(rpma_conn_cfg_get_sq_size(cfg, NULL));
	INVAL(rpma_conn_cfg_set_rq_size(NULL, 1));
	INVAL(rpma_conn_cfg_get_rq_size(NULL, &n));
	INVAL(rpma_conn_cfg_get_rq_size(cfg, NULL));
	INVAL(rpma_conn_cfg_set_compl_channel(NULL, true));
	INVAL(rpma_conn_cfg_get_compl_channel(NULL, &shared));
	INVAL(rpma_conn_cfg_get_compl_channel(cfg, NULL));
	INVAL(rpma_conn_cfg_set_srq(NULL, (struct rpma_srq *)0x1000));
	INVAL(rpma_conn_cfg_get_srq(NULL, &srq));
	INVAL(rpma_conn_cfg_get_srq(cfg, NULL));
	/* A refused getter leaves the caller's variable alone. */
	CHECK_INT(n, 77);
	CHECK_INT(ms, 77);
	CHECK_INT(shared, true);
	OK(rpma_conn_cfg_delete(&cfg));
}

static void
srq_cfg(const char *addr)
{
	struct rpma_srq_cfg *cfg = NULL, *none = NULL;
	uint32_t n = 77;

	(void)addr;
	INVAL(rpma_srq_cfg_new(NULL));
	INVAL(rpma_srq_cfg_delete(NULL));
	OK(rpma_srq_cfg_delete(&none));
	OK(rpma_srq_cfg_new(&cfg));
	CHECK(cfg != NULL);
	INVAL(rpma_srq_cfg_set_rq_size(NULL, 1));
	INVAL(rpma_srq_cfg_get_rq_size(NULL, &n));
	INVAL(rpma_srq_cfg_get_rq_size(cfg, NULL));
	INVAL(rpma_srq_cfg_set_rcq_size(NULL, 1));
	INVAL(rpma_srq_cfg_get_rcq_size(NULL, &n));
	INVAL(rpma_srq_cfg_get_rcq_size(cfg, NULL));
	CHECK_INT(n, 77);
	OK(rpma_srq_cfg_get_rq_size(cfg, &n));
	CHECK_INT(n, 20);
	OK(rpma_srq_cfg_get_rcq_size(cfg, &n));
	CHECK_INT(n, 20);
	OK(rpma_srq_cfg_set_rq_size(cfg, 31));
	OK(rpma_srq_cfg_set_rcq_size(cfg, 0));
	OK(rpma_srq_cfg_get_rq_size(cfg, &n));
	CHECK_INT(n, 31);
	OK(rpma_srq_cfg_get_rcq_size(cfg, &n));
	CHECK_INT(n, 0);
	OK(rpma_srq_cfg_set_rcq_size(cfg, UINT32_MAX));
	OK(rpma_srq_cfg_get_rcq_size(cfg, &n));
	CHECK_INT(n, UINT32_MAX);
	OK(rpma_srq_cfg_get_rq_size(cfg, &n));
	CHECK_INT(n, 31);
	OK(rpma_srq_cfg_delete(&cfg));
	CHECK(cfg == NULL);
}

static void
peer_cfg(const char *addr)
{
	struct rpma_peer_cfg *cfg = NULL, *none = NULL;
	bool direct = true;
	size_t size = 77;
	unsigned char desc[3] = {0xee, 0xee, 0xee};

	(void)addr;
	INVAL(rpma_peer_cfg_new(NULL));
	INVAL(rpma_peer_cfg_delete(NULL));
	OK(rpma_peer_cfg_delete(&none));
	OK(rpma_peer_cfg_new(&cfg));
	CHECK(cfg != NULL);
	INVAL(rpma_peer_cfg_set_direct_write_to_pmem(NULL, true));
	INVAL(rpma_peer_cfg_get_direct_write_to_pmem(NULL, &direct));
	INVAL(rpma_peer_cfg_get_direct_write_to_pmem(cfg, NULL));
	INVAL(rpma_peer_cfg_get_descriptor(NULL, desc));
	INVAL(rpma_peer_cfg_get_descriptor(cfg, NULL));
	INVAL(rpma_peer_cfg_get_descriptor_size(NULL, &size));
	INVAL(rpma_peer_cfg_get_descriptor_size(cfg, NULL));
	CHECK_INT(size, 77);
	OK(rpma_peer_cfg_get_direct_write_to_pmem(cfg, &direct));
	CHECK_INT(direct, false);
	OK(rpma_peer_cfg_get_descriptor_size(cfg, &size));
	CHECK_INT(size, 1);
	OK(rpma_peer_cfg_get_descriptor(cfg, desc));
	CHECK_INT(desc[0], 0);
	OK(rpma_peer_cfg_set_direct_write_to_pmem(cfg, true));
	OK(rpma_peer_cfg_get_direct_write_to_pmem(cfg, &direct));
	CHECK_INT(direct, true);
	OK(rpma_peer_cfg_get_descriptor(cfg, desc));
	CHECK_INT(desc[0], 1);
	CHECK_INT(desc[1], 0xee);
	OK(rpma_peer_cfg_set_direct_write_to_pmem(cfg, false));
	OK(rpma_peer_cfg_get_direct_write_to_pmem(cfg, &direct));
	CHECK_INT(direct, false);
	OK(rpma_peer_cfg_delete(&cfg));
	CHECK(cfg == NULL);
}

#define THREADS 4
#define ROUNDS 20000

static void *
set_and_get(void *arg)
{
	struct rpma_conn_cfg *cfg = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t n = 0;
		int ms = 0;

		/* Two values whose halves differ: a torn one would be neither. */
		OK(rpma_conn_cfg_set_cq_size(cfg, i & 1 ? 0x00010001 : 0x7fff7fff));
		OK(rpma_conn_cfg_get_cq_size(cfg, &n));
		CHECK(n == 0x00010001 || n == 0x7fff7fff);
		OK(rpma_conn_cfg_set_timeout(cfg, i & 1 ? 0x00020002 : 0x3fff3fff));
		OK(rpma_conn_cfg_get_timeout(cfg, &ms));
		CHECK(ms == 0x00020002 || ms == 0x3fff3fff);
	}
	return NULL;
}

static void
shared_by_threads(const char *addr)
{
	struct rpma_conn_cfg *cfg = NULL;
	pthread_t threads[THREADS];

	(void)addr;
	OK(rpma_conn_cfg_new(&cfg));
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, set_and_get, cfg) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	OK(rpma_conn_cfg_delete(&cfg));
}

static const struct test tests[] = {
	LOCAL(conn_cfg_defaults),
	LOCAL(conn_cfg_values),
	LOCAL(conn_cfg_arguments),
	LOCAL(srq_cfg),
	LOCAL(peer_cfg),
	LOCAL(shared_by_threads),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
