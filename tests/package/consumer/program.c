#include <stdio.h>

#include "client/tilewright.h"

int main(void) {
  printf("tilewright %d\n", tw_version());
  return tw_version() == TW_VERSION ? 0 : 1;
}
