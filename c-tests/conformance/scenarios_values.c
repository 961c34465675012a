/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * Values in and out: texts, thresholds, configurations, usages and access rights, descriptors of
 * every length, advice. What is refused for a missing object is in scenarios_args.c.
 */

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "scenarios.h"

void
texts(const char *variant)
{
	(void) variant;
	static const int extra[] = {0, 1, -1, -99999, INT_MAX, INT_MIN};
	for (int code = -100012; code <= -99998; code++)
		script_say("rpma_err_2str(%d) -> \"%s\"", code, rpma_err_2str(code));
	for (size_t i = 0; i < sizeof(extra) / sizeof(extra[0]); i++)
		script_say("rpma_err_2str(%d) -> \"%s\"", extra[i], rpma_err_2str(extra[i]));
	for (int event = -3; event <= 7; event++)
		script_say("rpma_utils_conn_event_2str(%d) -> \"%s\"", event,
				rpma_utils_conn_event_2str((enum rpma_conn_event)event));
}

void
thresholds(const char *variant)
{
	(void) variant;
	trace_log(RPMA_LOG_LEVEL_WARNING);
	for (int which = -1; which <= 3; which++) {
		enum rpma_log_level level = (enum rpma_log_level)UNTOUCHED_INT;
		APIF(rpma_log_get_threshold((enum rpma_log_threshold)which, &level),
				"rpma_log_get_threshold(%d)", which);
		say_int("level", level);
		APIF(rpma_log_get_threshold((enum rpma_log_threshold)which, NULL),
				"rpma_log_get_threshold(%d, NULL)", which);
		for (int to = -3; to <= 7; to++) {
			level = (enum rpma_log_level)UNTOUCHED_INT;
			APIF(rpma_log_set_threshold((enum rpma_log_threshold)which, (enum rpma_log_level)to),
					"rpma_log_set_threshold(%d, %d)", which, to);
			APIF(rpma_log_get_threshold((enum rpma_log_threshold)which, &level),
					"rpma_log_get_threshold(%d)", which);
			say_int("level", level);
		}
	}
	/* what a threshold lets through */
	for (int to = -1; to <= 5; to++) {
		trace_log((enum rpma_log_level)to);
		struct fixture f = FIXTURE_INIT;
		script_say("threshold %d", to);
		fixture_peer(&f);
		fixture_memory_regions(&f);
		fixture_cfg(&f, "default");
		fixture_request(&f, "active");
		fixture_connection(&f, "active");
		fixture_down(&f);
		struct rpma_mr_remote *remote = NULL;
		API(rpma_mr_remote_from_descriptor("x", 1, &remote));
	}
	API(rpma_log_set_function(NULL));
}

/* The default function: both destinations, each with its own threshold, and the line's form. */
void
default_log(const char *variant)
{
	(void) variant;
	say_syslog_opened();
	API(rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION));
	capture_stderr();
	for (int to = -1; to <= 5; to++) {
		for (int aux = -1; aux <= 5; aux++) {
			script_say("thresholds %d and %d", to, aux);
			(void) rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)to);
			(void) rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, (enum rpma_log_level)aux);
			struct rpma_mr_remote *remote = NULL;
			struct rpma_peer_cfg *pcfg = NULL;
			struct rpma_peer *peer = NULL;
			struct rpma_ep *ep = NULL;
			static const unsigned char descriptor[21] = {[20] = 1};
			/* ERROR, DEBUG, INFO, NOTICE */
			API(rpma_mr_remote_from_descriptor("x", 1, &remote));
			API(rpma_mr_remote_from_descriptor(descriptor, 21, &remote));
			API(rpma_peer_cfg_from_descriptor("x", 1, &pcfg));
			API(rpma_peer_new(script_context(), &peer));
			API(rpma_ep_listen(peer, "127.0.0.1", "1", &ep));
			say_stderr();
			API(rpma_ep_shutdown(&ep));
			API(rpma_peer_delete(&peer));
		}
	}
}

#define GET_AND_SET_U32(object, type, field) \
	do { \
		static const uint32_t values[] = {0, 1, 10, 0x7fffffff, 0x80000000u, UINT32_MAX}; \
		uint32_t value = UNTOUCHED_INT; \
		API(rpma_##type##_get_##field(object, &value)); \
		script_say("     " #field " %u", value); \
		for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) { \
			value = UNTOUCHED_INT; \
			APIF(rpma_##type##_set_##field(object, values[i]), \
					"rpma_" #type "_set_" #field "(%u)", values[i]); \
			API(rpma_##type##_get_##field(object, &value)); \
			script_say("     " #field " %u", value); \
		} \
	} while (0)

void
config_values(const char *variant)
{
	(void) variant;
	struct rpma_conn_cfg *cfg = UNTOUCHED;
	struct rpma_srq_cfg *srq_cfg = UNTOUCHED;
	struct rpma_peer_cfg *pcfg = UNTOUCHED;
	API(rpma_conn_cfg_new(&cfg));
	say_pointer("cfg", cfg);
	if (!given(cfg))
		return;
	GET_AND_SET_U32(cfg, conn_cfg, cq_size);
	GET_AND_SET_U32(cfg, conn_cfg, rcq_size);
	GET_AND_SET_U32(cfg, conn_cfg, sq_size);
	GET_AND_SET_U32(cfg, conn_cfg, rq_size);

	static const int timeouts[] = {0, 1, 1000, INT_MAX, -1, INT_MIN};
	int timeout = UNTOUCHED_INT;
	API(rpma_conn_cfg_get_timeout(cfg, &timeout));
	say_int("timeout", timeout);
	for (size_t i = 0; i < sizeof(timeouts) / sizeof(timeouts[0]); i++) {
		timeout = UNTOUCHED_INT;
		APIF(rpma_conn_cfg_set_timeout(cfg, timeouts[i]), "rpma_conn_cfg_set_timeout(%d)",
				timeouts[i]);
		API(rpma_conn_cfg_get_timeout(cfg, &timeout));
		say_int("timeout", timeout);
	}

	bool flag = true;
	API(rpma_conn_cfg_get_compl_channel(cfg, &flag));
	say_int("shared", flag);
	API(rpma_conn_cfg_set_compl_channel(cfg, true));
	API(rpma_conn_cfg_get_compl_channel(cfg, &flag));
	say_int("shared", flag);
	API(rpma_conn_cfg_set_compl_channel(cfg, false));
	API(rpma_conn_cfg_get_compl_channel(cfg, &flag));
	say_int("shared", flag);

	struct rpma_srq *srq = UNTOUCHED;
	API(rpma_conn_cfg_get_srq(cfg, &srq));
	say_pointer("srq", srq);
	API(rpma_conn_cfg_set_srq(cfg, (struct rpma_srq *)&flag));
	API(rpma_conn_cfg_get_srq(cfg, &srq));
	script_say("     srq %s", srq == (struct rpma_srq *)&flag ? "same" : "other");
	API(rpma_conn_cfg_set_srq(cfg, NULL));
	API(rpma_conn_cfg_get_srq(cfg, &srq));
	script_say("     srq %s", srq == (struct rpma_srq *)&flag ? "same" : "other");
	API(rpma_conn_cfg_delete(&cfg));
	say_pointer("cfg", cfg);

	/* one configuration's values are not another's */
	API(rpma_conn_cfg_new(&cfg));
	if (!given(cfg))
		return;
	uint32_t size = 0;
	API(rpma_conn_cfg_get_cq_size(cfg, &size));
	say_int("cq_size", size);
	API(rpma_conn_cfg_delete(&cfg));

	API(rpma_srq_cfg_new(&srq_cfg));
	say_pointer("srq_cfg", srq_cfg);
	if (!given(srq_cfg))
		return;
	GET_AND_SET_U32(srq_cfg, srq_cfg, rq_size);
	GET_AND_SET_U32(srq_cfg, srq_cfg, rcq_size);
	API(rpma_srq_cfg_delete(&srq_cfg));
	say_pointer("srq_cfg", srq_cfg);

	API(rpma_peer_cfg_new(&pcfg));
	say_pointer("pcfg", pcfg);
	if (!given(pcfg))
		return;
	for (int i = 0; i < 3; i++) {
		flag = i != 1;
		API(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, &flag));
		say_int("direct write", flag);
		APIF(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, i == 0),
				"rpma_peer_cfg_set_direct_write_to_pmem(%d)", i == 0);
	}
	API(rpma_peer_cfg_delete(&pcfg));
	say_pointer("pcfg", pcfg);
}

/* Access rights for every usage, on each kind of device. */
const char *const usage_variants[] = {"infiniband", "iwarp", "flush", "flush+iwarp", "flush-global",
	"flush-persistent", NULL};

void
usages(const char *variant)
{
	script_device.iwarp = has(variant, "iwarp");
	script_device.flush_global = has(variant, "flush") || has(variant, "flush-global");
	script_device.flush_persistent = has(variant, "flush") || has(variant, "flush-persistent");
	(void) script_context();
	struct fixture f = FIXTURE_INIT;
	fixture_peer(&f);
	for (int usage = -1; usage <= 258 && given(f.peer); usage++) {
		struct rpma_mr_local *mr = UNTOUCHED;
		APIF(rpma_mr_reg(f.peer, fixture_memory + 1, 100, usage, &mr), "rpma_mr_reg(usage=%#x)",
				(unsigned)usage);
		say_pointer("mr", mr);
		if (given(mr))
			API(rpma_mr_dereg(&mr));
	}
	static const int odd[] = {0x200, 0x1ff, 0x10001, INT_MIN, INT_MIN | 1};
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]) && given(f.peer); i++) {
		struct rpma_mr_local *mr = UNTOUCHED;
		APIF(rpma_mr_reg(f.peer, fixture_memory, 100, odd[i], &mr), "rpma_mr_reg(usage=%#x)",
				(unsigned)odd[i]);
		say_pointer("mr", mr);
	}
	fixture_down(&f);
}

void
descriptors(const char *variant)
{
	(void) variant;
	struct fixture f = FIXTURE_INIT;
	fixture_peer(&f);
	for (int usage = 1; usage < 0x100 && given(f.peer); usage = usage * 2 + (usage == 4)) {
		struct rpma_mr_local *mr = UNTOUCHED;
		APIF(rpma_mr_reg(f.peer, fixture_memory + 8, 0x123, usage, &mr), "rpma_mr_reg(usage=%#x)",
				(unsigned)usage);
		if (!given(mr))
			continue;
		size_t size = UNTOUCHED_INT;
		void *ptr = UNTOUCHED;
		unsigned char bytes[32];
		API(rpma_mr_get_descriptor_size(mr, &size));
		say_int("size", (long long)size);
		API(rpma_mr_get_size(mr, &size));
		say_int("size", (long long)size);
		API(rpma_mr_get_ptr(mr, &ptr));
		script_say("     ptr %s", script_address(ptr));
		memset(bytes, 0xee, sizeof(bytes));
		API(rpma_mr_get_descriptor(mr, bytes));
		/* the address differs from run to run: told relative to the region */
		uint64_t address;
		memcpy(&address, bytes, 8);
		script_say("     raddr %s", script_address((void *)(uintptr_t)address));
		say_bytes("rest", bytes + 8, sizeof(bytes) - 8);
		struct rpma_mr_remote *remote = UNTOUCHED;
		API(rpma_mr_remote_from_descriptor(bytes, 21, &remote));
		int flush_type = UNTOUCHED_INT;
		if (given(remote)) {
			API(rpma_mr_remote_get_size(remote, &size));
			say_int("size", (long long)size);
			API(rpma_mr_remote_get_flush_type(remote, &flush_type));
			say_int("flush type", flush_type);
			API(rpma_mr_remote_delete(&remote));
			say_pointer("remote", remote);
		}
		API(rpma_mr_dereg(&mr));
		say_pointer("mr", mr);
	}
	fixture_down(&f);
}

void
remote_descriptors(const char *variant)
{
	(void) variant;
	unsigned char bytes[64];
	for (int i = 0; i < 64; i++)
		bytes[i] = (unsigned char)(0x81 + 3 * i);
	for (size_t size = 0; size <= 40; size++) {
		struct rpma_mr_remote *remote = UNTOUCHED;
		APIF(rpma_mr_remote_from_descriptor(bytes, size, &remote),
				"rpma_mr_remote_from_descriptor(%zu bytes)", size);
		say_pointer("remote", remote);
		if (!given(remote))
			continue;
		size_t region = 0;
		API(rpma_mr_remote_get_size(remote, &region));
		script_say("     size %#zx", region);
		API(rpma_mr_remote_delete(&remote));
	}
	for (int usage = 0; usage <= 255; usage++) {
		struct rpma_mr_remote *remote = UNTOUCHED;
		int flush_type = UNTOUCHED_INT;
		bytes[20] = (unsigned char)usage;
		APIF(rpma_mr_remote_from_descriptor(bytes, 21, &remote),
				"rpma_mr_remote_from_descriptor(usage %#x)", (unsigned)usage);
		say_pointer("remote", remote);
		if (!given(remote))
			continue;
		API(rpma_mr_remote_get_flush_type(remote, &flush_type));
		say_int("flush type", flush_type);
		API(rpma_mr_remote_delete(&remote));
	}
	/* a size of all ones, then of zero, is what it is */
	for (int ones = 1; ones >= 0; ones--) {
		struct rpma_mr_remote *remote = UNTOUCHED;
		size_t region = 7;
		memset(bytes, ones ? 0xff : 0, 20);
		bytes[20] = 1;
		API(rpma_mr_remote_from_descriptor(bytes, 21, &remote));
		if (given(remote)) {
			API(rpma_mr_remote_get_size(remote, &region));
			script_say("     size %#zx", region);
			API(rpma_mr_remote_delete(&remote));
		}
	}
}

void
peer_descriptors(const char *variant)
{
	(void) variant;
	static const unsigned char values[] = {0, 1, 2, 0x7f, 0x80, 0xff};
	for (size_t i = 0; i < sizeof(values); i++) {
		for (size_t size = 0; size <= 3; size++) {
			unsigned char bytes[4] = {values[i], 0xff, 0xff, 0xff};
			struct rpma_peer_cfg *pcfg = UNTOUCHED;
			APIF(rpma_peer_cfg_from_descriptor(bytes, size, &pcfg),
					"rpma_peer_cfg_from_descriptor(%#x, %zu)", values[i], size);
			say_pointer("pcfg", pcfg);
			if (!given(pcfg))
				continue;
			bool supported = false;
			API(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, &supported));
			say_int("direct write", supported);
			size_t desc_size = UNTOUCHED_INT;
			API(rpma_peer_cfg_get_descriptor_size(pcfg, &desc_size));
			say_int("size", (long long)desc_size);
			unsigned char back[4] = {0xee, 0xee, 0xee, 0xee};
			API(rpma_peer_cfg_get_descriptor(pcfg, back));
			say_bytes("descriptor", back, sizeof(back));
			API(rpma_peer_cfg_delete(&pcfg));
		}
	}
}

void
advise(const char *variant)
{
	(void) variant;
	struct fixture f = FIXTURE_INIT;
	fixture_peer(&f);
	fixture_memory_regions(&f);
	static const int advices[] = {0, 1, 2, 3, -1, 1000};
	static const uint32_t flags[] = {0, 1, UINT32_MAX};
	static const size_t ranges[][2] = {{0, 0}, {0, 1}, {17, 100}, {0, 4096}, {4095, 1}, {4096, 1},
		{10000, 0}, {0, UINT32_MAX}};
	for (size_t r = 0; r < 8 && given(f.mr); r++)
		for (size_t a = 0; a < (r ? 1 : 6); a++)
			for (size_t g = 0; g < (r ? 1 : 3); g++)
				APIF(rpma_mr_advise(f.mr, ranges[r][0], ranges[r][1], advices[a], flags[g]),
						"rpma_mr_advise(%zu, %zu, %d, %#x)", ranges[r][0], ranges[r][1],
						advices[a], flags[g]);
	/* every errno the provider may answer with is in the runner's failures */
	fixture_down(&f);
}

void
advise_nothing(const char *variant)
{
	(void) variant;
	API(rpma_mr_advise(NULL, 0, 1, 0, 0));
}

/* On-demand paging is there only as a whole: in general, for writes and for reads. */
void
odp(const char *variant)
{
	(void) variant;
	for (int caps = 0; caps < 8; caps++) {
		script_device.odp = caps;
		int capable = UNTOUCHED_INT;
		APIF(rpma_utils_ibv_context_is_odp_capable(script_context(), &capable),
				"rpma_utils_ibv_context_is_odp_capable(caps %d)", caps);
		say_int("capable", capable);
		struct fixture f = FIXTURE_INIT;
		fixture_peer(&f);
		if (given(f.peer)) {
			/* refused at first with EOPNOTSUPP by the runner's scripts */
			API(rpma_mr_reg(f.peer, fixture_memory, 64, RPMA_MR_USAGE_WRITE_DST, &f.mr));
			say_pointer("mr", f.mr);
		}
		fixture_down(&f);
	}
}
