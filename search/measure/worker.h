/// The other side of measure_in_process: what `tilewright-measure-worker` runs.
#pragma once

namespace tilewright::search {

/// Serves frames on `socket` (jit::ChildProcess::kSocket) until the other end closes it; then, or when the process at the other
/// end dies, this process ends, also in the middle of a launch that hangs. Returns its exit status.
int serve_measurements(int socket);

}  // namespace tilewright::search
