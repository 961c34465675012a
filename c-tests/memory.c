/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* memory.c - devices, peers and the registration of memory: what they report, and which arguments they refuse. */

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "common/fabric.h"

static void
device(const char *addr)
{
	struct ibv_context *local = NULL, *remote = NULL;
	const char *name;
	int odp = 77;

	INVAL(rpma_utils_get_ibv_context(NULL, RPMA_UTIL_IBV_CONTEXT_LOCAL, &local));
	INVAL(rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, NULL));
	INVAL(rpma_utils_get_ibv_context(addr, (enum rpma_util_ibv_context_type)2, &local));
	INVAL(rpma_utils_get_ibv_context(addr, (enum rpma_util_ibv_context_type)-1, &local));
	CHECK(local == NULL);
	OK(rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &local));
	OK(rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &remote));
	CHECK(local != NULL);
	/* The way to one's own address leads over the same device, which is opened once a process. */
	CHECK(remote == local);
	name = ibv_get_device_name(local->device);
	CHECK(name != NULL && *name != '\0');
	check_info("device %s", name);
	INVAL(rpma_utils_ibv_context_is_odp_capable(NULL, &odp));
	INVAL(rpma_utils_ibv_context_is_odp_capable(local, NULL));
	CHECK_INT(odp, 77);
	OK(rpma_utils_ibv_context_is_odp_capable(local, &odp));
	CHECK(odp == 0 || odp == 1);
}

/* A context is libibverbs' as well: also what its header does not define inline can be asked. */
static void
capabilities(const char *addr)
{
	struct ibv_context *ctx = device_of(addr);
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;

	memset(&attr, 0xff, sizeof(attr));
	CHECK_INT(ibv_query_device(ctx, &attr), 0);
	CHECK_INT(ibv_query_device_ex(ctx, NULL, &ex), 0);
	CHECK(attr.max_qp_wr > 0 && attr.max_cqe > 0 && attr.max_mr_size > 0);
	CHECK_MEM(&attr, &ex.orig_attr, offsetof(struct ibv_device_attr, phys_port_cnt));
	CHECK_INT(attr.phys_port_cnt, 1);
	CHECK_INT(ibv_query_port(ctx, 1, &port), 0);
	CHECK_INT(port.state, IBV_PORT_ACTIVE);
}

static void
peer(const char *addr)
{
	struct rpma_peer *first = NULL, *second = NULL, *none = NULL;
	struct ibv_context *ctx = device_of(addr);

	INVAL(rpma_peer_new(NULL, &first));
	INVAL(rpma_peer_new(ctx, NULL));
	CHECK(first == NULL);
	OK(rpma_peer_new(ctx, &first));
	OK(rpma_peer_new(ctx, &second));
	CHECK(first != NULL && second != NULL && first != second);
	INVAL(rpma_peer_delete(NULL));
	OK(rpma_peer_delete(&none));
	OK(rpma_peer_delete(&first));
	OK(rpma_peer_delete(&second));
	CHECK(first == NULL && second == NULL);
}

static void
registration(const char *addr)
{
	struct rpma_peer *p = peer_on(addr);
	size_t size = 3 * PAGE + 5;
	char *ptr = memory(size, 0);
	struct rpma_mr_local *mr = NULL, *none = NULL;
	unsigned char desc[22];
	size_t got_size = 77;
	void *got = NULL;

	INVAL(rpma_mr_reg(NULL, ptr, size, RPMA_MR_USAGE_READ_SRC, &mr));
	INVAL(rpma_mr_reg(p, NULL, size, RPMA_MR_USAGE_READ_SRC, &mr));
	INVAL(rpma_mr_reg(p, ptr, 0, RPMA_MR_USAGE_READ_SRC, &mr));
	INVAL(rpma_mr_reg(p, ptr, size, 0, &mr));
	INVAL(rpma_mr_reg(p, ptr, size, 1 << 8, &mr));
	INVAL(rpma_mr_reg(p, ptr, size, USAGE_ALL | 1 << 8, &mr));
	INVAL(rpma_mr_reg(p, ptr, size, INT_MIN, &mr));
	INVAL(rpma_mr_reg(p, ptr, size, RPMA_MR_USAGE_READ_SRC, NULL));
	CHECK(mr == NULL);

	for (int usage = 1; usage < 256; usage++) {
		uint64_t field = 0;

		mr = registered(p, ptr + 3, size, usage);
		memset(desc, 0xee, sizeof(desc));
		OK(rpma_mr_get_descriptor_size(mr, &got_size));
		CHECK_INT(got_size, 21);
		OK(rpma_mr_get_descriptor(mr, desc));
		CHECK_INT(desc[20], usage);
		CHECK_INT(desc[21], 0xee);
		for (int i = 7; i >= 0; i--)
			field = field << 8 | desc[i];
		CHECK(field == (uintptr_t)(ptr + 3));
		for (int i = 7; i >= 0; i--)
			field = field << 8 | desc[8 + i];
		CHECK(field == size);
		OK(rpma_mr_get_ptr(mr, &got));
		CHECK(got == ptr + 3);
		OK(rpma_mr_get_size(mr, &got_size));
		CHECK(got_size == size);
		OK(rpma_mr_dereg(&mr));
		CHECK(mr == NULL);
	}

	mr = registered(p, ptr, size, RPMA_MR_USAGE_READ_SRC);
	INVAL(rpma_mr_get_descriptor(NULL, desc));
	INVAL(rpma_mr_get_descriptor(mr, NULL));
	INVAL(rpma_mr_get_descriptor_size(NULL, &got_size));
	INVAL(rpma_mr_get_descriptor_size(mr, NULL));
	INVAL(rpma_mr_get_ptr(NULL, &got));
	INVAL(rpma_mr_get_ptr(mr, NULL));
	INVAL(rpma_mr_get_size(NULL, &got_size));
	INVAL(rpma_mr_get_size(mr, NULL));
	INVAL(rpma_mr_dereg(NULL));
	OK(rpma_mr_dereg(&none));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&p));
}

/* The same memory may be registered more than once, and the keys differ. */
static void
keys_differ(const char *addr)
{
	struct rpma_peer *p = peer_on(addr), *q = peer_on(addr);
	void *ptr = memory(PAGE, 0);
	struct rpma_mr_local *mr[16];
	uint32_t keys[16];

	for (int i = 0; i < 16; i++) {
		unsigned char desc[21];

		mr[i] = registered(i & 1 ? p : q, ptr, PAGE, RPMA_MR_USAGE_READ_SRC);
		OK(rpma_mr_get_descriptor(mr[i], desc));
		memcpy(&keys[i], desc + 16, 4);
		for (int j = 0; j < i; j++)
			CHECK(keys[j] != keys[i]);
	}
	for (int i = 0; i < 16; i++)
		OK(rpma_mr_dereg(&mr[i]));
	OK(rpma_peer_delete(&p));
	OK(rpma_peer_delete(&q));
}

/* Memory that cannot be written cannot be the target of a write. */
static void
read_only_memory(const char *addr)
{
	struct rpma_peer *p = peer_on(addr);
	void *ptr = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rpma_mr_local *mr = NULL;

	CHECK(ptr != MAP_FAILED);
	CHECK_CODE(rpma_mr_reg(p, ptr, PAGE, RPMA_MR_USAGE_WRITE_DST, &mr), RPMA_E_PROVIDER);
	CHECK(mr == NULL);
	OK(rpma_peer_delete(&p));
}

/* Nor can memory that is not there. */
static void
unmapped_memory(const char *addr)
{
	struct rpma_mr_local *mr = NULL;
	struct rpma_peer *p;
	void *ptr;

	skip_under_memcheck();
	p = peer_on(addr);
	ptr = memory(PAGE, 0);
	CHECK(munmap(ptr, PAGE) == 0);
	CHECK_CODE(rpma_mr_reg(p, ptr, PAGE, RPMA_MR_USAGE_READ_SRC, &mr), RPMA_E_PROVIDER);
	CHECK(mr == NULL);
	OK(rpma_peer_delete(&p));
}

static void
advice(const char *addr)
{
	struct rpma_peer *p = peer_on(addr);
	struct rpma_mr_local *mr = registered(p, memory(2 * PAGE, 0), 2 * PAGE, RPMA_MR_USAGE_READ_DST);
	int odp = 77, ret;

	OK(rpma_utils_ibv_context_is_odp_capable(device_of(addr), &odp));
	ret = rpma_mr_advise(mr, 0, PAGE, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH);
	if (odp)
		CHECK_CODE(ret, 0);
	else
		CHECK_CODE(ret, RPMA_E_NOSUPP);
	if (!original_lacks("advice on no region crashes")) {
		INVAL(rpma_mr_advise(NULL, 0, PAGE, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0));
		INVAL(rpma_mr_advise(NULL, 0, 0, 0, 0));
	}
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&p));
}

static void
shared_receive_queue(const char *addr)
{
	struct rpma_peer *p = peer_on(addr);
	struct rpma_srq_cfg *cfg = NULL;
	struct rpma_srq *srq = NULL, *none = NULL;
	struct rpma_cq *rcq = NULL;
	struct rpma_mr_local *mr = registered(p, memory(PAGE, 0), PAGE, RPMA_MR_USAGE_RECV);
	int fd = -1;

	INVAL(rpma_srq_new(NULL, NULL, &srq));
	INVAL(rpma_srq_new(p, NULL, NULL));
	CHECK(srq == NULL);
	OK(rpma_srq_new(p, NULL, &srq));
	CHECK(srq != NULL);
	INVAL(rpma_srq_get_rcq(NULL, &rcq));
	INVAL(rpma_srq_get_rcq(srq, NULL));
	OK(rpma_srq_get_rcq(srq, &rcq));
	CHECK(rcq != NULL);
	OK(rpma_cq_get_fd(rcq, &fd));
	CHECK(fd >= 0);
	expect_no_wc(rcq);
	INVAL(rpma_srq_recv(NULL, mr, 0, 8, ID(1)));
	INVAL(rpma_srq_recv(srq, NULL, 1, 0, ID(1)));
	INVAL(rpma_srq_recv(srq, NULL, 0, 1, ID(1)));
	OK(rpma_srq_recv(srq, NULL, 0, 0, ID(1)));
	OK(rpma_srq_recv(srq, mr, 0, 8, ID(1)));
	INVAL(rpma_srq_delete(NULL));
	OK(rpma_srq_delete(&none));
	OK(rpma_srq_delete(&srq));
	CHECK(srq == NULL);

	/* Without a receive queue of its own, completions come to the connections' queues. */
	OK(rpma_srq_cfg_new(&cfg));
	OK(rpma_srq_cfg_set_rcq_size(cfg, 0));
	OK(rpma_srq_new(p, cfg, &srq));
	OK(rpma_srq_get_rcq(srq, &rcq));
	CHECK(rcq == NULL);
	OK(rpma_srq_delete(&srq));
	/* The configuration is copied, not kept. */
	OK(rpma_srq_cfg_set_rcq_size(cfg, 5));
	OK(rpma_srq_cfg_set_rq_size(cfg, UINT32_MAX));
	CHECK_CODE(rpma_srq_new(p, cfg, &srq), RPMA_E_PROVIDER);
	OK(rpma_srq_cfg_set_rq_size(cfg, 5));
	OK(rpma_srq_cfg_set_rcq_size(cfg, UINT32_MAX));
	CHECK_CODE(rpma_srq_new(p, cfg, &srq), RPMA_E_PROVIDER);
	CHECK(srq == NULL);
	OK(rpma_srq_cfg_delete(&cfg));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&p));
}

static const struct test tests[] = {
	LOCAL(device),
	LOCAL(capabilities),
	LOCAL(peer),
	LOCAL(registration),
	LOCAL(keys_differ),
	LOCAL(read_only_memory),
	LOCAL(unmapped_memory),
	LOCAL(advice),
	LOCAL(shared_receive_queue),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
