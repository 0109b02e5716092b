// The communicators' bench over MPI: collectives_mpi REPETITIONS BYTES... See collectives.cpp.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, OPERATIONS };
static const char* const names[OPERATIONS] = {"all_reduce", "reduce_scatter", "all_gather"};

static double once(int operation, float* whole, float* part, int elements) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (operation == ALL_REDUCE) MPI_Allreduce(MPI_IN_PLACE, whole, elements * size, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
  if (operation == REDUCE_SCATTER) MPI_Reduce_scatter_block(whole, part, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (operation == ALL_GATHER) MPI_Allgather(part, elements, MPI_FLOAT, whole, elements, MPI_FLOAT, MPI_COMM_WORLD);
  return MPI_Wtime() - begin;
}

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int repetitions = atoi(arguments[1]);
  for (int index = 2; index < count; ++index) {
    int elements = (int)(atoll(arguments[index]) / 4 / size);
    if (elements < 1) elements = 1;
    float* whole = malloc((size_t)elements * (size_t)size * sizeof(float));
    float* part = malloc((size_t)elements * sizeof(float));
    for (int i = 0; i < elements * size; ++i) whole[i] = 1;
    for (int i = 0; i < elements; ++i) part[i] = 1;
    if (rank == 0) printf("{\"bytes\": %zu", (size_t)elements * (size_t)size * sizeof(float));
    for (int operation = 0; operation < OPERATIONS; ++operation) {
      if (rank == 0) printf(", \"%s\": [", names[operation]);
      for (int repetition = 0; repetition < repetitions; ++repetition) {
        const double seconds = once(operation, whole, part, elements);
        if (rank == 0) printf("%s%.9f", repetition == 0 ? "" : ", ", seconds);
      }
      if (rank == 0) printf("]");
    }
    if (rank == 0) printf("}\n");
    free(whole);
    free(part);
  }
  MPI_Finalize();
  return 0;
}
