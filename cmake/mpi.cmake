# The program trains, and divides models, on several processes where MPI is installed; the library knows nothing of it.
if(SKV_MPI STREQUAL "AUTO")
  find_package(MPI QUIET COMPONENTS C)
elseif(SKV_MPI)
  find_package(MPI REQUIRED COMPONENTS C)
endif()
if(MPI_C_FOUND AND SKV_MPI)
  # Of this file alone, so that a build from before MPI was installed keeps its other objects.
  list(TRANSFORM MPI_C_INCLUDE_DIRS PREPEND "-isystem;" OUTPUT_VARIABLE mpi_includes)
  set_source_files_properties(cli/team_mpi.c PROPERTIES COMPILE_DEFINITIONS SKV_MPI
    COMPILE_OPTIONS "${mpi_includes};${MPI_C_COMPILE_OPTIONS}")
  target_link_libraries(swiftkv PRIVATE ${MPI_C_LIBRARIES} ${MPI_C_LINK_FLAGS})
endif()
