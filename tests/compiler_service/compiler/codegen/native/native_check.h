/* native_check.h - a driver ends where something is not as it should be. */
#ifndef INGOT_NATIVE_CHECK_H
#define INGOT_NATIVE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "%s:%d: %s fails\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                              \
    }                                                                       \
  } while (0)

#endif
