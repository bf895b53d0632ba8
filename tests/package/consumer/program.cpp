#include <iostream>

#include "client/client.h"

// Opens a bundle that does not exist: the way down to the library and its error back.
int main() {
  auto client =
      tilewright::client::Client::open({.bundle = "not_there.jsonl", .device = "virtual"});
  if (client) {
    std::cerr << "opened\n";
    return 1;
  }
  std::cout << client.error().message << "\n";
}
