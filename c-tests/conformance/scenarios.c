/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* The table of all scenarios. */

#include "scenarios.h"

const struct scenario scenarios[] = {
	{"life", life, life_variants},
	{"undecided", undecided, undecided_variants},
	{"bad_connect", bad_connect, bad_connect_variants},
	{"nothing_to_delete", nothing_to_delete, NULL},
	{"peer", peer, peer_variants},
	{"context", context, context_variants},
	{"events", events, event_variants},
	{"endpoint", endpoint, NULL},
	{"outlives", outlives, outlives_variants},
	{"args_config", args_config, NULL},
	{"args_peer", args_peer, NULL},
	{"args_memory", args_memory, NULL},
	{"args_request", args_request, NULL},
	{"args_connection", args_connection, NULL},
	{"args_operations", args_operations, NULL},
	{"args_completion", args_completion, NULL},
	{"args_srq", args_srq, NULL},
	{"texts", texts, NULL},
	{"thresholds", thresholds, NULL},
	{"default_log", default_log, NULL},
	{"config_values", config_values, NULL},
	{"usages", usages, usage_variants},
	{"descriptors", descriptors, NULL},
	{"remote_descriptors", remote_descriptors, NULL},
	{"peer_descriptors", peer_descriptors, NULL},
	{"advise", advise, NULL},
	{"advise_nothing", advise_nothing, NULL},
	{"odp", odp, NULL},
	{"operations", operations, operation_variants},
	{"long_operations", long_operations, NULL},
	{"flushes", flushes, flush_variants},
	{"unknown_flush", unknown_flush, NULL},
	{"completions", completions, completion_variants},
	{"waits", waits, wait_variants},
	{"srq_life", srq_life, NULL},
};
const size_t n_scenarios = sizeof(scenarios) / sizeof(scenarios[0]);
