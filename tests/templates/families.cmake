# Families: what they accept, refuse, write, and what NVRTC makes of it.
tilewright_test(families_test LABELS unit
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/families_accepts_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/families_config_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/families_names_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/generator_digest_test.cpp
  LIBRARIES tilewright::templates tilewright::yaml)

tilewright_test(generate_test LABELS unit
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/generate_golden_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/generate_plan_test.cpp
  LIBRARIES tilewright::templates tilewright::yaml nlohmann_json::nlohmann_json)

tilewright_test(kernels_test LABELS unit
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/kernels_compile_test.cpp
  LIBRARIES tilewright::templates tilewright::jit_compiler tilewright::vgpu_machine tilewright::yaml)

# Run on the virtual GPU, by the bench of tests/integration.
if(TARGET tilewright::verify AND TARGET tilewright-compile-worker)
  tilewright_test(math_test LABELS virtual
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/math_test.cpp
    LIBRARIES tilewright_integration_bench)
  add_dependencies(math_test tilewright_vgpu tilewright-compile-worker)
endif()
