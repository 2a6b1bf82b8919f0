/* ingot_part.h - what a code generator hands in for its part of a model: an object that exports one ingot_part.
 *
 *   const ingot_part SYMBOL = {open, run, close};
 *
 * `open` is called once for each loaded model, before its first run, and is where constants are packed and libraries found; `run`
 * for each run that reaches the part, never at once with another call on the same `state`. What fails returns an ingot_status other
 * than INGOT_OK, leaves nothing behind and says in `error`, INGOT_PART_ERROR_BYTES long, what was expected and received. `open` and `close` may be NULL. */
#ifndef INGOT_PART_H
#define INGOT_PART_H

#include <stdint.h>

#define INGOT_PART_ERROR_BYTES 1024

typedef struct {
  /* `constants`: row-major, 64-byte aligned, in the order of the part's; they stay where they are until `close`. `threads`: as many
   * as the model may use. `*state` is what the other two are called with. */
  int32_t (*open)(const void *const *constants, int32_t threads, void **state, char *error);
  /* `buffers`: the part's inputs, its constants, its result, row-major. `symbols`: its symbols, in the order in which they first
   * stand in the shapes of its inputs. */
  int32_t (*run)(void *state, void *const *buffers, const int64_t *symbols, char *error);
  void (*close)(void *state);
} ingot_part;

#endif
