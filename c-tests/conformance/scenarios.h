/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* All scenarios, by the file they are in. */

#ifndef SCENARIOS_H
#define SCENARIOS_H

#include "fixture.h"

/* scenarios_life.c */
extern const char *const life_variants[], *const undecided_variants[], *const bad_connect_variants[],
	*const peer_variants[], *const context_variants[], *const event_variants[],
	*const outlives_variants[];
scenario_function life, undecided, bad_connect, nothing_to_delete, peer, context, events, endpoint,
	outlives;

/* scenarios_args.c */
scenario_function args_config, args_peer, args_memory, args_request, args_connection, args_operations,
	args_completion, args_srq;

/* scenarios_values.c */
extern const char *const usage_variants[];
scenario_function texts, thresholds, default_log, config_values, usages, descriptors,
	remote_descriptors, peer_descriptors, advise, advise_nothing, odp;

/* scenarios_ops.c */
extern const char *const operation_variants[], *const flush_variants[], *const completion_variants[],
	*const wait_variants[];
scenario_function operations, long_operations, flushes, unknown_flush, completions, waits, srq_life;

#endif /* SCENARIOS_H */
