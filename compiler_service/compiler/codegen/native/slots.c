/* slots.c - memory of buffers whose sizes only the run knows: each slot grows as needed and is kept for later runs. */
#include "runtime.h"

#include <string.h>

#define FIRST_KEPT 4096 /* bytes of a slot that has begun to grow step by step */

static int grow(ingot_slot *slot, size_t bytes, int keep) {
  char *block = ingot_allocate(bytes);
  if (!block) return 0;
  size_t kept = (size_t)slot->size < bytes ? (size_t)slot->size : bytes;
  if (keep && kept) memcpy(block, slot->data, kept);
  ingot_free(slot->data, (size_t)slot->size);
  slot->data = block;
  slot->size = (int64_t)bytes;
  return 1;
}

int32_t ingot_reserve(ingot_slot *slot, int64_t bytes, int32_t keep, size_t most) {
  if (bytes < 0 || (uint64_t)bytes > SIZE_MAX / 2 || (uint64_t)bytes > most) return 0;
  if (INGOT_KEEPS_MEMORY && bytes <= slot->size && slot->data) return 1;
  /* What grows row by row doubles, so that copying stays linear in the final size. */
  size_t wanted = (size_t)bytes, doubled = INGOT_KEEPS_MEMORY ? (size_t)slot->size * 2 : 0;
  if (INGOT_KEEPS_MEMORY && doubled < FIRST_KEPT) doubled = FIRST_KEPT;
  if (keep && doubled > wanted && doubled <= most && grow(slot, doubled, keep)) return 1;
  return grow(slot, wanted, keep);
}

size_t ingot_slots_size(const ingot_slot *slots, int32_t count) {
  size_t size = 0;
  for (int32_t i = 0; i < count; i++) size += (size_t)slots[i].size;
  return size;
}

void ingot_free_slots(ingot_slot *slots, int32_t count) {
  for (int32_t i = 0; slots && i < count; i++) {
    ingot_free(slots[i].data, (size_t)slots[i].size);
    slots[i].data = NULL;
    slots[i].size = 0;
  }
}
