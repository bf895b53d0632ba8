// tilewright-measure-worker: measures trials for the process that started it. Not for people.
#include "jit/child_process.h"
#include "search/measure/worker.h"

int main() {
  return tilewright::search::serve_measurements(tilewright::jit::ChildProcess::kSocket);
}
