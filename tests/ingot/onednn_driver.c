/* Opens, runs and closes the part that is linked to it, x [n, t, 9] times [9, 7] times [7, 4], again and again. Prints "ok". */
#include <stdio.h>
#include <stdlib.h>

#include "ingot_part.h"

extern const ingot_part the_tested_part;

static float m[9 * 7] __attribute__((aligned(64))), b[7] __attribute__((aligned(64))), m2[7 * 4] __attribute__((aligned(64)));

static int run(void *state, int64_t n, int64_t t, char *error) {
  int64_t symbols[] = {n, t};
  float *x = malloc((size_t)(n * t * 9) * sizeof(float)), *y = malloc((size_t)(n * t * 4) * sizeof(float));
  for (int64_t i = 0; i < n * t * 9; i++) x[i] = 1;
  void *buffers[] = {x, m, b, m2, y};
  int failed = the_tested_part.run(state, buffers, symbols, error);
  /* each of the seven sums is 9 + 1 */
  for (int64_t i = 0; !failed && i < n * t * 4; i++) failed = y[i] != 70;
  free(x);
  free(y);
  return failed;
}

int main(void) {
  char error[INGOT_PART_ERROR_BYTES] = "";
  const void *constants[] = {m, b, m2};
  for (int i = 0; i < 9 * 7; i++) m[i] = 1;
  for (int i = 0; i < 7; i++) b[i] = 1;
  for (int i = 0; i < 7 * 4; i++) m2[i] = 1;
  for (int round = 0; round < 3; round++) {
    void *one = NULL, *two = NULL;
    if (the_tested_part.open(constants, 2, &one, error) || the_tested_part.open(constants, 2, &two, error) || run(one, 2, 3, error) ||
        run(two, 1, 1, error) || run(one, 2, 3, error) || run(one, 5, 1, error)) {
      fprintf(stderr, "%s\n", error);
      return 1;
    }
    the_tested_part.close(one);
    the_tested_part.close(two);
  }
  puts("ok");
  return 0;
}
