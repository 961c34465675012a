/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * descriptors.c - the two descriptors that cross the wire: every field, every length, every byte pattern that can be
 * told apart. Their layout is fixed, since old and new peers exchange them. They need no device.
 */

#include <librpma.h>
#include <string.h>

#include "common/harness.h"

#define MR_SIZE 21

/* A descriptor of a region by its fields. */
static void
compose(unsigned char desc[MR_SIZE], uint64_t raddr, uint64_t size, uint32_t rkey, uint8_t usage)
{
	for (int i = 0; i < 8; i++) {
		desc[i] = (unsigned char)(raddr >> (8 * i));
		desc[8 + i] = (unsigned char)(size >> (8 * i));
	}
	for (int i = 0; i < 4; i++)
		desc[16 + i] = (unsigned char)(rkey >> (8 * i));
	desc[20] = usage;
}

static void
region_fields(const char *addr)
{
	static const uint64_t values[] = {0, 1, 0xff, 0x100, 0x0102030405060708, 1ull << 32, 1ull << 63, UINT64_MAX};
	unsigned char desc[MR_SIZE];

	(void)addr;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct rpma_mr_remote *mr = NULL;
		size_t size = 77;

		compose(desc, ~values[i], values[i], (uint32_t)~values[i], RPMA_MR_USAGE_WRITE_DST);
		OK(rpma_mr_remote_from_descriptor(desc, sizeof(desc), &mr));
		CHECK(mr != NULL);
		OK(rpma_mr_remote_get_size(mr, &size));
		CHECK(size == values[i]);
		OK(rpma_mr_remote_delete(&mr));
		CHECK(mr == NULL);
	}
}

static void
region_usages(const char *addr)
{
	unsigned char desc[MR_SIZE];

	(void)addr;
	for (unsigned usage = 0; usage < 256; usage++) {
		struct rpma_mr_remote *mr = NULL;
		int type = 77;

		compose(desc, 0x1000, 4096, 7, (uint8_t)usage);
		if (usage == 0) {
			INVAL(rpma_mr_remote_from_descriptor(desc, sizeof(desc), &mr));
			CHECK(mr == NULL);
			continue;
		}
		OK(rpma_mr_remote_from_descriptor(desc, sizeof(desc), &mr));
		OK(rpma_mr_remote_get_flush_type(mr, &type));
		CHECK_INT(type, usage & (RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT));
		OK(rpma_mr_remote_delete(&mr));
	}
}

static void
region_lengths(const char *addr)
{
	unsigned char desc[300];

	(void)addr;
	memset(desc, 0xff, sizeof(desc));
	compose(desc, 0x1000, 4096, 7, RPMA_MR_USAGE_READ_SRC);
	for (size_t len = 0; len < sizeof(desc); len++) {
		struct rpma_mr_remote *mr = NULL;
		size_t size = 77;

		if (len < MR_SIZE) {
			INVAL(rpma_mr_remote_from_descriptor(desc, len, &mr));
			CHECK(mr == NULL);
			continue;
		}
		/* A longer buffer is read from its start. */
		OK(rpma_mr_remote_from_descriptor(desc, len, &mr));
		OK(rpma_mr_remote_get_size(mr, &size));
		CHECK_INT(size, 4096);
		OK(rpma_mr_remote_delete(&mr));
	}
}

static void
region_arguments(const char *addr)
{
	unsigned char desc[MR_SIZE];
	struct rpma_mr_remote *mr = NULL, *none = NULL;
	size_t size = 77;
	int type = 77;

	(void)addr;
	compose(desc, 0x1000, 4096, 7, RPMA_MR_USAGE_READ_SRC);
	INVAL(rpma_mr_remote_from_descriptor(NULL, sizeof(desc), &mr));
	INVAL(rpma_mr_remote_from_descriptor(desc, sizeof(desc), NULL));
	CHECK(mr == NULL);
	OK(rpma_mr_remote_from_descriptor(desc, sizeof(desc), &mr));
	INVAL(rpma_mr_remote_get_size(NULL, &size));
	INVAL(rpma_mr_remote_get_size(mr, NULL));
	INVAL(rpma_mr_remote_get_flush_type(NULL, &type));
	INVAL(rpma_mr_remote_get_flush_type(mr, NULL));
	CHECK(size == 77 && type == 77);
	INVAL(rpma_mr_remote_delete(NULL));
	OK(rpma_mr_remote_delete(&none));
	OK(rpma_mr_remote_delete(&mr));
	CHECK(mr == NULL);
}

static void
peer_configuration(const char *addr)
{
	(void)addr;
	for (unsigned value = 0; value < 256; value++) {
		for (size_t len = 0; len < 5; len++) {
			unsigned char desc[5] = {(unsigned char)value, 0xff, 0xff, 0xff, 0xff}, back = 0xee;
			struct rpma_peer_cfg *cfg = NULL;
			bool direct = value == 0;

			if (len == 0) {
				INVAL(rpma_peer_cfg_from_descriptor(desc, 0, &cfg));
				CHECK(cfg == NULL);
				continue;
			}
			OK(rpma_peer_cfg_from_descriptor(desc, len, &cfg));
			CHECK(cfg != NULL);
			OK(rpma_peer_cfg_get_direct_write_to_pmem(cfg, &direct));
			CHECK_INT(direct, value != 0);
			OK(rpma_peer_cfg_get_descriptor(cfg, &back));
			CHECK_INT(back, value != 0);
			OK(rpma_peer_cfg_delete(&cfg));
		}
	}
}

static void
peer_configuration_arguments(const char *addr)
{
	unsigned char desc[1] = {1};
	struct rpma_peer_cfg *cfg = NULL;

	(void)addr;
	INVAL(rpma_peer_cfg_from_descriptor(NULL, 1, &cfg));
	INVAL(rpma_peer_cfg_from_descriptor(desc, 1, NULL));
	INVAL(rpma_peer_cfg_from_descriptor(desc, 0, &cfg));
	CHECK(cfg == NULL);
}

static const struct test tests[] = {
	LOCAL(region_fields),
	LOCAL(region_usages),
	LOCAL(region_lengths),
	LOCAL(region_arguments),
	LOCAL(peer_configuration),
	LOCAL(peer_configuration_arguments),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
