// tests/package/consumer.c -- What a C program does with an installed libvitune. 0 if all holds.
//
// Without a GPU a context must fail with a status and a sentence; with one it must come and go.
#include <stdio.h>
#include <string.h>
#include <vitune/vitune.h>

static int fail(const char* what) {
  fprintf(stderr, "consumer.c: %s\n", what);
  return 1;
}

int main(void) {
  vitune_context* context = NULL;
  vitune_status status;
  if (vitune_version() !=
      VITUNE_VERSION_MAJOR * 10000 + VITUNE_VERSION_MINOR * 100 + VITUNE_VERSION_PATCH) {
    return fail("the library is not of the header's version");
  }
  if (strcmp(vitune_status_name(VITUNE_NO_DEVICE), "VITUNE_NO_DEVICE") != 0) {
    return fail("a status has not its name");
  }
  status = vitune_context_create(NULL, &context);
  if (status == VITUNE_OK) {
    if (vitune_context_destroy(context) != VITUNE_OK) return fail(vitune_last_error());
    printf("a context came and went\n");
    return 0;
  }
  if (status != VITUNE_NO_DEVICE) return fail(vitune_last_error());
  if (context != NULL) return fail("a context in spite of a failure");
  if (strlen(vitune_last_error()) < 20) return fail("no sentence on why there is no device");
  printf("%s: %s\n", vitune_status_name(status), vitune_last_error());
  return 0;
}
