# The installed tree: runs from any folder. And the package `tilewright`, for find_package.
#
#   bin/                    programs: what they start or open they find beside themselves or in ../lib
#   lib/                    client library, virtual GPU
#   include/                headers of the client
#   share/tilewright/       configs, kernel templates
#   lib/cmake/tilewright/   tilewright::client
include_guard()
include(CMakePackageConfigHelpers)

# Programs and shared objects; a part of the tree that is not built yet is not installed.
set(TILEWRIGHT_PROGRAMS tilewright tilewrightd tilewright-compile-worker tilewright-measure-worker
    tilewright-bundle-run)
set(TILEWRIGHT_SHARED tilewright_vgpu)
add_custom_target(tilewright_programs)
foreach(program ${TILEWRIGHT_PROGRAMS} ${TILEWRIGHT_SHARED})
  if(TARGET ${program})
    add_dependencies(tilewright_programs ${program})
    install(TARGETS ${program}
      RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()

set(TILEWRIGHT_DATADIR ${CMAKE_INSTALL_DATADIR}/tilewright)
install(DIRECTORY configs DESTINATION ${TILEWRIGHT_DATADIR})
install(DIRECTORY templates/device templates/kernels DESTINATION ${TILEWRIGHT_DATADIR}/templates
  FILES_MATCHING PATTERN *.cuh)
install(FILES LICENSE DESTINATION ${TILEWRIGHT_DATADIR})
