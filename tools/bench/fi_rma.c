/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * fi_rma - how long a write with libfabric takes until it is delivered (FI_DELIVERY_COMPLETE), between two processes of this
 * machine, whose target makes progress all the time.
 *
 * usage: fi_rma PROVIDER SIZE COUNT      for instance: fi_rma "tcp;ofi_rxm" 8 2000
 *
 * Prints "SIZE MEDIAN" in bytes and microseconds. Exit status 1 if something fails.
 */

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	char *memory;
};

/* What the two sides tell each other. */
struct card {
	char name[256];
	size_t len;
	uint64_t addr;
	uint64_t key;
};

static void
check(int result, const char *what)
{
	if (result) {
		fprintf(stderr, "fi_rma: %s: %s\n", what, fi_strerror(result < 0 ? -result : result));
		exit(1);
	}
}

static void
set_up(struct side *side, const char *provider, size_t size, uint64_t access, struct card *card)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		check(-FI_ENOMEM, "fi_allocinfo");
	hints->caps = FI_RMA | FI_MSG;
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
	hints->fabric_attr->prov_name = strdup(provider);
	int by_address = strncmp(provider, "tcp", 3) == 0;
	check(fi_getinfo(FI_VERSION(1, 9), by_address ? "127.0.0.1" : NULL, NULL, by_address ? FI_SOURCE : 0, hints, &side->info),
		"fi_getinfo");
	check(fi_fabric(side->info->fabric_attr, &side->fabric, NULL), "fi_fabric");
	check(fi_domain(side->fabric, side->info, &side->domain, NULL), "fi_domain");
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT};
	check(fi_cq_open(side->domain, &cq, &side->cq, NULL), "fi_cq_open");
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	check(fi_av_open(side->domain, &av, &side->av, NULL), "fi_av_open");
	check(fi_endpoint(side->domain, side->info, &side->ep, NULL), "fi_endpoint");
	check(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_ep_bind(side->ep, &side->av->fid, 0), "fi_ep_bind");
	check(fi_enable(side->ep), "fi_enable");
	side->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (side->memory == MAP_FAILED)
		check(-FI_ENOMEM, "mmap");
	check(fi_mr_reg(side->domain, side->memory, size, access, 0, 1, 0, &side->mr, NULL), "fi_mr_reg");
	card->len = sizeof card->name;
	check(fi_getname(&side->ep->fid, card->name, &card->len), "fi_getname");
	int virtual = side->info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC);
	card->addr = virtual ? (uintptr_t)side->memory : 0;
	card->key = fi_mr_key(side->mr);
}

static void
swap_cards(int out, int in, const struct card *mine, struct card *theirs)
{
	if (write(out, mine, sizeof *mine) != sizeof *mine || read(in, theirs, sizeof *theirs) != sizeof *theirs)
		check(-FI_EIO, "the other side is gone");
}

static void
serve(const char *provider, size_t size, int out, int in)
{
	struct side side;
	struct card mine, theirs;
	struct fi_cq_entry entry;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	set_up(&side, provider, size, FI_REMOTE_WRITE, &mine);
	swap_cards(out, in, &mine, &theirs);
	for (;;)
		fi_cq_read(side.cq, &entry, 1);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int
compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double
measure(const char *provider, size_t size, int count, int out, int in)
{
	struct side side;
	struct card mine, theirs;
	fi_addr_t target;
	struct fi_context context;
	struct fi_cq_entry entry;
	double *times = calloc(count, sizeof *times);

	if (!times)
		check(-FI_ENOMEM, "calloc");
	set_up(&side, provider, size, FI_WRITE, &mine);
	swap_cards(out, in, &mine, &theirs);
	if (fi_av_insert(side.av, theirs.name, 1, &target, 0, NULL) != 1)
		check(-FI_EINVAL, "fi_av_insert");
	int warm_up = count / 10 + 1;
	for (int i = -warm_up; i < count; i++) {
		double start = now();
		ssize_t result;
		while ((result = fi_write(side.ep, side.memory, size, fi_mr_desc(side.mr), target, theirs.addr, theirs.key, &context)) ==
				-FI_EAGAIN)
			fi_cq_read(side.cq, &entry, 0);
		check((int)result, "fi_write");
		while ((result = fi_cq_read(side.cq, &entry, 1)) == -FI_EAGAIN)
			;
		if (result != 1)
			check((int)result, "fi_cq_read");
		if (i >= 0)
			times[i] = now() - start;
	}
	qsort(times, count, sizeof *times, compare);
	return times[count / 2];
}

int
main(int argc, char *argv[])
{
	if (argc != 4 || atol(argv[2]) < 1 || atoi(argv[3]) < 1) {
		fprintf(stderr, "usage: fi_rma PROVIDER SIZE COUNT\n");
		return 2;
	}
	size_t size = atol(argv[2]);
	int there[2], back[2];
	if (pipe(there) || pipe(back)) {
		perror("fi_rma: pipe");
		return 1;
	}
	pid_t server = fork();
	if (server < 0) {
		perror("fi_rma: fork");
		return 1;
	}
	if (server == 0) {
		close(there[1]);
		close(back[0]);
		serve(argv[1], size, back[1], there[0]);
	}
	close(there[0]);
	close(back[1]);
	printf("%zu %.3f\n", size, measure(argv[1], size, atoi(argv[3]), there[1], back[0]));
	fflush(stdout);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	_exit(0);
}
