/* Drives, from C, a model whose output the run sizes; linked with the model of tests/native_growing.py. Prints "ok". */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native_check.h"
#include "runtime.h"

typedef struct {
  int64_t n, m, x_shape[1], rows_shape[2], last_shape[1];
  uint8_t doubled;
  float *x, *last;
  ingot_tensor inputs[3], outputs[2];
} call;

static void fill(call *c, int64_t n, int64_t m, int doubled) {
  memset(c, 0, sizeof(*c));
  c->n = c->x_shape[0] = c->last_shape[0] = n;
  c->m = m;
  c->doubled = (uint8_t)doubled;
  c->x = malloc((size_t)(n + 1) * sizeof(float));
  c->last = malloc((size_t)(n + 1) * sizeof(float));
  for (int64_t i = 0; i < n; i++) c->x[i] = (float)i;
  c->inputs[0] = (ingot_tensor){c->x, c->x_shape, 1, 1};
  c->inputs[1] = (ingot_tensor){&c->m, NULL, 0, 7};
  c->inputs[2] = (ingot_tensor){&c->doubled, NULL, 0, 9};
  c->outputs[0] = (ingot_tensor){NULL, c->rows_shape, 2, 1};
  c->outputs[1] = (ingot_tensor){c->last, c->last_shape, 1, 1};
}

static void clear(call *c) {
  free(c->x);
  free(c->last);
}

static ingot_model *create(int32_t threads) {
  ingot_options options = {sizeof(options), NULL, 0, threads, NULL, 0, 0};
  ingot_model *model = NULL;
  CHECK(!ingot_create(&options, &model));
  return model;
}

static void run_sizes(ingot_model *model) {
  static const int64_t sizes[][2] = {{5, 3}, {5, 0}, {0, 4}, {1000, 60}, {3, 200}, {1, 1}};
  for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
    for (int doubled = 0; doubled < 2; doubled++) {
      call c;
      fill(&c, sizes[s][0], sizes[s][1], doubled);
      CHECK(!ingot_run(model, c.inputs, 3, c.outputs, 2));
      CHECK(c.rows_shape[0] == c.m && c.rows_shape[1] == c.n);
      const float *rows = c.outputs[0].data;
      for (int64_t i = 0; i < c.m; i++) {
        for (int64_t k = 0; k < c.n; k++) {
          CHECK(rows[i * c.n + k] == (float)(k * (1 + doubled) + i * (i + 1) / 2));
        }
      }
      for (int64_t k = 0; c.m && k < c.n; k++) CHECK(c.last[k] == rows[(c.m - 1) * c.n + k]);
      clear(&c);
    }
  }
}

static void *run_own(void *unused) {
  ingot_model *model = create(2);
  run_sizes(model);
  ingot_destroy(model);
  return unused;
}

static void test_refusals(void) {
  ingot_model *model = create(1);
  call c;
  fill(&c, 1000, 101, 1);
  CHECK(ingot_run(model, c.inputs, 3, c.outputs, 2) == INGOT_INVALID_ARGUMENT);
  CHECK(strstr(ingot_last_error(model), "there may be: expected at least 0, received -1000"));
  c.m = 2;
  c.outputs[0].data = c.x;
  CHECK(ingot_run(model, c.inputs, 3, c.outputs, 2) == INGOT_INVALID_ARGUMENT);
  CHECK(strstr(ingot_last_error(model), "output 'rows': expected data to be NULL"));
  c.outputs[0].data = NULL;
  CHECK(!ingot_output_shapes(model, c.inputs, 3, c.outputs, 2));
  CHECK(c.rows_shape[0] == -1 && c.rows_shape[1] == 1000 && c.last_shape[0] == 1000);
  CHECK(!ingot_run(model, c.inputs, 3, c.outputs, 2) && c.rows_shape[0] == 2);
  c.m = 7; /* and again with the tensors of the last call */
  CHECK(c.outputs[0].data && !ingot_run(model, c.inputs, 3, c.outputs, 2) && c.rows_shape[0] == 7);
  clear(&c);
  ingot_destroy(model);
}

static void test_limits(void) {
  ingot_options options = {sizeof(options), NULL, 0, 2, NULL, 1 << 20, 1};
  ingot_model *model = NULL;
  volatile int32_t stop = 1;
  CHECK(!ingot_create(&options, &model));
  for (int round = 0; round < 3; round++) {
    call c;
    fill(&c, 1000, 7, 1);
    CHECK(ingot_run_stoppable(model, c.inputs, 3, c.outputs, 2, &stop) == INGOT_STOPPED);
    c.outputs[0].data = NULL;
    CHECK(!ingot_run_stoppable(model, c.inputs, 3, c.outputs, 2, NULL) && c.rows_shape[0] == 7);
    c.outputs[0].data = NULL;
    ingot_give_back(model);
    clear(&c);
    fill(&c, 1 << 20, 7, 1);
    CHECK(ingot_run(model, c.inputs, 3, c.outputs, 2) == INGOT_OUT_OF_MEMORY);
    clear(&c);
    ingot_give_back(model);
  }
  ingot_destroy(model);
  ingot_give_back(NULL);
}

static void test_slots(void) {
  ingot_slot slot = {NULL, 0};
  CHECK(!ingot_reserve(&slot, -1, 0, SIZE_MAX) && !ingot_reserve(&slot, INT64_MAX, 1, SIZE_MAX) && !slot.data);
  CHECK(ingot_reserve(&slot, 0, 0, SIZE_MAX) && slot.data);
  CHECK(ingot_reserve(&slot, 10, 1, SIZE_MAX) && slot.size >= 10);
  memcpy(slot.data, "0123456789", 10);
  CHECK(ingot_reserve(&slot, 3 * (int64_t)INGOT_HUGE_PAGE, 1, SIZE_MAX) && !memcmp(slot.data, "0123456789", 10));
  int64_t size = slot.size;
  CHECK(ingot_reserve(&slot, 5, 0, SIZE_MAX) && slot.size == size); /* never shrinks */
  CHECK(!ingot_reserve(&slot, size + 1, 1, (size_t)size) && slot.size == size && !memcmp(slot.data, "0123456789", 10));
  CHECK(ingot_reserve(&slot, size + 1, 1, (size_t)size + 9) && slot.size <= size + 9); /* it does not double past the limit */
  CHECK(ingot_slots_size(&slot, 1) == (size_t)slot.size);
  ingot_free_slots(&slot, 1);
  CHECK(!ingot_slots_size(&slot, 1) && !slot.data);
}

int main(void) {
  pthread_t threads[3];
  test_slots();
  test_limits();
  test_refusals();
  for (int i = 0; i < 3; i++) CHECK(!pthread_create(&threads[i], NULL, run_own, NULL));
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  puts("ok");
  return 0;
}
