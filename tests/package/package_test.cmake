# cmake -D BUILD=... -D CONSUMER=... -D WORK=... -D CXX=... -P package_test.cmake
set(ENV{TILEWRIGHT_CONFIGS})  # what is installed has to be found by itself

function(must_run name expected)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output
                  RESULT_VARIABLE status WORKING_DIRECTORY /)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${name} exits with ${status}:\n${output}")
  endif()
  if(NOT output MATCHES "${expected}")
    message(FATAL_ERROR "${name} says:\n${output}\nexpected: ${expected}")
  endif()
  message(STATUS "${name}: as expected")
endfunction()

file(REMOVE_RECURSE ${WORK}/first ${WORK}/moved ${WORK}/consumer ${WORK}/c_consumer)
must_run("install" "" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/moved)
set(tree ${WORK}/moved)

must_run("the installed command" "[0-9]+\\.[0-9]+\\.[0-9]+" ${tree}/bin/tilewright --version)
must_run("the installed command finds its configs and the virtual GPU" "virtual"
         ${tree}/bin/tilewright --no-daemon --device virtual:h200 devices)
must_run("configure" "Build files have been written"
         ${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/consumer -G Ninja
         -D CMAKE_PREFIX_PATH=${tree} -D CMAKE_CXX_COMPILER=${CXX})
must_run("build" "" ${CMAKE_COMMAND} --build ${WORK}/consumer)
must_run("the C program" "tilewright 2" ${WORK}/consumer/c_program)
must_run("the C++ program" "not_there" ${WORK}/consumer/cpp_program)
must_run("configure without C++" "Build files have been written"
         ${CMAKE_COMMAND} -S ${CONSUMER}/../c_consumer -B ${WORK}/c_consumer -G Ninja
         -D CMAKE_PREFIX_PATH=${tree})
must_run("build without C++" "" ${CMAKE_COMMAND} --build ${WORK}/c_consumer)
must_run("the C program without C++" "tilewright 2" ${WORK}/c_consumer/c_program)
