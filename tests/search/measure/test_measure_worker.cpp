// A measuring worker that is out of order the first time it is started, or says that its device is a
// real one:
//   test_measure_worker faults RULES FILE   as the real one, with faults on request while FILE is
//                                           there, which it removes
//   test_measure_worker real UUID           opens a device of that name, and measures nothing
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "jit/child_process.h"
#include "jit/frame.h"
#include "search/measure/wire.h"
#include "search/measure/worker.h"

using namespace tilewright;

namespace {

int pretend(const std::string& uuid) {
  const int socket = jit::ChildProcess::kSocket;
  for (;;) {
    const auto request = jit::read_frame(socket);
    if (!request || !*request) return 0;
    search::wire::OpenedT opened;
    opened.name = "a device";
    opened.uuid = uuid;
    opened.shared = true;
    search::wire::FrameT reply;
    reply.body.Set(std::move(opened));
    if (!jit::write_frame(socket, search::pack_frame(reply))) return 1;
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  if (mode == "real" && count == 3) return pretend(arguments[2]);
  if (mode != "faults" || count != 4) return 2;
  if (::unlink(arguments[3]) == 0) ::setenv("TILEWRIGHT_VGPU_FAULTS", arguments[2], 1);
  return search::serve_measurements(jit::ChildProcess::kSocket);
}
