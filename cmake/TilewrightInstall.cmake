# The installed tree and its exported package.
include_guard()
