/* cpu_count.c - how many CPUs this process may really use. A container with a quota of 2 CPUs on a machine of 64 that
 * starts 64 threads is throttled to a crawl, so the quota counts as much as the affinity mask. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "thread_pool.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 1024

/* The first line of ROOT/FOLDER/NAME, or 0. */
static int read_line(const char *root, const char *folder, const char *name, char *line, int capacity) {
  char path[2 * PATH_BYTES];
  int length = snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);
  if (length < 0 || length >= (int)sizeof(path)) return 0;
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  int found = fgets(line, capacity, file) != NULL;
  fclose(file);
  return found;
}

/* Whole CPUs in quota/period, at least 1; 0 when unlimited. Rounded down: a thread without its CPU stalls the others. */
static int32_t whole_cpus(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return 0;
  return quota < period ? 1 : (int32_t)(quota / period);
}

static int32_t v2_limit(const char *root, const char *folder) {
  char line[128];
  long long quota, period;
  if (!read_line(root, folder, "cpu.max", line, sizeof(line))) return 0;
  return sscanf(line, "%lld %lld", &quota, &period) == 2 ? whole_cpus(quota, period) : 0;
}

static int32_t v1_limit(const char *root, const char *folder) {
  char line[128];
  long long quota, period;
  if (!read_line(root, folder, "cpu.cfs_quota_us", line, sizeof(line)) || sscanf(line, "%lld", &quota) != 1) return 0;
  if (!read_line(root, folder, "cpu.cfs_period_us", line, sizeof(line)) || sscanf(line, "%lld", &period) != 1) return 0;
  return whole_cpus(quota, period);
}

/* The smallest limit from `folder` up to the root: every ancestor's quota holds. Inside a cgroup namespace the folder may
 * not exist here; then the root, which is the container's own group, decides. */
static int32_t smallest_limit(int32_t (*limit_of)(const char *, const char *), const char *root, char *folder) {
  int32_t smallest = 0;
  for (;;) {
    int32_t limit = limit_of(root, folder);
    if (limit && (!smallest || limit < smallest)) smallest = limit;
    char *slash = strrchr(folder, '/');
    if (!slash) return smallest;
    *slash = 0;
  }
}

/* Whether the comma-separated `list` contains `item`. */
static int lists(const char *list, const char *item) {
  size_t length = strlen(item);
  for (const char *at = strstr(list, item); at; at = strstr(at + 1, item)) {
    if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) return 1;
  }
  return 0;
}

int32_t ingot_cgroup_cpus(const char *membership, const char *root) {
  char line[PATH_BYTES + 128], mount[PATH_BYTES];
  int32_t smallest = 0;
  FILE *file = fopen(membership, "r");
  if (!file) return 0;
  while (fgets(line, sizeof(line), file)) { /* "hierarchy:controllers:/folder" */
    line[strcspn(line, "\n")] = 0;
    char *controllers = strchr(line, ':');
    char *folder = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!folder) continue;
    *controllers++ = 0;
    *folder++ = 0;
    int32_t limit = 0;
    if (*controllers == 0) {
      limit = smallest_limit(v2_limit, root, folder);
    } else if (lists(controllers, "cpu") && snprintf(mount, sizeof(mount), "%s/cpu", root) < (int)sizeof(mount)) {
      limit = smallest_limit(v1_limit, mount, folder); /* cpu is also there when it is mounted as cpu,cpuacct */
    }
    if (limit && (!smallest || limit < smallest)) smallest = limit;
  }
  fclose(file);
  return smallest;
}

int32_t ingot_cpu_count(void) {
  int32_t count = 0;
#ifdef __linux__
  cpu_set_t allowed;
  if (!sched_getaffinity(0, sizeof(allowed), &allowed)) count = CPU_COUNT(&allowed);
#endif
  if (count < 1) count = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
  int32_t quota = ingot_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
  if (quota && quota < count) count = quota;
  return count < 1 ? 1 : count;
}
