/* Drives the artifact runtime from C, for sanitizers and valgrind. Linked with the toy model of tests/native_models.py.
 *
 *   driver run WEIGHTS          every function of ingot.h, on several threads; prints "ok"
 *   driver denormals WEIGHTS    denormal results of kernels are zeros in every thread; prints "ok". Not for valgrind
 *   driver fork WEIGHTS         a child of fork() is refused; prints "ok"
 *   driver cpus MEMBERSHIP ROOT what ingot_cgroup_cpus answers
 *   driver missing FEATURES     the first feature that this CPU lacks */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native_check.h"
#include "runtime.h"
#include "thread_pool.h"

#define INNER 12
#define WIDTH 5
static const float *weights;
static size_t weights_size;

typedef struct {
  int64_t x_shape[2], r_shape[2], sum_shape[2], pairs_shape[2];
  float *x, *r, *sum, *pairs;
  ingot_tensor inputs[2], outputs[2];
} call;

static call *make_call(int64_t batch) {
  call *c = calloc(1, sizeof(*c));
  int64_t half = (batch + 1) / 2;
  c->x = malloc((size_t)(batch * INNER + 1) * 4);
  c->r = malloc((size_t)(batch * WIDTH + 1) * 4);
  c->sum = malloc((size_t)(batch * WIDTH + 1) * 4);
  c->pairs = malloc((size_t)(half * WIDTH + 1) * 4);
  for (int64_t i = 0; i < batch * INNER; i++) c->x[i] = (float)(i % 7) - 3;
  for (int64_t i = 0; i < batch * WIDTH; i++) c->r[i] = (float)(i % 5);
  int64_t shapes[4][2] = {{batch, INNER}, {batch, WIDTH}, {batch, WIDTH}, {half, WIDTH}};
  memcpy(c->x_shape, shapes[0], 16);
  memcpy(c->r_shape, shapes[1], 16);
  memcpy(c->sum_shape, shapes[2], 16);
  memcpy(c->pairs_shape, shapes[3], 16);
  c->inputs[0] = (ingot_tensor){c->x, c->x_shape, 2, 1};
  c->inputs[1] = (ingot_tensor){c->r, c->r_shape, 2, 1};
  c->outputs[0] = (ingot_tensor){c->sum, c->sum_shape, 2, 1};
  c->outputs[1] = (ingot_tensor){c->pairs, c->pairs_shape, 2, 1};
  return c;
}

static void free_call(call *c) {
  free(c->x);
  free(c->r);
  free(c->sum);
  free(c->pairs);
  free(c);
}

static ingot_model *create(int32_t threads, const ingot_thread_pool *pool) {
  ingot_options options = {sizeof(options), weights, weights_size, threads, pool, 0, 0};
  ingot_model *model = NULL;
  ingot_status status = ingot_create(&options, &model);
  if (status) fprintf(stderr, "%s\n", ingot_last_error(NULL));
  CHECK(!status && model);
  return model;
}

/* Integer-valued inputs and weights: every order of summation gives the same float. */
static void verify(const call *c, int64_t batch) {
  const float *w = weights + 16;
  for (int64_t i = 0; i < batch; i++) {
    for (int64_t n = 0; n < WIDTH; n++) {
      float sum = c->r[i * WIDTH + n];
      for (int64_t k = 0; k < INNER; k++) sum += c->x[i * INNER + k] * w[k * WIDTH + n];
      CHECK(c->sum[i * WIDTH + n] == sum);
    }
  }
}

static void run_sizes(ingot_model *model, int times) {
  static const int64_t sizes[] = {1, 2, 3, 64, 7, 500, 0, 129};
  for (int t = 0; t < times; t++) {
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
      call *c = make_call(sizes[i]);
      CHECK(!ingot_run(model, c->inputs, 2, c->outputs, 2));
      verify(c, sizes[i]);
      free_call(c);
    }
  }
}

static void *run_many(void *model) {
  run_sizes(model, 20);
  return NULL;
}

static void *run_own(void *unused) {
  ingot_model *model = create(3, NULL);
  run_sizes(model, 10);
  ingot_destroy(model);
  return unused;
}

/* A host's pool of two "threads", run one after the other. */
static void host_run(void *pool, ingot_task task, void *context, int64_t tasks) {
  ++*(int *)pool;
  task(context, 0, tasks / 2, 1);
  task(context, tasks / 2, tasks, 0);
}

static void test_threads(void) {
  for (int32_t threads = 1; threads <= 4; threads++) {
    ingot_model *model = create(threads, NULL);
    run_sizes(model, 5);
    usleep(2000); /* let the workers fall asleep, then wake them */
    run_sizes(model, 1);
    ingot_destroy(model);
  }
  int launches = 0;
  ingot_thread_pool pool = {host_run, &launches, 2};
  ingot_model *model = create(0, &pool);
  run_sizes(model, 1);
  CHECK(launches > 0);
  ingot_destroy(model);
}

static void test_concurrency(void) {
  pthread_t threads[4];
  ingot_model *shared = create(2, NULL);
  for (int i = 0; i < 4; i++) CHECK(!pthread_create(&threads[i], NULL, i < 2 ? run_many : run_own, shared));
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  ingot_destroy(shared);
}

static void expect(const char *error, const char *text) {
  if (!strstr(error, text)) fprintf(stderr, "expected '%s' in '%s'\n", text, error);
  CHECK(strstr(error, text));
}

static void test_refusals(void) {
  ingot_model *model = create(1, NULL);
  call *c = make_call(4);
#define REFUSED(change, text)                                                              \
  do {                                                                                     \
    call saved = *c;                                                                       \
    change;                                                                                \
    CHECK(ingot_run(model, c->inputs, 2, c->outputs, 2) == INGOT_INVALID_ARGUMENT);        \
    expect(ingot_last_error(model), text);                                                 \
    *c = saved;                                                                            \
  } while (0)
  REFUSED(c->inputs[0].dtype = 11, "input 'x': expected dtype float32, received float64");
  REFUSED(c->inputs[0].dtype = 99, "received an unknown dtype");
  REFUSED(c->inputs[1].rank = 1, "input 'r': expected rank 2 [batch, 5], received rank 1 [4]");
  REFUSED(c->inputs[1].rank = 99, "a rank out of range");
  REFUSED(c->inputs[1].shape = NULL, "a null shape");
  REFUSED(c->x_shape[1] = 13, "input 'x': expected shape [batch, 12], received [4, 13]: axis 1");
  REFUSED(c->x_shape[0] = -4, "received [-4, 12]: axis 0");
  REFUSED(c->x_shape[0] = (int64_t)1 << 40, "input 'x': expected shape");
  REFUSED(c->r_shape[0] = 3, "input 'r' axis 0 (batch): expected 4, received 3");
  REFUSED((c->x_shape[0] = 501, c->r_shape[0] = 501), "rows left of the largest batch: expected at least 0, received -1");
  REFUSED(c->inputs[0].data = NULL, "input 'x': expected a data pointer, received NULL");
  REFUSED(c->outputs[1].data = NULL, "output 'pairs': expected a data pointer, received NULL");
  REFUSED(c->pairs_shape[0] = 4, "output 'pairs': expected shape [2, 5] for these inputs, received [4, 5]");
  CHECK(ingot_run(model, c->inputs, 1, c->outputs, 2) == INGOT_INVALID_ARGUMENT);
  expect(ingot_last_error(model), "model 'toy': expected 2 inputs, received 1");
  CHECK(ingot_run(model, c->inputs, 2, NULL, 2) == INGOT_INVALID_ARGUMENT);
  expect(ingot_last_error(model), "expected 2 outputs, received 0");
  CHECK(ingot_run_kernel(model, 3, NULL, NULL, 1) == INGOT_INVALID_ARGUMENT);
  expect(ingot_last_error(model), "kernel: expected 0 to 2, received 3");
  int64_t nanoseconds = -1;
  CHECK(ingot_time_kernel(model, -1, NULL, NULL, 1, 5, &nanoseconds) == INGOT_INVALID_ARGUMENT && nanoseconds == -1);
  expect(ingot_last_error(model), "kernel: expected 0 to 2, received -1");
  CHECK(!ingot_run(model, c->inputs, 2, c->outputs, 2)); /* and it still works */
  CHECK(ingot_last_error(model)[0] == 0);
  verify(c, 4);
  free_call(c);
  ingot_destroy(model);
}

/* A kernel timed over several launches has run so many times, on as many threads as the model has. */
static void test_timing(void) {
  for (int32_t threads = 1; threads <= 3; threads++) {
    ingot_model *model = create(threads, NULL);
    float x[40], sum[40] = {0};
    for (int i = 0; i < 40; i++) x[i] = (float)i;
    void *buffers[] = {x, sum, sum};
    int64_t symbols[] = {40}, nanoseconds = -1;
    CHECK(!ingot_time_kernel(model, 1, buffers, symbols, 3, 7, &nanoseconds) && nanoseconds > 0);
    for (int i = 0; i < 40; i++) CHECK(sum[i] == 7 * x[i]);
    CHECK(!ingot_time_kernel(model, 1, buffers, symbols, 3, 0, &nanoseconds) && nanoseconds >= 0);
    for (int i = 0; i < 40; i++) CHECK(sum[i] == 7 * x[i]);
    ingot_destroy(model);
  }
}

/* Results of kernels that are denormal are zeros in every thread, on x86; the caller's own arithmetic keeps them. */
static void test_denormals(void) {
  volatile float denormal = 1e-39f;
  for (int32_t threads = 1; threads <= 3; threads++) {
    ingot_model *model = create(threads, NULL);
    call *c = make_call(64);
    for (int64_t i = 0; i < 64 * INNER; i++) c->x[i] = 0;
    for (int64_t i = 0; i < 64 * WIDTH; i++) c->r[i] = denormal;
    CHECK(!ingot_run(model, c->inputs, 2, c->outputs, 2));
    for (int64_t i = 0; i < 64 * WIDTH; i++) CHECK(c->sum[i] == 0);
    CHECK(denormal + denormal > denormal);
    void *buffers[] = {c->r, c->sum, c->sum};
    int64_t symbols[] = {40};
    memset(c->sum, 0, 40 * sizeof(float));
    CHECK(!ingot_run_kernel(model, 1, buffers, symbols, 3));
    for (int i = 0; i < 40; i++) CHECK(c->sum[i] == 0);
    CHECK(denormal + denormal > denormal);
    free_call(c);
    ingot_destroy(model);
  }
}

static void test_options(void) {
  ingot_model *model = (ingot_model *)1;
  struct {
    ingot_options options;
    ingot_status status;
    const char *text;
  } refused[] = {
      {{sizeof(ingot_options), NULL, 0, 1, NULL, 0, 0}, INGOT_INVALID_ARGUMENT, "bytes of weights, received none"},
      {{sizeof(ingot_options), weights, 1, 1, NULL, 0, 0}, INGOT_INCOMPATIBLE, "they belong to another model"},
      {{sizeof(ingot_options), weights + 1, weights_size, 1, NULL, 0, 0}, INGOT_INVALID_ARGUMENT, "aligned to 64"},
      {{sizeof(ingot_options), weights, weights_size, -1, NULL, 0, 0}, INGOT_INVALID_ARGUMENT, "threads: expected 0 to"},
      {{0, weights, weights_size, 1, NULL, 0, 0}, INGOT_INVALID_ARGUMENT, "struct_size"},
  };
  for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
    CHECK(ingot_create(&refused[i].options, &model) == refused[i].status);
    CHECK(!model);
    expect(ingot_last_error(NULL), refused[i].text);
  }
  ingot_options older = {offsetof(ingot_options, thread_pool), weights, weights_size, 1, (void *)1, 0, 0};
  CHECK(!ingot_create(&older, &model)); /* a caller built with fewer fields */
  ingot_destroy(model);
  ingot_destroy(NULL);
  CHECK(ingot_run(NULL, NULL, 0, NULL, 0) == INGOT_INVALID_ARGUMENT);
  expect(ingot_last_error(NULL), "expected a handle, received NULL");
}

/* A child of fork() has no workers: it must be told, not hang. */
static void test_fork(void) {
  ingot_model *model = create(2, NULL);
  call *c = make_call(64);
  CHECK(!ingot_run(model, c->inputs, 2, c->outputs, 2));
  pid_t child = fork();
  if (child == 0) {
    int refused = ingot_run(model, c->inputs, 2, c->outputs, 2) == INGOT_INTERNAL;
    _exit(refused && strstr(ingot_last_error(model), "before fork()") ? 0 : 1);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  free_call(c);
  ingot_destroy(model);
}

static void test_queries(void) {
  CHECK(ingot_abi_version() == INGOT_ABI_VERSION);
  CHECK(!strcmp(ingot_compiler_version(), "0.1.0-test"));
  CHECK(ingot_weights_size() == weights_size && ingot_kernel_count() == 3);
  CHECK(ingot_input_count() == 2 && ingot_output_count() == 2);
  CHECK(!strcmp(ingot_kernel_name(0), "matmul") && !ingot_kernel_name(3) && !ingot_kernel_name(-1));
  CHECK(!strcmp(ingot_input_info(0)->name, "x") && !ingot_input_info(2));
  const ingot_tensor_info *pairs = ingot_output_info(1);
  CHECK(pairs->rank == 2 && pairs->dtype == 1 && pairs->shape[0] == -1 && pairs->shape[1] == 5);
  CHECK(!strcmp(pairs->shape_symbols[0], "(batch + 1) // 2") && !ingot_output_info(2));
  ingot_model *model = create(1, NULL);
  call *c = make_call(9);
  memset(c->pairs_shape, 0, sizeof(c->pairs_shape));
  CHECK(!ingot_output_shapes(model, c->inputs, 2, c->outputs, 2));
  CHECK(c->pairs_shape[0] == 5 && c->pairs_shape[1] == 5 && c->sum_shape[0] == 9);
  free_call(c);
  ingot_destroy(model);
}

static void test_memory(void) {
  size_t sizes[] = {0, 1, 63, 4096, INGOT_HUGE_PAGE - 1, INGOT_HUGE_PAGE, 3 * INGOT_HUGE_PAGE + 5};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
    char *block = ingot_allocate(sizes[i]);
    CHECK(block && (size_t)block % INGOT_ALIGNMENT == 0);
    if (sizes[i] >= INGOT_HUGE_PAGE) CHECK((size_t)block % INGOT_HUGE_PAGE == 0);
    memset(block, 1, sizes[i]);
    ingot_free(block, sizes[i]);
  }
  CHECK(!ingot_allocate((size_t)-1));
}

static void read_weights(const char *path) {
  FILE *file = fopen(path, "rb");
  CHECK(file && !fseek(file, 0, SEEK_END));
  weights_size = (size_t)ftell(file);
  rewind(file);
  void *data;
  CHECK(!posix_memalign(&data, 64, weights_size));
  CHECK(fread(data, 1, weights_size, file) == weights_size);
  fclose(file);
  weights = data;
}

int main(int count, char **words) {
  if (count == 4 && !strcmp(words[1], "cpus")) {
    printf("%d\n", (int)ingot_cgroup_cpus(words[2], words[3]));
    return 0;
  }
  if (count == 3 && !strcmp(words[1], "missing")) {
    char name[64];
    const char *missing = ingot_missing_feature(words[2], name, sizeof(name));
    printf("%s\n", missing ? missing : "nothing");
    return 0;
  }
  CHECK(count == 3);
  read_weights(words[2]);
  if (strcmp(words[1], "run")) {
    CHECK(!strcmp(words[1], "fork") || !strcmp(words[1], "denormals"));
    words[1][0] == 'f' ? test_fork() : test_denormals();
    puts("ok");
    return 0;
  }
  CHECK(ingot_cpu_count() >= 1);
  test_queries();
  test_timing();
  test_threads();
  test_concurrency();
  test_refusals();
  test_options();
  test_memory();
  free((void *)weights);
  puts("ok");
  return 0;
}
