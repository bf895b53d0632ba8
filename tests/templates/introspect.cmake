tilewright_test(introspect_test
  LABELS unit
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/introspect_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/shipped_templates_test.cpp
  LIBRARIES tilewright::introspect)
target_link_options(introspect_test PRIVATE -Wl,--gc-sections)

tilewright_test(compile_worker_test
  LABELS unit
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/compile_worker_test.cpp
  LIBRARIES tilewright::introspect_description tilewright::jit_compiler)
add_dependencies(compile_worker_test tilewright-compile-worker)
