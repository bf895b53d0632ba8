# The operator language and its evaluator.
tilewright_test(operator_test LABELS unit
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/operator_canonical_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/operator_errors_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/operator_file_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/operator_group_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/operator_models_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/operator_sizes_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/operator_verify_test.cpp
  LIBRARIES tilewright::operator tilewright::jit_core tilewright::yaml)

tilewright_test(evaluate_test LABELS unit
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/evaluate_test.cpp
  LIBRARIES tilewright::operator tilewright::jit_core)
