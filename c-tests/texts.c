/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* texts.c - the fixed texts of codes and events. They need no device. */

#include <limits.h>
#include <librpma.h>

#include "common/harness.h"

static void
codes(const char *addr)
{
	(void)addr;
	CHECK_STR(rpma_err_2str(0), "Success");
	CHECK_STR(rpma_err_2str(-100000), "Unknown error");
	CHECK_STR(rpma_err_2str(-100001), "Not supported");
	CHECK_STR(rpma_err_2str(-100002), "Provider error occurred");
	CHECK_STR(rpma_err_2str(-100003), "Out of memory");
	CHECK_STR(rpma_err_2str(-100004), "Invalid argument");
	CHECK_STR(rpma_err_2str(-100005), "No next completion available");
	CHECK_STR(rpma_err_2str(-100006), "No next event available");
	CHECK_STR(rpma_err_2str(-100007), "Temporary error, try again");
	CHECK_STR(rpma_err_2str(-100008), "Completion channel is shared");
	CHECK_STR(rpma_err_2str(-100009), "Completion channel is not shared");
	CHECK_STR(rpma_err_2str(-100010), "Unknown error");
	CHECK_STR(rpma_err_2str(-99999), "Unknown error");
	CHECK_STR(rpma_err_2str(1), "Unknown error");
	CHECK_STR(rpma_err_2str(-1), "Unknown error");
	CHECK_STR(rpma_err_2str(INT_MIN), "Unknown error");
	CHECK_STR(rpma_err_2str(INT_MAX), "Unknown error");
}

static void
constants(const char *addr)
{
	(void)addr;
	CHECK_INT(RPMA_E_UNKNOWN, -100000);
	CHECK_INT(RPMA_E_NOSUPP, -100001);
	CHECK_INT(RPMA_E_PROVIDER, -100002);
	CHECK_INT(RPMA_E_NOMEM, -100003);
	CHECK_INT(RPMA_E_INVAL, -100004);
	CHECK_INT(RPMA_E_NO_COMPLETION, -100005);
	CHECK_INT(RPMA_E_NO_EVENT, -100006);
	CHECK_INT(RPMA_E_AGAIN, -100007);
	CHECK_INT(RPMA_E_SHARED_CHANNEL, -100008);
	CHECK_INT(RPMA_E_NOT_SHARED_CHNL, -100009);
	CHECK_INT(RPMA_MR_USAGE_READ_SRC, 1);
	CHECK_INT(RPMA_MR_USAGE_READ_DST, 2);
	CHECK_INT(RPMA_MR_USAGE_WRITE_SRC, 4);
	CHECK_INT(RPMA_MR_USAGE_WRITE_DST, 8);
	CHECK_INT(RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, 16);
	CHECK_INT(RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, 32);
	CHECK_INT(RPMA_MR_USAGE_SEND, 64);
	CHECK_INT(RPMA_MR_USAGE_RECV, 128);
	CHECK_INT(RPMA_F_COMPLETION_ON_ERROR, 1);
	CHECK_INT(RPMA_F_COMPLETION_ALWAYS, 3);
	CHECK_INT(RPMA_ATOMIC_WRITE_ALIGNMENT, 8);
	CHECK_INT(RPMA_CONN_UNDEFINED, -1);
	CHECK_INT(RPMA_CONN_ESTABLISHED, 0);
	CHECK_INT(RPMA_CONN_CLOSED, 1);
	CHECK_INT(RPMA_CONN_LOST, 2);
	CHECK_INT(RPMA_CONN_REJECTED, 3);
	CHECK_INT(RPMA_CONN_UNREACHABLE, 4);
	CHECK_INT(RPMA_FLUSH_TYPE_PERSISTENT, 0);
	CHECK_INT(RPMA_FLUSH_TYPE_VISIBILITY, 1);
	CHECK_INT(RPMA_LOG_DISABLED, -1);
	CHECK_INT(RPMA_LOG_LEVEL_FATAL, 0);
	CHECK_INT(RPMA_LOG_LEVEL_DEBUG, 5);
}

static void
events(const char *addr)
{
	(void)addr;
	CHECK_STR(rpma_utils_conn_event_2str(RPMA_CONN_UNDEFINED), "Undefined connection event");
	CHECK_STR(rpma_utils_conn_event_2str(RPMA_CONN_ESTABLISHED), "Connection established");
	CHECK_STR(rpma_utils_conn_event_2str(RPMA_CONN_CLOSED), "Connection closed");
	CHECK_STR(rpma_utils_conn_event_2str(RPMA_CONN_LOST), "Connection lost");
	CHECK_STR(rpma_utils_conn_event_2str(RPMA_CONN_REJECTED), "Connection rejected");
	CHECK_STR(rpma_utils_conn_event_2str(RPMA_CONN_UNREACHABLE), "Connection unreachable");
	CHECK_STR(rpma_utils_conn_event_2str((enum rpma_conn_event)5), "Unsupported connection event");
	CHECK_STR(rpma_utils_conn_event_2str((enum rpma_conn_event)-2), "Unsupported connection event");
	CHECK_STR(rpma_utils_conn_event_2str((enum rpma_conn_event)INT_MAX), "Unsupported connection event");
}

static const struct test tests[] = {
	LOCAL(codes),
	LOCAL(constants),
	LOCAL(events),
	END
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
