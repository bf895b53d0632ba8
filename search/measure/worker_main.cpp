// tilewright-measure-worker: measures trials for the process that started it. Not for people.
#include "search/measure/worker.h"

int main() { return tilewright::search::serve_measurements(tilewright::search::kWorkerSocket); }
