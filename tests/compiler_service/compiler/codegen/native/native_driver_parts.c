/* Drives a model of one part that another code generator made: y = x * scale, scale being its constant. Prints "ok". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native_check.h"
#include "runtime.h"

static int refuses, opened, closed;

typedef struct {
  float scale;
  int runs;
} part_state;

static int32_t open_part(const void *const *constants, int32_t threads, void **state, char *error) {
  CHECK(threads == 3);
  if (refuses) return (int32_t)ingot_fail(error, INGOT_INCOMPATIBLE, "the library of the part is missing");
  part_state *own = calloc(1, sizeof(*own));
  own->scale = *(const float *)constants[0];
  *state = own;
  opened++;
  return 0;
}

static int32_t run_part(void *state, void *const *buffers, const int64_t *symbols, char *error) {
  part_state *own = state;
  const float *x = buffers[0], *scale = buffers[1];
  float *y = buffers[2];
  CHECK(*scale == own->scale);
  own->runs++;
  if (symbols[0] == 13) return (int32_t)ingot_fail(error, INGOT_INTERNAL, "run %d of the part failed", own->runs);
  for (int64_t i = 0; i < symbols[0]; i++) y[i] = x[i] * own->scale;
  return 0;
}

static void close_part(void *state) {
  free(state);
  closed++;
}

static const ingot_part the_part = {open_part, run_part, close_part};
static const int64_t offsets[] = {64};

/* ---- the module ---- */

static int reached;

static int32_t resolve(const int64_t *const *shapes, int64_t *symbols, int64_t *expected, int64_t *received) {
  symbols[0] = shapes[0][0];
  *expected = *received = 0;
  return INGOT_DONE;
}

static int64_t arena_size(const int64_t *symbols) { return symbols[0] * 0; }

static int32_t output_shapes(const int64_t *symbols, int64_t *const *shapes, int32_t after) {
  (void)after;
  shapes[0][0] = symbols[0];
  return INGOT_DONE;
}

static int32_t execute(ingot_frame *frame) {
  void *buffers[] = {frame->inputs[0], (void *)(uintptr_t)(frame->weights + 64), frame->outputs[0]};
  frame->launch(frame, 0, buffers, frame->symbols, frame->symbols[0] > 0);
  if (frame->failed) return INGOT_LEFT;
  reached++;
  return INGOT_DONE;
}

static const int64_t any_extent[] = {-1};
static const char *const extent_name[] = {"n"};
static const ingot_tensor_info input = {"x", 1, 1, any_extent, extent_name}, output = {"y", 1, 1, any_extent, extent_name};
static const ingot_kernel kernel = {"part", NULL, 0, &the_part, offsets, 1};
static const ingot_default no_default = {-1, NULL};
static const int32_t no_slot = -1;

const ingot_module ingot_this_module = {
    1, "0", "scaled", 1, 1, 1, 1, 0, &input, &output, &kernel, 128, NULL, resolve, NULL, arena_size, output_shapes, execute,
    &no_slot, &no_default, "", 0, "sha256:0"};

/* ---- */

static float __attribute__((aligned(64))) weights[2][32];

static ingot_status create(int which, ingot_model **model) {
  ingot_options options = {sizeof(options), weights[which], sizeof(weights[which]), 3, NULL, 0, 0};
  return ingot_create(&options, model);
}

static ingot_status scaled(ingot_model *model, int64_t n, float expected, const volatile int32_t *stop) {
  float x[16] = {1, 2, 3}, y[16] = {0};
  int64_t shape[] = {n}, result[] = {n};
  ingot_tensor in = {x, shape, 1, 1}, out = {y, result, 1, 1};
  ingot_status status = ingot_run_stoppable(model, &in, 1, &out, 1, stop);
  for (int64_t i = 0; !status && i < n; i++) CHECK(y[i] == x[i] * expected);
  return status;
}

static void test_kernel_alone(ingot_model *model) {
  float x[] = {4}, y[] = {0};
  int64_t one = 1, thirteen = 13, nanoseconds;
  void *buffers[] = {x, &weights[0][16], y};
  CHECK(!ingot_run_kernel(model, 0, buffers, &one, 1) && y[0] == 8);
  CHECK(ingot_run_kernel(model, 0, buffers, &thirteen, 1) == INGOT_INTERNAL);
  CHECK(ingot_time_kernel(model, 0, buffers, &thirteen, 1, 5, &nanoseconds) == INGOT_INTERNAL);
  CHECK(strstr(ingot_last_error(model), "run 7 of the part failed"));
}

int main(void) {
  ingot_model *one = NULL, *two = NULL, *none = NULL;
  volatile int32_t stop = 1;
  weights[0][16] = 2;
  weights[1][16] = 5;
  CHECK(!create(0, &one) && !create(1, &two) && opened == 2);
  CHECK(!scaled(one, 3, 2, NULL) && !scaled(two, 3, 5, NULL) && !scaled(one, 0, 2, NULL) && reached == 3);
  CHECK(scaled(one, 13, 2, NULL) == INGOT_INTERNAL && reached == 3);
  CHECK(strstr(ingot_last_error(one), "run 2 of the part failed"));
  CHECK(!scaled(one, 2, 2, NULL) && scaled(one, 2, 2, &stop) == INGOT_STOPPED && !scaled(one, 1, 2, NULL));
  test_kernel_alone(one);
  refuses = 1;
  CHECK(create(0, &none) == INGOT_INCOMPATIBLE && !none && strstr(ingot_last_error(NULL), "is missing"));
  ingot_destroy(two);
  CHECK(closed == 1 && !scaled(one, 3, 2, NULL));
  ingot_destroy(one);
  CHECK(closed == 2);
  puts("ok");
  return 0;
}
