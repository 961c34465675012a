/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * control.c - a well-behaved client of the server that is abused: writes, reads back, sends and gets the echo, and
 * compares every byte, round after round until its standard input ends. It must not notice what others do.
 *
 * usage: control ADDR PORT [ROUNDS]
 *
 * Says "round N" after each round, and "end N" when it has parted in good order. With ROUNDS it ends by itself.
 */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fabric.h"

#define SIZE PAGE
#define MESSAGE 64
#define PATIENCE 60 /* seconds that a round may take */

static struct rpma_conn *conn;
static struct rpma_cq *cq;
static struct rpma_mr_local *mr;
static struct rpma_mr_remote *remote;
static unsigned char *mem; /* what is written, what is read back, the message, its echo */

static void
play_round(unsigned long round)
{
	uint64_t expected = 2;

	pattern(mem, SIZE, (unsigned)round);
	memset(mem + SIZE, 0, SIZE);
	pattern(mem + 2 * SIZE, MESSAGE, (unsigned)round + 1);
	memset(mem + 2 * SIZE + MESSAGE, 0, MESSAGE);
	OK(rpma_recv(conn, mr, 2 * SIZE + MESSAGE, MESSAGE, ID(1)));
	OK(rpma_write(conn, remote, 0, mr, 0, SIZE, RPMA_F_COMPLETION_ON_ERROR, ID(5)));
	OK(rpma_read(conn, mr, SIZE, remote, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, ID(2)));
	OK(rpma_send(conn, mr, 2 * SIZE, MESSAGE, RPMA_F_COMPLETION_ALWAYS, ID(3)));
	/* The echo comes when it likes, the others in order. */
	for (bool echoed = false; !echoed || expected < 4;) {
		struct ibv_wc wc;

		next_wc(cq, &wc);
		if (wc.status != IBV_WC_SUCCESS)
			check_fail("round %lu: request %llu: %s", round, (unsigned long long)wc.wr_id,
				ibv_wc_status_str(wc.status));
		if (wc.wr_id == 1) {
			CHECK_INT(wc.opcode, IBV_WC_RECV);
			CHECK_INT(wc.byte_len, MESSAGE);
			CHECK(!echoed);
			echoed = true;
		} else {
			CHECK_INT(wc.wr_id, expected);
			expected++;
		}
	}
	check_pattern("what was read back", mem + SIZE, SIZE, (unsigned)round, 0);
	check_pattern("the echo", mem + 2 * SIZE + MESSAGE, MESSAGE, (unsigned)round + 1, 0);
	expect_no_wc(cq);
}

int
main(int argc, char **argv)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	struct rpma_conn_private_data pdata;
	struct rpma_conn_cfg *cfg;
	struct rpma_peer *peer;
	unsigned long round = 0, rounds;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: %s ADDR PORT [ROUNDS]\n", argv[0]);
		return 2;
	}
	rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	snprintf(check_role, sizeof(check_role), "control");
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(PATIENCE);
	OK(rpma_conn_cfg_new(&cfg));
	/* The server may be busy with others. */
	OK(rpma_conn_cfg_set_timeout(cfg, 20000));
	peer = peer_on(argv[1]);
	conn = connect_to(peer, argv[1], argv[2], cfg, NULL, 0);
	cq = cq_of(conn);
	OK(rpma_conn_get_private_data(conn, &pdata));
	OK(rpma_mr_remote_from_descriptor(pdata.ptr, pdata.len, &remote));
	mem = memory(3 * SIZE, 0);
	mr = registered(peer, mem, 3 * SIZE, USAGE_ALL);
	while (rounds ? round < rounds : poll(&input, 1, 1) == 0) {
		alarm(PATIENCE);
		play_round(++round);
		printf("round %lu\n", round);
	}
	alarm(PATIENCE);
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	part(&conn);
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_peer_delete(&peer));
	printf("end %lu\n", round);
	return 0;
}
